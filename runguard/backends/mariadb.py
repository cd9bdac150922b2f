"""GET_LOCK of MariaDB and MySQL: excludes clients of one server, across its databases.

One dedicated connection holds it and never reconnects: the lock is gone with its session. GET_LOCK answers
1, 0 or NULL, and NULL (the query was killed) is neither yes nor busy.
"""

import time

from runguard.backends import lockdir, mariadbconnect, session
from runguard.backends.base import LOST, Busy, Identity
from runguard.backends.mariadbconnect import speaking
from runguard.errors import BackendError, UsageError
from runguard.holder import Holder
from runguard.urls import masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any

    from runguard.backends.base import Deadline, OnWait, Target
    from runguard.backends.mariadbconnect import Connection
    from runguard.backends.waiters import Waiters

_LONGEST_KEY = 192
_SLICE = 1.0
_PAUSE = 0.02


def lock(target: "Target") -> "MariadbLock":
    """Return the GET_LOCK lock of a NAME, or the one of an exact name."""
    if target.shared:
        message = "--shared: GET_LOCK has no shared locks; use the file or postgresql backend"
        raise UsageError(message)
    return MariadbLock(target)


class MariadbLock:
    """One GET_LOCK name on one server; NAME itself, so that any SQL client meets it."""

    def __init__(self, target: "Target") -> None:
        self._target = target
        self._key = target.name if target.key is None else _foreign_key(target.key)

    def acquire(self, *, wait: float | None, on_wait: "OnWait") -> "session.Session | Busy":
        """Take the lock in a session of its own."""
        return session.acquire(self._session, wait=wait, on_wait=on_wait)

    def probe(self) -> "Busy | None":
        """Ask IS_USED_LOCK."""
        return session.probe(self._session)

    def identity(self) -> Identity:
        """Return the name, and the SQL that takes it."""
        literal = self._key.replace("\\", "\\\\").replace("'", "''")
        return Identity(
            "mariadb",
            self._key,
            "clients of one server, whatever their database",
            (f"SELECT GET_LOCK('{literal}', 0);",),
        )

    def waiters(self) -> "Waiters":
        """Return the count of those who wait for this name on this host."""
        return lockdir.waiters_of(f"{masked(self._target.url)}\n{self._key}")

    def _session(self) -> "_Session":
        connection, read_seconds = mariadbconnect.connect(self._target)
        return _Session(connection, self._key, masked(self._target.url), min(_SLICE, read_seconds / 2))


class _Session:
    """A connection that asks for one name."""

    def __init__(self, connection: "Connection", key: str, where: str, slice_seconds: float) -> None:
        self._connection = connection
        self._key = key
        self._where = where
        self._slice = slice_seconds

    def take_now(self) -> Busy | None:
        """Ask with a wait of 0."""
        with self._speaking("ask for the lock"):
            return None if self._get(0) else self.busy() or Busy()

    def take_before(self, deadline: "Deadline") -> Busy | None:
        """Wait in slices, each shorter than the driver waits for an answer."""
        with self._speaking("wait for the lock"):
            while not self._get(deadline.remaining(self._slice)):
                if deadline.passed():
                    return self.busy() or Busy()
                # MySQL rounds a wait to whole seconds, and a short one to none.
                time.sleep(deadline.remaining(_PAUSE))
        return None

    def busy(self) -> Busy | None:
        """Say who has the lock, None when nobody has."""
        with self._speaking("look for the holder"):
            (holder,) = self._row("SELECT IS_USED_LOCK(%(key)s)", {"key": self._key})
            if holder is None:
                return None
            sql = """
                SELECT USER, HOST, IF(COMMAND = 'Sleep', DATE_FORMAT(
                    UTC_TIMESTAMP() - INTERVAL TIME SECOND, '%%Y-%%m-%%dT%%H:%%i:%%sZ'), NULL)
                FROM information_schema.PROCESSLIST WHERE ID = %(id)s
            """
            found = self._rows(sql, {"id": holder})
        user, host, since = found[0] if found else (None, None, None)
        return Busy(Holder(session=f"session {holder}", user=user, host=host, since=since))

    def hints(self) -> list[str]:
        """Nothing to say of a session that passed the checks of its connection."""
        return []

    def release(self) -> str | None:
        """Unlock and end the session."""
        try:
            with self._speaking("give the lock back"):
                (had,) = self._row("SELECT RELEASE_LOCK(%(key)s)", {"key": self._key})
        except BackendError as error:
            return f"{LOST}: {error}"
        finally:
            self.close()
        return None if had == 1 else f"{LOST}: {self._where} did not know it"

    def close(self) -> None:
        """End the session; the server gives up what it held or waited for."""
        mariadbconnect.close(self._connection)

    def _get(self, seconds: float) -> bool:
        """Ask for the lock, and look whether it is this session that has it."""
        (before,) = self._row("SELECT CONNECTION_ID()", {})
        (answer,) = self._row("SELECT GET_LOCK(%(key)s, %(seconds)s)", {"key": self._key, "seconds": round(seconds, 3)})
        if answer is None:
            why = "the query was killed, or a limit of the server struck"
            message = f"{self._where} ended GET_LOCK without an answer (NULL): {why}"
            raise BackendError(message)
        if answer != 1:
            return False
        holder, after = self._row("SELECT IS_USED_LOCK(%(key)s), CONNECTION_ID()", {"key": self._key})
        if not holder == after == before:
            why = "a multiplexing proxy stands in between; give runguard a direct connection"
            message = f"{self._where} moved our session from {before} to {after}: {why}"
            raise BackendError(message)
        return True

    def _row(self, sql: str, parameters: "dict[str, Any]") -> "tuple[Any, ...]":
        rows = self._rows(sql, parameters)
        if not rows:
            message = f"{self._where} answered nothing to {sql.strip()}"
            raise BackendError(message)
        return rows[0]

    def _rows(self, sql: str, parameters: "dict[str, Any]") -> "list[tuple[Any, ...]]":
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def _speaking(self, action: str) -> "AbstractContextManager[None]":
        return speaking(self._where, action)


def _foreign_key(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = 0
    if not 0 < size <= _LONGEST_KEY:
        message = f"--key: a GET_LOCK name is UTF-8 text of 1 to {_LONGEST_KEY} bytes (64 characters on MySQL)"
        raise UsageError(message)
    return text
