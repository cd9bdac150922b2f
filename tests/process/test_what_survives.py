"""What survives what: whichever process is killed, the lock stays as long as runguard(7) says, and no longer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import COMMAND, children, end_with_children, eventually, is_alive
from keepers import COMM, comm, keeper_of, keepers_of_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Runguard

SCRIPTS = {
    "exec": "echo $$; exec sleep 60",
    "child": "echo $$; sleep 60; true",
    "daemon": "setsid sleep 60 >/dev/null 2>&1 & echo $$; exec sleep 60",
}
"""A command that is one process, one that waits for another, and one that leaves another behind."""


@pytest.fixture(params=["file", "mariadb", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of each backend."""
    if request.param == "file":
        return "file:"
    fixture = {"mariadb": "mariadb", "postgresql": "postgres"}[request.param]
    return str(request.getfixturevalue(fixture).url)


on_servers = pytest.mark.parametrize("url", ["mariadb", "postgresql"], indirect=True)
"""A lock file needs no keeper."""
with_every_command = pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    return f"survives.{abs(hash(request.node.name)):x}"


class Held:
    """A lock, the processes around it, and how it looks to another run."""

    def __init__(self, runguard: Runguard, process: subprocess.Popen[bytes], lock: tuple[str, str]) -> None:
        self._runguard = runguard
        self._url, self._name = lock
        self.process = process
        self.on_server = self._url != "file:"
        assert process.stdout
        line = process.stdout.readline()
        assert line, process.communicate()
        self.command = int(line)
        self.guard = process.pid if comm(process.pid) != "timeout" else children(process.pid)[0]
        self.keeper = keeper_of(self.guard)
        assert (self.keeper is not None) == self.on_server

    def kill(self, *pids: int | None) -> None:
        """Kill processes at once; the guard, if it is one of them, is reaped."""
        for pid in pids:
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        if self.process.pid in pids:
            self.process.wait(30)

    def is_busy(self) -> bool:
        """Ask for the lock in another run."""
        code = self._runguard("run", "-b", self._url, self._name, "true").returncode
        assert code in {0, 75}
        return code == 75

    def is_free_and_forgotten(self) -> bool:
        """Say whether the lock is free and neither runguard nor a keeper is left."""
        gone = not is_alive(self.guard) and not (self.keeper and is_alive(self.keeper))
        return gone and not self.is_busy()


@pytest.fixture
def hold(runguard: Runguard, url: str, name: str) -> Iterator[Callable[..., Held]]:
    """Return a way to start a run in a session of its own; in the end nothing of it is left."""
    started: list[Held] = []

    def start(script: str = SCRIPTS["child"], *options: str, before: tuple[str, ...] = ()) -> Held:
        words = [*before, *COMMAND, "run", "-b", url, *options, name, "--", "sh", "-c", script]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=runguard.environment, start_new_session=True
        )
        started.append(Held(runguard, process, (url, name)))
        return started[-1]

    yield start
    for held in started:
        ours = [held.keeper] if held.keeper else []
        for pid in [held.guard, held.command, *ours, *orphans_of(held.command)]:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        held.process.communicate()


def orphans_of(session: int) -> list[int]:
    """Return the processes that belong to the process group of a command, and the daemons that it left."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(entry)) == session:
                found.append(int(entry))
        except ProcessLookupError:
            continue
    return found


def end_command(held: Held) -> None:
    """End a command with all of its group, as far as it is in one."""
    if os.getpgid(held.command) == held.command:
        os.killpg(held.command, signal.SIGKILL)
    else:
        os.kill(held.command, signal.SIGKILL)


@with_every_command
def test_runguard_is_killed(hold: Callable[..., Held], script: str) -> None:
    """The command goes on and has its lock until it has ended; on a server not longer, whatever it left behind."""
    held = hold(script)
    daemons = [pid for pid in children(held.command) if script == SCRIPTS["daemon"]]
    held.kill(held.guard)
    assert held.is_busy()
    assert is_alive(held.command)
    end_command(held)
    if daemons and not held.on_server:
        assert held.is_busy()  # a daemon has the file open; only runguard, which was killed, could have unlocked it
        held.kill(*daemons)
    assert eventually(held.is_free_and_forgotten)
    for daemon in daemons:
        if is_alive(daemon):
            os.kill(daemon, signal.SIGKILL)


@with_every_command
def test_the_command_is_killed(hold: Callable[..., Held], script: str) -> None:
    """The run ends with the signal's code, and the lock is free at once, also with a daemon left behind."""
    held = hold(script)
    others = children(held.command)
    held.kill(held.command)
    assert held.process.wait(30) == 137
    assert held.is_free_and_forgotten()
    for pid in others:
        os.kill(pid, signal.SIGKILL)


@on_servers
@with_every_command
def test_the_keeper_is_killed(hold: Callable[..., Held], script: str) -> None:
    """The lock is lost, which is said at once and once; the command goes on and its code is given."""
    held = hold(script, "--log-format", "json")
    held.kill(held.keeper)
    assert held.process.stderr
    event = json.loads(held.process.stderr.readline())
    assert (event["event"], event["level"]) == ("lock_lost", "error")
    assert f"its keeper (pid {held.keeper}) was killed" in event["message"]
    assert is_alive(held.command)
    assert not held.is_busy()
    end_command(held)
    assert held.process.wait(30) == 137
    assert held.process.stderr.read() == b""
    assert held.is_free_and_forgotten()


@on_servers
@pytest.mark.parametrize("first", ["guard", "keeper"])
def test_runguard_and_the_keeper_are_killed(hold: Callable[..., Held], first: str) -> None:
    """Nobody is left who could keep a session: the lock is lost, and the command goes on."""
    held = hold()
    held.kill(*(held.guard, held.keeper) if first == "guard" else (held.keeper, held.guard))
    assert eventually(lambda: not held.is_busy())
    assert is_alive(held.command)


def test_the_group_is_killed(hold: Callable[..., Held]) -> None:
    """Without a terminal the command is in no group of others: it goes on with its lock."""
    held = hold()
    os.killpg(held.guard, signal.SIGKILL)
    held.process.wait(30)
    assert is_alive(held.command)
    assert held.is_busy()
    end_command(held)
    assert eventually(held.is_free_and_forgotten)


def test_the_group_of_a_terminal_is_killed(runguard: Runguard, url: str, name: str) -> None:
    """With a terminal command and runguard are one group: killed together they leave a free lock and no keeper."""
    master, slave = os.openpty()
    words = ["setsid", "-c", *COMMAND, "run", "-b", url, name, "--", "sh", "-c", SCRIPTS["exec"]]
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=slave, stdout=pipe, stderr=pipe, env=runguard.environment)
    os.close(slave)
    try:
        held = Held(runguard, process, (url, name))
        assert os.getpgid(held.command) == held.guard
        assert held.is_busy()
        os.killpg(held.guard, signal.SIGKILL)
        process.wait(30)
        assert eventually(held.is_free_and_forgotten)
    finally:
        end_with_children(process)
        process.communicate()
        os.close(master)


def test_timeout_k_kills_runguard(hold: Callable[..., Held]) -> None:
    """`timeout -k` in front reaches runguard alone: a command that outlives its TERM goes on with its lock."""
    timeout = shutil.which("timeout")
    assert timeout
    held = hold("trap : TERM; echo $$; while :; do sleep 0.1; done", before=(timeout, "-k", "1", "1"))
    assert held.process.wait(30) in {137, -signal.SIGKILL}  # it ends with the group that it kills
    assert not is_alive(held.guard)
    assert is_alive(held.command)
    assert held.is_busy()
    end_command(held)
    assert eventually(held.is_free_and_forgotten)


def test_all_are_killed(hold: Callable[..., Held]) -> None:
    """With everything dead nothing is left behind."""
    held = hold(SCRIPTS["exec"])
    held.kill(held.command, held.guard, held.keeper)
    assert eventually(held.is_free_and_forgotten)


INSTANTS = {
    "the keeper does not know the command": ("sendmsg", "delay_enter", 2),
    "the command waits for a word": ("sendmsg", "delay_exit", 2),
    "the command starts": ("execve", "delay_enter", 1),
}
"""The system call at which runguard, or the command to be, is held up, and which of its calls that is.

What runguard sends first is the order to take the lock, and second the word of the command.
"""


@pytest.mark.parametrize(
    ("url", "instant"),
    [("file", "the command starts"), *((server, at) for server in ("mariadb", "postgresql") for at in INSTANTS)],
    indirect=["url"],
)
def test_runguard_is_killed_while_it_starts_the_command(
    runguard: Runguard, url: str, name: str, tmp_path: Path, instant: str
) -> None:
    """Killed between fork and exec, either the command never runs, or it runs and has its lock."""
    strace = shutil.which("strace")
    if not strace:
        pytest.fail("strace is not installed; tests/run says how to get it")
    marker = tmp_path / "ran"
    call, delay, which = INSTANTS[instant]
    trace = [strace, "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", f"trace={call}"]
    trace += ["-e", f"inject={call}:{delay}=1500000:when={which}"]
    words = [*trace, *COMMAND, "run", "-b", url, name, "--", "sh", "-c", f"echo $$ >{marker}; exec sleep 60"]
    tracer = subprocess.Popen(words, env=runguard.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def is_busy() -> bool:
        return runguard("run", "-b", url, name, "true").returncode == 75

    try:
        guard = eventually(lambda: guard_under(tracer.pid))
        assert isinstance(guard, int)
        command = eventually(lambda: command_of(guard))
        assert isinstance(command, int)
        if instant == "the command starts":
            assert eventually(lambda: not blocks_signals(command))
        os.kill(guard, signal.SIGKILL)
        if instant == "the command starts":
            assert eventually(lambda: marker.exists() and marker.read_text())
            assert is_busy()
            os.kill(int(marker.read_text()), signal.SIGKILL)
        assert eventually(lambda: not is_busy())
        assert eventually(lambda: not is_alive(command))
        assert marker.exists() == (instant == "the command starts")
    finally:
        end_with_children(tracer)
        tracer.communicate()


def command_of(guard: int) -> int | None:
    """Return the process that is to become the command, or is it."""
    return next((pid for pid in children(guard) if comm(pid) != COMM and is_ours(pid)), None)


def is_ours(pid: int) -> bool:
    """Say whether a process is the copy of runguard that waits to become the command, not one that becomes a keeper."""
    try:
        return os.getpgid(pid) == pid and os.getsid(pid) != pid
    except ProcessLookupError:
        return False


def blocks_signals(pid: int) -> bool:
    """Say whether a child of runguard still keeps signals back, as until it is told to become the command."""
    return "SigBlk:\t0000000000000000" not in Path(f"/proc/{pid}/status").read_text()


def guard_under(tracer: int) -> int | None:
    """Return the pid of runguard among what a tracer started, once it is executed."""
    for pid in children(tracer):
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(os.fsencode(sys.executable) + b"\0-m\0runguard"):
                return pid
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


def test_no_keeper_is_left_by_any_ending(runguard: Runguard, url: str, name: str) -> None:
    """Success, failure, a missing command, a conflict and a wait that is over end without a process of ours."""
    mine = name + ".ends"
    assert runguard("run", "-b", url, mine, "true").returncode == 0
    assert runguard("run", "-b", url, mine, "false").returncode == 1
    assert runguard("run", "-b", url, mine, "no-such-command").returncode == 127
    holder = runguard.start("run", "-b", url, mine, "--", "sh", "-c", "echo held; read line", stdin=subprocess.PIPE)
    assert holder.stdout
    assert holder.stdout.readline() == b"held\n"
    assert runguard("run", "-b", url, mine, "true").returncode == 75
    assert runguard("run", "-b", url, "-w", "0.3", mine, "true").returncode == 75
    assert len(keepers_of_us(mine)) == (url != "file:")
    holder.communicate(timeout=30)
    assert holder.returncode == 1
    assert keepers_of_us(mine) == []
