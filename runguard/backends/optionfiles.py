"""MariaDB option files, read as the mariadb client reads them: groups, includes, quotes, later lines win."""

import os
import stat

STANDARD = ("/etc/my.cnf", "/etc/mysql/my.cnf", "~/.my.cnf")
GROUPS = ("client", "client-server", "client-mariadb", "runguard")
_DEEPEST = 10
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "s": " ", "\\": "\\"}


def read(paths: "tuple[str, ...]" = STANDARD, groups: "tuple[str, ...]" = GROUPS) -> dict[str, str]:
    """Return the options of the groups, names with dashes; a file that is missing, or that all can write, is empty."""
    found: dict[str, str] = {}
    for path in paths:
        _read_file(os.path.expanduser(path), groups, found, _DEEPEST)
    return found


def _read_file(path: str, groups: "tuple[str, ...]", found: dict[str, str], depth: int) -> None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IWOTH:
                return
            lines = file.read().splitlines()
    except OSError:
        return
    group = ""
    for line in map(str.strip, lines):
        if line.startswith("[") and "]" in line:
            group = line[1 : line.index("]")].strip()
        elif line.startswith("!") and depth:
            for included in _included(line, os.path.dirname(path)):
                _read_file(included, groups, found, depth - 1)
        elif line and line[0] not in "#;!" and group in groups:
            name, separator, value = line.partition("=")
            found[name.strip().replace("_", "-")] = _value(value.strip()) if separator else ""


def _included(line: str, directory: str) -> list[str]:
    """Return the files that `!include FILE` or `!includedir DIR` names."""
    word, _, path = line.partition(" ")
    path = os.path.join(directory, path.strip())
    if word == "!include":
        return [path]
    if word != "!includedir":
        return []
    try:
        return [os.path.join(path, entry) for entry in sorted(os.listdir(path)) if entry.endswith(".cnf")]
    except OSError:
        return []


def _value(text: str) -> str:
    """Return a value without its quotes, or without the comment that follows it."""
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    elif text[:1] not in "'\"":
        text = text.partition(" #")[0].rstrip()
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
