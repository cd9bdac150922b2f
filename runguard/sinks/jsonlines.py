"""An event as one JSON object on one line."""

import json

from runguard import outcome, stamps
from runguard.events import Attempt
from runguard.outcome import unreachable
from runguard.printable import printable
from runguard.sinks import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runguard.events import Event, Notice

    Fields = dict[str, object]


def line(event: "Event") -> str:
    """Return the object, without a line end; `message` is what people would read."""
    fields = _attempt(event) if isinstance(event, Attempt) else _notice(event)
    return json.dumps({**fields, "message": text.line(event)}, ensure_ascii=True)


def _notice(event: "Notice") -> "Fields":
    return {"time": stamps.now(), "event": event.what, "level": event.level, "name": event.name, "run_id": event.run_id}


def _attempt(event: Attempt) -> "Fields":
    return {
        "time": event.ended,
        "event": event.outcome.word,
        "name": event.name,
        "run_id": event.run_id,
        "backend": printable(event.backend),
        "policy": event.policy,
        "host": event.host,
        "pid": event.pid,
        "slot": None,
        "attempt": event.attempt,
        "started": event.started,
        "ended": event.ended,
        "exit_code": event.code,
        **_outcome(event.outcome),
    }


def _outcome(ended: "outcome.Outcome") -> "Fields":
    match ended:
        case outcome.Ran():
            return {"ran_seconds": round(ended.seconds, 3)}
        case outcome.NotStarted() | outcome.BackendFailed():
            return {"reason": printable(ended.reason)}
        case outcome.Skipped():
            return {"holder": _holder(ended), "waiters": ended.waiters}
        case outcome.WaitExpired():
            return {"holder": _holder(ended), "waited_seconds": round(ended.waited, 3)}
        case outcome.Interrupted():
            return {"signal": ended.signal}
    unreachable(ended)


def _holder(ended: "outcome.Skipped | outcome.WaitExpired") -> "dict[str, str | int]":
    fields = ended.holder.fields()
    return {name: printable(value) if isinstance(value, str) else value for name, value in fields.items()}
