"""One configuration file: read, with every key known and every value in its form, or refused."""

import os
import stat

from runguard import names, options, urls
from runguard.errors import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

    from runguard.options import Option, Value

    Document = dict[str, dict[str, Any]]

BACKEND_KEYS = ("url", "password_file")
TABLES = ("defaults", "job", "backend")


def load(path: str) -> "tuple[str, Document]":
    """Read and check one file; returns its absolute path and its tables with their values read."""
    try:
        path = os.path.abspath(path)
    except OSError as error:  # a relative path, and the working directory is gone
        raise unreadable(path, error) from None
    text, mode = _read(path)
    try:
        document = _toml().loads(text.decode())
    except ValueError as error:  # wrong TOML, or bytes that are not UTF-8
        message = f"{path}: {error}"
        raise ConfigError(message) from None
    except RecursionError:
        message = f"{path}: is nested too deeply"
        raise ConfigError(message) from None
    checked = _checked(path, document)
    if mode & stat.S_IROTH and _holds_password(checked):
        message = f"{path}: holds a password and can be read by others (mode {mode:04o}): chmod o-rwx {path}"
        raise ConfigError(message)
    return path, checked


def _toml() -> "ModuleType":
    """Load the reader here, on demand: most runs have no file."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        tomllib = __import__("tomli")
    return tomllib


def _read(path: str) -> tuple[bytes, int]:
    """Return the bytes and the mode of a regular file that others cannot write."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            mode = stat.S_IMODE(found.st_mode)
            if not stat.S_ISREG(found.st_mode):
                message = f"{path}: is not a regular file"
                raise ConfigError(message)
            if mode & stat.S_IWOTH:
                message = f"{path}: can be written by others (mode {mode:04o}): chmod o-w {path}"
                raise ConfigError(message)
            return file.read(), mode
    except OSError as error:
        raise unreadable(path, error) from None


def _checked(path: str, document: "dict[str, object]") -> "Document":
    """Return the document with every key known and every value read; raises `ConfigError` otherwise."""
    for table in document:
        if table not in TABLES:
            message = f"{path}: [{table}] is not known{nearest(table, TABLES)}"
            raise ConfigError(message)
    checked: Document = {}
    if "defaults" in document:
        checked["defaults"] = _options(f"{path} [defaults]", document["defaults"])
    checked["job"] = {
        _job_name(path, name): _options(f"{path} [job.{name}]", values)
        for name, values in _table(f"{path} [job]", document.get("job", {})).items()
    }
    checked["backend"] = {
        name: _backend(f"{path} [backend.{name}]", values)
        for name, values in _table(f"{path} [backend]", document.get("backend", {})).items()
    }
    return checked


def _table(where: str, values: object) -> "dict[str, object]":
    if not isinstance(values, dict):
        message = f"{where}: is not a table"
        raise ConfigError(message)
    return values


def _job_name(path: str, name: str) -> str:
    try:
        return names.check(name)
    except ValueError as error:
        message = f"{path} [job.{name}]: {error}"
        raise ConfigError(message) from None


def _options(where: str, values: object) -> "dict[str, Value]":
    known = {option.name: option for option in options.RUN if option.in_config}
    read: dict[str, Value] = {}
    for key, value in _table(where, values).items():
        if key not in known:
            dotted = where.rpartition("[job.")[2].rstrip("]")
            hint = (
                f'; a name with a dot is quoted: [job."{dotted}.{key}"]'
                if isinstance(value, dict)
                else nearest(key, list(known))
            )
            message = f"{where}: {key} is not known{hint}"
            raise ConfigError(message)
        read[key] = _from_toml(f"{where}: {key}", known[key], value)
    return read


def _from_toml(where: str, option: "Option", value: object) -> "Value":
    kind = option.kind
    if isinstance(value, bool) and bool in kind.native:
        return value
    if bool in kind.native or isinstance(value, bool) or not isinstance(value, (str, *kind.native)):
        message = f"{where}: wants {kind.wanted}"
        raise ConfigError(message)
    try:
        return kind.read(str(value))
    except ValueError as error:
        message = f"{where}: {error}"
        raise ConfigError(message) from None


def _backend(where: str, values: object) -> dict[str, str]:
    read = {"where": where}
    for key, value in _table(where, values).items():
        if key not in BACKEND_KEYS:
            message = f"{where}: {key} is not known{nearest(key, BACKEND_KEYS)}"
            raise ConfigError(message)
        if not isinstance(value, str) or not value or "\0" in value:
            message = f"{where}: {key} wants a string, not empty and without NUL"
            raise ConfigError(message)
        read[key] = value
    if "url" not in read:
        message = f"{where}: url is missing"
        raise ConfigError(message)
    return read


def _holds_password(document: "Document") -> bool:
    sections = [document.get("defaults", {}), *document["job"].values()]
    written = [str(section["backend"]) for section in sections if "backend" in section]
    written += [backend["url"] for backend in document["backend"].values()]
    return any(urls.has_password(_without_variables(url)) for url in written)


def _without_variables(url: str) -> str:
    """Return a URL in which each `${NAME}` is hidden already."""
    head, *parts = url.split("${")
    return head + "".join("***" + part.partition("}")[2] for part in parts)


def unreadable(path: str, error: OSError) -> ConfigError:
    """Return the error for a file that cannot be read."""
    return ConfigError(f"cannot read the configuration file {path}: {error.strerror}")


def nearest(word: str, known: "Sequence[str]") -> str:
    """Return `; did you mean ...?` for a word that is not known, or nothing when none is near."""
    import difflib

    found = difflib.get_close_matches(word.replace("_", "-"), known, n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else f"; known are {', '.join(known)}"
