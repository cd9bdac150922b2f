"""How many runs on this host wait for one lock: each waiter locks a byte of a file, which the kernel gives back."""

import fcntl
import os
import struct
import time

from runguard.backends import lockfile
from runguard.errors import BackendError

_TRIES, _PAUSE = 200, 0.005
_MOST = 1 << 16
_FLOCK = struct.Struct("hhqqi4x")
_COUNTING = 1 << 40
"""Locked while somebody counts: of two that arrive together exactly one must get the last place."""


class Waiters:
    """The queue in front of one lock."""

    def __init__(self, path: str, mode: int) -> None:
        self._path = path
        self._mode = mode
        self._descriptor = -1

    def join(self, most: int | None) -> int | None:
        """Take a place unless `most` are taken; returns how many wait where there is none, None once we are in.

        Raises `BackendError` if the file cannot be used.
        """
        descriptor = lockfile.open_or_create(self._path, self._mode)
        try:
            _count_alone(descriptor)
            taken = _taken(descriptor)
            if most is not None and len(taken) >= most:
                os.close(descriptor)
                return len(taken)
            place = next(byte for byte in range(len(taken) + 1) if byte not in taken)
            _lock(descriptor, fcntl.F_OFD_SETLK, place)
            _lock(descriptor, fcntl.F_OFD_SETLK, _COUNTING, fcntl.F_UNLCK)
        except OSError as error:
            os.close(descriptor)
            message = f"cannot count those who wait with {self._path}: {error.strerror}"
            raise BackendError(message) from None
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return None

    def leave(self) -> None:
        """Give the place back; does nothing for one who has none."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _lock(descriptor: int, command: int, byte: int, kind: int = fcntl.F_WRLCK) -> None:
    fcntl.fcntl(descriptor, command, _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))


def _count_alone(descriptor: int) -> None:
    """Lock the byte that those who count share, which each has for microseconds. Raises `OSError` if one keeps it."""
    for _ in range(_TRIES):
        try:
            return _lock(descriptor, fcntl.F_OFD_SETLK, _COUNTING)
        except BlockingIOError:
            time.sleep(_PAUSE)
    return _lock(descriptor, fcntl.F_OFD_SETLK, _COUNTING)


def _taken(descriptor: int) -> set[int]:
    """Return the bytes that others have locked; the kernel tells the first one from a given byte on."""
    taken: set[int] = set()
    start = 0
    while True:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, _COUNTING - start, 0)
        kind, _, start, length, _ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            return taken
        length = length or _COUNTING - start  # 0 is to the end of the file
        taken.update(range(start, min(start + length, start + _MOST)))
        start += length
