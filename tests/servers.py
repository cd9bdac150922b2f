"""Private database servers for the tests: everything in one short directory, stopped by pid."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PORTS = range(20000, 32000)  # below the range that clients get theirs from
_UP_SECONDS = 60


class Missing(Exception):  # noqa: N818 - says what is missing
    """A server is not installed here."""


@contextlib.contextmanager
def scratch(letter: str) -> Iterator[Path]:
    """Return a directory with a path short enough for a Unix socket (107 bytes)."""
    directory = Path(tempfile.mkdtemp(prefix=f"rg-{letter}-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def free_port() -> int:
    """Return a port that nobody listens on."""
    while True:
        port = random.choice(_PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def program(*names: str) -> str:
    """Return the path of a server's program, also where it is not on PATH."""
    places = ["/usr/sbin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True))]
    for name in names:
        found = shutil.which(name) or shutil.which(name, path=":".join(places))
        if found:
            return found
    message = f"{names[0]} is not installed; tests/run says how to get it"
    raise Missing(message)


def _version(directory: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in directory.parent.name.split(".") if part.isdigit())


class Server:
    """A process that is not root, since servers refuse root, in a session of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._user:
            os.chown(directory, self._user.pw_uid, self._user.pw_gid)
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, *words: str) -> None:
        """Run a program to its end as the server's user; its output stands in `log`."""
        with (self.directory / "log").open("ab") as log:
            done = subprocess.run(
                words, check=False, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._identity()
            )
        if done.returncode != 0:
            message = f"{words[0]} exited {done.returncode}:\n{self._log_end()}"
            raise RuntimeError(message)

    def start_process(self, *words: str, up: Callable[[], bool]) -> None:
        """Start the server and wait until it answers."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._identity()
            )
        until = time.monotonic() + _UP_SECONDS
        while not up():
            if self.process.poll() is not None or time.monotonic() > until:
                message = f"{words[0]} did not come up:\n{self._log_end()}"
                raise RuntimeError(message)
            time.sleep(0.02)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop the server and wait for its end."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _log_end(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-3000:]

    def _identity(self) -> dict[str, object]:
        where: dict[str, object] = {
            "cwd": self.directory,
            "env": {"PATH": os.environ["PATH"], "HOME": str(self.directory), "LC_ALL": "C.UTF-8"},
        }
        if self._user:
            where |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return where


class MariaDB(Server):
    """MariaDB with accounts root (no password) and rg / rgpass, who has all rights on database rg."""

    program_names = ("mariadbd", "mysqld")

    def __init__(self, directory: Path, *options: str) -> None:
        daemon, install = program(*self.program_names), program("mariadb-install-db", "mysql_install_db")
        super().__init__(directory)
        self.port = free_port()
        self.socket = directory / "s.sock"
        self._words = (
            daemon,
            *self._common(),
            f"--socket={self.socket}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--pid-file={directory}/pid",
            f"--init-file={directory}/init.sql",
            *options,
        )
        if not (directory / "data").exists():
            self.run(install, *self._common(), "--auth-root-authentication-method=normal", "--skip-test-db")
        # An init file holds one statement a line.
        (directory / "init.sql").write_text(
            "CREATE DATABASE IF NOT EXISTS rg;\n"
            "CREATE DATABASE IF NOT EXISTS other;\n"
            "CREATE USER IF NOT EXISTS rg@'%' IDENTIFIED BY 'rgpass';\n"
            "CREATE USER IF NOT EXISTS rg@'localhost' IDENTIFIED BY 'rgpass';\n"
            "GRANT ALL ON rg.* TO rg@'%';\n"
            "GRANT ALL ON rg.* TO rg@'localhost';\n"
            "GRANT ALL ON other.* TO rg@'%';\n"
        )
        self.start()

    def start(self) -> None:
        """Start, or start again."""
        self.start_process(*self._words, up=self._answers)

    @property
    def url(self) -> str:
        """Return the URL over TCP."""
        return f"mariadb://rg:rgpass@127.0.0.1:{self.port}/rg"

    @property
    def socket_url(self) -> str:
        """Return the URL over the Unix socket."""
        return f"mariadb://rg:rgpass@localhost/rg?unix_socket={self.socket}"

    def connect(self, user: str = "root", password: str = "", database: str | None = None):  # noqa: ANN201 - the driver's
        """Return a connection of the driver."""
        import pymysql

        return pymysql.connect(
            unix_socket=str(self.socket), user=user, password=password, database=database, autocommit=True
        )

    def rows(self, sql: str, *parameters: object) -> list[tuple]:
        """Return what root is answered."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.socket)) == 0

    def _common(self) -> tuple[str, ...]:
        # Small and without fsync: a power cut loses data, which no test minds.
        return (
            "--no-defaults",
            f"--datadir={self.directory}/data",
            "--skip-log-bin",
            "--skip-name-resolve",
            "--performance-schema=0",
            "--innodb-log-file-size=4M",
            "--innodb-buffer-pool-size=8M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-doublewrite=0",
            "--innodb-flush-method=nosync",
            "--key-buffer-size=1M",
        )


class Galera(MariaDB):
    """One node of a Galera cluster, which is all that `wsrep_on` needs."""

    def __init__(self, directory: Path) -> None:
        provider = next(iter(sorted(Path("/usr/lib").glob("**/libgalera_smm.so"))), None)
        if provider is None:
            message = "galera-4 is not installed; tests/run says how to get it"
            raise Missing(message)
        group = free_port()
        super().__init__(
            directory,
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--default-storage-engine=InnoDB",
            "--wsrep-on=ON",
            f"--wsrep-provider={provider}",
            "--wsrep-cluster-name=runguard-tests",
            f"--wsrep-node-address=127.0.0.1:{group}",
            f"--wsrep-provider-options=base_host=127.0.0.1;base_port={group};gmcast.listen_addr=tcp://127.0.0.1:{group};gcache.size=4M",
            "--wsrep-new-cluster",
            "--wsrep-cluster-address=gcomm://",
        )


class Postgres(Server):
    """PostgreSQL with accounts postgres (superuser) and rg (owner of databases rg and other)."""

    def __init__(self, directory: Path, *options: str, copy_of: Postgres | None = None) -> None:
        daemon, initdb = program("postgres"), program("initdb")
        super().__init__(directory)
        self.port = free_port()
        data = directory / "data"
        if copy_of is None:
            self.run(initdb, "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
            hba = data / "pg_hba.conf"
            hba.write_text("host all pwuser 127.0.0.1/32 scram-sha-256\n" + hba.read_text())
        else:
            self.run(
                program("pg_basebackup"),
                "-h",
                str(copy_of.directory),
                "-p",
                str(copy_of.port),
                "-U",
                "postgres",
                "-D",
                str(data),
                "-R",
                "-c",
                "fast",
            )
        settings = (
            "fsync=off",
            "synchronous_commit=off",
            "full_page_writes=off",
            "shared_buffers=8MB",
            "max_connections=50",
            "autovacuum=off",
            "jit=off",
            "listen_addresses=127.0.0.1",
            *options,
        )
        self._words = (
            daemon,
            "-D",
            str(data),
            "-k",
            str(directory),
            "-p",
            str(self.port),
            *[word for setting in settings for word in ("-c", setting)],
        )
        self.start()
        if copy_of is None:
            self.sql(
                "CREATE ROLE rg LOGIN PASSWORD 'rgpass'",
                "CREATE DATABASE rg OWNER rg",
                "CREATE DATABASE other OWNER rg",
                "CREATE ROLE pwuser LOGIN PASSWORD 's3cret@/x'",
            )

    def start(self) -> None:
        """Start, or start again."""
        self.start_process(*self._words, up=self.is_up)

    @property
    def url(self) -> str:
        """Return the URL over TCP."""
        return f"postgresql://rg:rgpass@127.0.0.1:{self.port}/rg"

    def connect(self, user: str = "postgres", database: str = "postgres"):  # noqa: ANN201 - the driver's
        """Return a connection of the driver."""
        import psycopg

        return psycopg.connect(host=str(self.directory), port=self.port, user=user, dbname=database, autocommit=True)

    def sql(self, *statements: str, database: str = "postgres") -> list[tuple]:
        """Run statements as the superuser; return the rows of the last one."""
        with contextlib.closing(self.connect(database=database)) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def is_up(self) -> bool:
        """Say whether the server takes connections."""
        import psycopg

        try:
            self.connect().close()
        except psycopg.Error:
            return False
        return True


class PgBouncer(Server):
    """A pooler in front of a PostgreSQL; everybody is logged in as rg."""

    def __init__(
        self, directory: Path, postgres: Postgres, mode: str, *, pool_size: int = 4, round_robin: bool = False
    ) -> None:
        daemon = program("pgbouncer")
        super().__init__(directory)
        self.port = free_port()
        (directory / "ini").write_text(
            f"[databases]\n* = host=127.0.0.1 port={postgres.port} user=rg\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
            f"default_pool_size = {pool_size}\nserver_round_robin = {int(round_robin)}\n"
            "ignore_startup_parameters = extra_float_digits,options\n"
        )
        self.start_process(daemon, "-q", str(directory / "ini"), up=self._answers)

    @property
    def url(self) -> str:
        """Return the URL of the pooler."""
        return f"postgresql://rg@127.0.0.1:{self.port}/rg"

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url).close()
        except psycopg.Error:
            return False
        return True
