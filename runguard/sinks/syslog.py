"""The system log, facility cron."""

import syslog

from runguard import events, outcome
from runguard.events import Attempt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runguard.events import Event

_NOTICES = {
    events.ERROR: syslog.LOG_ERR,
    events.WARNING: syslog.LOG_WARNING,
    events.HINT: syslog.LOG_NOTICE,
    events.DETAIL: syslog.LOG_DEBUG,
}


class Syslog:
    """Sends each event as one message of `runguard[pid]`."""

    def __init__(self, form: "Callable[[Event], str]") -> None:
        self._form = form
        syslog.openlog("runguard", syslog.LOG_PID, syslog.LOG_CRON)

    def write(self, event: "Event") -> None:
        """Send one message; without a log daemon it is gone, as with logger(1).

        Details are left out: a daemon that reads nothing makes us wait, and the command is still to be started.
        """
        if not isinstance(event, Attempt) and event.level == events.DETAIL:
            return
        syslog.syslog(_priority(event), self._form(event))

    def __str__(self) -> str:
        """Return what the log is called."""
        return "syslog"


def _priority(event: "Event") -> int:
    if not isinstance(event, Attempt):
        return _NOTICES[event.level]
    if isinstance(event.outcome, outcome.NotStarted | outcome.BackendFailed):
        return syslog.LOG_ERR
    if isinstance(event.outcome, outcome.WaitExpired):
        return syslog.LOG_WARNING
    return syslog.LOG_INFO
