"""With a terminal: what it sends arrives once, job control works, and the command has it as if alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING

import pytest
from conftest import COMMAND, children, end_with_children, eventually, helper, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Runguard

INTERRUPT, SUSPEND, END_OF_INPUT = b"\x03", b"\x1a", b"\x04"
ROUNDS = 15


class Terminal:
    """A pseudo-terminal and the session that it controls."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.master, slave = os.openpty()
        self.process = subprocess.Popen(
            ["setsid", "-c", *words], env=environment, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        self.text = ""

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.master, keys)

    def read_until(self, pattern: str, *, seconds: float = 20) -> re.Match[str]:
        """Return the first match in what was not read yet, and read up to its end."""
        until = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < until, f"no {pattern!r} in {self.text!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.text += os.read(self.master, 4096).decode(errors="replace")
        self.text = self.text[found.end() :]
        return found

    def rest(self) -> str:
        """Wait for the end of the session; return all that was not read yet."""
        self.process.wait(30)
        with contextlib.suppress(OSError):
            while data := os.read(self.master, 4096):
                self.text += data.decode(errors="replace")
        return self.text

    def close(self) -> None:
        """Hang up."""
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


@pytest.fixture(autouse=True, params=["file", "mariadb", "postgres"])
def _backend(request: pytest.FixtureRequest, runguard: Runguard) -> None:
    """Have every run here on each backend: a keeper beside the command changes nothing for a terminal."""
    if request.param != "file":
        runguard.environment["RUNGUARD_BACKEND"] = request.getfixturevalue(request.param).url


@pytest.fixture
def terminal(runguard: Runguard) -> Iterator[Callable[..., Terminal]]:
    """Return a way to start a session on a terminal of its own."""
    started: list[Terminal] = []

    def start(*words: str) -> Terminal:
        started.append(Terminal(list(words), runguard.environment))
        return started[-1]

    yield start
    for each in started:
        end_with_children(each.process)
        each.close()


@pytest.fixture
def shell(terminal: Callable[..., Terminal]) -> Terminal:
    """Return an interactive bash."""
    session = terminal("bash", "--norc", "--noprofile", "-i")
    session.type(b"PS1='$ '; bind 'set enable-bracketed-paste off'; echo up$((1+1))\n")
    session.read_until(r"up2\r\n")
    return session


def line(*words: str) -> bytes:
    """Return the line to type for a run of a command."""
    return " ".join([*COMMAND, "run", "tty", "--", *words]).encode() + b"\n"


def test_an_interrupt_key_counts_once(terminal: Callable[..., Terminal]) -> None:
    """A ^C reaches the command once: the terminal sends it to the group, and runguard does not send it again."""
    session = terminal(*COMMAND, "run", "tty", *helper("print_signals.py", "7"))
    session.read_until("ready")
    for _ in range(ROUNDS):
        session.type(INTERRUPT)
        session.read_until("SIGINT\r\n")
    session.type(END_OF_INPUT)
    assert "SIGINT" not in session.rest()
    assert session.process.returncode == 7


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"])
def test_a_signal_for_runguard_alone_is_forwarded_once(terminal: Callable[..., Terminal], name: str) -> None:
    """What a process sends to runguard and not to its group is forwarded to the command, once."""
    session = terminal(*COMMAND, "run", "tty", *helper("print_signals.py", "7"))
    session.read_until("ready")
    for _ in range(3):
        session.process.send_signal(signal.Signals[name])
        session.read_until(f"{name}\r\n")
    session.type(END_OF_INPUT)
    assert "SIG" not in session.rest()
    assert session.process.returncode == 7


def test_a_change_of_the_window_counts_once(terminal: Callable[..., Terminal]) -> None:
    """A new window size is told to the command once."""
    session = terminal(*COMMAND, "run", "tty", *helper("print_signals.py", "7"))
    session.read_until("ready")
    for width in range(60, 60 + ROUNDS):
        fcntl.ioctl(session.master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        session.read_until("SIGWINCH\r\n")
    session.type(END_OF_INPUT)
    assert "SIGWINCH" not in session.rest()
    assert session.process.returncode == 7


def test_an_interrupted_command_ends_the_run(terminal: Callable[..., Terminal]) -> None:
    """A command that ^C kills makes runguard exit with 130 and say nothing."""
    session = terminal(*COMMAND, "run", "tty", "sh", "-c", "echo up; exec sleep 60")
    session.read_until("up\r\n")
    session.type(INTERRUPT)
    assert session.rest().strip("\r\n") in {"", "^C"}
    assert session.process.returncode == 130


def test_suspend_and_foreground(runguard: Runguard, shell: Terminal) -> None:
    """^Z stops runguard and its command, the lock stays; `fg` continues both, and then a ^C counts once again."""
    shell.type(line(*helper("print_signals.py", "7")))
    command = int(shell.read_until(r"ready (\d+)\r\n")[1])
    (guard,) = children(shell.process.pid)
    for _ in range(3):
        shell.type(SUSPEND)
        shell.read_until("Stopped")
        eventually(lambda: (state(guard), state(command)) == ("T", "T"))
        assert runguard("run", "tty", "true").returncode == 75
        shell.type(b"fg\n")
        shell.read_until("SIGCONT\r\n")
        shell.type(INTERRUPT)
        shell.read_until("SIGINT\r\n")
    shell.type(END_OF_INPUT)
    shell.type(b"echo code=$?\n")
    assert "SIG" not in shell.text
    shell.read_until(r"code=7\r\n")
    assert runguard("run", "tty", "true").returncode == 0


def test_a_stopped_command_is_continued_by_a_signal(terminal: Callable[..., Terminal]) -> None:
    """A SIGCONT for runguard alone continues a command that was stopped alone."""
    session = terminal(*COMMAND, "run", "tty", *helper("print_signals.py", "7"))
    command = int(session.read_until(r"ready (\d+)\r\n")[1])
    os.kill(command, signal.SIGSTOP)
    eventually(lambda: state(command) == "T")
    session.process.send_signal(signal.SIGCONT)
    session.read_until("SIGCONT\r\n")
    session.type(END_OF_INPUT)
    session.rest()
    assert session.process.returncode == 7


def test_the_command_reads_what_is_typed(shell: Terminal) -> None:
    """A command in the foreground reads the terminal and is not stopped for it."""
    shell.type(line("head", "-n1", "|", "sed", "s/x/-/g"))
    shell.type(b"axbxc\n")
    shell.read_until("a-b-c\r\n")


def test_a_background_run_that_reads_is_stopped(shell: Terminal) -> None:
    """A run in the background whose command reads the terminal is stopped as any job, and `fg` lets it go on."""
    shell.type(line("head", "-n1", "&"))
    shell.type(b"while ! jobs | grep Stopped; do sleep 0.1; done; echo seen$((1+1))\n")
    shell.read_until(r"seen2\r\n")
    shell.type(b"fg\n")
    shell.read_until(r"head -n1\r\n")
    shell.type(b"typed later\n")
    shell.read_until(r"typed later\r\ntyped later\r\n")


@pytest.mark.parametrize("elsewhere", [(), (0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_terminals_stay_terminals(
    terminal: Callable[..., Terminal], tmp_path: Path, elsewhere: tuple[int, ...]
) -> None:
    """Each of descriptors 0 to 2 is a terminal for the command exactly if it was one for runguard."""
    file = tmp_path / "terminals"
    look = f"for i in 0 1 2; do if [ -t $i ]; then echo $i >>{file}; fi; done; exit 3"
    redirect = " ".join(f"{number}<>/dev/null" for number in elsewhere)
    file.touch()
    session = terminal("sh", "-c", f'exec "$@" {redirect}', "sh", *COMMAND, "run", "tty", "sh", "-c", look)
    session.rest()
    assert session.process.returncode == 3
    assert file.read_text().split() == [str(number) for number in range(3) if number not in elsewhere]


def test_a_hang_up_is_told_once(terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    """A runguard that leads its session hands on, once, the word that the terminal is gone: nobody else gets it."""
    file = tmp_path / "signals"
    program = " ".join(helper("print_signals.py", "7"))
    os.mkfifo(tmp_path / "input")
    session = terminal(*COMMAND, "run", "tty", "sh", "-c", f"exec {program} <>{tmp_path}/input >{file}")
    eventually(lambda: file.exists() and "ready" in file.read_text())
    session.close()
    eventually(lambda: "SIGHUP" in file.read_text())
    session.process.send_signal(signal.SIGUSR1)
    eventually(lambda: "SIGUSR1" in file.read_text())
    assert file.read_text().split()[2:] == ["SIGHUP", "SIGUSR1"]
    os.kill(int(file.read_text().split()[1]), signal.SIGKILL)
    assert session.process.wait(30) == 137
