"""Does a pooler give one PostgreSQL session to several clients? Then a session lock excludes nobody."""

import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_LOOKS = 3
_SECONDS = 1.0
_ASK = b"SELECT pg_backend_pid()"


def shares_sessions(ours: "Connection", connect: "Callable[[], Connection]") -> bool:
    """Say whether it is proven that `ours`, idle between statements, does not have a server session for itself.

    Proof is a session that changes from one statement to the next, or a second connection that is given ours
    inside its transaction. No answer to the second within a second is no proof: a session pool may be used up.
    """
    mine = {_session_of(ours, _ASK) for _ in range(_LOOKS)}
    if len(mine) > 1:
        return True
    for _ in range(_LOOKS):
        other = connect()
        try:
            theirs = _session_of(other, b"BEGIN; " + _ASK)
            if theirs is None:
                return False
            if theirs in mine or _session_of(ours, _ASK) not in mine:
                return True
        finally:
            other.close()
    return False


def _session_of(connection: "Connection", sql: bytes) -> bytes | None:
    """Return the server's pid as a connection sees it, None if no answer came in time."""
    link = connection.pgconn
    link.send_query(sql)
    until = time.monotonic() + _SECONDS
    answered = select.poll()
    answered.register(link.socket, select.POLLIN)
    found = None
    while True:
        link.flush()
        if link.is_busy():
            if not answered.poll(max(0.0, until - time.monotonic()) * 1000):
                return None
            link.consume_input()
            continue
        result = link.get_result()
        if result is None:
            return found
        found = result.get_value(0, 0) if result.ntuples else found
