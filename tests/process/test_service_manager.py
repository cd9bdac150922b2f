"""Started by a service manager, whose signals may be for everybody in the unit: the command has each of them once.

The manager is this process: MANAGERPID names it. It signals as systemd.kill(5) says: runguard first, then the rest.
"""

from __future__ import annotations

import contextlib
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
from keepers import comm, descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Runguard

COMM = "runguard-sensor"
ASKED_FOR = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM")
ROUNDS = 3
SETTLED = 0.5
"""Seconds, twice what runguard waits for the sensor at most."""


class Unit:
    """A run as the only service of a unit."""

    def __init__(self, words: list[str], environment: dict[str, str], **more: object) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            words,
            env=environment | {"INVOCATION_ID": "1" * 32, "MANAGERPID": str(os.getpid())},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
            **more,  # type: ignore[call-overload]
        )

    def line(self) -> str:
        """Return the next line of output, without its end."""
        assert self.process.stdout
        return self.process.stdout.readline().decode().rstrip("\n")

    def sensor(self) -> int:
        """Return the pid of the sensor once it can be told by its name: then it has left everything."""
        found = eventually(lambda: sensors(self.process.pid))
        assert isinstance(found, list)
        return int(found[0])

    def all(self) -> list[int]:
        """Return the pids of the unit as systemd.kill(5) takes them: the main process first."""
        found = [self.process.pid]
        for pid in found:
            found += children(pid)
        return found

    def end(self) -> tuple[int, str]:
        """Close the input; return the exit code and the rest of the output."""
        out, err = self.process.communicate(timeout=30)
        assert err == b""
        return self.process.returncode, out.decode()


def number_of(name: str) -> int:
    """Return the number of a signal named without SIG."""
    return signal.Signals["SIG" + name].value


def sensors(guard: int) -> list[int]:
    """Return the sensors that a run has."""
    return [pid for pid in children(guard) if comm(pid) == COMM]


def status(pid: int, field: str) -> int:
    """Return a set of signals that /proc/PID/status has."""
    found = re.search(rf"^{field}:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1], 16)


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal to each."""
    for pid in pids:
        os.kill(pid, number)


def signal_each(pids: list[int], number: int) -> None:
    """Send a signal to each, and return when each has taken it: the kernel makes one of two that wait."""
    signal_all(pids, number)
    bit = 1 << number - 1
    eventually(lambda: not any(status(pid, "ShdPnd") & bit for pid in pids))


@pytest.fixture(params=["file", "mariadb", "postgres"])
def backend(request: pytest.FixtureRequest, runguard: Runguard) -> str:
    """Have runs on each backend: a keeper is in the unit as well."""
    kind = str(request.param)
    if kind != "file":
        runguard.environment["RUNGUARD_BACKEND"] = request.getfixturevalue(kind).url
    return kind


@pytest.fixture
def start(runguard: Runguard) -> Iterator[Callable[..., Unit]]:
    """Return a way to start a unit of any words."""
    started: list[Unit] = []

    def unit(*words: str, **more: object) -> Unit:
        started.append(Unit(list(words), runguard.environment, **more))
        return started[-1]

    yield unit
    for each in started:
        end_with_children(each.process)
        each.process.communicate()


@pytest.fixture
def printing(start: Callable[..., Unit]) -> Unit:
    """Return a unit whose command prints the signals that it gets, once it has a sensor."""
    unit = start(*COMMAND, "run", "unit", "--", *helper("print_signals.py", "7"))
    assert unit.line().startswith("ready ")
    unit.sensor()
    return unit


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_everybody_got_is_not_forwarded(printing: Unit, name: str) -> None:
    """KillMode=control-group: the command gets a signal that was sent to all of the unit once."""
    for _ in range(ROUNDS):
        signal_each(printing.all(), number_of(name))
        assert printing.line() == "SIG" + name
    time.sleep(SETTLED)
    assert printing.end() == (7, "")


@pytest.mark.parametrize("name", ASKED_FOR)
def test_what_is_for_runguard_alone_is_forwarded(printing: Unit, name: str) -> None:
    """KillMode=mixed or process: the command gets a signal that was sent to runguard once."""
    for _ in range(ROUNDS):
        printing.process.send_signal(number_of(name))
        assert printing.line() == "SIG" + name
    assert printing.end() == (7, "")


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("sweep", ["all", "all backwards", "runguard"])
def test_a_stop_beside_a_keeper(printing: Unit, sweep: str) -> None:
    """A keeper in the unit changes nothing, nor does the order of who is signalled."""
    pids = {"all": printing.all(), "all backwards": printing.all()[::-1], "runguard": [printing.process.pid]}[sweep]
    for _ in range(ROUNDS):
        signal_each(pids, signal.SIGTERM)
        assert printing.line() == "SIGTERM"
    time.sleep(SETTLED)
    assert printing.end() == (7, "")


def test_one_kind_after_the_other(printing: Unit) -> None:
    """Signals for all and for runguard alone are told apart in any order, several kinds at a time too."""
    for _ in range(ROUNDS):
        signal_each(printing.all(), signal.SIGTERM)
        signal_each(printing.all(), signal.SIGHUP)
        assert {printing.line(), printing.line()} == {"SIGTERM", "SIGHUP"}
        time.sleep(SETTLED)
        for name in ("USR1", "TERM"):
            printing.process.send_signal(number_of(name))
            assert printing.line() == "SIG" + name
    assert printing.end() == (7, "")


def test_only_the_manager_is_asked_about(printing: Unit) -> None:
    """A signal of somebody else's is forwarded, whoever else got it."""
    both = [str(printing.process.pid), str(printing.sensor())]
    for _ in range(ROUNDS):
        subprocess.run(["kill", "-s", "TERM", *both], check=True)
        assert printing.line() == "SIGTERM"
    time.sleep(SETTLED)
    assert printing.end() == (7, "")


@pytest.mark.parametrize("fault", ["KILL", "STOP"])
def test_without_a_word_of_the_sensor_all_is_forwarded(printing: Unit, fault: str) -> None:
    """A sensor that was killed or is stopped costs no signal."""
    sensor = printing.sensor()
    os.kill(sensor, number_of(fault))
    eventually(lambda: state(sensor) in {"Z", "T"})
    for name in ASKED_FOR:
        printing.process.send_signal(number_of(name))
        assert printing.line() == "SIG" + name
    assert printing.end() == (7, "")
    assert not is_alive(sensor)


def test_a_sensor_that_hears_late_is_no_word_about_the_next_signal(printing: Unit) -> None:
    """What the sensor says after runguard has given up waiting does not count for a later signal."""
    sensor = printing.sensor()
    os.kill(sensor, signal.SIGSTOP)
    eventually(lambda: state(sensor) == "T")
    signal_all([printing.process.pid, sensor], signal.SIGTERM)
    assert printing.line() == "SIGTERM"
    os.kill(sensor, signal.SIGCONT)
    time.sleep(1.5)  # a word is good for a second
    printing.process.terminate()
    assert printing.line() == "SIGTERM"
    assert printing.end() == (7, "")


def test_what_ignores_the_managers_signal_is_killed_after_its_grace(start: Callable[..., Unit]) -> None:
    """A stop that was sent to all is a stop: the group is emptied as after a signal that was forwarded."""
    script = "(trap '' TERM; echo $(exec sh -c 'echo $PPID'); exec sleep 30) & wait"
    unit = start(sys.executable, str(PROGRAMS / "run_command.py"), "0.7", "sh", "-c", script)
    child = int(unit.line())
    unit.sensor()
    signal_all(unit.all(), signal.SIGTERM)
    assert unit.end() == (143, "")
    assert not is_alive(child)


def test_what_a_sensor_has(start: Callable[..., Unit]) -> None:
    """A session of its own and a pipe to runguard: no stream, not the lock, nothing that runguard was given."""
    reading, writing = os.pipe()
    unit = start(*COMMAND, "run", "unit", "cat", pass_fds=(writing,))
    os.close(writing)
    sensor = unit.sensor()
    found = descriptors(sensor)
    assert {found.pop(number) for number in (0, 1, 2)} == {"/dev/null"}
    assert list(found.values()) == ["pipe"]
    assert os.getsid(sensor) == os.getpgid(sensor) == sensor
    shown = Path(f"/proc/{sensor}/cmdline").read_bytes().rstrip(b"\0").decode()
    assert shown == f"{COMM}: for pid {unit.process.pid}"
    assert unit.end() == (0, "")
    assert not is_alive(sensor)
    assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.usefixtures("backend")
def test_a_sensor_goes_with_runguard(start: Callable[..., Unit]) -> None:
    """Killed with SIGKILL, runguard leaves no sensor, though its command goes on."""
    unit = start(*COMMAND, "run", "unit", "cat")
    sensor = unit.sensor()
    command = next(pid for pid in children(unit.process.pid) if comm(pid) == "cat")
    unit.process.kill()
    assert eventually(lambda: not is_alive(sensor))
    assert is_alive(command)
    assert unit.end() == (-signal.SIGKILL, "")


def test_the_command_has_nothing_of_it(start: Callable[..., Unit]) -> None:
    """The command has the descriptors and the signals that it has elsewhere."""
    found = []
    for words in ((), ("env", "-u", "INVOCATION_ID")):
        unit = start(*words, *COMMAND, "run", "unit", *helper("print_signals.py", "7"))
        command = int(unit.line().split()[1])
        if not words:
            unit.sensor()
        found.append((set(descriptors(command)), status(command, "SigBlk"), status(command, "SigIgn")))
        assert unit.end() == (7, "")
    assert found[0] == found[1]


@pytest.mark.parametrize("options", [(), ("-F",)], ids=["no manager", "no fork"])
def test_where_there_is_none(start: Callable[..., Unit], runguard: Runguard, options: tuple[str, ...]) -> None:
    """Nobody has a sensor who was started by no service manager, or who is the command itself."""
    words = ("run", *options, "unit", "--", *helper("print_signals.py", "7"))
    unit = start(*COMMAND, *words) if options else start("env", "-u", "INVOCATION_ID", *COMMAND, *words)
    assert unit.line().startswith("ready ")
    unit.process.terminate()
    assert unit.line() == "SIGTERM"
    assert sensors(unit.process.pid) == []
    assert unit.end() == (7, "")


def test_as_process_1(start: Callable[..., Unit]) -> None:
    """As process 1, which reaps whatever ends, a killed sensor changes nothing."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("process namespaces are not permitted here")
    unit = start(*unshare, *COMMAND, "run", "unit", "--", *helper("print_signals.py", "7"))
    assert unit.line().startswith("ready ")
    (first,) = children(unit.process.pid)
    (sensor,) = eventually(lambda: sensors(first))  # type: ignore[misc]
    # A manager outside of the namespace has no pid there.
    signal_all([first, *children(first)], signal.SIGTERM)
    assert unit.line() == "SIGTERM"
    time.sleep(SETTLED)
    os.kill(sensor, signal.SIGKILL)
    assert eventually(lambda: not state(sensor))
    os.kill(first, signal.SIGUSR1)
    assert unit.line() == "SIGUSR1"
    assert unit.end() == (7, "")


@pytest.fixture
def other_control_group() -> Iterator[Path]:
    """Return an empty control group that is not ours."""
    ours = re.search(r"^0::(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
    for root in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
        group = Path(f"{root}{ours[1] if ours else ''}") / f"runguard-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            break
    else:
        pytest.skip("control groups cannot be made here")
    yield group
    eventually(lambda: removed(group))


def removed(group: Path) -> bool:
    """Remove a control group; False while there are processes in it."""
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def test_who_is_in_another_control_group_gets_it_from_runguard(
    other_control_group: Path, start: Callable[..., Unit]
) -> None:
    """Who left the unit's control group is out of the manager's reach, not out of ours: a child, and the command."""
    script = (
        'exec 3<&0; trap "echo SHELL" TERM; "$@" <&3 3<&- & echo $$;'
        " while kill -0 $! 2>/dev/null; do wait; done; exit 7"
    )
    unit = start(*COMMAND, "run", "unit", "--", "sh", "-c", script, "sh", *helper("print_signals.py", "7"))
    shell = int(unit.line())
    assert unit.line().startswith("ready ")
    unit.sensor()
    absent = []
    for pid in (*children(shell), shell):
        (other_control_group / "cgroup.procs").write_text(str(pid))
        absent.append(pid)
        for _ in range(ROUNDS):
            signal_each([pid for pid in unit.all() if pid not in absent], signal.SIGTERM)
            assert {unit.line(), unit.line()} == {"SHELL", "SIGTERM"}
        time.sleep(SETTLED)
    assert unit.end() == (7, "")
