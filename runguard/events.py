"""What happened, as values; only sinks make text of them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runguard.outcome import Outcome

ERROR, WARNING, HINT, DETAIL = "error", "warning", "hint", "detail"


class Attempt:
    """One attempt has ended. Times are RFC 3339 in UTC, durations are seconds."""

    __slots__ = ("attempt", "backend", "code", "ended", "host", "name", "outcome", "pid", "policy", "run_id", "started")

    def __init__(  # noqa: PLR0913 - one field each, all by name
        self,
        *,
        name: str,
        run_id: str,
        backend: str,
        policy: str,
        host: str,
        pid: int,
        attempt: int,
        started: str,
        ended: str,
        outcome: "Outcome",
        code: int,
    ) -> None:
        self.name = name
        self.run_id = run_id
        self.backend = backend
        self.policy = policy
        self.host = host
        self.pid = pid
        self.attempt = attempt
        self.started = started
        self.ended = ended
        self.outcome = outcome
        self.code = code


class Notice:
    """Something worth a line while an attempt goes on.

    `level` says to whom: `error` and `warning` to everybody, `hint` to who watches, `detail` to who asks for it.
    """

    __slots__ = ("level", "name", "run_id", "text", "what")

    def __init__(self, level: str, what: str, text: str, *, name: str, run_id: str) -> None:
        self.level = level
        self.what = what
        self.text = text
        self.name = name
        self.run_id = run_id


Event = Attempt | Notice
