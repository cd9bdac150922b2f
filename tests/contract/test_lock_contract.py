"""What every lock promises, checked on every backend with real processes and real servers."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest
from conftest import eventually

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from conftest import Runguard

BACKENDS = ("file", "mariadb", "mariadb-socket", "postgresql", "pgbouncer-session")
WITH_SHARED = ("file", "postgresql")


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of the backend that a test is run on."""
    match request.param:
        case "file":
            return "file:"
        case "mariadb":
            return request.getfixturevalue("mariadb").url
        case "mariadb-socket":
            return request.getfixturevalue("mariadb").socket_url
        case "postgresql":
            return request.getfixturevalue("postgres").url
        case _:
            return request.getfixturevalue("pgbouncer")("session", pool_size=12).url


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    return f"contract.{abs(hash(request.node.name)):x}"


def until_waiting(waiter: subprocess.Popen[bytes]) -> None:
    """Return once a verbose run says that it waits."""
    assert waiter.stderr
    assert any(b"waiting" in line for line in waiter.stderr)


on_every_backend = pytest.mark.parametrize("url", BACKENDS, indirect=True)


class Holder:
    """A run that holds a lock until it is told to end."""

    def __init__(self, runguard: Runguard, url: str, name: str, *options: str) -> None:
        self.process = runguard.start(
            "run", "-b", url, *options, name, "--", "sh", "-c", "echo held; read line; exit 0", stdin=-1
        )
        assert self.process.stdout
        assert self.process.stdout.readline() == b"held\n", self.process.communicate()

    def end(self) -> int:
        """Let the command end by itself."""
        assert self.process.stdin
        self.process.stdin.close()
        code = self.process.wait(30)
        assert self.process.stdout
        assert self.process.stderr
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@on_every_backend
def test_busy_is_a_conflict_and_free_is_not(runguard: Runguard, url: str, name: str) -> None:
    """While one run holds the lock another is refused with 75 and not started; afterwards it runs."""
    holder = Holder(runguard, url, name)
    refused = runguard("run", "-b", url, name, "--", "echo", "ran")
    assert (refused.returncode, refused.stdout, refused.stderr) == (75, b"", b"")
    assert runguard("test", "-b", url, name).returncode == 75
    assert holder.end() == 0
    ran = runguard("run", "-b", url, name, "--", "echo", "ran")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"ran\n", b"")
    assert runguard("test", "-b", url, name).returncode == 0


@on_every_backend
def test_other_names_are_other_locks(runguard: Runguard, url: str, name: str) -> None:
    """A lock excludes nobody who asks for another name."""
    holder = Holder(runguard, url, name)
    assert runguard("run", "-b", url, name + ".other", "true").returncode == 0
    assert holder.end() == 0


@on_every_backend
@pytest.mark.parametrize("length", [1, 64])
def test_names_of_every_length(runguard: Runguard, url: str, length: int) -> None:
    """The shortest and the longest name work and exclude."""
    long_name = ("contract-" + "x" * 64)[:length]
    holder = Holder(runguard, url, long_name)
    assert runguard("run", "-b", url, long_name, "true").returncode == 75
    assert holder.end() == 0


@on_every_backend
@pytest.mark.parametrize("seconds", [0.4, 1.2])
def test_waits_take_as_long_as_they_may(runguard: Runguard, url: str, name: str, seconds: float) -> None:
    """A wait that expires has taken its time, and ends with the conflict code and a sentence."""
    holder = Holder(runguard, url, name)
    refused = runguard("run", "--log-format", "json", "-E", "9", "-b", url, "-w", str(seconds), name, "true")
    assert refused.returncode == 9
    import json

    event = json.loads(refused.stderr)
    assert event["event"] == "wait_expired"
    assert seconds <= event["waited_seconds"] < seconds + 15
    assert holder.end() == 0


@on_every_backend
def test_a_wait_of_zero_is_one_try(runguard: Runguard, url: str, name: str) -> None:
    """`--wait 0` asks once: it runs when the lock is free and is refused at once when it is not."""
    assert runguard("run", "-b", url, "-w", "0", name, "true").returncode == 0
    holder = Holder(runguard, url, name)
    assert runguard("run", "-b", url, "-w", "0", name, "true").returncode == 75
    assert holder.end() == 0


@on_every_backend
def test_a_waiter_runs_after_the_holder(runguard: Runguard, url: str, name: str) -> None:
    """Who waits for ever runs as soon as the holder's command has ended."""
    holder = Holder(runguard, url, name)
    waiter = runguard.start("run", "-v", "-b", url, "--wait", "forever", name, "--", "echo", "ran")
    until_waiting(waiter)
    assert waiter.poll() is None
    assert holder.end() == 0
    out, _ = waiter.communicate(timeout=30)
    assert (waiter.returncode, out) == (0, b"ran\n")


@on_every_backend
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_wait_leaves_nothing(runguard: Runguard, url: str, name: str, number: int, code: int) -> None:
    """A signal ends a wait with 128+N within a second or so, and the lock is free once its holder has ended."""
    holder = Holder(runguard, url, name)
    waiter = runguard.start("run", "-v", "-b", url, "--wait", "60", name, "--", "echo", "ran", start_new_session=True)
    until_waiting(waiter)
    begun = time.monotonic()
    waiter.send_signal(number)
    out, err = waiter.communicate(timeout=30)
    assert (waiter.returncode, out) == (code, b"")
    assert time.monotonic() - begun < 5
    assert b"interrupted" in err
    assert holder.end() == 0
    assert runguard("run", "-b", url, name, "true").returncode == 0


@on_every_backend
def test_killed_waiters_are_not_in_the_way(runguard: Runguard, url: str, name: str) -> None:
    """Waiters that were killed do not get the lock before those alive."""
    holder = Holder(runguard, url, name)
    waiters = [runguard.start("run", "-v", "-b", url, "-w", "60", name, "sleep", "60") for _ in range(5)]
    for waiter in waiters:
        until_waiting(waiter)
        waiter.kill()
        waiter.communicate()
    assert holder.end() == 0
    assert runguard("run", "-b", url, "-w", "10", name, "true").returncode == 0


@pytest.mark.parametrize("url", WITH_SHARED, indirect=True)
def test_shared_locks(runguard: Runguard, url: str, name: str) -> None:
    """Sharers run side by side, keep an exclusive run out, and are kept out by one."""
    first, second = Holder(runguard, url, name, "-s"), Holder(runguard, url, name, "--shared")
    assert runguard("run", "-b", url, name, "true").returncode == 75
    assert runguard("test", "-b", url, name).returncode == 75
    assert first.end() == 0
    assert runguard("run", "-b", url, name, "true").returncode == 75
    assert second.end() == 0
    exclusive = Holder(runguard, url, name)
    assert runguard("run", "-s", "-b", url, name, "true").returncode == 75
    assert exclusive.end() == 0


@on_every_backend
def test_a_command_that_cannot_run_gives_the_lock_back(runguard: Runguard, url: str, name: str) -> None:
    """A missing command is 127 and leaves the lock free."""
    missing = runguard("run", "-b", url, name, "--", "no-such-command-anywhere")
    assert missing.returncode == 127
    assert missing.stderr.count(b"\n") == 1
    assert runguard("run", "-b", url, name, "true").returncode == 0


@on_every_backend
def test_killed_with_its_command_the_lock_is_free(runguard: Runguard, url: str, name: str) -> None:
    """A crash of runguard and its command is no obstacle for the next run."""
    process = runguard.start("run", "-b", url, name, "--", "sh", "-c", "echo $$; exec sleep 60")
    assert process.stdout
    command = int(process.stdout.readline())
    process.kill()
    os.kill(command, signal.SIGKILL)
    process.communicate()
    assert eventually(lambda: runguard("run", "-b", url, name, "true").returncode == 0)


@on_every_backend
def test_the_command_inherits_no_connection(runguard: Runguard, url: str, name: str) -> None:
    """The command has the descriptors that runguard was given, and the lock file of a file lock."""
    listed = runguard("run", "-b", url, name, "--", sys.executable, "-c", _LIST_DESCRIPTORS)
    extra = [line for line in listed.stdout.decode().split("\n") if line and not line.startswith(("0 ", "1 ", "2 "))]
    if url == "file:":
        assert len(extra) == 1
        assert extra[0].endswith(f"/{name}.lock")
    else:
        assert extra == []


_LIST_DESCRIPTORS = """
import os
for fd in map(int, os.listdir('/proc/self/fd')):
    try:
        print(fd, os.readlink(f'/proc/self/fd/{fd}'))
    except OSError:
        pass
"""


class Witnesses:
    """Two independent witnesses of who is inside: a directory that exists while somebody is, and a log of stamps."""

    program = """
import os, sys, time
room, log = sys.argv[1:]
enter = time.monotonic_ns()
try:
    os.mkdir(room)
except FileExistsError:
    os.write(2, b'two inside')
    sys.exit(99)
time.sleep(0.002)
os.rmdir(room)
line = f'{enter} {time.monotonic_ns()}\\n'.encode()
fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(fd, line)
"""

    def __init__(self, directory: Path) -> None:
        self.room = directory / "room"
        self.log = directory / "log"
        self.file = directory / "inside.py"
        self.file.write_text(self.program)

    def command(self) -> list[str]:
        """Return the command that goes in and out."""
        return [sys.executable, "-S", "-E", str(self.file), str(self.room), str(self.log)]

    def stays(self) -> list[tuple[int, int]]:
        """Return when each was inside, in order of entry."""
        return sorted(tuple(map(int, line.split())) for line in self.log.read_text().splitlines())  # type: ignore[misc]


_LOOP = """
import subprocess, sys
rounds, *words = sys.argv[1:]
codes = [subprocess.run(words).returncode for _ in range(int(rounds))]
print(codes.count(0), codes.count(75), len(codes))
"""


@pytest.mark.parametrize("url", ["file", "mariadb", "postgresql"], indirect=True)
@pytest.mark.timeout(300)
def test_never_two_inside(runguard: Runguard, url: str, name: str, tmp_path: Path) -> None:
    """Eight processes that loop on one name are never inside together, by two witnesses, and every wait is served."""
    witnesses = Witnesses(tmp_path)
    rounds = 12 if url == "file:" else 5  # a driver takes its time to load

    def loop(*policy: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "runguard", "run", "-b", url, *policy, name, "--", *witnesses.command()]
        import subprocess

        return subprocess.Popen(
            [sys.executable, "-c", _LOOP, str(rounds), *words],
            env=runguard.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    loops = [loop("-w", "120") for _ in range(6)] + [loop("-n") for _ in range(2)]
    ran = 0
    for number, process in enumerate(loops):
        out, err = process.communicate(timeout=240)
        entered, skipped, made = map(int, out.split())
        assert err == b""
        assert entered + skipped == made == rounds
        assert number >= 6 or skipped == 0
        ran += entered
    stays = witnesses.stays()
    assert len(stays) == ran
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(stays))
    assert not witnesses.room.exists()
