"""A lock that a keeper has for us: runguard's side, where no signal waits for a server."""

import os
import signal

from runguard import interrupts
from runguard.backends.base import LOST, Busy, Deadline
from runguard.errors import BackendError, ConfigError, UnreachableError, UsageError
from runguard.keeper import messages, process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runguard.backends.base import Identity, OnWait
    from runguard.backends.session import SessionLock
    from runguard.backends.waiters import Waiters
    from runguard.keeper.messages import Message
    from runguard.keeper.process import Report

RELEASE_SECONDS = 15.0
"""Longer than any driver here waits for an answer."""

_PATIENCE_SECONDS = 60.0
"""Beyond the wait: longer than a server that answers at all needs, also one that is far away."""

_INTERRUPTED_SECONDS = 0.5
_LOOK_SECONDS = 0.1
_ERRORS = {kind.__name__: kind for kind in (BackendError, ConfigError, UnreachableError, UsageError)}


class KeptLock:
    """The lock of a session, asked for and held in a process of its own."""

    def __init__(
        self, lock: "SessionLock", label: str, report: "Report", *, patience: float = _PATIENCE_SECONDS
    ) -> None:
        self._lock = lock
        self._label = label
        self._report = report
        self._patience = patience

    def acquire(self, *, wait: float | None, on_wait: "OnWait") -> "HeldByKeeper | Busy":
        """Have a keeper take the lock."""
        deadline = Deadline(wait)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        held = keeper = None
        try:
            keeper = _Keeper(self._lock, self._label, self._report)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            keeper.send(messages.Acquire(deadline.at))
            try:
                answer = self._answer(keeper, wait, on_wait)
            except EOFError as end:
                text = f"nobody asks for the lock any more: {end}"
                raise BackendError(text) from None
            if isinstance(answer, Busy):
                return answer
            held = HeldByKeeper(keeper, answer)
            return held
        finally:
            if keeper and not held:
                keeper.end()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def probe(self) -> "Busy | None":
        """Ask the server; nothing is held, so nobody has to keep it."""
        return self._lock.probe()

    def waiters(self) -> "Waiters":
        """Return the count of those who wait for this lock on this host."""
        return self._lock.waiters()

    def identity(self) -> "Identity":
        """Say what the lock is to others."""
        return self._lock.identity()

    def _answer(self, keeper: "_Keeper", wait: float | None, on_wait: "OnWait") -> "list[str] | Busy":
        """Hear the keeper out: the hints about a lock that is ours, or who else has it."""
        limit = None if wait is None else wait + self._patience
        deadline = Deadline(limit)
        hints: list[str] = []
        while message := keeper.receive(None if limit is None else deadline.remaining(limit)):
            match message:
                case messages.Overheard():
                    _write_as_it_is(message.text)
                case messages.Hint():
                    hints.append(message.text)
                case messages.Waiting() if on_wait(Busy(message.holder)):
                    pass
                case messages.Unreachable() if on_wait(UnreachableError(message.text)):
                    pass
                case messages.Waiting() | messages.Refused():
                    return Busy(message.holder)
                case messages.Acquired():
                    return hints
                case _:
                    raise _error(message)
        text = f"the server gave no answer for {self._patience:g} s beyond the wait"
        raise UnreachableError(text)


class HeldByKeeper:
    """A lock that a keeper has. The command inherits nothing of it."""

    descriptor: int | None = None

    def __init__(self, keeper: "_Keeper", hints: "list[str]") -> None:
        self._keeper = keeper
        self._hints = hints
        self._known_lost = False

    def hints(self) -> list[str]:
        """Return what the keeper had to say."""
        return self._hints

    def announce(self, pid: int) -> None:
        """Have the keeper watch a process of ours that is about to become the command.

        The message outlives us in the keeper's queue. Raises `BackendError` if there is no keeper to read it.
        """
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:
            message = f"cannot watch the command: {error.strerror}"
            raise BackendError(message) from None
        heard = self._keeper.send(messages.Watch(pid, pidfd))
        os.close(pidfd)
        if not heard:
            self._known_lost = True
            message = f"the lock was lost before the command started: {self._keeper.fate()}"
            raise BackendError(message)

    def loss(self) -> str | None:
        """Say, once, that the lock is lost because the keeper is gone."""
        if self._known_lost:
            return None
        try:
            message = self._keeper.receive(0)
        except (EOFError, messages.GarbageError) as error:
            return self._lose(str(error))
        return None if message is None else self._lose(str(_error(message)))

    def release(self) -> str | None:
        """Have the keeper give the lock back.

        One that does not answer in time is killed, which ends its session; a signal to end shortens that time.
        """
        try:
            return None if self._known_lost else self._ask_for_release()
        finally:
            self._keeper.end()

    def _ask_for_release(self) -> str | None:
        self._keeper.send(messages.Release())
        try:
            message = self._keeper.receive_unless_interrupted(RELEASE_SECONDS)
        except (EOFError, messages.GarbageError) as error:
            return f"{LOST}: {error}"
        match message:
            case messages.Released():
                return None
            case messages.Lost():
                return message.text
            case None:
                return f"{LOST}: the server gave no answer when it was given back, and its session was ended"
            case _:
                return f"{LOST}: {_error(message)}"

    def _lose(self, why: str) -> str:
        self._known_lost = True
        return f"the lock is lost while the command runs, another run may have it: {why}"


class _Keeper:
    """A keeper's process, a child of ours that may be reaped by others (as process 1 we reap whatever there is)."""

    def __init__(self, lock: "SessionLock", label: str, report: "Report") -> None:
        try:
            self.pid, self._channel = process.start(lock, label, report)
            self._pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            message = f"cannot start a process that keeps the lock: {error.strerror}"
            raise BackendError(message) from None

    def send(self, message: "Message") -> bool:
        """Send a message; False if there is no keeper to read it."""
        return self._channel.send(message)

    def receive(self, seconds: float | None) -> "Message | None":
        """Return its next message, as `Channel.receive` does; the `EOFError` says what became of the keeper."""
        try:
            return self._channel.receive(seconds)
        except EOFError:
            raise EOFError(self.fate()) from None

    def receive_unless_interrupted(self, seconds: float) -> "Message | None":
        """Do the same while signals are blocked; one that asks us to end leaves half a second."""
        deadline = Deadline(seconds)
        interrupted = False
        while not (deadline.passed() or self._channel.has_news(deadline.remaining(_LOOK_SECONDS))):
            if not interrupted and signal.sigpending() & set(interrupts.SIGNALS):
                interrupted = True
                deadline = Deadline(deadline.remaining(_INTERRUPTED_SECONDS))
        return self.receive(0)

    def fate(self) -> str:
        """Say what became of a keeper whose end of the channel is closed."""
        return f"its keeper (pid {self.pid}) was killed"

    def end(self) -> None:
        """End it at once, and with it its session, and reap it."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, interrupts.SIGNALS)
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass
        os.close(self._pidfd)
        self._channel.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _error(message: "Message") -> Exception:
    """Return the exception for what a keeper says when it cannot do its work."""
    match message:
        case messages.Broken() if message.kind in _ERRORS:
            return _ERRORS[message.kind](message.reason)
        case messages.Unreachable():
            return UnreachableError(message.text)
        case messages.Bug():
            return RuntimeError(f"in the keeper: {message.text}")
        case _:
            return messages.GarbageError(f"the keeper said {type(message).__name__}, which nobody asked for")


def _write_as_it_is(text: str) -> None:
    try:
        os.write(2, text.encode("utf-8", "surrogateescape"))
    except OSError:
        pass
