"""What every lock promises, and the clock that all of them wait by."""

import time

from runguard.holder import Holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from runguard.backends.waiters import Waiters
    from runguard.errors import UnreachableError

    OnWait = Callable[["Busy | UnreachableError"], bool]

    class Held(Protocol):
        """A lock that this process has."""

        descriptor: int | None
        """The open file that the command inherits with the lock, None where nothing is inherited."""

        def hints(self) -> list[str]:
            """Say what an operator should know about this lock, a sentence each; may take milliseconds."""

        @property
        def announce(self) -> Callable[[int], None] | None:
            """Return what is to hear of the pid that is about to become the command, None where nobody has to.

            It raises `BackendError` if the lock is not ours any more: nothing may be executed then.
            """

        def loss(self) -> str | None:
            """Say, once, that the lock turns out to be lost; to be asked whenever SIGCHLD came. Never waits."""

        def release(self) -> str | None:
            """Give the lock back; returns a sentence if it turns out to have been lost before. Never raises."""

    class Lock(Protocol):
        """One name in one place. Knows nothing of policies, commands or events."""

        def acquire(self, *, wait: float | None, on_wait: OnWait) -> "Held | Busy":
            """Take the lock, or say who has it once `wait` seconds have passed.

            `0` asks once, `None` waits for ever. `on_wait` is told what is in the way, once for a holder and once
            for a service that does not answer, before that is waited for; if it returns False it is not.
            Raises `BackendError` if the service cannot answer: that says nothing about who holds the lock.
            """

        def probe(self) -> "Busy | None":
            """Say who has the lock now, None when it is free, without ever taking it for longer than a moment."""

        def waiters(self) -> "Waiters":
            """Return the count of those who wait for this lock on this host. Raises `BackendError`."""

        def identity(self) -> "Identity":
            """Say what the lock is to others; asks nobody."""


LOST = "the lock was lost while the command ran, another run may have had it"


class Busy:
    """Somebody else has the lock."""

    __slots__ = ("holder",)

    def __init__(self, holder: Holder | None = None) -> None:
        self.holder = holder or Holder()


class Identity:
    """A lock as other programs know it: its native key, who is excluded, and lines that take it (shell or SQL)."""

    __slots__ = ("backend", "key", "recipes", "scope")

    def __init__(self, backend: str, key: str, scope: str, recipes: tuple[str, ...]) -> None:
        self.backend = backend
        self.key = key
        self.scope = scope
        self.recipes = recipes


class Target:
    """What a lock is made from: a place, a NAME, and how it is wanted.

    `key` is an exact foreign identity as the user gave it; `holder` is what others may be told about us.
    """

    __slots__ = ("allow_replica", "holder", "key", "name", "password", "shared", "url")

    def __init__(  # noqa: PLR0913 - one field each, all by name
        self,
        *,
        url: str,
        password: str | None = None,
        name: str,
        key: str | None = None,
        shared: bool = False,
        allow_replica: bool = False,
        holder: Holder | None = None,
    ) -> None:
        self.url = url
        self.password = password
        self.name = name
        self.key = key
        self.shared = shared
        self.allow_replica = allow_replica
        self.holder = holder or Holder()


class Deadline:
    """A moment on CLOCK_BOOTTIME, which goes on while the host sleeps; None never comes."""

    __slots__ = ("at",)

    def __init__(self, seconds: float | None) -> None:
        self.at = None if seconds is None else now() + seconds

    def remaining(self, at_most: float) -> float:
        """Return the seconds left, at least 0 and at most `at_most`."""
        return at_most if self.at is None else max(0.0, min(at_most, self.at - now()))

    def passed(self) -> bool:
        """Say whether the moment has come."""
        return self.at is not None and now() >= self.at


def now() -> float:
    """Return the seconds of CLOCK_BOOTTIME."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
