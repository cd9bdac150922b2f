"""One lock for several hosts: what they share is the server alone."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from claims import Holder
from conftest import COMMAND, Runguard, clean_environment, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from servers import MariaDB, Postgres

_NAMESPACES = ("unshare", "--mount", "--uts", "--propagation", "private", "sh", "-ec")
_SETUP = 'mount -t tmpfs -o mode=0755 tmpfs /run\nmkdir -m 1777 /run/lock\nhostname "$1"\nshift\nexec "$@"'


@pytest.fixture(params=["mariadb", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of each of the servers."""
    server: MariaDB | Postgres = request.getfixturevalue(request.param)
    return server.url


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    return f"hosts.{abs(hash(request.node.name)):x}"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Runguard]]:
    """Return runguard twice, with lock directories that have nothing in common."""
    made = []
    for host in ("one", "two"):
        (tmp_path / host).mkdir(mode=0o700)
        made.append(Runguard(clean_environment(tmp_path / host) | {"HOME": str(tmp_path)}))
    yield made
    for each in made:
        each.end_all()


def test_two_lock_directories(hosts: list[Runguard], url: str, name: str) -> None:
    """While one host runs the command, another that shares no file with it is refused, and runs afterwards."""
    one, two = hosts
    holder = Holder(one, url, name)
    refused = two("run", "-b", url, name, "--", "echo", "ran")
    assert (refused.returncode, refused.stdout) == (75, b"")
    assert two("test", "-b", url, name).returncode == 75
    assert holder.end() == (0, b"")
    assert two("run", "-b", url, name, "--", "echo", "ran").stdout == b"ran\n"


def test_hosts_that_start_together(hosts: list[Runguard], url: str, name: str, tmp_path: Path) -> None:
    """Of hosts that start at one moment one runs and the others are refused, by the room that only one can enter."""
    room = tmp_path / "room"
    command = ("sh", "-c", f'mkdir "{room}" && read line; rmdir "{room}"')
    started = [host.start("run", "-b", url, name, "--", *command, stdin=subprocess.PIPE) for host in hosts * 2]
    assert eventually(lambda: sum(process.poll() is not None for process in started) == len(started) - 1)
    (winner,) = [process for process in started if process.poll() is None]
    assert room.is_dir()
    codes = []
    for process in started:
        _, said = process.communicate(timeout=30)
        assert said == b""
        codes.append(process.returncode)
    assert winner.returncode == 0
    assert sorted(codes) == [0, 75, 75, 75]


def _host(called: str, *words: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*_NAMESPACES, _SETUP, "sh", called, *COMMAND, *words],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def _namespaces() -> None:
    """Skip where this user may not make hosts out of namespaces."""
    probe = [*_NAMESPACES, _SETUP, "sh", "probe", "true"]
    made = subprocess.run(probe, check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"namespaces are not permitted here: {made.stderr.decode().strip()}")


@pytest.mark.usefixtures("_namespaces")
def test_hosts_of_namespaces(url: str, name: str, tmp_path: Path) -> None:
    """Hosts with a name, a /run and with it the default lock directory of their own exclude each other."""
    environment = clean_environment(tmp_path) | {"HOME": str(tmp_path)}
    del environment["RUNGUARD_LOCK_DIR"]
    words = ("run", "-v", "-b", url, name, "--")
    program = "import os, sys; print(os.uname().nodename, flush=True); sys.stdin.read()"
    one = _host("one", *words, sys.executable, "-c", program, environment=environment)
    with contextlib.ExitStack() as stack:
        stack.enter_context(one)
        stack.callback(one.kill)
        assert one.stdout
        assert one.stdout.readline() == b"one\n"
        two = _host("two", *words, "echo", "ran", environment=environment)
        out, said = two.communicate(timeout=30)
        assert (two.returncode, out) == (75, b""), said
        waiter = _host("two", "run", "-b", url, "-w", "60", name, "--", "uname", "-n", environment=environment)
        one.communicate(timeout=30)
        assert one.returncode == 0
        out, said = waiter.communicate(timeout=60)
        assert (waiter.returncode, out) == (0, b"two\n"), said
