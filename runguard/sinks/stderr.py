"""Standard error: quiet when all is well, never silent when it is not."""

import os

from runguard import events, outcome
from runguard.events import Attempt
from runguard.outcome import unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runguard.events import Event

ALWAYS, UNLESS_QUIET, WATCHED, VERBOSE = range(4)
"""Who sees an event: everybody; everybody not quiet; who looks at a terminal; who asked for more."""

QUIET_SEES, OTHERS_SEE, TERMINAL_SEES, VERBOSE_SEES = range(4)
_NOTICES = {events.ERROR: ALWAYS, events.WARNING: ALWAYS, events.HINT: WATCHED, events.DETAIL: VERBOSE}
_PREFIX = "runguard: "


class Stderr:
    """Writes the events up to a level of interest (`sees`) to descriptor 2."""

    def __init__(self, form: "Callable[[Event], str]", *, prefix: bool, sees: int) -> None:
        self._form = form
        self._prefix = _PREFIX if prefix else ""
        self._sees = sees

    def write(self, event: "Event") -> None:
        """Write one line, or nothing."""
        if _concerns(event) <= self._sees:
            say(f"{self._prefix}{self._form(event)}")


def say(line: str) -> None:
    """Write a line to standard error with one call, so that lines of two processes do not mix; never fails."""
    try:
        os.write(2, line.encode("utf-8", "backslashreplace") + b"\n")
    except OSError:
        pass


def _concerns(event: "Event") -> int:
    if not isinstance(event, Attempt):
        return _NOTICES[event.level]
    match event.outcome:
        case outcome.NotStarted() | outcome.BackendFailed():
            return ALWAYS
        case outcome.WaitExpired() | outcome.Interrupted():
            return UNLESS_QUIET
        case outcome.Skipped():
            return WATCHED
        case outcome.Ran():
            return VERBOSE
    unreachable(event.outcome)
