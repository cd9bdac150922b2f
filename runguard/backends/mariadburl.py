"""URLs of MariaDB and MySQL servers: mariadb://[USER[:PASSWORD]@][HOST[:PORT]][/DATABASE][?OPTION=VALUE&...]."""

from urllib.parse import unquote

from runguard.configfile import nearest
from runguard.errors import UsageError
from runguard.urls import ENCODE, masked

URL_OPTIONS = (
    "user",
    "password",
    "host",
    "port",
    "database",
    "unix_socket",
    "connect_timeout",
    "read_timeout",
    "write_timeout",
    "ssl",
    "ssl_ca",
    "ssl_cert",
    "ssl_key",
    "ssl_key_password",
    "ssl_verify_cert",
    "ssl_verify_identity",
    "ssl_disabled",
    "defaults_file",
)


def parsed(url: str) -> dict[str, str]:
    """Return what a URL says, by option name, decoded; raises `UsageError` without showing what may be a password."""
    rest, _, query = url.partition("://")[2].partition("?")
    authority, _, database = rest.partition("/")
    userinfo, _, address = authority.rpartition("@")
    user, _, password = userinfo.partition(":")
    host, port = _address(address)
    if "@" in userinfo or "@" in database or "@" in query or "#" in url or (port and not port.isdigit()):
        message = f"backend {masked(url)} is not a URL; {ENCODE}"
        raise UsageError(message)
    found = {"user": user, "password": password, "host": host, "port": port, "database": database}
    given = {name: unquote(value, errors="surrogateescape") for name, value in found.items() if value}
    return given | _options(url, query)


def _address(text: str) -> tuple[str, str]:
    """Return host and port; an IPv6 address stands in brackets."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = text.partition(":")
    return host, port


def _options(url: str, query: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name not in URL_OPTIONS:
            shown = masked(url)
            # After a password that is not encoded it may be a part of it.
            which = f"option {name!a}" if name in shown else "an option"
            message = f"backend {shown}: {which} is not known{nearest(name, URL_OPTIONS)}"
            raise UsageError(message)
        given[name] = unquote(value, errors="surrogateescape")
    return given
