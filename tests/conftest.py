"""Private servers on free ports and sockets, a fresh lock directory for each test, an environment without RUNGUARD_*.

A server that cannot be had fails the test where the variable CI is set, and skips it, loudly, elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from servers import Galera, MariaDB, Missing, PgBouncer, Postgres, scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMMAND = [sys.executable, "-m", "runguard"]
PROGRAMS = Path(__file__).parent / "programs"


class Runguard:
    """The command under test, with an environment of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(
        self, *words: str | bytes, timeout: float = 60, environment: dict[str, str] | None = None, **more: object
    ) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        return subprocess.run(
            [*COMMAND, *words],
            check=False,
            env=self.environment | (environment or {}),
            timeout=timeout,
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more,  # type: ignore[call-overload]
        )

    def start(
        self, *words: str | bytes, environment: dict[str, str] | None = None, **more: object
    ) -> subprocess.Popen[bytes]:
        """Start it and go on."""
        process = subprocess.Popen(
            [*COMMAND, *words],
            env=self.environment | (environment or {}),
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more,  # type: ignore[call-overload]
        )
        self._started.append(process)
        return process

    def end_all(self) -> None:
        """End what is left of all that was started, and close its pipes."""
        for process in self._started:
            end_with_children(process)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


def clean_environment(lock_directory: Path) -> dict[str, str]:
    """Return this environment without what would change a run, and with a lock directory."""
    foreign = ("RUNGUARD_", "PG", "MYSQL", "MARIADB", "PYTHON", "INVOCATION_ID", "MANAGERPID")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"RUNGUARD_LOCK_DIR": str(lock_directory)}


@pytest.fixture
def lock_directory(tmp_path: Path) -> Path:
    """Return a lock directory that nobody else uses."""
    directory = tmp_path / "locks"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def runguard(lock_directory: Path, tmp_path: Path) -> Iterator[Runguard]:
    """Return the command, with an empty home and no configuration."""
    home = tmp_path / "home"
    home.mkdir()
    command = Runguard(clean_environment(lock_directory) | {"HOME": str(home)})
    yield command
    command.end_all()


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the settings of whoever runs the tests out of them."""
    for name in list(os.environ):
        if name.startswith(("RUNGUARD_", "PG", "MYSQL", "MARIADB")):
            monkeypatch.delenv(name)
    locks = tmp_path / "own-locks"
    locks.mkdir(mode=0o700)
    monkeypatch.setenv("RUNGUARD_LOCK_DIR", str(locks))


def eventually(check: Callable[[], object], *, seconds: float = 20) -> object:
    """Return the first true answer of `check`; fail if there is none in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if answer := check():
            return answer
        time.sleep(0.01)
    pytest.fail(f"did not happen within {seconds} s: {check}")


def helper(name: str, *words: str) -> list[str]:
    """Return the words that run one of the small programs beside the tests."""
    return [sys.executable, "-S", "-E", str(PROGRAMS / name), *words]


def state(pid: int) -> str:
    """Return the letter that /proc/PID/stat gives a process, an empty string for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    """Say whether a process is there; a zombie is not."""
    return state(pid) not in {"", "Z", "X"}


def children(pid: int) -> list[int]:
    """Return the pids of the children of a process, zombies included."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def end_with_children(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that is still there, and all that it started."""
    if process.poll() is None:
        found = [process.pid]
        for pid in found:
            found += children(pid)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _server(start: Callable[[], object]) -> object:
    try:
        return start()
    except Missing as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDB]:
    """Start a private MariaDB for the session."""
    with scratch("m") as directory:
        server = _server(lambda: MariaDB(directory))
        assert isinstance(server, MariaDB)
        yield server
        server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Start a private PostgreSQL for the session."""
    with scratch("p") as directory:
        server = _server(lambda: Postgres(directory))
        assert isinstance(server, Postgres)
        yield server
        server.stop()


@pytest.fixture
def galera() -> Iterator[Galera]:
    """Start a Galera node for one test."""
    with scratch("g") as directory:
        server = _server(lambda: Galera(directory))
        assert isinstance(server, Galera)
        yield server
        server.stop()


@pytest.fixture
def pgbouncer(postgres: Postgres) -> Iterator[Callable[..., PgBouncer]]:
    """Return a way to put a pooler in front of PostgreSQL."""
    with scratch("b") as directory:
        started: list[PgBouncer] = []

        def start(mode: str, **settings: object) -> PgBouncer:
            server = _server(lambda: PgBouncer(directory / mode, postgres, mode, **settings))
            assert isinstance(server, PgBouncer)
            started.append(server)
            return server

        yield start
        for server in started:
            server.stop()
