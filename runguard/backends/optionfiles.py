"""MariaDB option files, read as the mariadb client reads them: groups, includes, quotes, later lines win."""

import os
import stat

from runguard.errors import BackendError

STANDARD = ("/etc/my.cnf", "/etc/mysql/my.cnf", "~/.my.cnf")
GROUPS = ("client", "client-server", "client-mariadb", "runguard")
_DEEPEST = 10
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "s": " ", "\\": "\\", "'": "'", '"': '"'}


def read(paths: "tuple[str, ...]" = STANDARD, groups: "tuple[str, ...]" = GROUPS) -> dict[str, str]:
    """Return the options of the groups, names with dashes; a file that is missing or that all can write is empty."""
    found: dict[str, str] = {}
    for path in paths:
        _read_file(os.path.expanduser(path), groups, found, ())
    return found


def check_named(path: str) -> None:
    """Refuse an option file that somebody named and that would say nothing. Raises `BackendError`.

    What it says, the server's host for instance, must not be guessed.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        mode = os.fstat(descriptor).st_mode
        os.close(descriptor)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        message = f"cannot read the option file {path!a}: {why}"
        raise BackendError(message) from None
    if not stat.S_ISREG(mode) or mode & stat.S_IWOTH:
        message = f"cannot use the option file {path!a}: it is no regular file, or all can write it"
        raise BackendError(message)


def _read_file(path: str, groups: "tuple[str, ...]", found: dict[str, str], above: "tuple[str, ...]") -> None:
    """Read one file; `above` are those that include it, which it cannot include again."""
    if path in above or len(above) > _DEEPEST:
        return
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", opener=_without_blocking) as file:
            mode = os.fstat(file.fileno()).st_mode
            if mode & stat.S_IWOTH or not stat.S_ISREG(mode):
                return
            lines = file.read().split("\n")
    except (OSError, ValueError):  # a path with a NUL character
        return
    group = ""
    for line in map(str.strip, lines):
        if line.startswith("[") and "]" in line:
            group = line[1 : line.index("]")].rstrip()
        elif line.startswith("!"):
            for included in _included(line, os.path.dirname(path)):
                _read_file(included, groups, found, (*above, path))
        elif line and line[0] not in "#;" and group in groups:
            name, _, value = _without_comment(line).partition("=")
            found[name.strip().replace("_", "-")] = _value(value.strip())


def _included(line: str, directory: str) -> list[str]:
    """Return the files that `!include FILE` or `!includedir DIR` names."""
    word, *rest = line.split(maxsplit=1)
    path = os.path.normpath(os.path.join(directory, *rest))
    if word == "!include":
        return [path]
    if word != "!includedir":
        return []
    try:
        return [os.path.join(path, entry) for entry in sorted(os.listdir(path)) if entry.endswith(".cnf")]
    except (OSError, ValueError):
        return []


def _without_blocking(path: str, flags: int) -> int:
    """Open a FIFO without waiting for its writer."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def _without_comment(line: str) -> str:
    """Return what stands before the first `#` outside quotes."""
    quote, escaped = "", False
    for index, character in enumerate(line):
        if character in "'\"" and not escaped:
            quote = "" if quote == character else quote or character
        if character == "#" and not quote:
            return line[:index]
        escaped = bool(quote) and character == "\\" and not escaped
    return line


def _value(text: str) -> str:
    """Return a value without the quotes around it and with its escapes resolved."""
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    plain, escaped = "", False
    for character in text:
        if escaped:
            plain += _ESCAPES.get(character, "\\" + character)
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            plain += character
    return plain + ("\\" if escaped else "")
