"""One guarded run: take the lock or follow the policy, run the command, release."""

import os
import time

from runguard import command, events, interrupts, outcome, stamps
from runguard.backends.base import Busy, now
from runguard.errors import BackendError, UnreachableError
from runguard.executable import CannotRun
from runguard.interrupts import Interrupted
from runguard.watch import Signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runguard.backends.base import Held, Lock
    from runguard.backends.waiters import Waiters
    from runguard.command import Command
    from runguard.events import Event
    from runguard.outcome import Outcome
    from runguard.policy import Policy

    Emit = Callable[[Event], None]
    Tell = Callable[[str, str, str], None]

KILL_AFTER = 10.0
"""Seconds that the rest of a command's process group has once a forwarded signal has ended the command."""


class Run:
    """What is to be run, and what was decided for the case that the lock is busy. Durations are seconds."""

    __slots__ = (
        "attended",
        "backend",
        "command",
        "conflict_code",
        "jitter",
        "max_waiters",
        "name",
        "policy",
        "replace",
        "run_id",
    )

    def __init__(  # noqa: PLR0913 - one field each, all by name
        self,
        *,
        name: str,
        run_id: str,
        backend: str,
        command: "Command",
        policy: "Policy",
        conflict_code: int = 75,
        max_waiters: int | None = None,
        jitter: float = 0.0,
        replace: bool = False,
        attended: bool = False,
    ) -> None:
        self.name = name
        self.run_id = run_id
        self.backend = backend
        self.command = command
        self.policy = policy
        self.conflict_code = conflict_code
        self.max_waiters = max_waiters
        self.jitter = jitter
        self.replace = replace
        self.attended = attended


def run(run: Run, make_lock: "Callable[[], Lock]", emit: "Emit") -> int:
    """Make one attempt, say how it ended, and return the exit code."""

    def tell(level: str, what: str, text: str) -> None:
        emit(events.Notice(level, what, text, name=run.name, run_id=run.run_id))

    started = stamps.now()
    ended = _attempt(run, make_lock, tell)
    code = outcome.exit_code(ended, run.conflict_code)
    emit(
        events.Attempt(
            name=run.name,
            run_id=run.run_id,
            backend=run.backend,
            policy=run.policy.word,
            host=os.uname().nodename,
            pid=os.getpid(),
            attempt=1,
            started=started,
            ended=stamps.now(),
            outcome=ended,
            code=code,
        )
    )
    return code


def _attempt(run: Run, make_lock: "Callable[[], Lock]", tell: "Tell") -> "Outcome":
    """Take the lock and run the command under it, or say why not."""
    try:
        with interrupts.raised():
            _pause(run.jitter)
            answer = _acquire(run, make_lock(), tell)
            if isinstance(answer, outcome.Skipped | outcome.WaitExpired):
                return answer
            _say_acquired(answer, run, tell)
            # From here on signals are the command's: kept back until it is there to have them.
            signals = Signals()
    except Interrupted as interrupted:
        return outcome.Interrupted(interrupted.signal)
    except BackendError as error:
        return outcome.BackendFailed(str(error))
    return _run_under(answer, run, signals, tell)


def _acquire(run: Run, lock: "Lock", tell: "Tell") -> "Held | outcome.Skipped | outcome.WaitExpired":
    """Ask for the lock as the policy says."""
    begun = now()
    place = _Place(lock, run.max_waiters)

    def on_wait(obstacle: Busy | UnreachableError) -> bool:
        limit = "for as long as it takes" if run.policy.limit is None else f"at most {run.policy.limit:g} s"
        if not isinstance(obstacle, Busy):
            tell(events.HINT, "unreachable", f"trying again {limit}: {obstacle}")
            return True
        if place.take():
            tell(events.DETAIL, "waiting", f"waiting {limit}: held by {obstacle.holder}")
            return True
        return False

    try:
        answer = lock.acquire(wait=run.policy.limit, on_wait=on_wait)
    finally:
        place.leave()
    if not isinstance(answer, Busy):
        return answer
    if run.policy.word == "skip" or place.others is not None:
        return outcome.Skipped(answer.holder, place.others)
    return outcome.WaitExpired(answer.holder, now() - begun)


class _Place:
    """A place among those who wait on this host; `others` is how many wait when there was none for us."""

    def __init__(self, lock: "Lock", most: int | None) -> None:
        self._lock = lock
        self._most = most
        self._waiters: Waiters | None = None
        self.others: int | None = None

    def take(self) -> bool:
        """Take a place; without a limit it is no harm if it cannot be counted."""
        try:
            self._waiters = self._lock.waiters()
            self.others = self._waiters.join(self._most)
        except BackendError:
            if self._most is not None:
                raise
        return self.others is None

    def leave(self) -> None:
        """Give the place back."""
        if self._waiters:
            self._waiters.leave()


def _run_under(held: "Held", run: Run, signals: Signals, tell: "Tell") -> "Outcome":
    """Run the command and release the lock once it has ended, in this order.

    There is no `finally` here: after a bug of ours the command may still be running, and keeps the lock.
    """
    begun = now()
    ended: Outcome
    try:
        if run.replace:
            command.replace(run.command, signals, inherit=held.descriptor)
        code = command.run(run.command, signals, tether=held, kill_after=KILL_AFTER, tell=tell)
        ended = outcome.Ran(code, now() - begun)
    except CannotRun as refusal:
        ended = outcome.NotStarted(refusal.code, refusal.reason)
    except BackendError as error:
        ended = outcome.BackendFailed(str(error))
    lost = held.release()
    if lost:
        tell(events.ERROR, "lock_lost", lost)
    return ended


def _say_acquired(held: "Held", run: Run, tell: "Tell") -> None:
    """Say it while signals still end us: a log that takes nothing would keep us here."""
    if run.attended:
        for hint in held.hints():
            tell(events.HINT, "lock", hint)
    tell(events.DETAIL, "acquired", "has the lock")


def _pause(jitter: float) -> None:
    """Sleep a random part of `jitter` seconds."""
    if jitter:
        time.sleep(jitter * int.from_bytes(os.urandom(7), "big") / (1 << 56))
