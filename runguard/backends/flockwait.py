"""Waiting for flock(2): asleep in the kernel on a local file system, asking again and again on a network one."""

import fcntl
import signal
import time

from runguard.backends import lockfacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

    from runguard.backends.base import Deadline

_TICK = 0.25
_POLL = 0.05


def take_now(descriptor: int, operation: int) -> bool:
    """Try once; only EWOULDBLOCK means that somebody else has it, every other error is raised."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take_before(descriptor: int, operation: int, deadline: "Deadline") -> bool:
    """Wait for the lock until the deadline; False if it was not to be had. Main thread only: uses SIGALRM."""
    # On FUSE and network file systems a blocked flock(2) can be beyond the reach of signals.
    sleep = _poll if lockfacts.network_type(descriptor) else _block
    while not deadline.passed():
        if sleep(descriptor, operation, deadline):
            return True
    return take_now(descriptor, operation)


def _poll(descriptor: int, operation: int, deadline: "Deadline") -> bool:
    time.sleep(deadline.remaining(_POLL))
    return take_now(descriptor, operation)


class _Tick(Exception):  # noqa: N818 - not an error
    """The alarm rang while we slept in flock(2)."""


def _block(descriptor: int, operation: int, deadline: "Deadline") -> bool:
    """Sleep in flock(2) for a tick at most.

    The alarm repeats: one that rings between the last look at signals and the system call would else be lost,
    and so would a SIGTERM.
    """
    asleep = True

    def ring(_number: int, _frame: "FrameType | None") -> None:
        nonlocal asleep
        if asleep:
            asleep = False
            raise _Tick

    former = signal.signal(signal.SIGALRM, ring)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, max(deadline.remaining(_TICK), 0.001), _TICK)
            fcntl.flock(descriptor, operation)
            return True
        finally:
            asleep = False
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Tick:
        # The alarm may ring inside the `finally` above, before the timer is off.
        signal.setitimer(signal.ITIMER_REAL, 0)
        return False
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGALRM, former)
