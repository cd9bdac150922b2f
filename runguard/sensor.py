"""A process in our control group that hears which signals a service manager sends to everybody in it.

systemd.kill(5): with `KillMode=mixed` only runguard gets the signal of a stop, with `control-group` the command gets
it too. Nothing but another process that is neither of them can tell which it was.
"""

import fcntl
import os
import select
import signal
import time

from runguard import detached

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import NoReturn

NAME = "runguard-sensor"
"""What ps(1), pgrep(1) and top(1) call the process."""

PATIENCE = 0.25
"""Seconds that a signal of the manager's waits for the sensor to have heard it too."""

_FRESH = 1.0
_OUTSIDE, _PROCESS_1 = 0, 1
_BY_A_PROCESS = 0
_TIME_BYTES = 8


class Sensor:
    """The process as runguard sees it."""

    def __init__(self, pidfd: int, words: int, numbers: "Collection[int]", managers: "Collection[int]") -> None:
        self._pidfd = pidfd
        self._words = words
        self._numbers = numbers
        self._managers = managers
        self._heard: list[tuple[int, float]] = []
        self._is_there = True

    def has_heard(self, received: signal.struct_siginfo) -> bool:
        """Say whether a signal of ours was sent to everybody; one of the manager's waits a moment for the word."""
        if received.si_signo not in self._numbers or not _is_from(self._managers, received):
            return False
        until = time.monotonic() + PATIENCE
        while not self._has_word_of(received.si_signo):
            left = until - time.monotonic()
            if not self._is_there or left <= 0:
                return False
            self._listen(left)
        return True

    def end(self) -> None:
        """End the process, and leave nothing of it."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        except (ProcessLookupError, ChildProcessError):
            pass  # it is gone, and reaped where we reap whatever ends
        os.close(self._words)
        os.close(self._pidfd)

    def _has_word_of(self, number: int) -> bool:
        """Use up the oldest word about a signal that is not about an earlier one of the same number."""
        self._heard = [word for word in self._heard if time.monotonic() - word[1] < _FRESH]
        for word in self._heard:
            if word[0] == number:
                self._heard.remove(word)
                return True
        return False

    def _listen(self, seconds: float) -> None:
        waiting = select.poll()
        waiting.register(self._words, select.POLLIN)
        if not waiting.poll(seconds * 1000):
            return
        word = os.read(self._words, 1 + _TIME_BYTES)
        if word:
            self._heard.append((word[0], int.from_bytes(word[1:], "big") / 1e9))
        else:
            self._is_there = False


def start(numbers: "Collection[int]") -> Sensor | None:
    """Start one that hears these signals, which are blocked; None if it cannot be had.

    To be called when the command is there: then whoever sends a signal to all has sent it to the command as well.
    """
    managers = _managers()
    try:
        words, saying = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        pidfd = _fork(saying, numbers, managers)
    except OSError:
        os.close(words)
        return None
    finally:
        os.close(saying)
    return Sensor(pidfd, words, numbers, managers)


def _fork(saying: int, numbers: "Collection[int]", managers: "Collection[int]") -> int:
    """Start the process and return its pidfd. Raises `OSError`, and then there is no process."""
    pid = os.fork()
    if pid == 0:
        _be_sensor(saying, numbers, managers)
    try:
        return os.pidfd_open(pid)
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _managers() -> set[int]:
    """Return what a manager's pid is here: of the system's, of a user's, of one that our processes do not see."""
    of_user = os.environ.get("MANAGERPID", "")
    return {_OUTSIDE, _PROCESS_1} | ({int(of_user)} if of_user.isdecimal() else set())


def _is_from(managers: "Collection[int]", received: signal.struct_siginfo) -> bool:
    """Say whether a process sent a signal, and which; siginfo(2) has no pid of the kernel's."""
    return received.si_code <= _BY_A_PROCESS and received.si_pid in managers


def _be_sensor(saying: int, numbers: "Collection[int]", managers: "Collection[int]") -> "NoReturn":
    """Say what is heard, until runguard is gone: the kernel sends SIGIO when nobody can read the pipe any more."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})
        detached.leave_everything(but=saying)
        detached.show_as(NAME, f"{NAME}: for pid {os.getppid()}")
        fcntl.fcntl(saying, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(saying, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        while _is_read(saying):
            heard = signal.sigwaitinfo({*numbers, signal.SIGIO})
            if heard.si_signo in numbers and _is_from(managers, heard):
                _say(saying, heard.si_signo)
    finally:
        os._exit(0)


def _say(saying: int, number: int) -> None:
    try:
        os.write(saying, bytes([number]) + time.monotonic_ns().to_bytes(_TIME_BYTES, "big"))
    except BlockingIOError:
        pass  # thousands unread, and unasked for


def _is_read(saying: int) -> bool:
    waiting = select.poll()
    waiting.register(saying, 0)
    return not waiting.poll(0)
