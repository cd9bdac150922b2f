"""Finding what a shell would run for a word, and why it cannot be run: 126 and 127 as POSIX defines them."""

import errno
import os

from runguard import exits

SHELL = b"/bin/sh"
_SNIFFED = 256


class CannotRun(Exception):  # noqa: N818 - an answer that travels up, not a fault
    """The command cannot be executed (126) or was not found (127)."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def candidates(word: bytes, environment: "dict[bytes, bytes]") -> list[bytes]:
    """Return the paths that may be meant, in order; raises `CannotRun` when there are none.

    A word with a slash is a path; any other is looked up in the PATH that the command will see.
    """
    if b"/" in word:
        return [word]
    path = environment.get(b"PATH")
    if path is None:
        path = os.fsencode(os.confstr("CS_PATH") or "/bin:/usr/bin")
    found = [os.path.join(directory or b".", word) for directory in path.split(b":")] if word else []
    files = [file for file in found if os.path.lexists(file) and not os.path.isdir(file)]
    if not files:
        raise CannotRun(exits.NOT_FOUND, f"{_shown(word)}: command not found in PATH={_shown(path)}")
    return files


def refusal(path: bytes, error: OSError) -> CannotRun:
    """Return why the kernel would not execute a file, with the code that a shell gives."""
    shown = _shown(path)
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        if not os.path.exists(path):
            return CannotRun(exits.NOT_FOUND, f"{shown}: {error.strerror}")
        return CannotRun(exits.NOT_FOUND, f"{shown}: its interpreter {_interpreter(path)} was not found")
    if os.path.isdir(path):
        return CannotRun(exits.CANNOT_EXECUTE, f"{shown}: is a directory")
    return CannotRun(exits.CANNOT_EXECUTE, f"{shown}: cannot execute: {error.strerror}")


def is_script(path: bytes) -> bool:
    """Say whether a file that the kernel does not know is text for the shell: no NUL in its first line."""
    return b"\0" not in _start(path).split(b"\n", 1)[0]


def _interpreter(path: bytes) -> str:
    start = _start(path)
    if not start.startswith(b"#!"):
        return "(the loader that the program names)"
    words = start[2:].split(b"\n", 1)[0].split()
    return _shown(words[0]) if words else "(none is named after #!)"


def _start(path: bytes) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, _SNIFFED)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _shown(word: bytes) -> str:
    return os.fsdecode(word) or "''"
