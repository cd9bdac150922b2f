"""An event as one line for people."""

from runguard import outcome
from runguard.events import Attempt
from runguard.outcome import unreachable
from runguard.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runguard.events import Event


def line(event: "Event") -> str:
    """Return `NAME: what happened`, without a line end."""
    said = _attempt(event) if isinstance(event, Attempt) else event.text
    return printable(f"{event.name}: {said}")


def _attempt(event: Attempt) -> str:
    ended = event.outcome
    match ended:
        case outcome.Ran():
            return f"ran for {ended.seconds:.1f} s, exit code {ended.code}"
        case outcome.NotStarted():
            return ended.reason
        case outcome.Skipped():
            full = f", and {ended.waiters} already wait" if ended.waiters is not None else ""
            return f"skipped: held by {ended.holder}{full} (policy {event.policy})"
        case outcome.WaitExpired():
            return f"gave up after waiting {ended.waited:.1f} s: held by {ended.holder}"
        case outcome.BackendFailed():
            return ended.reason
        case outcome.Interrupted():
            return f"interrupted by signal {ended.signal} before the command started"
    unreachable(ended)
