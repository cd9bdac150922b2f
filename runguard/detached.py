"""A forked process of ours that has nothing of runguard's but what it needs: no session, no stream, no descriptor."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FIRST_FREE = 3


def leave_everything(*, but: int) -> None:
    """Have a session of our own, /dev/null for the three streams, and no other descriptor but the given one."""
    import syslog

    os.setsid()
    syslog.closelog()  # or the C library would write the log to whatever gets the number of its socket next
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(_FIRST_FREE):
        os.dup2(nothing, stream)
    for descriptor in _open_descriptors():
        if descriptor >= _FIRST_FREE and descriptor != but:
            os.closerange(descriptor, descriptor + 1)  # which minds none that is gone, as the one that listed them


def show_as(name: str, title: str) -> None:
    """Have ps(1) show a title of our own, as setproctitle(3) does: it replaces the words that runguard was given.

    `name`, of 15 characters at most, is what pgrep(1) and top(1) call the process. Where it cannot be, nothing is done.
    """
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write(name)
        with open("/proc/self/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
        # arg_start and arg_end of proc(5), fields 48 and 49; the first behind the name is field 3.
        start, end = (int(field) for field in fields[45:47])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(title.encode()[: end - start - 1].ljust(end - start, b"\0"))
    except (OSError, IndexError, ValueError):
        pass  # a name that is not shown is no reason to end


def _open_descriptors() -> "Iterable[int]":
    """Return what may be open.

    Where it can be seen, not up to the limit: that can be a thousand million, or lower than what was opened before.
    """
    try:
        return [int(entry) for entry in os.listdir("/proc/self/fd")]
    except FileNotFoundError:
        return range(os.sysconf("SC_OPEN_MAX"))
