"""Signals without a terminal: who gets them, how often, and what is left at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import COMMAND, PROGRAMS, children, end_with_children, eventually, helper, is_alive, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Runguard

FORWARDED = ("TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "CONT", "WINCH")
ROUNDS = 5
NO_FORK = pytest.mark.parametrize("options", [(), ("-F",)], ids=["stays", "no-fork"])


def number_of(name: str) -> int:
    """Return the number of a signal named without SIG."""
    return signal.Signals["SIG" + name].value


class Session:
    """A process in a session of its own, without a terminal, whose output is read line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def line(self) -> str:
        """Return the next line of output, without its end."""
        assert self.process.stdout
        return self.process.stdout.readline().decode().rstrip("\n")

    def end(self) -> tuple[int, str]:
        """Close the input; return the exit code and the rest of the output."""
        out, err = self.process.communicate(timeout=30)
        assert err == b""
        return self.process.returncode, out.decode()


def guarded(runguard: Runguard, *words: str) -> Session:
    """Start a run without a terminal."""
    return Session(runguard.start("run", "signals", "--", *words, stdin=subprocess.PIPE, start_new_session=True))


@pytest.fixture
def start(runguard: Runguard) -> Iterator[Callable[..., Session]]:
    """Return a way to start any words in a session of their own, with the environment of the tests."""
    started: list[subprocess.Popen[bytes]] = []

    def words(*words: str) -> Session:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            words, env=runguard.environment, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        started.append(process)
        return Session(process)

    yield words
    for process in started:
        end_with_children(process)
        process.communicate()


@pytest.mark.parametrize("whole_group", [False, True], ids=["runguard", "group"])
@pytest.mark.parametrize("name", FORWARDED)
def test_a_signal_reaches_the_command_once(runguard: Runguard, name: str, *, whole_group: bool) -> None:
    """Each signal sent to runguard, or to its whole group, reaches the command once; then the command's code counts."""
    run = guarded(runguard, *helper("print_signals.py", "7"))
    assert run.line().startswith("ready ")
    for _ in range(ROUNDS):
        (os.killpg if whole_group else os.kill)(run.process.pid, number_of(name))
        assert run.line() == "SIG" + name
    assert run.end() == (7, "")


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)])
def test_children_of_the_command_get_it_too(runguard: Runguard, name: str, code: int) -> None:
    """A signal that ends the command ends what the command waits for, so nothing is left behind."""
    run = guarded(runguard, "sh", "-c", "ulimit -c 0; echo $$; sleep 300; :")
    shell = int(run.line())
    (child,) = eventually(lambda: children(shell))  # type: ignore[misc]
    eventually(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
    run.process.send_signal(number_of(name))
    assert run.end()[0] == code
    assert not is_alive(child)


def test_the_lock_is_kept_until_the_command_has_ended(runguard: Runguard, tmp_path: Path) -> None:
    """Stop, reap, unlock: while a command takes its time to end after TERM, the lock is held and runguard stays."""
    busy = tmp_path / "busy"
    busy.touch()
    script = (
        f"exec 2>/dev/null; trap 'echo ending; while [ -e {busy} ]; do sleep 0.05; done; exit 7' TERM;"
        " echo $$; while :; do sleep 0.1; done"
    )
    run = guarded(runguard, "sh", "-c", script)
    command = int(run.line())
    run.process.terminate()
    assert run.line() == "ending"
    assert runguard("run", "signals", "true").returncode == 75
    assert run.process.poll() is None
    busy.unlink()
    assert run.end() == (7, "")
    assert not is_alive(command)
    assert runguard("run", "signals", "true").returncode == 0


def leftover(kill_after: str) -> list[str]:
    """Return the words of a run whose command ends at TERM and leaves a child that ignores it."""
    script = "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); exec sleep 30) & wait"
    return [sys.executable, str(PROGRAMS / "run_command.py"), kill_after, "sh", "-c", script]


def test_what_ignores_term_is_killed_after_its_grace(start: Callable[..., Session]) -> None:
    """What is left of the group after the command ended by TERM is given its grace and then killed."""
    run = start(*leftover("0.7"))
    child = int(run.line())
    begun = time.monotonic()
    run.process.terminate()
    assert run.process.wait(30) == 143
    assert time.monotonic() - begun >= 0.7
    assert not is_alive(child)


def test_a_frozen_runguard_counts_the_grace_and_goes_on(start: Callable[..., Session]) -> None:
    """A runguard that is stopped and continued during the grace ends as if nothing had been."""
    run = start(*leftover("2"))
    process = run.process
    child = int(run.line())
    process.terminate()
    (command,) = children(process.pid)
    eventually(lambda: state(command) == "Z")
    for _ in range(20):
        process.send_signal(signal.SIGSTOP)
        eventually(lambda: state(process.pid) == "T")
        time.sleep(0.05)  # longer than runguard looks at a time
        process.send_signal(signal.SIGCONT)
        eventually(lambda: state(process.pid) != "T")
    assert run.end() == (143, "")
    assert not is_alive(child)


def test_forwarding_alone_never_kills(start: Callable[..., Session]) -> None:
    """A command that goes on after TERM is waited for, however long: no grace counts against the command itself."""
    run = start(sys.executable, str(PROGRAMS / "run_command.py"), "0", *helper("print_signals.py", "7"))
    run.line()
    for name in ("TERM", "USR1", "TERM", "HUP", "WINCH"):
        run.process.send_signal(number_of(name))
        assert run.line() == "SIG" + name
    assert run.end() == (7, "")


@pytest.mark.parametrize(
    "names", [("HUP",), ("CHLD",), FORWARDED, ("PIPE", "XFSZ"), ("ALRM", "TSTP", "TTOU", "CHLD")], ids=" ".join
)
@NO_FORK
def test_ignored_signals_stay_ignored(runguard: Runguard, names: tuple[str, ...], options: tuple[str, ...]) -> None:
    """What was ignored by who started runguard is ignored in the command, but for the two that Python hides."""
    launch = helper("launch.py", *(f"ignore={name}" for name in names), "--")
    words = [*launch, *COMMAND, "run", *options, "signals", "cat", "/proc/self/status"]
    result = subprocess.run(words, check=True, env=runguard.environment, capture_output=True, timeout=60)
    assert result.stderr == b""
    assert field(result.stdout, "SigIgn") == set_of(*(name for name in names if name not in {"PIPE", "XFSZ"}))


def set_of(*names: str) -> int:
    """Return signals as /proc shows a set of them."""
    return sum(1 << (number_of(name) - 1) for name in names)


def field(status: bytes, name: str) -> int:
    """Return a set of signals from the text of /proc/PID/status, without the two that glibc keeps for itself."""
    found = re.search(rf"^{name}:\s*([0-9a-f]+)$", status.decode(), re.MULTILINE)
    assert found
    return int(found[1], 16)


def test_an_ignored_signal_is_not_forwarded(start: Callable[..., Session]) -> None:
    """Under nohup a HUP for runguard is nobody's: the run goes on."""
    words = [*COMMAND, "run", "signals", *helper("print_signals.py", "7")]
    run = start(*helper("launch.py", "ignore=HUP", "--", *words))
    assert run.line().startswith("ready ")
    run.process.send_signal(signal.SIGHUP)
    run.process.send_signal(signal.SIGUSR1)
    assert run.line() == "SIGUSR1"
    assert run.end() == (7, "")


@pytest.mark.parametrize("ignored", ["CHLD", "HUP"])
def test_codes_are_right_whatever_is_ignored(runguard: Runguard, ignored: str) -> None:
    """With SIGCHLD ignored on entry, codes, deaths by signal and missing commands are told as ever."""
    for command, code in ((["sh", "-c", "exit 9"], 9), (["sh", "-c", "kill -9 $$"], 137), (["no-such"], 127)):
        words = helper("launch.py", f"ignore={ignored}", "--", *COMMAND, "run", "signals", "--", *command)
        result = subprocess.run(words, check=False, env=runguard.environment, capture_output=True, timeout=60)
        assert result.returncode == code
        assert result.stderr.count(b"\n") == (code == 127)


@pytest.mark.parametrize("names", [("USR1",), FORWARDED, ("CHLD", "ALRM", "PIPE", "TSTP")], ids=" ".join)
@NO_FORK
def test_the_mask_is_the_one_runguard_was_given(
    runguard: Runguard, names: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """Signals blocked by who started runguard are blocked in the command, and no others."""
    launch = helper("launch.py", *(f"block={name}" for name in names), "--")
    words = [*launch, *COMMAND, "run", *options, "signals", "cat", "/proc/self/status"]
    result = subprocess.run(words, check=True, env=runguard.environment, capture_output=True, timeout=60)
    assert field(result.stdout, "SigBlk") == set_of(*names)


def test_nothing_is_blocked_or_ignored_without_cause(runguard: Runguard) -> None:
    """Started with nothing blocked or ignored, the command has nothing blocked or ignored."""
    status = subprocess.run(
        helper("launch.py", "--", *COMMAND, "run", "signals", "cat", "/proc/self/status"),
        check=True,
        env=runguard.environment,
        capture_output=True,
        timeout=60,
    ).stdout
    assert [field(status, name) for name in ("SigBlk", "SigIgn", "SigCgt", "SigPnd")] == [0, 0, 0, 0]


def test_a_pipeline_in_the_command_ends(runguard: Runguard) -> None:
    """SIGPIPE is as it should be: a writer whose reader has left dies quietly."""
    result = runguard("run", "signals", "sh", "-c", "yes | head -1")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"y\n", b"")


@pytest.mark.parametrize(("name", "code"), [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)])
def test_a_signal_ends_a_wait_for_the_lock(
    runguard: Runguard, lock_directory: Path, tmp_path: Path, name: str, code: int
) -> None:
    """A signal during the wait ends it at once with 128+N: no command started, no place in the queue kept."""
    holder = guarded(runguard, "sh", "-c", "echo held; read line")
    assert holder.line() == "held"
    marker = tmp_path / "started"
    wait = ("run", "-v", "-w", "60", "--max-waiters", "1", "signals")
    waiter = runguard.start(*wait, "touch", str(marker), start_new_session=True)
    eventually((lock_directory / "signals.waiters").exists)
    begun = time.monotonic()
    waiter.send_signal(number_of(name))
    out, err = waiter.communicate(timeout=30)
    assert time.monotonic() - begun < 5
    assert (waiter.returncode, out) == (code, b"")
    assert f"interrupted by signal {number_of(name)} before the command started".encode() in err
    assert not marker.exists()
    another = runguard.start(*wait, "true")
    assert another.stderr
    assert b"waiting" in another.stderr.readline()
    holder.end()
    assert another.wait(30) == 0


def test_killed_runguard_leaves_the_lock_with_the_command(runguard: Runguard) -> None:
    """After SIGKILL of runguard the command goes on and the lock stays until the command ends."""
    run = guarded(runguard, *helper("print_signals.py", "7"))
    command = int(run.line().split()[1])
    run.process.kill()
    run.process.wait()
    assert runguard("run", "signals", "true").returncode == 75
    assert is_alive(command)
    assert run.process.stdin
    run.process.stdin.close()
    assert eventually(lambda: not is_alive(command))
    assert eventually(lambda: runguard("run", "signals", "true").returncode == 0)


def in_own_pids(start: Callable[..., Session], *words: str) -> Session:
    """Start a run as process 1 of a process namespace; skip where that is not permitted."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("process namespaces are not permitted here")
    return start(*unshare, *COMMAND, "run", "signals", "--", *words)


def test_process_1_reaps_orphans(start: Callable[..., Session], tmp_path: Path) -> None:
    """As process 1 runguard reaps what others left, so no zombie stays."""
    pid = tmp_path / "pid"
    script = f"echo $$; sh -c 'true & echo $! >{pid}'; while [ -e /proc/$(cat {pid}) ]; do sleep 0.05; done; exit 5"
    run = in_own_pids(start, "sh", "-c", script)
    assert run.line() != "1"
    assert run.end() == (5, "")


@pytest.mark.parametrize("name", FORWARDED)
def test_process_1_forwards_signals(start: Callable[..., Session], name: str) -> None:
    """As process 1, whose signals the kernel drops by default, runguard forwards them all the same."""
    run = in_own_pids(start, *helper("print_signals.py", "7"))
    assert run.line().startswith("ready ")
    (first,) = children(run.process.pid)
    os.kill(first, number_of(name))
    assert run.line() == "SIG" + name
    assert run.end() == (7, "")


def test_a_wait_ends_in_time_with_the_alarm_blocked(runguard: Runguard) -> None:
    """A limited wait ends although SIGALRM was blocked by who started runguard."""
    holder = guarded(runguard, "sh", "-c", "echo held; read line")
    assert holder.line() == "held"
    words = helper("launch.py", "block=ALRM", "--", *COMMAND, "run", "-w", "0.5", "signals", "true")
    result = subprocess.run(words, check=False, env=runguard.environment, capture_output=True, timeout=20)
    assert result.returncode == 75
    holder.end()
