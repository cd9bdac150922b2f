"""The command while it runs: signals forwarded, its end awaited, its group emptied. Knows nothing of locks."""

import os
import signal
import time

from runguard import exits, processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from runguard.sensor import Sensor

    Tell = Callable[[str, str, str], None]

    class Tether(Protocol):
        """What the command's life hangs on."""

        @property
        def descriptor(self) -> int | None:
            """Return an open file that the command gets beside those runguard was started with."""

        @property
        def announce(self) -> Callable[[int], None] | None:
            """Return what has to hear of the pid that is about to become the command; if it raises, it does not."""

        def loss(self) -> str | None:
            """Say, once, that the command runs without what it hangs on."""


FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGWINCH,
)
_ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
_HARMLESS_TWICE = frozenset((signal.SIGCONT, signal.SIGWINCH))
_ON_HANG_UP = frozenset((signal.SIGHUP, signal.SIGCONT))
_HIDDEN_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_SENT_BY_KERNEL = 0x80  # SI_KERNEL of siginfo(2), what a terminal's signals carry
_FIRST_LOOK, _LAST_LOOK = 0.01, 0.25


class Signals:
    """The signals as runguard found them, kept back from now on until the command can have them."""

    __slots__ = ("child_ignored", "mask", "watched")

    def __init__(self) -> None:
        ignored = {number for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN}
        self.watched = (set(FORWARDED) - ignored) | {signal.SIGCHLD}
        self.child_ignored = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, self.watched)

    def restore(self) -> None:
        """Give this process, about to become the command, what runguard was started with.

        But SIGPIPE and SIGXFSZ become default: Python hides what they were.
        """
        for number in _HIDDEN_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        if self.child_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


class Watch:
    """The command while it runs; it stays unreaped until its group is empty, so that neither id can be used again."""

    def __init__(self, pid: int, signals: Signals, tether: "Tether", *, own_group: bool, tell: "Tell") -> None:
        self._pid = pid
        self._signals = signals
        self._tether = tether
        self._own_group = own_group
        self._tell = tell
        self._sensor: Sensor | None = None
        self._asked_to_end = False
        self._refused = False

    def until_end(self, kill_after: float) -> int:
        """Forward signals until the command has ended; return its exit code."""
        self._sensor = _sensor(self._signals.watched - _HARMLESS_TWICE - {signal.SIGCHLD})
        try:
            return self._until_end(kill_after)
        finally:
            if self._sensor:
                self._sensor.end()

    def _until_end(self, kill_after: float) -> int:
        while not self._has_ended():
            self._look_at_tether()
            self._receive(signal.sigwaitinfo(self._signals.watched))
        if self._own_group and self._asked_to_end:
            self._empty_group(kill_after)
        _, status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else exits.SIGNAL_BASE - code

    def _has_ended(self) -> bool:
        if os.getpid() == 1:
            _reap_orphans(but=self._pid)
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _look_at_tether(self) -> None:
        loss = self._tether.loss()
        if loss:
            self._tell("error", "lock_lost", loss)

    def _receive(self, received: signal.struct_siginfo) -> None:
        number = received.si_signo
        if number == signal.SIGCHLD:
            return
        if not self._own_group and self._already_had(received):
            return
        if self._sensor and self._sensor.has_heard(received):
            self._send_to_absent(number)
        else:
            self._send(number)
        self._asked_to_end = self._asked_to_end or number in _ENDING

    def _already_had(self, received: signal.struct_siginfo) -> bool:
        """Say whether the command, in our group, was sent the same signal by the terminal or by the shell's `fg`."""
        if received.si_code == _SENT_BY_KERNEL and not _is_hang_up(received.si_signo):
            return True
        return received.si_signo == signal.SIGCONT and not processes.is_stopped(self._pid)

    def _send(self, number: int) -> None:
        if self._own_group:
            self._signal(os.killpg, self._pid, number)
        # Unreaped, the command itself is there in any case; it may have left its group.
        if not self._own_group or os.getpgid(self._pid) != self._pid:
            self._signal(os.kill, self._pid, number)

    def _send_to_absent(self, number: int) -> None:
        """Send what our whole control group had to those who are in another, as su(1) is in one of a session."""
        here = processes.control_group(os.getpid())
        group = processes.members(self._pid) if self._own_group else ()
        for pid in {self._pid, *group}:
            if here is None or processes.control_group(pid) != here:
                self._signal(os.kill, pid, number)

    def _signal(self, kill: "Callable[[int, int], None]", whom: int, number: int) -> None:
        try:
            kill(whom, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            if not self._refused:
                self._refused = True
                text = f"may not signal the command (pid {self._pid}): it is waited for, and the lock is kept"
                self._tell("warning", "cannot_signal", text)

    def _empty_group(self, kill_after: float) -> None:
        """Wait until nothing of the command's group is left; kill what outlives its grace."""
        kill_at = time.monotonic() + kill_after
        pause = _FIRST_LOOK
        while processes.members(self._pid):
            if time.monotonic() >= kill_at and not self._refused:
                self._send(signal.SIGKILL)
            self._look_at_tether()
            time.sleep(pause)
            pause = min(pause * 1.5, _LAST_LOOK)
            # Not sigtimedwait: stopped and continued meanwhile, Python may return a signal that never was.
            while self._signals.watched & signal.sigpending():
                self._receive(signal.sigwaitinfo(self._signals.watched))


def _sensor(numbers: "set[signal.Signals]") -> "Sensor | None":
    """Start what hears signals that are sent to everybody in our control group, where a service manager started us."""
    if "INVOCATION_ID" not in os.environ:
        return None
    from runguard import sensor

    return sensor.start(numbers)


def _reap_orphans(*, but: int) -> None:
    """Reap what was left to us as process 1, the command excepted."""
    while True:
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None or dead.si_pid == but:
            return
        os.waitpid(dead.si_pid, os.WNOHANG)


def _is_hang_up(number: int) -> bool:
    """Say whether a signal of the kernel is its word that the terminal is gone: only the session's leader gets that."""
    return number in _ON_HANG_UP and os.getsid(0) == os.getpid()
