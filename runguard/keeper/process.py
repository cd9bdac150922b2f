"""The keeper's process: takes the lock, keeps it while the command lives, gives it back. Knows no policy.

It loads the driver and makes all calls that may block, so that runguard hears a signal at once. It ends when runguard
has the lock given back, or when runguard is gone and so is the command.
"""

import os
import select
import signal

from runguard import detached, events
from runguard.backends.base import Busy, now
from runguard.errors import RunguardError
from runguard.keeper import channel, messages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread
    from typing import NoReturn

    from runguard.backends.session import Session, SessionLock
    from runguard.errors import UnreachableError
    from runguard.keeper.channel import Channel

    Report = Callable[[str, str, str], None]
    """Takes a level, a word and a sentence for the log of the system; may block."""

NAME = "runguard-keeper"
"""What ps(1), pgrep(1) and top(1) call the process."""

_NOT_IGNORED = frozenset((signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, channel.SIGNAL))
_LOG_SECONDS = 2.0
_LOG_LIMIT = 65536


def start(lock: "SessionLock", label: str, report: "Report") -> "tuple[int, Channel]":
    """Fork a keeper for a lock; return its pid and our end of the channel. Raises `OSError`.

    `label` is shown by ps(1) with the process. The caller has all signals blocked: they are not the child's.
    """
    ours, theirs = channel.pair()
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        ours.close()
        _be_keeper(theirs, lock, label, report)
    theirs.close()
    return pid, ours


def _be_keeper(end: "Channel", lock: "SessionLock", label: str, report: "Report") -> "NoReturn":
    try:
        detached.leave_everything(but=end.fileno())
        _ignore_signals()
        detached.show_as(NAME, f"{NAME}: {label}")
        _Keeper(end, lock, report).work()
    except Exception as error:  # noqa: BLE001 - a bug of ours, which runguard says, or the log if there is no runguard
        import traceback

        if not end.send(messages.Bug(traceback.format_exc())):
            report(events.ERROR, "bug", f"a bug in runguard's keeper, which ends: {type(error).__name__}: {error}")
    finally:
        os._exit(0)


def _ignore_signals() -> None:
    """Have no signal end us but SIGKILL: what a service manager sends to all of a control group is for the command."""
    for number in signal.valid_signals() - _NOT_IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGCHLD, channel.SIGNAL):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class _Keeper:
    def __init__(self, end: "Channel", lock: "SessionLock", report: "Report") -> None:
        self._channel = end
        self._lock = lock
        self._report = report
        self._command: messages.Watch | None = None
        self._saying: Thread | None = None

    def work(self) -> None:
        """Do what runguard asks for, until it asks no more."""
        try:
            order = self._channel.receive(None)
        except EOFError:
            return
        if not isinstance(order, messages.Acquire):
            raise messages.GarbageError(order)
        held = self._acquire(order.until)
        if held is not None:
            self._keep(held)

    def _acquire(self, until: float | None) -> "Session | None":
        """Ask for the lock, and end at once, wherever that is, if runguard goes meanwhile."""
        self._channel.end_with_peer(wanted=True)
        if self._channel.has_news(0):  # gone before the kernel was told to watch
            return None
        overheard = _Overheard(self._channel)

        def on_wait(obstacle: "Busy | UnreachableError") -> bool:
            overheard.hand_on()
            if isinstance(obstacle, Busy):
                return self._channel.send(messages.Waiting(obstacle.holder))
            return self._channel.send(messages.Unreachable(str(obstacle)))

        wait = None if until is None else max(0.0, until - now())
        try:
            answer = self._lock.acquire(wait=wait, on_wait=on_wait)
        except RunguardError as error:
            overheard.hand_on()
            self._channel.send(messages.Broken(type(error).__name__, str(error)))
            return None
        overheard.hand_on()
        if isinstance(answer, Busy):
            self._channel.send(messages.Refused(answer.holder))
            return None
        self._channel.end_with_peer(wanted=False)
        signal.signal(channel.SIGNAL, signal.SIG_IGN)
        for hint in answer.hints():
            self._channel.send(messages.Hint(hint))
        self._channel.send(messages.Acquired())
        return answer

    def _keep(self, held: "Session") -> None:
        """Keep the lock until runguard has it given back."""
        try:
            while not isinstance(order := self._channel.receive(None), messages.Release):
                if not isinstance(order, messages.Watch):
                    raise messages.GarbageError(order)
                self._forget_command()
                self._command = order
        except EOFError:
            self._keep_alone(held)
            return
        lost = held.release()
        self._channel.send(messages.Released() if lost is None else messages.Lost(lost))

    def _keep_alone(self, held: "Session") -> None:
        """Runguard is gone: keep the lock until the command has ended."""
        command = self._command
        if command is None or _has_ended(command.pidfd, 0):
            held.release()
            return
        goes_on = f"its command (pid {command.pid}) goes on, and has the lock until it ends"
        self._say(events.WARNING, "orphaned", f"runguard was killed: {goes_on}")
        _has_ended(command.pidfd, None)
        lost = held.release()
        if lost is None:
            text = f"runguard was killed: its command (pid {command.pid}) has ended, and the lock is given back"
            self._say(events.HINT, "released", text)
        else:
            self._say(events.ERROR, "lock_lost", lost)
        self._wait_for_log()

    def _say(self, level: str, what: str, text: str) -> None:
        """Say something where no runguard can. A log that takes nothing keeps neither the lock nor this process."""
        import threading

        self._wait_for_log()
        if self._saying and self._saying.is_alive():
            return  # a second call would wait for the first, and everything here for it
        self._saying = threading.Thread(target=self._report, args=(level, what, text), daemon=True)
        self._saying.start()

    def _wait_for_log(self) -> None:
        if self._saying:
            self._saying.join(_LOG_SECONDS)

    def _forget_command(self) -> None:
        if self._command:
            os.close(self._command.pidfd)


class _Overheard:
    """What drivers write to standard error by themselves, as libpq does about a password file that others can read."""

    def __init__(self, end: "Channel") -> None:
        self._channel = end
        self._file = os.memfd_create(NAME)
        os.dup2(self._file, 2)

    def hand_on(self) -> None:
        """Have runguard write it, once; from then on it is nobody's."""
        if self._file < 0:
            return
        text = os.pread(self._file, _LOG_LIMIT, 0).decode("utf-8", "surrogateescape")
        os.dup2(0, 2)
        os.close(self._file)
        self._file = -1
        if text:
            self._channel.send(messages.Overheard(text))


def _has_ended(pidfd: int, seconds: float | None) -> bool:
    """Wait until a process has ended, reaped or not, for so many seconds at most."""
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(None if seconds is None else seconds * 1000))
