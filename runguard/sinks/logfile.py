"""A file to which lines are appended, as other programs do too."""

import os

from runguard import stamps
from runguard.printable import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runguard.events import Event

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_MODE = 0o640


class LogFile:
    """Opens the file for each line, so that log rotation needs no signal; never blocks on a FIFO."""

    def __init__(self, path: str, form: "Callable[[Event], str]", *, stamped: bool) -> None:
        self._path = path
        self._form = form
        self._stamped = stamped

    def write(self, event: "Event") -> None:
        """Append one line; raises `OSError` if it cannot be written whole."""
        stamp = f"{stamps.now()} {os.uname().nodename} runguard[{os.getpid()}]: " if self._stamped else ""
        line = f"{stamp}{self._form(event)}\n".encode("utf-8", "backslashreplace")
        descriptor = os.open(self._path, _FLAGS, _MODE)
        try:
            if os.write(descriptor, line) != len(line):
                message = "only a part of the line was written"
                raise OSError(message)
        finally:
            os.close(descriptor)

    def __str__(self) -> str:
        """Return the path, safe to be shown."""
        return printable(self._path)
