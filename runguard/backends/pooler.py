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

    Proof is a session that changes from one statement to the next or has to be waited for, or a second connection
    that is given ours inside its transaction. While the second waits, ours answering is proof of the contrary: a
    session pool is used up, and a transaction pool would have served first who waits longest.
    """
    mine = _session_of(ours, _ASK)
    if mine is None or any(_session_of(ours, _ASK) != mine for _ in range(_LOOKS - 1)):
        return True
    for _ in range(_LOOKS):
        other = connect()
        try:
            theirs = _session_of(other, b"BEGIN; " + _ASK)
            if theirs == mine or _session_of(ours, _ASK) != mine:
                return True
            if theirs is None and _waits(other):
                return False
        finally:
            other.close()
    return False


def _waits(connection: "Connection") -> bool:
    """Say whether a connection still has no answer to what it asked."""
    connection.pgconn.consume_input()
    return bool(connection.pgconn.is_busy())


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
