"""A connection to MariaDB that can be trusted with a session lock, or a refusal that says why not.

Settings come from option files, then the environment, then the URL, the strongest last.
"""

import os
import struct
from contextlib import contextmanager

from runguard.backends import optionfiles
from runguard.backends.mariadburl import URL_OPTIONS, parsed
from runguard.backends.session import CONNECT_SECONDS
from runguard.errors import BackendError, UnreachableError, UsageError
from runguard.urls import masked

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from types import ModuleType
    from typing import Any

    import pymysql

    from runguard.backends.base import Target

    Connection = pymysql.Connection[Any]

SOCKETS = ("/run/mysqld/mysqld.sock", "/var/lib/mysql/mysql.sock", "/tmp/mysql.sock")  # noqa: S108 - where servers put it
LOCALHOST = "localhost"
_READ_SECONDS = 10.0
_LONGEST_IDLE = 31_536_000
_TRANSIENT = frozenset(
    (1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1203, 1226, 1927, 2002, 2003, 2006, 2013, 2055, 4031)
)
_GALERA_REFUSES = 1235
_FLAGS = ("ssl", "ssl_disabled", "ssl_verify_cert", "ssl_verify_identity")
_VARIABLES = {"MYSQL_HOST": "host", "MYSQL_TCP_PORT": "port", "MYSQL_UNIX_PORT": "unix_socket", "MYSQL_PWD": "password"}
_OF_OPTION_FILES = {
    "socket": "unix_socket",
    "ssl-verify-server-cert": "ssl_verify_identity",
    "skip-ssl": "ssl_disabled",
}
_NOT_PROTOCOL = (struct.error, IndexError, ValueError, TypeError, AssertionError)
GALERA = "GET_LOCK excludes only clients of one Galera node: use a lease backend, which is a row"


def connect(target: "Target") -> "tuple[Connection, float]":
    """Return a connection ready for the lock, and the seconds after which it stops waiting for an answer.

    Raises `UsageError` for a setting that cannot be, `BackendError` for a server that cannot be used.
    """
    pymysql = _driver()
    where = masked(target.url)
    settings = _settings(target)
    arguments = _arguments(settings, where)
    secret = settings.get("password", "")
    socket = arguments.get("unix_socket")
    reached = f"{where} (socket {socket})" if socket else where
    with _greeting(reached), speaking(reached, "connect", secret=secret):
        connection = pymysql.Connection(
            **arguments, charset="utf8mb4", autocommit=True, program_name=f"runguard {target.name}"
        )
    try:
        with _greeting(where), speaking(where, "prepare the session", secret=secret):
            _prepare(connection, target, where)
    except BaseException:
        close(connection)
        raise
    return connection, float(arguments["read_timeout"])


def close(connection: "Connection") -> None:
    """End a session; one that is broken already is as good."""
    import pymysql

    try:
        connection.close()
    except (pymysql.err.Error, OSError):
        pass


@contextmanager
def speaking(where: str, action: str, *, secret: str = "") -> "Iterator[None]":
    """Turn what the driver raises into a `BackendError` of one line that holds no secret."""
    import pymysql

    try:
        yield
    except pymysql.err.MySQLError as error:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        text = " ".join(str(error.args[-1] if error.args else error).split())
        hint = f"; {GALERA}" if number == _GALERA_REFUSES else ""
        message = f"cannot {action} at {where}: {text.replace(secret, '***') if secret else text} ({number}){hint}"
        # A certificate that does not verify, which the driver numbers like a refused connection, is a ValueError.
        transient = number in _TRANSIENT and not isinstance(getattr(error, "original_exception", None), ValueError)
        raise (UnreachableError if transient else BackendError)(message) from None


@contextmanager
def _greeting(where: str) -> "Iterator[None]":
    """Turn into a `BackendError` what the driver raises when the other side is no MariaDB, or wants more of it."""
    try:
        yield
    except RuntimeError as error:  # a package for the account's kind of password is missing
        message = f"cannot connect at {where}: {error}; pip install 'runguard-cli[mariadb-auth]'"
        raise BackendError(message) from None
    except _NOT_PROTOCOL as error:
        kind = type(error).__name__
        message = f"cannot connect at {where}: what answers there does not speak MariaDB's protocol ({kind})"
        raise BackendError(message) from None


def _prepare(connection: "Connection", target: "Target", where: str) -> None:
    """Refuse a server whose locks exclude too few, then lift the limits that would end the session."""
    found = _rows(
        connection,
        """
        SHOW VARIABLES WHERE Variable_name IN
        ('read_only', 'innodb_read_only', 'wsrep_on', 'max_statement_time', 'max_execution_time')
        """,
    )
    variables = {str(name): str(value) for name, value in found}
    if variables.get("wsrep_on", "OFF") in {"ON", "1"}:
        message = f"{where} is a Galera node: {GALERA}"
        raise BackendError(message)
    read_only = [name for name in ("read_only", "innodb_read_only") if variables.get(name, "OFF") not in {"OFF", "0"}]
    if read_only and not target.allow_replica:
        advice = "name the primary, or give --allow-replica"
        message = f"{where} is read-only ({read_only[0]}), its locks exclude nobody on the primary: {advice}"
        raise BackendError(message)
    limits = [f"SESSION {name} = 0" for name in ("max_statement_time", "max_execution_time") if name in variables]
    connection.query("SET " + ", ".join([f"SESSION wait_timeout = {_LONGEST_IDLE}", *limits]))


def _rows(connection: "Connection", sql: str) -> "tuple[tuple[Any, ...], ...]":
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return tuple(cursor.fetchall())


def _settings(target: "Target") -> dict[str, str]:
    """Return the settings by the names of URL options, as text."""
    from_url = parsed(target.url)
    named = from_url.get("defaults_file")
    if named is not None:
        optionfiles.check_named(named)
    files = optionfiles.STANDARD if named is None else (named,)
    settings: dict[str, str] = {}
    for name, value in optionfiles.read(files).items():
        known = _OF_OPTION_FILES.get(name, name.replace("-", "_"))
        if known in URL_OPTIONS:
            settings[known] = value or ("1" if known in _FLAGS else "")
    settings |= {name: os.environ[variable] for variable, name in _VARIABLES.items() if os.environ.get(variable)}
    settings |= from_url
    settings = {name: value for name, value in settings.items() if value}
    if "unix_socket" not in from_url and settings.get("host", LOCALHOST) != LOCALHOST:
        settings.pop("unix_socket", None)
    if target.password is not None:
        settings["password"] = target.password
    return settings


def _arguments(settings: dict[str, str], where: str) -> "dict[str, Any]":
    """Return the arguments of the driver; `localhost` or no host means the socket, as for the mariadb client."""
    arguments: dict[str, Any] = {
        "user": settings.get("user") or _login(),
        "password": settings.get("password", "").encode("utf-8", "surrogateescape"),
        "database": settings.get("database") or None,
        "connect_timeout": _seconds(settings, "connect_timeout", CONNECT_SECONDS, where),
        "read_timeout": _seconds(settings, "read_timeout", _READ_SECONDS, where),
        "write_timeout": _seconds(settings, "write_timeout", _READ_SECONDS, where),
    }
    if "unix_socket" in settings or settings.get("host", LOCALHOST) == LOCALHOST:
        arguments["unix_socket"] = settings.get("unix_socket") or next(filter(os.path.exists, SOCKETS), SOCKETS[0])
    else:
        arguments["host"] = settings["host"]
        arguments["port"] = _port(settings.get("port", "3306"), where)
    context = _tls(settings, where)
    if context:
        arguments["ssl"] = context
    elif "unix_socket" in arguments or _on(settings, "ssl_disabled"):
        arguments["ssl_disabled"] = True
    return arguments


def _tls(settings: dict[str, str], where: str) -> "ssl.SSLContext | None":
    """Return how to speak TLS, None where nobody asked for it. A CA given is a CA checked."""
    wanted = [name for name in URL_OPTIONS if name.startswith("ssl") and name != "ssl_disabled" and settings.get(name)]
    if _on(settings, "ssl_disabled") or not any(_on(settings, name) for name in wanted):
        return None
    import ssl

    authority = settings.get("ssl_ca")
    try:
        context = ssl.create_default_context(cafile=authority)
        # The certificates that servers make for themselves lack what strict checking wants since Python 3.13.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = _on(settings, "ssl_verify_identity")
        if not (authority or context.check_hostname or _on(settings, "ssl_verify_cert")):
            context.verify_mode = ssl.CERT_NONE
        if "ssl_cert" in settings:
            context.load_cert_chain(settings["ssl_cert"], settings.get("ssl_key"), settings.get("ssl_key_password"))
    except (OSError, ValueError) as error:
        files = ", ".join(settings[name] for name in ("ssl_ca", "ssl_cert", "ssl_key") if name in settings)
        message = f"cannot use the TLS files for {where} ({files}): {error}"
        raise BackendError(message) from None
    return context


def _on(settings: dict[str, str], name: str) -> bool:
    return settings.get(name, "0").lower() not in {"0", "false", "off", "no", ""}


def _seconds(settings: dict[str, str], name: str, default: float, where: str) -> float:
    text = settings.get(name)
    if text is None:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < _LONGEST_IDLE:
        message = f"{name} of {where} is {text!a}: write a number of seconds above 0"
        raise UsageError(message)
    return seconds


def _port(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        message = f"port of {where} is not a number from 1 to 65535"
        raise UsageError(message)
    return int(text)


def _login() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _driver() -> "ModuleType":
    """Load PyMySQL here, on demand: runguard works without it for every other backend."""
    try:
        import pymysql
    except ImportError as error:
        message = f"the mariadb backend needs PyMySQL: pip install PyMySQL ({error})"
        raise BackendError(message) from None
    return pymysql
