"""What /proc says of other processes."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_DEAD = b"ZX"


def members(group: int) -> list[int]:
    """Return the pids in a process group that are alive; a zombie is not."""
    return [pid for pid in _pids() if (found := _stat(pid)) and found[1] == group and found[0] not in _DEAD]


def is_stopped(pid: int) -> bool:
    """Say whether job control has stopped a process."""
    found = _stat(pid)
    return found is not None and found[0] == b"T"


def control_group(pid: int) -> bytes | None:
    """Return a text that is the same for processes of one control group; None for a process that cannot be seen."""
    try:
        with open(f"/proc/{pid}/cgroup", "rb") as file:
            return file.read()
    except OSError:
        return None


def _pids() -> "Iterator[int]":
    try:
        entries = os.listdir("/proc")
    except OSError:
        entries = []
    return (int(entry) for entry in entries if entry.isdigit())


def _stat(pid: int) -> tuple[bytes, int] | None:
    """Return the state and the process group; None for a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, a closing parenthesis included.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[2])
