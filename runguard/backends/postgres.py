"""A session advisory lock of PostgreSQL: excludes clients of one database on one primary.

One dedicated autocommit connection holds it. A waiter is idle between polls and holds no snapshot, since a blocking
pg_advisory_lock() stops CREATE INDEX CONCURRENTLY and vacuum; the holder's NOTIFY wakes it at once, the poll is for
holders that send none.
"""

import hashlib
import select

from runguard.backends import lockdir, postgresconnect, session
from runguard.backends.base import LOST, Busy, Identity
from runguard.backends.postgresconnect import POOLED, speaking
from runguard.errors import BackendError, UsageError
from runguard.holder import Holder
from runguard.urls import masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any, LiteralString

    import psycopg

    from runguard.backends.base import Deadline, OnWait, Target
    from runguard.backends.waiters import Waiters

_POLL = 0.25
_KEY_BITS = 64
_MASK = (1 << _KEY_BITS) - 1
_MOST = (1 << 63) - 1
_TRY = {False: "SELECT pg_try_advisory_lock(%(key)s)", True: "SELECT pg_try_advisory_lock_shared(%(key)s)"}
_UNLOCK = {False: "SELECT pg_advisory_unlock(%(key)s)", True: "SELECT pg_advisory_unlock_shared(%(key)s)"}


def lock(target: "Target") -> "PostgresLock":
    """Return the advisory lock of a NAME, or the one of an exact key."""
    return PostgresLock(target)


def derived_key(name: str) -> int:
    """Return the advisory key of a name: the first 8 bytes, big-endian and signed, of SHA-256 of `runguard:NAME`."""
    return int.from_bytes(hashlib.sha256(b"runguard:" + name.encode()).digest()[:8], "big", signed=True)


class PostgresLock:
    """One advisory key in one database."""

    def __init__(self, target: "Target") -> None:
        self._target = target
        self._key = derived_key(target.name) if target.key is None else _foreign_key(target.key)

    def acquire(self, *, wait: float | None, on_wait: "OnWait") -> "session.Session | Busy":
        """Take the lock in a session of its own."""
        return session.acquire(self._session, wait=wait, on_wait=on_wait)

    def probe(self) -> "Busy | None":
        """Look the key up in pg_locks."""
        return session.probe(self._session)

    def identity(self) -> Identity:
        """Return the key, and the SQL that computes and takes it."""
        taken = "SELECT pg_try_advisory_lock({});"
        expression = f"('x' || encode(substr(sha256('runguard:{self._target.name}'), 1, 8), 'hex'))::bit(64)::bigint"
        recipes: tuple[str, ...] = (taken.format(self._key),)
        if self._target.key is None:
            recipes = (taken.format(expression), *recipes)
        return Identity("postgresql", str(self._key), "clients of one database on one primary", recipes)

    def waiters(self) -> "Waiters":
        """Return the count of those who wait for this key on this host."""
        return lockdir.waiters_of(f"{masked(self._target.url)}\n{self._key}")

    def _session(self) -> "_Session":
        connection, replica = postgresconnect.connect(self._target)
        return _Session(connection, self._key, masked(self._target.url), shared=self._target.shared, replica=replica)


class _Session:
    """A connection that asks for one key."""

    def __init__(
        self, connection: "psycopg.Connection[tuple[Any, ...]]", key: int, where: str, *, shared: bool, replica: bool
    ) -> None:
        self._connection = connection
        self._key = key
        self._where = where
        self._shared = shared
        self._can_notify = not replica
        self._channel = f"runguard_{key & _MASK:016x}"

    def take_now(self) -> Busy | None:
        """Try once."""
        with self._speaking("ask for the lock"):
            if self._try():
                return None
        return self.busy() or Busy()

    def take_before(self, deadline: "Deadline") -> Busy | None:
        """Try again at each NOTIFY, and at each poll."""
        with self._speaking("wait for the lock"):
            woken = select.poll()
            woken.register(self._connection.fileno(), select.POLLIN)
            notified: list[object] = []
            if self._can_notify:
                self._connection.add_notify_handler(notified.append)
                self._connection.execute(f"LISTEN {self._channel}")
            while not self._try():
                if deadline.passed():
                    break
                # One that came with the answer to our last try does not wake a poll any more.
                if not notified:
                    woken.poll(deadline.remaining(_POLL) * 1000)
                notified.clear()
            else:
                if self._can_notify:
                    self._connection.execute("UNLISTEN *")
                return None
        return self.busy() or Busy()

    def busy(self) -> Busy | None:
        """Say who has the lock, None when nobody has."""
        sql = """
            SELECT l.pid, a.usename, a.client_addr::text, a.application_name,
                   to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
            FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a USING (pid)
            WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND l.classid::bigint = %(high)s AND l.objid::bigint = %(low)s
            ORDER BY a.backend_start LIMIT 1
        """
        with self._speaking("look for the holder"):
            row = self._connection.execute(sql, self._key_parts()).fetchone()
        if row is None:
            return None
        pid, user, host, program, since = row
        session_text = f"session {pid}" + (f" of {program}" if program else "")
        return Busy(Holder(session=session_text, host=host, user=user, since=since))

    def hints(self) -> list[str]:
        """Nothing to say of a session that passed the checks of its connection."""
        return []

    def release(self) -> str | None:
        """Unlock and wake those who wait, in one statement, and end the session."""
        unlock = _UNLOCK[self._shared]
        sql = f"{unlock}, pg_notify(%(channel)s, '')" if self._can_notify else f"{unlock}, NULL"
        try:
            with self._speaking("give the lock back"):
                had, _ = self._row(sql, {"key": self._key, "channel": self._channel})
        except BackendError as error:
            return f"{LOST}: {error}"
        finally:
            self.close()
        return None if had else f"{LOST}: {self._where} did not know it"

    def close(self) -> None:
        """End the session; the server gives up what it held."""
        self._connection.close()

    def _try(self) -> bool:
        """Ask for the lock, and look whether it is this session that has it."""
        (taken,) = self._row(_TRY[self._shared], {"key": self._key})
        if not taken:
            return False
        sql = """
            SELECT count(*) FROM pg_locks
            WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pid = pg_backend_pid()
              AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND classid::bigint = %(high)s AND objid::bigint = %(low)s
        """
        (found,) = self._row(sql, self._key_parts())
        if found != 1:
            message = f"{self._where} granted the lock to another session than ours: {POOLED}"
            raise BackendError(message)
        return True

    def _row(self, sql: "LiteralString", parameters: "dict[str, int | str]") -> "tuple[Any, ...]":
        row = self._connection.execute(sql, parameters).fetchone()
        if row is None:
            message = f"{self._where} answered nothing to {sql.strip()}"
            raise BackendError(message)
        return row

    def _key_parts(self) -> "dict[str, int | str]":
        """Return the key as pg_locks shows it: two unsigned halves."""
        unsigned = self._key & _MASK
        return {"high": unsigned >> 32, "low": unsigned & 0xFFFFFFFF}

    def _speaking(self, action: str) -> "AbstractContextManager[None]":
        return speaking(self._where, action)


def _foreign_key(text: str) -> int:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < _KEY_BITS and -_MOST - 1 <= int(text) <= _MOST:
        return int(text)
    message = f"--key {text!a}: an advisory key is a whole number from {-_MOST - 1} to {_MOST}"
    raise UsageError(message)
