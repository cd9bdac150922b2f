"""Where a lock lives: a backend's URL with the names, variables and password files of the configuration resolved."""

import os
import stat

from runguard import urls
from runguard.configfile import nearest
from runguard.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from runguard.config import Settings


class Place:
    """A backend's URL; `password` comes from a password file and wins over none in the URL."""

    __slots__ = ("password", "url")

    def __init__(self, url: str, password: str | None = None) -> None:
        self.url = url
        self.password = password

    def __str__(self) -> str:
        """Return the URL with its password masked."""
        return urls.masked(self.url)


def find(settings: "Settings", environment: "Mapping[str, str]") -> Place:
    """Return the place that the `backend` setting names: a URL, or a backend of the configuration file."""
    written = str(settings["backend"])
    if ":" in written:
        return Place(written)
    if written not in settings.backends:
        known = list(settings.backends)
        hint = nearest(written, known) if known else "; no configuration file names a backend"
        raise settings.error(settings.level("backend"), f"backend {written!a} is neither a URL nor a known name{hint}")
    backend = settings.backends[written]
    where = backend["where"]
    password_file = backend.get("password_file")
    password = _password(where, password_file) if password_file else None
    return Place(_expanded(where, backend["url"], environment), password)


def _expanded(where: str, url: str, environment: "Mapping[str, str]") -> str:
    """Replace each `${NAME}`; percent-encoded, unless it is the whole URL."""
    head, *parts = url.split("${")
    for part in parts:
        name, closed, rest = part.partition("}")
        if not closed or name not in environment:
            message = f"{where}: url: ${{{name}}} is not set in the environment"
            raise ConfigError(message)
        value = environment[name]
        head += (value if url == f"${{{name}}}" else _quoted(value)) + rest
    return head


def _quoted(value: str) -> str:
    from urllib.parse import quote

    return quote(os.fsencode(value), safe="")


def _password(where: str, path: str) -> str:
    """Return the first line of a password file that others cannot read."""
    if not os.path.isabs(path):
        message = f"{where}: password_file {path}: write an absolute path"
        raise ConfigError(message)
    try:
        with open(path, encoding="utf-8", opener=_without_blocking) as file:
            found = os.fstat(file.fileno())
            mode = stat.S_IMODE(found.st_mode)
            if not stat.S_ISREG(found.st_mode):
                message = f"{where}: password_file {path} is not a regular file"
                raise ConfigError(message)
            if mode & (stat.S_IROTH | stat.S_IWOTH):
                message = f"{where}: password_file {path} can be read by others (mode {mode:04o}): chmod o-rwx {path}"
                raise ConfigError(message)
            return file.readline().rstrip("\n")
    except OSError as error:
        message = f"{where}: cannot read password_file {path}: {error.strerror}"
        raise ConfigError(message) from None
    except UnicodeDecodeError:
        message = f"{where}: password_file {path} is not UTF-8 text"
        raise ConfigError(message) from None


def _without_blocking(path: str, flags: int) -> int:
    """Open a FIFO without waiting for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
