"""The postgresql backend against real servers: scope, keys, limits, poolers, standbys, settings, secrets, TLS."""

from __future__ import annotations

import contextlib
import os
import pty
import pwd
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from claims import (
    NO_DRIVERS,
    Certificates,
    Holder,
    answering,
    assert_hidden,
    assert_refused,
    key_lines,
    one_line,
    silent,
    start_waiter,
    until_said,
    waited,
)
from conftest import COMMAND, eventually
from servers import Postgres, free_port, scratch

from runguard.backends.pooler import shares_sessions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Runguard
    from servers import MariaDB, PgBouncer

LEAST, MOST = -(2**63), 2**63 - 1
PASSWORD = "s3cret@/x"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    return f"postgres.{abs(hash(request.node.name)):x}"


@contextlib.contextmanager
def role(server: Postgres, user: str, *settings: str) -> Iterator[str]:
    """Make a role for a while, and give the URL that logs it in."""
    server.sql(f"CREATE ROLE {user} LOGIN", *(f"ALTER ROLE {user} {setting}" for setting in settings))
    try:
        yield f"postgresql://{user}@127.0.0.1:{server.port}/rg"
    finally:
        server.sql(f"DROP ROLE {user}")


def sessions_of(server: Postgres, name: str) -> list[int]:
    """Return the server's sessions of runs of a name."""
    found = server.sql("SELECT application_name, pid FROM pg_stat_activity")
    return [session for program, session in found if program == f"runguard {name}"]


def advisory_locks(server: Postgres) -> int:
    """Return how many advisory locks are held or wanted."""
    ((count,),) = server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    return count


def test_one_database_is_one_scope(runguard: Runguard, postgres: Postgres, name: str) -> None:
    """The same name is another lock in another database, for `run` and for `test`."""
    holder = Holder(runguard, postgres.url, name)
    other = postgres.url.removesuffix("rg") + "other"
    assert runguard("test", "-b", postgres.url, name).returncode == 75
    assert runguard("test", "-b", other, name).returncode == 0
    assert runguard("run", "-b", other, name, "true").returncode == 0
    assert holder.end() == (0, b"")


@pytest.mark.parametrize("key", [None, LEAST, MOST, 1 << 32])
def test_a_plain_client_is_excluded_and_excludes(
    runguard: Runguard, postgres: Postgres, name: str, key: int | None
) -> None:
    """Each line that `runguard key` prints takes, as printed, the lock that runguard takes, both ways."""
    options = () if key is None else ("--key", str(key))
    lines = key_lines(runguard, postgres.url, name, None if key is None else str(key))
    assert len(lines) == (2 if key is None else 1)
    with contextlib.closing(postgres.connect(database="rg")) as client:
        holder = Holder(runguard, postgres.url, name, *options)
        assert [client.execute(sql).fetchall() for sql in lines] == [[(False,)]] * len(lines)
        assert holder.end() == (0, b"")
        for sql in lines:
            assert client.execute(sql).fetchall() == [(True,)]
            refused = runguard("run", "-v", "-b", postgres.url, *options, name, "--", "echo", "ran")
            assert (refused.returncode, refused.stdout) == (75, b"")
            assert f"held by session {client.info.backend_pid}".encode() in refused.stderr
            client.execute("SELECT pg_advisory_unlock_all()")
    assert runguard("run", "-b", postgres.url, *options, name, "true").returncode == 0


@pytest.mark.parametrize("key", [str(MOST + 1), str(LEAST - 1), "abc", "1.5", "0x10", "--5", "\u0661", "9" * 400])
def test_keys_that_are_no_bigint(runguard: Runguard, name: str, key: str) -> None:
    """A foreign key that is no signed 64-bit number is a usage error, before any server is asked."""
    refused = runguard("run", "-b", f"postgresql://rg@127.0.0.1:{free_port()}/rg", f"--key={key}", name, "true")
    assert (refused.returncode, refused.stdout) == (64, b"")
    assert str(MOST) in one_line(refused.stderr)


def test_limits_of_the_role_change_nothing(runguard: Runguard, postgres: Postgres, name: str) -> None:
    """Statement, lock and idle limits of a role end neither a lock of 3 s nor a wait of 3 s."""
    limits = ("SET statement_timeout = '50ms'", "SET lock_timeout = '50ms'", "SET idle_session_timeout = '1s'")
    habits = ("SET default_transaction_read_only = on", "SET default_transaction_isolation = 'serializable'")
    with role(postgres, "limited", *limits, *habits) as url:
        holder = Holder(runguard, url, name)
        refused = runguard("run", "--log-format", "json", "-b", url, "-w", "3", name, "true")
        assert refused.returncode == 75, refused
        assert 3 <= waited(refused) < 5
        assert holder.end() == (0, b"")
        assert eventually(lambda: not sessions_of(postgres, name))


_INDEX = """
import psycopg, sys
sys.stdin.readline()
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("CREATE TABLE indexed AS SELECT generate_series(1, 100) AS n")
    connection.execute("CREATE INDEX CONCURRENTLY ON indexed (n)")
    connection.execute("DROP TABLE indexed")
print("indexed", flush=True)
sys.stdin.readline()
"""


def test_a_waiter_is_idle_and_holds_no_snapshot(runguard: Runguard, postgres: Postgres, name: str) -> None:
    """Between polls a waiter is idle without a snapshot, so that the holder can CREATE INDEX CONCURRENTLY meanwhile."""
    words = ("run", "-b", postgres.url, name, "--", sys.executable, "-c", _INDEX, postgres.url)
    holder = runguard.start(*words, stdin=subprocess.PIPE)
    assert eventually(lambda: runguard("test", "-b", postgres.url, name).returncode == 75)
    waiter = start_waiter(runguard, postgres.url, name, "60", "-v")
    assert holder.stdin
    assert holder.stdout
    sql = """
        SELECT state, backend_xmin FROM pg_stat_activity WHERE application_name = %(program)s
        ORDER BY backend_start DESC LIMIT 1
    """
    program = {"program": f"runguard {name}"}
    with contextlib.closing(postgres.connect()) as client:
        seen = [client.execute(sql, program).fetchone() for _ in range(500)]
        assert {row[0] for row in seen if row} <= {"idle", "active"}
        idle = [row for row in seen if row and row[0] == "idle"]
        assert len(idle) > len(seen) / 2
        assert {row[1] for row in idle} == {None}
        holder.stdin.write(b"\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == b"indexed\n"
        assert waiter.poll() is None
    holder.communicate(timeout=30)
    out, _ = waiter.communicate(timeout=30)
    assert (holder.returncode, waiter.returncode, out) == (0, 0, b"ran\n")


def test_a_lost_lock_is_said(runguard: Runguard, postgres: Postgres, name: str) -> None:
    """When the holder's session is ended, the run says at its end that the lock was lost; the command's code stays."""
    holder = Holder(runguard, postgres.url, name, "--quiet", code=7)
    (session,) = sessions_of(postgres, name)
    postgres.sql(f"SELECT pg_terminate_backend({session})")
    code, said = holder.end()
    assert code == 7
    assert "lost" in one_line(said)
    assert runguard("run", "-b", postgres.url, name, "true").returncode == 0


class TestStandbys:
    """A hot standby grants the lock that its primary grants too."""

    @pytest.fixture
    def standby(self, postgres: Postgres) -> Iterator[Postgres]:
        """Start a standby of the server."""
        with scratch("s") as directory:
            server = Postgres(directory, copy_of=postgres)
            try:
                yield server
            finally:
                server.stop(signal.SIGINT)

    def test_refused_unless_allowed(self, runguard: Runguard, postgres: Postgres, standby: Postgres, name: str) -> None:
        """A standby is 69, also while waiting; with `--allow-replica` it excludes its own clients and gives back."""
        assert "--allow-replica" in assert_refused(runguard, standby.url, name)
        waiting = runguard("run", "-w", "60", "-b", standby.url, name, "true")
        assert waiting.returncode == 69
        assert "standby" in one_line(waiting.stderr)
        allowed = "--allow-replica"
        holder = Holder(runguard, standby.url, name, allowed)
        assert runguard("run", allowed, "-b", standby.url, name, "true").returncode == 75
        assert runguard("test", allowed, "-b", standby.url, name).returncode == 75
        assert runguard("run", "-b", postgres.url, name, "true").returncode == 0
        waiter = start_waiter(runguard, standby.url, name, "60", allowed)
        assert holder.end() == (0, b"")
        out, said = waiter.communicate(timeout=30)
        assert (waiter.returncode, out) == (0, b"ran\n"), said
        assert eventually(lambda: advisory_locks(standby) == 0)


def _client(pooler: PgBouncer) -> psycopg.Connection:
    return psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None)


class TestPoolers:
    """PgBouncer in front of the server."""

    @pytest.mark.parametrize("pool", [{"pool_size": n} for n in (1, 2, 4)] + [{"pool_size": 4, "round_robin": True}])
    def test_transaction_pools_are_refused(
        self,
        runguard: Runguard,
        postgres: Postgres,
        pgbouncer: Callable[..., PgBouncer],
        name: str,
        pool: dict[str, object],
    ) -> None:
        """A transaction pooler is 69 whatever its pool, and neither a lock nor a setting stays on its sessions."""
        pooler = pgbouncer("transaction", **pool)
        with contextlib.closing(_client(pooler)) as client:
            shown = [
                client.execute(f"SHOW {setting}").fetchone()
                for setting in ("statement_timeout", "idle_session_timeout", "tcp_keepalives_idle")
            ]
            # Other clients keep the pool moving, as they do in real life.
            assert "pooler" in assert_refused(runguard, pooler.url, name)
            waiting = runguard("run", "-w", "60", "-b", pooler.url, name, "true")
            assert waiting.returncode == 69
            for _ in range(4):
                again = [
                    client.execute(f"SHOW {setting}").fetchone()
                    for setting in ("statement_timeout", "idle_session_timeout", "tcp_keepalives_idle")
                ]
                assert again == shown
        assert advisory_locks(postgres) == 0

    def test_a_busy_transaction_pool_is_proven(self, pgbouncer: Callable[..., PgBouncer]) -> None:
        """A transaction pool whose sessions other clients use up is not taken for a session pool."""
        pooler = pgbouncer("transaction", pool_size=1)
        with contextlib.closing(_client(pooler)) as ours, contextlib.closing(_client(pooler)) as busy:

            def second() -> psycopg.Connection:
                busy.execute("BEGIN")
                return _client(pooler)

            assert shares_sessions(ours, second)

    def test_a_used_up_session_pool_is_accepted(self, pgbouncer: Callable[..., PgBouncer]) -> None:
        """A session pool that has no session left for a second connection is not taken for a transaction pool."""
        pooler = pgbouncer("session", pool_size=1)
        with contextlib.closing(_client(pooler)) as ours:
            assert not shares_sessions(ours, lambda: _client(pooler))

    def test_a_session_pool_is_accepted(
        self, runguard: Runguard, postgres: Postgres, pgbouncer: Callable[..., PgBouncer], name: str
    ) -> None:
        """Through a session pooler of two sessions two runs of two names go side by side and leave nothing."""
        pooler = pgbouncer("session", pool_size=2)
        first = Holder(runguard, pooler.url, name)
        second = Holder(runguard, pooler.url, name + ".other")
        assert advisory_locks(postgres) == 2
        assert first.end() == (0, b"")
        assert second.end() == (0, b"")
        assert eventually(lambda: advisory_locks(postgres) == 0)

    def test_a_session_pool_excludes(
        self, runguard: Runguard, pgbouncer: Callable[..., PgBouncer], postgres: Postgres, name: str
    ) -> None:
        """Through a session pooler and past it one name is one lock."""
        pooler = pgbouncer("session", pool_size=2)
        holder = Holder(runguard, pooler.url, name)
        assert runguard("run", "-b", pooler.url, name, "true").returncode == 75
        assert runguard("run", "-b", postgres.url, name, "true").returncode == 75
        assert holder.end() == (0, b"")


class TestSettings:
    """Where the connection's settings come from."""

    def test_a_password_file_at_home(self, runguard: Runguard, postgres: Postgres, name: str, tmp_path: Path) -> None:
        """~/.pgpass is used in an environment with nothing but HOME; one that others can read is not."""
        passwords = tmp_path / "home" / ".pgpass"
        passwords.write_text(f"127.0.0.1:{postgres.port}:rg:pwuser:{PASSWORD}\n")
        url = f"postgresql://pwuser@127.0.0.1:{postgres.port}/rg"
        kept = {word: runguard.environment[word] for word in ("HOME", "RUNGUARD_LOCK_DIR")}

        def run() -> subprocess.CompletedProcess[bytes]:
            words = [*COMMAND, "run", "-b", url, name, "--", "/bin/echo", "ran"]
            return subprocess.run(words, check=False, capture_output=True, env=kept, stdin=subprocess.DEVNULL)

        passwords.chmod(0o600)
        ran = run()
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"ran\n", b"")
        passwords.chmod(0o644)
        refused = run()
        assert (refused.returncode, refused.stdout) == (69, b"")
        assert f'password file "{passwords}" has group or world access'.encode() in refused.stderr
        assert b"no password supplied" in refused.stderr
        assert_hidden(PASSWORD, refused.stderr)

    def test_another_password_file(self, runguard: Runguard, postgres: Postgres, name: str, tmp_path: Path) -> None:
        """PGPASSFILE and `passfile=` name another password file."""
        passwords = tmp_path / "passwords"
        passwords.write_text(f"*:*:*:pwuser:{PASSWORD}\n")
        passwords.chmod(0o600)
        url = f"postgresql://pwuser@127.0.0.1:{postgres.port}/rg"
        environment = {"PGPASSFILE": str(passwords)}
        assert runguard("run", "-b", url, name, "true", environment=environment).returncode == 0
        assert runguard("run", "-b", f"{url}?passfile={passwords}", name, "true").returncode == 0
        assert runguard("run", "-b", url, name, "true").returncode == 69

    def test_the_environment(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """PGHOST, PGPORT, PGUSER, PGDATABASE and PGPASSWORD say what the URL leaves out."""
        environment = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "pwuser", "PGDATABASE": "rg"}
        environment["PGPASSWORD"], url = PASSWORD, "postgresql://"
        holder = Holder(runguard, postgres.url, name)
        assert runguard("run", "-b", url, name, "true", environment=environment).returncode == 75
        assert holder.end() == (0, b"")
        assert runguard("run", "-b", url, name, "true", environment=environment).returncode == 0

    @pytest.mark.parametrize("where", ["environment", "url"])
    def test_a_service(self, runguard: Runguard, postgres: Postgres, name: str, tmp_path: Path, where: str) -> None:
        """PGSERVICE and `service=` name an entry of PGSERVICEFILE."""
        services = tmp_path / "services"
        services.write_text(f"[jobs]\nhost=127.0.0.1\nport={postgres.port}\nuser=rg\ndbname=rg\n")
        environment = {"PGSERVICEFILE": str(services)}
        url = "postgresql://?service=jobs"
        if where == "environment":
            environment["PGSERVICE"], url = "jobs", "postgresql://"
        holder = Holder(runguard, postgres.url, name)
        assert runguard("run", "-b", url, name, "true", environment=environment).returncode == 75
        assert holder.end() == (0, b"")
        assert runguard("run", "-b", url, name, "true", environment=environment).returncode == 0

    def test_options_are_kept(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """PGOPTIONS reaches the session."""
        with contextlib.closing(postgres.connect(database="rg")) as client:
            client.execute("CREATE SCHEMA IF NOT EXISTS own")
        environment = {"PGOPTIONS": "-c log_statement=bogus"}
        refused = runguard("run", "-b", postgres.url, name, "true", environment=environment)
        assert refused.returncode == 69
        assert "log_statement" in one_line(refused.stderr)
        environment = {"PGOPTIONS": "-c search_path=own"}
        assert runguard("run", "-b", postgres.url, name, "true", environment=environment).returncode == 0

    def test_a_password_is_never_asked_for(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """On a terminal a missing password is 69 at once: what is typed belongs to the command."""
        url = f"postgresql://pwuser@127.0.0.1:{postgres.port}/rg"
        controller, terminal = pty.openpty()
        try:
            os.write(controller, b"typed\n")
            words = [*COMMAND, "run", "-b", url, name, "--", "echo", "ran"]
            refused = subprocess.run(
                ["setsid", "--ctty", "--wait", *words],
                check=False,
                env=runguard.environment,
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                timeout=30,
            )
            assert refused.returncode == 69
            assert os.read(terminal, 100) == b"typed\n"
            said = b""
            while select.select([controller], [], [], 0)[0]:
                said += os.read(controller, 4096)
        finally:
            os.close(controller)
            os.close(terminal)
        assert b"no password supplied" in said
        assert b"Password" not in said
        assert b"ran" not in said.replace(b"warranty", b"")

    def test_the_holder_can_be_found(self, runguard: Runguard, postgres: Postgres) -> None:
        """application_name is `runguard NAME`, cut at the 63 bytes that PostgreSQL takes."""
        long_name = "application." + "n" * 52
        holder = Holder(runguard, postgres.url, long_name)
        sql = "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory'"
        assert postgres.sql(sql) == [(f"runguard {long_name}"[:63],)]
        refused = runguard("run", "-v", "-b", postgres.url, long_name, "true")
        assert f"of runguard {long_name}"[:60].encode() in refused.stderr
        assert holder.end() == (0, b"")

    def test_a_database_without_an_encoding(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """A database of encoding SQL_ASCII works, also to say who holds the lock."""
        postgres.sql("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
        try:
            url = postgres.url.removesuffix("rg") + "ascii"
            holder = Holder(runguard, url, name)
            refused = runguard("run", "-v", "-b", url, name, "true")
            assert refused.returncode == 75
            assert f"of runguard {name}".encode() in refused.stderr
            assert holder.end() == (0, b"")
        finally:
            postgres.sql("DROP DATABASE ascii WITH (FORCE)")


class TestPasswords:
    """A password is on no stream, in no log and in no list of the server."""

    def test_encoded_and_right_it_works(
        self, runguard: Runguard, postgres: Postgres, name: str, tmp_path: Path
    ) -> None:
        """Percent-encoded it lets us in, and shows nowhere: streams, log, list of sessions."""
        log, encoded = tmp_path / "log", quote(PASSWORD, safe="")
        url = f"postgresql://pwuser:{encoded}@127.0.0.1:{postgres.port}/rg"
        holder = Holder(runguard, url, name, "-v", "--log-format", "json", "--log-to", str(log))
        listed = postgres.sql("SELECT a::text FROM pg_stat_activity AS a")
        refused = runguard("run", "-v", "--log-format", "json", "-b", url, "-w", "0.2", name, "true")
        assert refused.returncode == 75
        code, said = holder.end()
        assert code == 0
        for secret in (PASSWORD, encoded):
            assert_hidden(secret, said, refused.stderr, log.read_bytes(), repr(listed))

    @pytest.mark.parametrize(
        "form", ["postgresql://pwuser:{}@127.0.0.1:{}/rg", "postgres://127.0.0.1:{1}/rg?user=pwuser&password={0}"]
    )
    def test_encoded_and_wrong_it_is_69(self, runguard: Runguard, postgres: Postgres, name: str, form: str) -> None:
        """Percent-encoded and wrong it is 69, at once also with time to wait, and shows nowhere."""
        wrong = "Qw7!" + PASSWORD
        url = form.format(quote(wrong, safe=""), postgres.port)
        line = assert_refused(runguard, url, name, wrong, quote(wrong, safe=""))
        assert "password authentication failed" in line
        assert runguard("run", "-w", "60", "-b", url, name, "true").returncode == 69

    @pytest.mark.parametrize("secret", [PASSWORD, "Kxw9Lm/7JQzVv", "Kxw9Lm%zz7JQzVv"])
    def test_not_encoded_it_is_refused(self, runguard: Runguard, postgres: Postgres, name: str, secret: str) -> None:
        """A mark that takes the URL apart is a usage error that hides every part and says how to write it."""
        refused = runguard("run", "-b", f"postgresql://pwuser:{secret}@127.0.0.1:{postgres.port}/rg", name, "true")
        assert refused.returncode == 64, refused
        said = one_line(refused.stderr)
        for part in ("s3cret", "Kxw9Lm", "7JQzVv"):
            assert_hidden(part, said)
        assert "%40" in said

    @pytest.mark.parametrize("mark", "?#:")
    def test_marks_that_libpq_takes_as_they_are(
        self, runguard: Runguard, postgres: Postgres, name: str, mark: str
    ) -> None:
        """Other marks are no error to libpq; what they stand in does not show either."""
        secret = f"Kxw9Lm{mark}7JQzVv"
        url = f"postgresql://pwuser:{secret}@127.0.0.1:{postgres.port}/rg"
        refused = runguard("run", "-b", url, name, "true")
        assert refused.returncode == 69
        assert_hidden("Kxw9Lm", one_line(refused.stderr))
        assert_hidden("7JQzVv", refused.stderr)


class TestTls:
    """What sslmode and sslrootcert of the URL mean."""

    def test_a_server_without_tls(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """TLS that was asked for is not left out where the server has none, and is not waited for."""
        url = postgres.url + "?sslmode=require"
        assert "SSL" in assert_refused(runguard, url, name, "rgpass")
        assert runguard("run", "-w", "60", "-b", url, name, "true").returncode == 69

    @pytest.mark.usefixtures("tls")
    def test_a_crash_under_a_waiter(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """A connection with TLS that breaks without a word, as in a crash, is made again while there is time."""
        (sql, *_) = key_lines(runguard, postgres.url, name)
        with contextlib.closing(postgres.connect(database="rg")) as client:
            client.execute(sql)
            waiter = start_waiter(runguard, postgres.url + "?sslmode=require", name, "60")
            ((session,),) = client.execute("SELECT pid FROM pg_stat_ssl WHERE ssl").fetchall()
            os.kill(session, signal.SIGKILL)
            until_said(waiter, b"trying again")
        out, said = waiter.communicate(timeout=30)
        assert (waiter.returncode, out) == (0, b"ran\n"), said
        assert eventually(postgres.is_up)

    def test_a_server_with_tls(self, runguard: Runguard, postgres: Postgres, tls: Certificates, name: str) -> None:
        """The right authority and host name are accepted, and used; a wrong authority or host name is 69."""
        checked = f"{postgres.url}?sslmode=verify-full&sslrootcert="
        holder = Holder(runguard, checked + str(tls.authority), name)
        sql = "SELECT s.ssl FROM pg_stat_ssl AS s JOIN pg_locks USING (pid) WHERE locktype = 'advisory'"
        assert postgres.sql(sql) == [(True,)]
        assert holder.end() == (0, b"")
        line = assert_refused(runguard, checked + str(tls.wrong_authority), name, "rgpass")
        assert "certificate verify failed" in line
        named = checked.replace("127.0.0.1", "localhost") + f"{tls.authority}&hostaddr=127.0.0.1"
        assert "localhost" in assert_refused(runguard, named, name, "rgpass")
        assert "/nowhere/ca.pem" in assert_refused(runguard, checked + "/nowhere/ca.pem", name, "rgpass")

    @pytest.fixture
    def tls(self, postgres: Postgres, tmp_path: Path) -> Iterator[Certificates]:
        """Let the server speak TLS for a while."""
        certificates = Certificates(tmp_path)
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        for source in (certificates.certificate, certificates.key):
            copy = postgres.directory / "data" / source.name
            copy.write_bytes(source.read_bytes())
            copy.chmod(0o600)
            if user:
                os.chown(copy, user.pw_uid, user.pw_gid)
        settings = ("ssl_cert_file = 'server.pem'", "ssl_key_file = 'server.key'", "ssl = on")
        postgres.sql(*(f"ALTER SYSTEM SET {setting}" for setting in settings), "SELECT pg_reload_conf()")
        try:
            assert eventually(lambda: postgres.sql("SHOW ssl") == [("on",)])
            yield certificates
        finally:
            postgres.sql("ALTER SYSTEM RESET ALL", "SELECT pg_reload_conf()")
            assert eventually(lambda: postgres.sql("SHOW ssl") == [("off",)])


def _server(request: pytest.FixtureRequest, _stack: contextlib.ExitStack) -> str:
    server: Postgres = request.getfixturevalue("postgres")
    return f"127.0.0.1:{server.port}"


def _mariadb(request: pytest.FixtureRequest, _stack: contextlib.ExitStack) -> str:
    server: MariaDB = request.getfixturevalue("mariadb")
    return f"127.0.0.1:{server.port}"


def _closed(_request: pytest.FixtureRequest, _stack: contextlib.ExitStack) -> str:
    return f"127.0.0.1:{free_port()}"


def _silent(_request: pytest.FixtureRequest, stack: contextlib.ExitStack) -> str:
    return f"127.0.0.1:{stack.enter_context(silent())}"


def _web(_request: pytest.FixtureRequest, stack: contextlib.ExitStack) -> str:
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
    return f"127.0.0.1:{stack.enter_context(answering(answer))}"


@pytest.mark.parametrize(
    ("user", "address", "database", "says"),
    [
        ("stranger", _server, "rg", "stranger"),
        ("rg", _server, "nowhere", "nowhere"),
        ("rg", _closed, "rg", "refused"),
        ("rg", lambda *_: "no-such-host.invalid", "rg", "no-such-host.invalid"),
        ("rg", _silent, "rg", "timeout expired"),
        ("rg", _mariadb, "rg", ""),
        ("rg", _web, "rg", ""),
    ],
    ids=["user", "database", "closed", "unresolvable", "silent", "mariadb", "web"],
)
def test_what_cannot_be_used_is_69(
    runguard: Runguard,
    request: pytest.FixtureRequest,
    name: str,
    user: str,
    address: Callable[..., str],
    database: str,
    says: str,
) -> None:
    """No usable server behind the URL: 69 in good time, one line without the password, and no command started."""
    secret = "Wr0ng-s3cret"
    with contextlib.ExitStack() as stack:
        url = f"postgresql://{user}:{secret}@{address(request, stack)}/{database}?connect_timeout=2"
        begun = time.monotonic()
        line = assert_refused(runguard, url, name, secret)
    assert says in line
    assert time.monotonic() - begun < 3 * 6


def test_an_interrupt_ends_a_connect(runguard: Runguard, name: str) -> None:
    """SIGTERM while a connection is being made is 143 at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"postgresql://rg@127.0.0.1:{listener.getsockname()[1]}/rg"
        process = runguard.start("run", "-b", url, "-w", "60", name, "--", "echo", "ran")
        peer, _ = listener.accept()
        with peer:
            process.terminate()
            out, said = process.communicate(timeout=5)
    assert (process.returncode, out) == (143, b"")
    assert "interrupted" in one_line(said)


class TestOutages:
    """A server that is not there, or not for us, while a run waits."""

    def test_a_silent_session(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """A server that stops to answer in a wait is given up after 10 s, and asked again while there is time."""
        holder = Holder(runguard, postgres.url, name)
        (owner,) = sessions_of(postgres, name)
        waiter = start_waiter(runguard, postgres.url, name, "60")
        (session,) = (pid for pid in sessions_of(postgres, name) if pid != owner)
        os.kill(session, signal.SIGSTOP)
        try:
            until_said(waiter, b"no answer")
            assert holder.end() == (0, b"")
            out, said = waiter.communicate(timeout=30)
        finally:
            os.kill(session, signal.SIGCONT)
        assert (waiter.returncode, out) == (0, b"ran\n"), said

    def test_up_within_the_limit(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """With time to wait, a server that is started meanwhile is used."""
        postgres.stop(signal.SIGINT)
        try:
            waiter = runguard.start("run", "-v", "-b", postgres.url, "-w", "60", name, "--", "echo", "ran")
            until_said(waiter, b"refused")
        finally:
            postgres.start()
        out, said = waiter.communicate(timeout=30)
        assert (waiter.returncode, out) == (0, b"ran\n"), said

    @pytest.mark.parametrize(("host", "says"), [("127.0.0.1", "refused"), ("no-such-host.invalid", "no-such-host")])
    def test_never_up(self, runguard: Runguard, name: str, host: str, says: str) -> None:
        """A server that does not come within the limit, or its name, is 69 when it is over, not 75."""
        begun = time.monotonic()
        url = f"postgresql://rg@{host}:{free_port()}/rg"
        refused = runguard("run", "-b", url, "-w", "1.2", name, "echo", "ran")
        assert (refused.returncode, refused.stdout) == (69, b"")
        assert 1.2 <= time.monotonic() - begun < 6
        assert says in one_line(refused.stderr)

    def test_restarted_under_a_waiter(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """A wait goes on over a restart of the server, which has ended the holder's session."""
        (sql, *_) = key_lines(runguard, postgres.url, name)
        with contextlib.closing(postgres.connect(database="rg")) as client:
            client.execute(sql)
            waiter = start_waiter(runguard, postgres.url, name, "60")
            postgres.stop(signal.SIGINT)
            postgres.start()
        out, said = waiter.communicate(timeout=30)
        assert (waiter.returncode, out) == (0, b"ran\n"), said

    def test_connection_limit_of_the_role(self, runguard: Runguard, postgres: Postgres, name: str) -> None:
        """With all connections of a role in use a wait goes on to its end, which is 69; when one gets free it runs."""
        with role(postgres, "few", "CONNECTION LIMIT 1") as url:
            with contextlib.closing(postgres.connect(user="few", database="rg")):
                assert "too many connections" in assert_refused(runguard, url, name)
                refused = runguard("run", "-b", url, "-w", "1", name, "true")
                assert refused.returncode == 69
                assert "too many connections" in one_line(refused.stderr)
                waiter = runguard.start("run", "-v", "-b", url, "-w", "60", name, "--", "echo", "ran")
                until_said(waiter, b"too many connections")
            out, said = waiter.communicate(timeout=30)
            assert (waiter.returncode, out) == (0, b"ran\n"), said
            assert eventually(lambda: not sessions_of(postgres, name))


def test_the_end_of_a_run_is_notified(runguard: Runguard, postgres: Postgres, name: str) -> None:
    """Who gives the lock back sends NOTIFY on the channel of its key, after it is free."""
    key = "-2"
    (sql,) = key_lines(runguard, postgres.url, name, key)
    with contextlib.closing(postgres.connect(database="rg")) as client:
        client.execute("LISTEN runguard_fffffffffffffffe")
        holder = Holder(runguard, postgres.url, name, "--key", key)
        holder.process.stdin.close()  # type: ignore[union-attr]
        holder.process.stdin = None
        notices = client.notifies(timeout=30, stop_after=1)
        assert [notice.channel for notice in notices] == ["runguard_fffffffffffffffe"]
        assert client.execute(sql).fetchall() == [(True,)]
        assert holder.end() == (0, b"")


def test_a_notice_wakes_a_waiter(runguard: Runguard, postgres: Postgres, name: str) -> None:
    """A holder of another kind that sends NOTIFY, or nothing at all, is followed by the waiter."""
    key = "-3"
    (sql,) = key_lines(runguard, postgres.url, name, key)
    for notice in ("NOTIFY runguard_fffffffffffffffd", "SELECT 1"):
        with contextlib.closing(postgres.connect(database="rg")) as client:
            client.execute(sql)
            waiter = start_waiter(runguard, postgres.url, name, "60", "--key", key)
            client.execute("SELECT pg_advisory_unlock_all()")
            client.execute(notice)
            out, said = waiter.communicate(timeout=30)
            assert (waiter.returncode, out) == (0, b"ran\n"), said


def test_killed_waiters_leave_nothing(runguard: Runguard, postgres: Postgres, name: str) -> None:
    """Five waiters ended with SIGKILL are off the server's list within 3 s, and no lock is wanted any more."""
    holder = Holder(runguard, postgres.url, name)
    waiters = [start_waiter(runguard, postgres.url, name, "60") for _ in range(5)]
    for waiter in waiters:
        waiter.kill()
        waiter.communicate()
    assert eventually(lambda: len(sessions_of(postgres, name)) == 1, seconds=3)
    assert advisory_locks(postgres) == 1
    assert holder.end() == (0, b"")
    assert eventually(lambda: sessions_of(postgres, name) == [], seconds=3)
    assert advisory_locks(postgres) == 0


@pytest.mark.parametrize("module", ["psycopg", "psycopg.pq"])
def test_a_missing_driver_is_named(runguard: Runguard, postgres: Postgres, name: str, module: str) -> None:
    """Without psycopg, or with one that finds no libpq, the backend is 69 with one line that names it."""
    program = NO_DRIVERS.format(f"sys.modules[{module!r}] = None")
    words = [sys.executable, "-c", program, "run", "-b", postgres.url, name, "--", "echo", "ran"]
    refused = subprocess.run(words, check=False, capture_output=True, env=runguard.environment)
    assert (refused.returncode, refused.stdout) == (69, b"")
    assert "psycopg" in one_line(refused.stderr)


def test_one_lock_for_each_run(runguard: Runguard, postgres: Postgres, name: str) -> None:
    """A run has one session and one advisory lock on it."""
    holder = Holder(runguard, postgres.url, name)
    assert len(sessions_of(postgres, name)) == 1
    assert advisory_locks(postgres) == 1
    assert holder.end() == (0, b"")
