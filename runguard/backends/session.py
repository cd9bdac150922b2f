"""A lock that lives in a database session: connect, ask, wait, and try again while there is time. Knows no driver."""

import os
import time

from runguard.backends.base import Busy, Deadline
from runguard.errors import UnreachableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from runguard.backends.base import Identity, OnWait
    from runguard.backends.waiters import Waiters

    class Session(Protocol):
        """One connection that asks for one lock. Every method raises `BackendError`."""

        def take_now(self) -> Busy | None:
            """Ask once; None when the lock is ours."""

        def take_before(self, deadline: Deadline) -> Busy | None:
            """Wait until the deadline; None when the lock is ours."""

        def busy(self) -> Busy | None:
            """Say who has the lock, None when nobody has."""

        def hints(self) -> list[str]:
            """As `Held.hints`."""

        def release(self) -> str | None:
            """As `Held.release`; closes the connection too."""

        def close(self) -> None:
            """End the session, and whatever it waits for or holds. Never raises."""

    class SessionLock(Protocol):
        """A `Lock` whose `Held` is a session, which dies with the process that has it."""

        def acquire(self, *, wait: float | None, on_wait: OnWait) -> Session | Busy:
            """As `Lock.acquire`."""

        def probe(self) -> Busy | None:
            """As `Lock.probe`."""

        def waiters(self) -> Waiters:
            """As `Lock.waiters`."""

        def identity(self) -> Identity:
            """As `Lock.identity`."""


CONNECT_SECONDS = 10
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


def acquire(connect: "Callable[[], Session]", *, wait: float | None, on_wait: "OnWait") -> "Session | Busy":
    """Take the lock as `Lock.acquire` promises.

    While there is time to wait, a server that refuses connections or ends them is asked again; if it does not
    answer by the end, that is `UnreachableError`, never busy.
    """
    return _Asking(connect, wait, on_wait).answer()


def probe(connect: "Callable[[], Session]") -> Busy | None:
    """Say who has the lock, as `Lock.probe` promises."""
    session = connect()
    try:
        return session.busy()
    finally:
        session.close()


class _Asking:
    def __init__(self, connect: "Callable[[], Session]", wait: float | None, on_wait: "OnWait") -> None:
        self._connect = connect
        self._wait = wait
        self._on_wait = on_wait
        self._waiting = False
        self._trying = False

    def answer(self) -> "Session | Busy":
        deadline = Deadline(self._wait)
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._ask(deadline)
            except UnreachableError as error:
                self._trying = self._trying or (self._wait != 0 and self._on_wait(error))
                if not self._trying:
                    raise
                time.sleep(deadline.remaining(pause * (0.5 + os.urandom(1)[0] / 255)))
                if deadline.passed():
                    raise
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _ask(self, deadline: Deadline) -> "Session | Busy":
        """Ask with one connection, which is closed unless it has the lock."""
        session = self._connect()
        held = False
        try:
            busy = session.take_now()
            if busy is not None:
                self._waiting = self._waiting or (self._wait != 0 and self._on_wait(busy))
                if self._waiting:
                    busy = session.take_before(deadline)
            held = busy is None
            return session if busy is None else busy
        finally:
            if not held:
                session.close()
