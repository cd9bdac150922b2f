"""A connection to PostgreSQL that can be trusted with a session lock, or a refusal that says why not."""

import os
import time
from contextlib import contextmanager

from runguard.backends import pooler
from runguard.backends.session import CONNECT_SECONDS
from runguard.errors import BackendError, UnreachableError, UsageError
from runguard.urls import ENCODE, masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any, TypeVar

    import psycopg
    from psycopg.abc import PQGen

    from runguard.backends.base import Target

    Connection = psycopg.Connection[tuple[Any, ...]]
    Answer = TypeVar("Answer")

POOLED = "a pooler stands in between; give runguard a direct or session-pooled connection"

_ANSWER_SECONDS = 10
_CLIENT_DEFAULTS = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""Client side, in seconds and milliseconds: a dead connection is given up after about 25 s."""

_SESSION = (
    (0, "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0"),
    (0, "SET tcp_keepalives_idle = 60; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 6"),
    (120000, "SET tcp_user_timeout = 120000"),
    (140000, "SET idle_session_timeout = 0"),
    (170000, "SET transaction_timeout = 0"),
)
"""By server version: nobody's limits end the session, and the server gives a dead client up after the client has."""

_TRANSIENT = frozenset(("57P01", "57P02", "57P03", "57P05", "53300"))
_PERMANENT_WORDS = (
    "authentication failed",
    "does not exist",
    "pg_hba.conf",
    "permission denied",
    "no password supplied",
    "certificate",
    "not support SSL",
    "invalid",
)


def connect(target: "Target") -> "tuple[Connection, bool]":
    """Return a connection ready for the lock, and whether the server is a standby that was allowed.

    Raises `UsageError` for a URL that is no PostgreSQL URI, `BackendError` for a server that cannot be used.
    """
    psycopg = _driver()
    where = masked(target.url)
    given = _parsed(psycopg, target.url)
    wanted: dict[str, Any] = {name: value for name, value in _CLIENT_DEFAULTS.items() if name not in given}
    if os.environ.get("PGCONNECT_TIMEOUT"):
        wanted.pop("connect_timeout", None)
    if target.password is not None:
        wanted["password"] = target.password
    secret = str(target.password or given.get("password") or "")
    with speaking(where, "connect", secret=secret):
        connection = _patient().connect(
            target.url,
            autocommit=True,
            prepare_threshold=None,
            application_name=f"runguard {target.name}"[:63],
            client_encoding="UTF8",
            **wanted,
        )
    try:
        with speaking(where, "prepare the session", secret=secret):
            return connection, _prepare(psycopg, connection, target, where)
    except BaseException:
        connection.close()
        raise


def _prepare(psycopg: "ModuleType", connection: "Connection", target: "Target", where: str) -> bool:
    """Refuse what cannot keep a session lock, then set the session up; return whether it is a standby.

    The looks come first: through a transaction pooler a SET would stay behind for other clients.
    """
    row = connection.execute("SELECT pg_is_in_recovery(), pg_backend_pid()").fetchone()
    standby, pid = row or (False, 0)
    if standby and not target.allow_replica:
        advice = "name the primary, or give --allow-replica"
        message = f"{where} is a standby, whose locks exclude nobody on the primary: {advice}"
        raise BackendError(message)
    # PgBouncer makes up the key that a client gets for its session; PostgreSQL gives its own pid.
    if connection.info.backend_pid != pid and pooler.shares_sessions(
        connection, lambda: psycopg.connect(target.url, connect_timeout=CONNECT_SECONDS, **_secret_of(target))
    ):
        message = f"{where} shares one session between clients: {POOLED}"
        raise BackendError(message)
    connection.execute("; ".join(sql for version, sql in _SESSION if connection.info.server_version >= version))
    return bool(standby)


def _patient() -> "type[Connection]":
    """Return a kind of connection that gives a silent server up, for which libpq would wait for ever."""
    import psycopg

    class Patient(psycopg.Connection["tuple[Any, ...]"]):
        # What limits there are depends on the version of psycopg.
        def wait(self, gen: "PQGen[Answer]", *limits: "float | None", **more: "float | None") -> "Answer":
            return super().wait(_answered(gen), *limits, **more)  # type: ignore[arg-type]

    return Patient


def _answered(talk: "PQGen[Answer]") -> "PQGen[Answer]":
    """Hand on what a talk with the server yields, but not for longer than a server may take for an answer."""
    import psycopg

    until = time.monotonic() + _ANSWER_SECONDS
    try:
        wants = next(talk)
        while True:
            ready = yield wants
            if not ready and time.monotonic() > until:
                message = f"no answer within {_ANSWER_SECONDS} s"
                raise psycopg.OperationalError(message)
            wants = talk.send(ready)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer


def _secret_of(target: "Target") -> "dict[str, str]":
    return {} if target.password is None else {"password": target.password}


@contextmanager
def speaking(where: str, action: str, *, secret: str = "") -> "Iterator[None]":
    """Turn what the driver raises into a `BackendError` of one line that holds no secret."""
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        text = " ".join(str(error).split())
        if secret:
            text = text.replace(secret, "***")
        message = f"cannot {action} at {where}: {text}{_advice(error)}"
        raise (UnreachableError if _is_transient(error, text) else BackendError)(message) from None
    except UnicodeError as error:
        message = f"cannot {action} at {where}: a host, a variable or an answer is no text ({type(error).__name__})"
        raise BackendError(message) from None


def _advice(error: "psycopg.Error") -> str:
    if error.sqlstate == "53200":
        return "; the server's lock table is full, see max_locks_per_transaction"
    return ""


def _is_transient(error: "psycopg.Error", text: str) -> bool:
    """Say whether another try may succeed.

    libpq gives no SQLSTATE when a connection cannot be made, so that only the words tell a wrong password from a
    server that starts up; where they are in another language the answer is yes, and waiting ends at its deadline.
    Words in quotes are names: a host may be called anything.
    """
    import re

    import psycopg

    if error.sqlstate is not None:
        return error.sqlstate in _TRANSIENT or error.sqlstate.startswith("08")
    said = re.sub(r"""'[^']*'|"[^"]*\"""", "", text)
    if any(word in said for word in _PERMANENT_WORDS):
        return False
    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)


def _driver() -> "ModuleType":
    """Load psycopg here, on demand: it costs more than everything else together."""
    try:
        import psycopg
    except ImportError as error:
        message = f"the postgresql backend needs psycopg and libpq: pip install 'psycopg[binary]' ({error})"
        raise BackendError(" ".join(message.split())) from None
    return psycopg


def _parsed(psycopg: "ModuleType", url: str) -> "dict[str, Any]":
    """Return what a URI says; one whose password was not encoded is refused before any part of it can be shown."""
    from psycopg.conninfo import conninfo_to_dict

    advice = f"backend {masked(url)} is not a PostgreSQL URI; {ENCODE}"
    try:
        given = conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):
        raise UsageError(advice) from None
    ports = str(given.get("port", "")).split(",")
    hosts = str(given.get("host", "")).split(",")
    bad_port = any(port and not port.isdigit() for port in ports)
    if bad_port or any("@" in host[1:] for host in hosts) or "@" in str(given.get("dbname", "")):
        raise UsageError(advice)
    return given
