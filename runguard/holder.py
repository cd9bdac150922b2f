"""Who has a lock, as far as that can be known: for people to read, never to decide upon."""


class Holder:
    """The holder of a lock; each field is None where the backend cannot tell.

    `since` is RFC 3339 in UTC; `session` is how a server calls the connection that holds the lock.
    """

    __slots__ = ("command", "host", "pid", "session", "since", "user")

    def __init__(  # noqa: PLR0913 - one field each, all by name
        self,
        *,
        pid: int | None = None,
        host: str | None = None,
        user: str | None = None,
        since: str | None = None,
        command: str | None = None,
        session: str | None = None,
    ) -> None:
        self.pid = pid
        self.host = host
        self.user = user
        self.since = since
        self.command = command
        self.session = session

    def fields(self) -> "dict[str, str | int]":
        """Return what is known, by field name."""
        return {name: value for name in Holder.__slots__ if (value := getattr(self, name)) is not None}

    def __str__(self) -> str:
        """Say who in one phrase, for instance `pid 812 on web1 (user www-data) since ...: /usr/bin/php ...`."""
        known = [f"pid {self.pid}" if self.pid is not None else "", self.session or ""]
        who = ", ".join(part for part in known if part) or "somebody"
        where = f" on {self.host}" if self.host else ""
        user = f" (user {self.user})" if self.user else ""
        since = f" since {self.since}" if self.since else ""
        command = f": {self.command}" if self.command else ""
        return f"{who}{where}{user}{since}{command}"
