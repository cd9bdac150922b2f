"""What tests of files need of the host: users without privileges, private mounts, tools. Or the reason to skip."""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import pytest

import runguard


def tool(name: str) -> str:
    """Return the path of a program; a missing one fails where CI is set, and skips elsewhere."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if not found:
        reason = f"{name} is not installed; tests/run says how to get it"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return found


def need_root() -> None:
    """Skip unless this user may become others."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user, give files away and mount")


@functools.cache
def _why_not(*words: str) -> str | None:
    result = subprocess.run(words, check=False, capture_output=True, text=True)
    return None if result.returncode == 0 else result.stderr.strip() or f"{words[0]} failed"


def private(setup: str, *words: str | bytes) -> list[str | bytes]:
    """Return words that run `words` after the shell commands `setup`, whose mounts nobody else sees."""
    need_root()
    prefix = [tool("unshare"), "--mount", "--propagation", "private", "sh", "-ec"]
    why_not = _why_not(*prefix, "mount -t tmpfs tmpfs /mnt")
    if why_not:
        pytest.skip(f"private mounts are not permitted here: {why_not}")
    return [*prefix, f'{setup}\nexec "$@"', "sh", *words]


def traced(*words: str | bytes, error: str, call: str = "flock") -> list[str | bytes]:
    """Return words that run `words` while every system call of a kind fails with this error."""
    prefix = [tool("strace"), "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    why_not = _why_not(*prefix, "true")
    if why_not:
        pytest.skip(f"strace is not permitted here: {why_not}")
    return [*prefix, "-e", f"inject={call}:error={error}", *words]


class Nobody:
    """runguard as a user without privileges runs it, from a copy: the checkout may be out of reach."""

    def __init__(self) -> None:
        need_root()
        self.user = pwd.getpwnam("nobody")
        self.directory = Path(tempfile.mkdtemp(prefix="rg-n-", dir="/tmp"))
        self.directory.chmod(0o755)
        atexit.register(shutil.rmtree, self.directory, ignore_errors=True)
        for package in (runguard, click):
            source = Path(package.__file__ or "").parent
            shutil.copytree(source, self.directory / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        self.environment = {"PYTHONPATH": str(self.directory), "PATH": os.environ["PATH"]}
        self._become = [tool("setpriv"), f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--clear-groups"]
        pythons = [sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"]
        self._python = next(filter(self._can_run, pythons), None)
        if self._python is None:
            pytest.skip(f"no Python of 3.10 or newer that the user nobody can run, of {', '.join(pythons)}")

    def _can_run(self, python: str) -> bool:
        words = self.words(python, "-c", "import sys, runguard.cli; assert sys.version_info >= (3, 10)")
        return subprocess.run(words, check=False, capture_output=True, env=self.environment, cwd="/").returncode == 0

    def words(self, *words: str | bytes) -> list[str | bytes]:
        """Return words that run `words` as this user."""
        return [*self._become, *words]

    @property
    def command(self) -> list[str | bytes]:
        """Return the words that run runguard as this user; it needs `environment`, and `/` as working directory."""
        assert self._python
        return self.words(self._python, "-m", "runguard")

    def __call__(
        self, *words: str | bytes, setup: str = "", environment: dict[str, str] | None = None, umask: int = -1
    ) -> subprocess.CompletedProcess[bytes]:
        """Run runguard to its end as this user; `setup` makes mounts before, as root."""
        command = [*self.command, *words]
        return subprocess.run(
            private(setup, *command) if setup else command,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=self.environment | (environment or {}),
            cwd="/",
            umask=umask,
            timeout=60,
        )

    def own(self, path: Path) -> Path:
        """Give a path to this user."""
        os.chown(path, self.user.pw_uid, self.user.pw_gid, follow_symlinks=False)
        return path


@functools.cache
def nobody() -> Nobody:
    """Return the user without privileges."""
    return Nobody()


def tree(directory: Path) -> dict[str, tuple[int, int, int, int]]:
    """Return all that is below a directory: mode, owner, size and time of change of content, by path."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        found[str(path.relative_to(directory))] = (status.st_mode, status.st_uid, status.st_size, status.st_mtime_ns)
    return found
