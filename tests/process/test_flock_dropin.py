"""What flock(1) documents for `flock [options] FILE COMMAND` holds for six lines of shell on top of runguard."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from conftest import COMMAND, PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Runguard

FLOCK = str(PROGRAMS / "flock")
REAL = "/usr/bin/flock"
BOTH_WAYS = pytest.mark.parametrize(("holder", "asker"), [(FLOCK, REAL), (REAL, FLOCK), (FLOCK, FLOCK)])


@pytest.fixture
def environment(runguard: Runguard, tmp_path: Path) -> dict[str, str]:
    """Return an environment in which the drop-in finds runguard."""
    programs = tmp_path / "bin"
    programs.mkdir()
    command = programs / "runguard"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    return runguard.environment | {"PATH": f"{programs}:/usr/bin:/bin", "SHELL": "/bin/sh"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the path of a lock file that is not there yet."""
    return tmp_path / "lock file"


class Flock:
    """Starts flock(1), or what stands for it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.holders: list[subprocess.Popen[bytes]] = []

    def __call__(self, *words: str) -> tuple[int, bytes]:
        """Run it to its end; return the exit code and what it printed."""
        result = subprocess.run(words, check=False, env=self.environment, capture_output=True, timeout=60)
        return result.returncode, result.stdout

    def hold(self, *words: str) -> Callable[[], int]:
        """Hold a lock until the function that is returned is called; it returns the exit code."""
        process = subprocess.Popen(
            [*words, "sh", "-c", "echo held; read line; exit 0"],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.holders.append(process)
        assert process.stdout
        assert process.stdout.readline() == b"held\n"

        def end() -> int:
            process.communicate(timeout=30)
            return process.returncode

        return end


@pytest.fixture
def flock(environment: dict[str, str]) -> Iterator[Flock]:
    """Return a way to run the real program and its stand-in."""
    runner = Flock(environment)
    yield runner
    for process in runner.holders:
        if process.poll() is None:
            process.communicate(timeout=30)


def test_the_stand_in_is_six_lines() -> None:
    """The stand-in has six lines, no more, and is a script for any POSIX shell."""
    with open(FLOCK, encoding="utf-8") as text:
        lines = text.readlines()
    assert len(lines) == 6
    assert lines[0] == "#!/bin/sh\n"


@BOTH_WAYS
def test_exclusive_locks_exclude(flock: Flock, file: Path, holder: str, asker: str) -> None:
    """While one holds the file, `-n` of the other fails at once with 1; afterwards it runs."""
    end = flock.hold(holder, str(file))
    assert flock(asker, "-n", str(file), "echo", "ran") == (1, b"")
    assert flock(asker, "-n", "-s", str(file), "echo", "ran") == (1, b"")
    assert end() == 0
    assert flock(asker, "-n", str(file), "echo", "ran") == (0, b"ran\n")


@BOTH_WAYS
def test_shared_locks_share(flock: Flock, file: Path, holder: str, asker: str) -> None:
    """Two shared holders run together, and an exclusive one is refused as long as one of them is there."""
    first, second = flock.hold(holder, "-s", str(file)), flock.hold(asker, "-s", str(file))
    assert flock(asker, "-n", "-x", str(file), "true") == (1, b"")
    assert first() == 0
    assert flock(holder, "-n", str(file), "true") == (1, b"")
    assert second() == 0
    assert flock(holder, "-n", str(file), "true") == (0, b"")


@BOTH_WAYS
def test_a_limited_wait_expires(flock: Flock, file: Path, holder: str, asker: str) -> None:
    """`-w` waits as long as it says and then fails with 1, or with the code that `-E` names."""
    end = flock.hold(holder, str(file))
    begun = time.monotonic()
    assert flock(asker, "-w", "0.4", str(file), "echo", "ran") == (1, b"")
    assert flock(asker, "-w", "0.4", "-E", "9", str(file), "echo", "ran") == (9, b"")
    assert time.monotonic() - begun >= 0.8
    assert flock(asker, "-n", "-E", "0", str(file), "echo", "ran") == (0, b"")
    assert end() == 0


@BOTH_WAYS
def test_without_options_it_waits(flock: Flock, file: Path, holder: str, asker: str) -> None:
    """Without options the command runs as soon as the holder has ended, however long that takes."""
    end = flock.hold(holder, str(file))
    waiter = subprocess.Popen(
        [asker, str(file), "echo", "ran"], env=flock.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    flock.holders.append(waiter)
    with pytest.raises(subprocess.TimeoutExpired):
        waiter.wait(0.5)
    assert end() == 0
    assert waiter.communicate(timeout=30)[0] == b"ran\n"
    assert waiter.returncode == 0


@pytest.mark.parametrize("program", [FLOCK, REAL])
def test_codes_words_and_shell_strings(flock: Flock, file: Path, program: str) -> None:
    """The command's code comes back, its options stay its own, and `-c` gives a string to the shell."""
    assert flock(program, str(file), "sh", "-c", "exit 7") == (7, b"")
    assert flock(program, str(file), "echo", "-n", "-w", "--help", "a  b") == (0, b"-w --help a  b")
    assert flock(program, str(file), "-c", "echo $((40 + 2)); exit 3") == (3, b"42\n")


@pytest.mark.parametrize("program", [FLOCK, REAL])
def test_it_is_directly_the_parent(flock: Flock, file: Path, program: str) -> None:
    """The command's parent is the process that was started."""
    process = subprocess.Popen(
        [program, str(file), "sh", "-c", "echo $PPID"], env=flock.environment, stdout=subprocess.PIPE
    )
    assert process.communicate(timeout=30)[0] == b"%d\n" % process.pid


@pytest.mark.parametrize("program", [FLOCK, REAL])
def test_no_fork_holds_the_lock_itself(flock: Flock, file: Path, program: str) -> None:
    """With `-F` the command is the process that was started, and it has the lock as long as it runs."""
    script = f"echo $$; {FLOCK} -n {shlex.quote(str(file))} true; echo $?; exit 5"
    process = subprocess.Popen(
        [program, "-F", str(file), "sh", "-c", script], env=flock.environment, stdout=subprocess.PIPE
    )
    assert process.communicate(timeout=30)[0] == b"%d\n1\n" % process.pid
    assert process.returncode == 5
    assert flock(REAL, "-n", str(file), "true") == (0, b"")


@pytest.mark.parametrize(
    ("content", "mode"),
    [(b"", 0o600), (b"4711\n", 0o644), (b"\0\xff" * 5000, 0o660), (b"pid=1\nhost=elsewhere\n", 0o400)],
    ids=["empty", "pid", "bytes", "read-only"],
)
def test_an_existing_file_is_left_as_it_was(flock: Flock, file: Path, content: bytes, mode: int) -> None:
    """A file that is there keeps its content, time, mode and identity, whatever happens to the lock."""
    file.write_bytes(content)
    os.utime(file, ns=(1_000_000_000, 1_000_000_000))
    file.chmod(mode)
    before = file.stat()
    end = flock.hold(FLOCK, str(file))
    assert flock(FLOCK, "-n", str(file), "true") == (1, b"")
    assert flock(FLOCK, "-s", "-w", "0.1", str(file), "true") == (1, b"")
    assert end() == 0
    after = file.stat()
    for field in ("st_ino", "st_size", "st_mtime_ns", "st_ctime_ns", "st_mode", "st_nlink"):
        assert getattr(after, field) == getattr(before, field)
    assert file.read_bytes() == content


def test_a_missing_file_is_made_for_us_alone(flock: Flock, file: Path) -> None:
    """A lock file that is missing is made with mode 0600, whatever the umask, and stays empty."""
    words = ["sh", "-c", 'umask 0; exec "$@"', "sh", FLOCK, str(file), sys.executable, "-c", ""]
    assert flock(*words) == (0, b"")
    assert (file.stat().st_mode & 0o7777, file.read_bytes()) == (0o600, b"")
