"""How one invocation of `run` ended: a closed set of values."""

from runguard import exits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from runguard.holder import Holder


class Ran:
    """The command ran; `code` is its exit code, or 128+N when signal N ended it."""

    __slots__ = ("code", "seconds")
    word = "ran"

    def __init__(self, code: int, seconds: float) -> None:
        self.code = code
        self.seconds = seconds


class NotStarted:
    """The lock was there, the command could not be executed (126) or found (127)."""

    __slots__ = ("code", "reason")
    word = "ran"

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason


class Skipped:
    """Somebody else has the lock; `waiters` is how many already wait, where that was the reason."""

    __slots__ = ("holder", "waiters")
    word = "skipped"

    def __init__(self, holder: "Holder", waiters: int | None = None) -> None:
        self.holder = holder
        self.waiters = waiters


class WaitExpired:
    """Somebody else had the lock for as long as this run was willing to wait."""

    __slots__ = ("holder", "waited")
    word = "wait_expired"

    def __init__(self, holder: "Holder", waited: float) -> None:
        self.holder = holder
        self.waited = waited


class BackendFailed:
    """The lock could not be asked for: nothing is known about who has it."""

    __slots__ = ("reason",)
    word = "backend_error"

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Interrupted:
    """A signal ended runguard before the command started."""

    __slots__ = ("signal",)
    word = "interrupted"

    def __init__(self, signal: int) -> None:
        self.signal = signal


Outcome = Ran | NotStarted | Skipped | WaitExpired | BackendFailed | Interrupted


def exit_code(outcome: Outcome, conflict_code: int) -> int:
    """Return what the caller is told; each kind of ending has a code of its own."""
    match outcome:
        case Ran() | NotStarted():
            return outcome.code
        case Skipped() | WaitExpired():
            return conflict_code
        case BackendFailed():
            return exits.BACKEND
        case Interrupted():
            return exits.SIGNAL_BASE + outcome.signal
    unreachable(outcome)


def unreachable(value: "NoReturn") -> "NoReturn":
    """Prove to the type checker that a match over a closed set is complete."""
    message = f"not handled: {value!r}"
    raise AssertionError(message)
