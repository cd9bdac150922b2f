"""The mariadb backend against real servers: scope, foreign keys, limits, refusals, settings, secrets, TLS, outages."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import pymysql
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
    relay,
    silent,
    start_waiter,
    until_said,
    waited,
)
from conftest import eventually
from servers import MariaDB, free_port, scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Runguard
    from servers import Galera, Postgres

FOREIGN_KEYS = ('it\'s "quoted"', "Upper Case", "50% \\ off;", "x" * 192, "ü" * 96)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    return f"mariadb.{abs(hash(request.node.name)):x}"


@contextlib.contextmanager
def variable(server: MariaDB, name: str, value: float) -> Iterator[None]:
    """Change a global variable of the server for a while."""
    ((before,),) = server.rows(f"SELECT @@GLOBAL.{name}")
    server.rows(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        server.rows(f"SET GLOBAL {name} = {before}")


@contextlib.contextmanager
def account(server: MariaDB, user: str, how: str) -> Iterator[None]:
    """Make an account for a while."""
    server.rows(f"CREATE USER {user}@'%%' {how}")
    try:
        yield
    finally:
        server.rows(f"DROP USER {user}@'%%'")


def sessions_asking(server: MariaDB, key: str) -> list[int]:
    """Return the sessions that wait in GET_LOCK for a key just now."""
    sql = "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE %s AND ID <> CONNECTION_ID()"
    return [session for (session,) in server.rows(sql, f"%GET_LOCK('{key}'%")]


def sessions_of(server: MariaDB, user: str) -> list[int]:
    return [session for (session,) in server.rows("SELECT ID FROM information_schema.PROCESSLIST WHERE USER=%s", user)]


@pytest.mark.parametrize("database", ["other", ""])
def test_one_server_is_one_scope(runguard: Runguard, mariadb: MariaDB, name: str, database: str) -> None:
    """A lock taken with one default database excludes a run with another, or with none, on the same server."""
    holder = Holder(runguard, mariadb.url, name)
    url = mariadb.url.replace("mariadb://", "mysql://").removesuffix("rg") + database
    assert runguard("run", "-b", url, name, "true").returncode == 75
    assert holder.end() == (0, b"")


@pytest.mark.parametrize("key", [None, *FOREIGN_KEYS])
def test_a_plain_client_is_excluded_and_excludes(
    runguard: Runguard, mariadb: MariaDB, name: str, key: str | None
) -> None:
    """The SQL that `runguard key` prints takes the lock that runguard takes, for derived and for foreign names."""
    options = () if key is None else ("--key", key)
    (sql,) = key_lines(runguard, mariadb.url, name, key)
    with contextlib.closing(mariadb.connect()) as client, client.cursor() as cursor:
        holder = Holder(runguard, mariadb.url, name, *options)
        cursor.execute(sql)
        assert cursor.fetchall() == ((0,),)
        assert holder.end() == (0, b"")
        cursor.execute(sql)
        assert cursor.fetchall() == ((1,),)
        cursor.execute("SELECT IS_USED_LOCK(%s) = CONNECTION_ID()", (name if key is None else key,))
        assert cursor.fetchall() == ((1,),)
        refused = runguard("run", "-v", "-b", mariadb.url, *options, name, "--", "echo", "ran")
        assert (refused.returncode, refused.stdout) == (75, b"")
        assert f"held by session {client.thread_id()}".encode() in refused.stderr
    assert eventually(lambda: runguard("run", "-b", mariadb.url, *options, name, "true").returncode == 0)


@pytest.mark.parametrize("key", ["", "x" * 193, "ü" * 97])
def test_names_that_get_lock_does_not_take(runguard: Runguard, name: str, key: str) -> None:
    """A foreign name that is empty or longer than 192 bytes is a usage error, before any server is asked."""
    url = f"mariadb://rg@127.0.0.1:{free_port()}/rg"
    refused = runguard("run", "-b", url, "--key", key, name, "true")
    assert (refused.returncode, refused.stdout) == (64, b"")
    assert ("192 bytes" if key else "empty") in one_line(refused.stderr)


@pytest.mark.parametrize("place", ["file", "url"])
def test_a_wait_outlasts_read_timeout(
    runguard: Runguard, mariadb: MariaDB, name: str, tmp_path: Path, place: str
) -> None:
    """With a read_timeout of 1 s a wait of 3 s takes 3 s and is a conflict, not a broken server."""
    holder = Holder(runguard, mariadb.url, name)
    url = mariadb.url
    if place == "url":
        url += "?read_timeout=1"
    else:
        (tmp_path / "home" / ".my.cnf").write_text("[runguard]\nread_timeout = 1\n")
    refused = runguard("run", "--log-format", "json", "-b", url, "-w", "3", name, "true")
    assert refused.returncode == 75, refused
    assert 3 <= waited(refused) < 5
    assert holder.end() == (0, b"")


def test_wait_forever_goes_on_after_many_slices(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """`--wait forever` is still waiting when several slices have passed, and runs when the lock gets free."""
    holder = Holder(runguard, mariadb.url, name)
    waiter = start_waiter(runguard, mariadb.url + "?read_timeout=0.2", name, "forever")
    with pytest.raises(subprocess.TimeoutExpired):
        waiter.wait(1)
    assert sessions_of(mariadb, "rg")
    assert holder.end() == (0, b"")
    out, _ = waiter.communicate(timeout=30)
    assert (waiter.returncode, out) == (0, b"ran\n")


def test_a_killed_query_is_no_conflict(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """A wait whose GET_LOCK is ended with KILL QUERY answers NULL, which is 69 and never 75."""
    holder = Holder(runguard, mariadb.url, name)
    waiter = start_waiter(runguard, mariadb.url, name, "60")

    def kill_until_it_ends() -> bool:
        for session in sessions_asking(mariadb, name):
            with contextlib.suppress(pymysql.err.OperationalError):
                mariadb.rows(f"KILL QUERY {session}")
        return waiter.poll() is not None

    assert eventually(kill_until_it_ends)
    out, said = waiter.communicate()
    assert (waiter.returncode, out) == (69, b"")
    assert b"NULL" in said or b"interrupted" in said
    assert holder.end() == (0, b"")


def test_max_statement_time_of_the_server_ends_no_wait(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """A global max_statement_time shorter than a slice changes neither a wait's length nor its result."""
    holder = Holder(runguard, mariadb.url, name)
    with variable(mariadb, "max_statement_time", 0.2):
        refused = runguard("run", "--log-format", "json", "-b", mariadb.url, "-w", "1.5", name, "true")
        assert refused.returncode == 75, refused
        assert waited(refused) >= 1.5
        assert holder.end() == (0, b"")
        assert runguard("run", "-b", mariadb.url, "-w", "1.5", name, "true").returncode == 0


def test_wait_timeout_of_the_server_ends_no_lock(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """A job that runs longer than the global wait_timeout keeps its lock to the end."""
    with variable(mariadb, "wait_timeout", 1), variable(mariadb, "interactive_timeout", 1):
        holder = Holder(runguard, mariadb.url, name)
        refused = runguard("run", "--log-format", "json", "-b", mariadb.url, "-w", "3", name, "true")
        assert refused.returncode == 75, refused
        assert waited(refused) >= 3
        assert holder.end() == (0, b"")


def test_a_lost_lock_is_said(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """When the holder's session is killed, the run says at its end that the lock was lost; the command's code stays."""
    holder = Holder(runguard, mariadb.url, name, "--quiet", code=7)
    ((session,),) = mariadb.rows("SELECT IS_USED_LOCK(%s)", name)
    mariadb.rows(f"KILL {session}")
    code, said = holder.end()
    assert code == 7
    assert "lost" in one_line(said)
    assert runguard("run", "-b", mariadb.url, name, "true").returncode == 0


def test_a_read_only_server_is_refused(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """A server with read_only is 69 and named as such; `--allow-replica` runs there and gives the lock back."""
    with variable(mariadb, "read_only", 1):
        line = assert_refused(runguard, mariadb.url, name)
        assert "read-only" in line
        assert "--allow-replica" in line
        for _ in range(2):
            assert runguard("run", "--allow-replica", "-b", mariadb.url, name, "true").returncode == 0
        assert runguard("test", "--allow-replica", "-b", mariadb.url, name).returncode == 0
    assert runguard("run", "-b", mariadb.url, name, "true").returncode == 0


def test_a_galera_node_is_refused(runguard: Runguard, galera: Galera, name: str) -> None:
    """A Galera node is 69 with the hint at a lease, free or held, for `run` with and without a wait and for `test`."""
    assert "lease" in assert_refused(runguard, galera.url, name)
    with contextlib.closing(galera.connect()) as client, client.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK(%s, 0)", (name,))
        assert "lease" in assert_refused(runguard, galera.url, name)
        refused = runguard("run", "--allow-replica", "-w", "60", "-b", galera.url, name, "true")
        assert refused.returncode == 69
        assert "lease" in one_line(refused.stderr)


class TestSettings:
    """Where the connection's settings come from."""

    @pytest.mark.parametrize("group", ["client", "client-mariadb", "runguard"])
    def test_groups_of_the_option_file_at_home(
        self, runguard: Runguard, mariadb: MariaDB, name: str, tmp_path: Path, group: str
    ) -> None:
        """User, password, host and port of ~/.my.cnf are used, from each of our groups, found through HOME."""
        (tmp_path / "home" / ".my.cnf").write_text(
            f'[mysqld]\nport = 1\n[{group}]\nuser = rg\npassword = "rgpass" # theirs\nhost=127.0.0.1\n'
            f"port={mariadb.port}\n"
        )
        assert runguard("run", "-b", "mariadb://", name, "true").returncode == 0
        assert "cannot connect" in one_line(runguard("run", "-b", "mariadb://nobody@/rg", name, "true").stderr)

    def test_an_included_file(self, runguard: Runguard, mariadb: MariaDB, name: str, tmp_path: Path) -> None:
        """What an option file includes counts."""
        included = tmp_path / "secret.cnf"
        included.write_text("[client]\npassword = rgpass\n")
        (tmp_path / "home" / ".my.cnf").write_text(f"[client]\nuser=rg\nsocket={mariadb.socket}\n!include {included}\n")
        assert runguard("run", "-b", "mariadb:///rg", name, "true").returncode == 0

    def test_the_environment(self, runguard: Runguard, mariadb: MariaDB, name: str, tmp_path: Path) -> None:
        """MYSQL_UNIX_PORT and MYSQL_PWD are used, before what the option file says."""
        (tmp_path / "home" / ".my.cnf").write_text("[client]\nuser=rg\npassword=old\nsocket=/nowhere\n")
        environment = {"MYSQL_UNIX_PORT": str(mariadb.socket), "MYSQL_PWD": "rgpass"}
        assert runguard("run", "-b", "mariadb:///rg", name, "true", environment=environment).returncode == 0
        environment = {"MYSQL_HOST": "127.0.0.1", "MYSQL_TCP_PORT": str(mariadb.port), "MYSQL_PWD": "rgpass"}
        assert runguard("run", "-b", "mariadb:///rg", name, "true", environment=environment).returncode == 0

    def test_a_file_named_by_the_url(self, runguard: Runguard, mariadb: MariaDB, name: str, tmp_path: Path) -> None:
        """`?defaults_file=` is read instead of the usual files."""
        (tmp_path / "home" / ".my.cnf").write_text("[client]\nuser=nobody\n")
        own = tmp_path / "own.cnf"
        own.write_text(f"[client]\nuser=rg\npassword=rgpass\nsocket={mariadb.socket}\n")
        assert runguard("run", "-b", f"mariadb:///rg?defaults_file={own}", name, "true").returncode == 0

    @pytest.mark.parametrize("address", ["localhost", "localhost:1", ""])
    def test_localhost_means_the_socket(self, runguard: Runguard, mariadb: MariaDB, name: str, address: str) -> None:
        """With the host `localhost`, or with none, the socket is used, whatever the port."""
        environment = {"MYSQL_UNIX_PORT": str(mariadb.socket)}
        holder = Holder(runguard, f"mariadb://rg:rgpass@{address}/rg", name, environment=environment)
        sql = "SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = IS_USED_LOCK(%s)"
        assert mariadb.rows(sql, name) == [("localhost",)]
        assert holder.end() == (0, b"")

    def test_a_missing_socket_is_named(self, runguard: Runguard, name: str, tmp_path: Path) -> None:
        """Where nothing listens at the socket, the message shows its path."""
        path = tmp_path / "no.sock"
        line = assert_refused(runguard, f"mariadb://rg@localhost/rg?unix_socket={path}", name)
        assert str(path) in line


def _closed(_request: pytest.FixtureRequest, _stack: contextlib.ExitStack) -> str:
    return f"127.0.0.1:{free_port()}"


def _silent(_request: pytest.FixtureRequest, stack: contextlib.ExitStack) -> str:
    return f"127.0.0.1:{stack.enter_context(silent())}"


def _web(_request: pytest.FixtureRequest, stack: contextlib.ExitStack) -> str:
    answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
    return f"127.0.0.1:{stack.enter_context(answering(answer))}"


def _ending(_request: pytest.FixtureRequest, stack: contextlib.ExitStack) -> str:
    return f"127.0.0.1:{stack.enter_context(answering(b''))}"


def _postgres(request: pytest.FixtureRequest, _stack: contextlib.ExitStack) -> str:
    server: Postgres = request.getfixturevalue("postgres")
    return f"127.0.0.1:{server.port}"


def _server(request: pytest.FixtureRequest, _stack: contextlib.ExitStack) -> str:
    server: MariaDB = request.getfixturevalue("mariadb")
    return f"127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("user", "address", "database", "says"),
    [
        ("rg", _server, "rg", "Access denied for user 'rg'"),
        ("stranger", _server, "rg", "Access denied for user 'stranger'"),
        ("rg", _closed, "rg", "refused"),
        ("rg", lambda *_: "no-such-host.invalid", "rg", "no-such-host.invalid"),
        ("rg", _silent, "rg", "timed out"),
        ("rg", _postgres, "rg", ""),
        ("rg", _web, "rg", ""),
        ("rg", _ending, "rg", "Lost connection"),
    ],
    ids=["password", "user", "closed", "unresolvable", "silent", "postgresql", "web", "ending"],
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
        url = f"mariadb://{user}:{secret}@{address(request, stack)}/{database}?read_timeout=1&connect_timeout=2"
        begun = time.monotonic()
        line = assert_refused(runguard, url, name, secret)
    assert says in line
    assert time.monotonic() - begun < 3 * 5


def test_an_unknown_database_is_69(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """A database that does not exist, or that the user may not use, is 69 and named."""
    line = assert_refused(runguard, mariadb.url.removesuffix("rg") + "nowhere", name, "rgpass")
    assert "nowhere" in line


class TestPasswords:
    """A password is on no stream, in no log and in no list of the server."""

    secret = "Kx@9/Lm:7?Qz#4%Wv"

    @pytest.fixture
    def keeper_of_it(self, mariadb: MariaDB) -> Iterator[str]:
        """Make an account with a password of all the marks that a URL knows."""
        how = "IDENTIFIED BY '" + self.secret.replace("%", "%%") + "'"
        with account(mariadb, "marked", how):
            yield "marked"

    @pytest.mark.parametrize("safe", ["", "Kx@9/Lm"])
    def test_encoded_and_right_it_works(
        self, runguard: Runguard, mariadb: MariaDB, keeper_of_it: str, name: str, tmp_path: Path, safe: str
    ) -> None:
        """Percent-encoded it lets us in, and shows nowhere: streams, log, list of sessions."""
        log = tmp_path / "log"
        encoded = quote(self.secret, safe="")
        url = f"mariadb://{keeper_of_it}:{encoded}@127.0.0.1:{mariadb.port}/"
        if safe:
            url = f"mariadb://127.0.0.1:{mariadb.port}/?user={keeper_of_it}&password={encoded}"
        holder = Holder(runguard, url, name, "-v", "--log-format", "json", "--log-to", str(log))
        listed = mariadb.rows("SHOW FULL PROCESSLIST")
        refused = runguard("run", "-v", "--log-format", "json", "-b", url, "-w", "0.2", name, "true")
        assert refused.returncode == 75
        code, said = holder.end()
        assert code == 0
        for secret in (self.secret, encoded):
            assert_hidden(secret, said, refused.stderr, log.read_bytes(), repr(listed))

    def test_encoded_and_wrong_it_is_69(
        self, runguard: Runguard, mariadb: MariaDB, keeper_of_it: str, name: str
    ) -> None:
        """Percent-encoded and wrong it is 69, and shows nowhere."""
        wrong = "No" + self.secret
        url = f"mariadb://{keeper_of_it}:{quote(wrong, safe='')}@127.0.0.1:{mariadb.port}/"
        assert_refused(runguard, url, name, wrong, quote(wrong, safe=""))

    @pytest.mark.parametrize("mark", "@/?#")
    def test_not_encoded_it_is_refused(self, runguard: Runguard, mariadb: MariaDB, name: str, mark: str) -> None:
        """A mark that takes the URL apart is a usage error that hides every part and says how to write it."""
        secret = f"Kxw9Lm{mark}7JQzVv"
        refused = runguard("run", "-b", f"mariadb://rg:{secret}@127.0.0.1:{mariadb.port}/rg", name, "true")
        assert refused.returncode == 64
        said = one_line(refused.stderr)
        assert_hidden("Kxw9Lm", said)
        assert_hidden("7JQzVv", said)
        assert "%40" in said

    @pytest.mark.parametrize("mark", ":%")
    def test_marks_that_are_clear_without_encoding(
        self, runguard: Runguard, mariadb: MariaDB, name: str, mark: str
    ) -> None:
        """A colon, and a percent sign that encodes nothing, are taken as they are; the password does not show."""
        secret = f"Kxw9Lm{mark}zJQzVv"
        with account(mariadb, "clear", f"IDENTIFIED BY '{secret.replace('%', '%%')}'"):
            url = f"mariadb://clear:{secret}@127.0.0.1:{mariadb.port}/"
            ran = runguard("run", "-v", "-b", url, name, "true")
        assert ran.returncode == 0, ran
        assert_hidden(secret, ran.stderr)


def test_an_interrupt_ends_a_connect(runguard: Runguard, name: str) -> None:
    """SIGTERM while a connection is being made is 143 at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"mariadb://rg@127.0.0.1:{listener.getsockname()[1]}/rg"
        process = runguard.start("run", "-b", url, "-w", "60", name, "--", "echo", "ran")
        peer, _ = listener.accept()
        with peer:
            process.terminate()
            out, said = process.communicate(timeout=5)
    assert (process.returncode, out) == (143, b"")
    assert "interrupted" in one_line(said)


class TestOutages:
    """A server that is not there while a run waits."""

    def test_up_within_the_limit(self, runguard: Runguard, mariadb: MariaDB, name: str) -> None:
        """With time to wait, a server that is started meanwhile is used."""
        mariadb.stop()
        try:
            waiter = runguard.start("run", "-v", "-b", mariadb.url, "-w", "60", name, "--", "echo", "ran")
            until_said(waiter, b"refused")
        finally:
            mariadb.start()
        out, said = waiter.communicate(timeout=30)
        assert (waiter.returncode, out) == (0, b"ran\n"), said

    @pytest.mark.parametrize(("host", "says"), [("127.0.0.1", "refused"), ("no-such-host.invalid", "no-such-host")])
    def test_never_up(self, runguard: Runguard, name: str, host: str, says: str) -> None:
        """A server that does not come within the limit, or its name, is 69 when it is over, not 75."""
        begun = time.monotonic()
        refused = runguard("run", "-b", f"mariadb://rg@{host}:{free_port()}/rg", "-w", "1.2", name, "echo", "ran")
        assert (refused.returncode, refused.stdout) == (69, b"")
        assert 1.2 <= time.monotonic() - begun < 6
        assert says in one_line(refused.stderr)

    def test_restarted_under_a_waiter(self, runguard: Runguard, mariadb: MariaDB, name: str) -> None:
        """A wait goes on over a restart of the server, which has ended the holder's session."""
        with contextlib.closing(mariadb.connect()) as client, client.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK(%s, 0)", (name,))
            waiter = start_waiter(runguard, mariadb.url, name, "60")
            mariadb.stop()
            mariadb.start()
        out, said = waiter.communicate(timeout=30)
        assert (waiter.returncode, out) == (0, b"ran\n"), said

    def test_too_many_connections(self, runguard: Runguard, mariadb: MariaDB, name: str) -> None:
        """With all connections in use a wait goes on to its end, which is 69; when one gets free it runs."""
        with variable(mariadb, "max_connections", 10), contextlib.ExitStack() as used:
            for _ in range(10):
                used.enter_context(contextlib.closing(mariadb.connect()))
            assert "Too many connections" in assert_refused(runguard, mariadb.url, name)
            refused = runguard("run", "-b", mariadb.url, "-w", "1", name, "true")
            assert refused.returncode == 69
            assert "Too many connections" in one_line(refused.stderr)
            waiter = runguard.start("run", "-v", "-b", mariadb.url, "-w", "60", name, "--", "echo", "ran")
            until_said(waiter, b"Too many connections")
            used.close()
            out, said = waiter.communicate(timeout=30)
            assert (waiter.returncode, out) == (0, b"ran\n"), said


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Make an authority and a server certificate."""
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_server(certificates: Certificates, mariadb: MariaDB) -> Iterator[MariaDB]:
    """Start a MariaDB that speaks TLS, with an account that must."""
    del mariadb  # where there is none this skips
    with scratch("t") as directory:
        user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        for source in (certificates.certificate, certificates.key):
            copy = directory / source.name
            copy.write_bytes(source.read_bytes())
            if user:
                os.chown(copy, user.pw_uid, user.pw_gid)
        own = MariaDB(directory / "s", f"--ssl-cert={directory}/server.pem", f"--ssl-key={directory}/server.key")
        try:
            own.rows("CREATE USER safe@'%%' IDENTIFIED BY 'Qv7xTq9w' REQUIRE SSL")
            yield own
        finally:
            own.stop()


class TestTls:
    """What the TLS options of the URL mean."""

    @pytest.mark.parametrize("query", ["ssl=1", "ssl_ca={authority}", "ssl_ca={authority}&ssl_verify_identity=1"])
    def test_accepted(
        self, runguard: Runguard, tls_server: MariaDB, certificates: Certificates, name: str, query: str
    ) -> None:
        """TLS alone, a CA, and a CA with the right host name let an account with REQUIRE SSL in."""
        query = query.format(authority=certificates.authority)
        ran = runguard("run", "-b", f"mariadb://safe:Qv7xTq9w@127.0.0.1:{tls_server.port}/?{query}", name, "true")
        assert ran.returncode == 0, ran

    @pytest.mark.parametrize(
        ("host", "query", "says"),
        [
            ("127.0.0.1", "ssl_ca={wrong}", "certificate verify failed"),
            ("127.0.0.1", "ssl_verify_cert=1", "certificate verify failed"),
            ("127.0.0.2", "ssl_ca={authority}&ssl_verify_identity=1", "127.0.0.2"),
            ("127.0.0.1", "ssl_disabled=1", "Access denied"),
            ("127.0.0.1", "ssl_ca=/nowhere/ca.pem", "/nowhere/ca.pem"),
            ("127.0.0.1", "ssl_ca={key}", "server.key"),
        ],
        ids=["wrong-ca", "unknown-ca", "wrong-host", "no-tls", "missing-ca", "no-certificate"],
    )
    def test_refused(
        self,
        runguard: Runguard,
        tls_server: MariaDB,
        certificates: Certificates,
        name: str,
        host: str,
        query: str,
        says: str,
    ) -> None:
        """A server that cannot be verified, no TLS where it is required, and unusable files are 69, saying which."""
        query = query.format(authority=certificates.authority, wrong=certificates.wrong_authority, key=certificates.key)
        bound = tls_server.port
        if host != "127.0.0.1":
            query += "&connect_timeout=2"
        with contextlib.ExitStack() as stack:
            if host == "127.0.0.2":
                bound = stack.enter_context(relay(host, tls_server.port))
            line = assert_refused(runguard, f"mariadb://safe:Qv7xTq9w@{host}:{bound}/?{query}", name, "Qv7xTq9w")
        assert says in line

    def test_a_certificate_is_not_waited_for(
        self, runguard: Runguard, tls_server: MariaDB, certificates: Certificates, name: str
    ) -> None:
        """A certificate that does not verify ends a wait at once: no time makes it better."""
        url = f"mariadb://safe@127.0.0.1:{tls_server.port}/?ssl_ca={certificates.wrong_authority}"
        refused = runguard("run", "-w", "forever", "-b", url, name, "true", timeout=30)
        assert refused.returncode == 69
        assert "certificate verify failed" in one_line(refused.stderr)

    def test_a_server_without_tls(self, runguard: Runguard, mariadb: MariaDB, name: str) -> None:
        """TLS that was asked for is not left out where the server has none."""
        assert "SSL" in assert_refused(runguard, mariadb.url + "?ssl=1", name, "rgpass")


def test_killed_waiters_leave_nothing(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """Five waiters ended with SIGKILL are off the server's list within 3 s."""
    holder = Holder(runguard, mariadb.socket_url, name)
    waiters = [start_waiter(runguard, mariadb.url, name, "60") for _ in range(5)]
    for waiter in waiters:
        waiter.kill()
        waiter.communicate()
    ((owner,),) = mariadb.rows("SELECT IS_USED_LOCK(%s)", name)
    assert eventually(lambda: sessions_of(mariadb, "rg") == [owner], seconds=3)
    assert holder.end() == (0, b"")
    assert eventually(lambda: sessions_of(mariadb, "rg") == [], seconds=3)


def test_an_interrupted_waiter_asks_no_longer(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """Two seconds after SIGINT in a wait nobody asks GET_LOCK any more."""
    holder = Holder(runguard, mariadb.url, name)
    waiter = start_waiter(runguard, mariadb.url, name, "60")
    assert eventually(lambda: sessions_asking(mariadb, name))
    waiter.send_signal(signal.SIGINT)
    out, _ = waiter.communicate(timeout=5)
    assert (waiter.returncode, out) == (130, b"")
    assert eventually(lambda: len(sessions_of(mariadb, "rg")) == 1, seconds=2)
    assert holder.end() == (0, b"")


def test_a_missing_driver_is_named(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """Without PyMySQL the backend is 69 with one line that names it; a file lock needs no driver at all."""

    def without(*modules: str, backend: str) -> subprocess.CompletedProcess[bytes]:
        program = NO_DRIVERS.format("; ".join(f"sys.modules[{module!r}] = None" for module in modules))
        words = [sys.executable, "-c", program, "run", "-b", backend, name, "--", "echo", "ran"]
        return subprocess.run(words, check=False, capture_output=True, env=runguard.environment)

    refused = without("pymysql", backend=mariadb.url)
    assert (refused.returncode, refused.stdout) == (69, b"")
    assert "PyMySQL" in one_line(refused.stderr)
    ran = without("pymysql", "psycopg", backend="file:")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"ran\n", b"")


def test_a_missing_package_for_ed25519_is_named(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """An account whose kind of password needs another package is 69 with one line that names the extra."""
    try:
        mariadb.rows("INSTALL SONAME 'auth_ed25519'")
    except pymysql.err.MySQLError as error:
        pytest.skip(f"this MariaDB has no ed25519: {error}")
    with account(mariadb, "edward", "IDENTIFIED VIA ed25519 USING PASSWORD('edpass')"):
        program = NO_DRIVERS.format("sys.modules['nacl'] = None")
        url = f"mariadb://edward:edpass@127.0.0.1:{mariadb.port}/"
        words = [sys.executable, "-c", program, "run", "-b", url, name, "true"]
        refused = subprocess.run(words, check=False, capture_output=True, env=runguard.environment)
    assert refused.returncode == 69, refused
    assert "runguard-cli[mariadb-auth]" in one_line(refused.stderr)
    assert_hidden("edpass", refused.stderr)


def test_one_connection_for_each_run(runguard: Runguard, mariadb: MariaDB, name: str) -> None:
    """A run makes one connection, whether it runs or is refused."""
    with contextlib.closing(mariadb.connect()) as client, client.cursor() as cursor:

        def connections() -> int:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Connections'")
            ((_, count),) = cursor.fetchall()
            return int(count)

        before = connections()
        assert runguard("run", "-b", mariadb.url, name, "true").returncode == 0
        assert connections() - before == 1
        cursor.execute("SELECT GET_LOCK(%s, 0)", (name,))
        cursor.fetchall()
        assert runguard("run", "-b", mariadb.url, "-w", "1.5", name, "true").returncode == 75
        assert connections() - before == 2
