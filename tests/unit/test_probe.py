"""Looking at a lock file: another one that looks, and has the lock for a moment, is no holder."""

from __future__ import annotations

import contextlib
import fcntl
import signal
from typing import IO, TYPE_CHECKING

import pytest

from runguard.backends import file
from runguard.backends.base import Target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from runguard.backends.base import Busy

MOMENT = 0.005
DEAD = 2**30 - 1  # beyond any pid


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[IO[bytes]]:
    """Return a lock file that is open and not yet locked."""
    tmp_path.chmod(0o755)
    with (tmp_path / "x.lock").open("w+b") as opened:
        yield opened


@contextlib.contextmanager
def let_go_soon(locked: IO[bytes]) -> Iterator[None]:
    """Unlock a file a moment later; by a signal, which comes before the probe's next attempt however late both are."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        fcntl.flock(locked, fcntl.LOCK_UN)

    former = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, MOMENT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def probe(tmp_path: Path) -> Busy | None:
    """Return what a look at the lock finds, None for free."""
    return file.lock(Target(url=f"file:{tmp_path}", name="x")).probe()


@pytest.mark.parametrize("written", [b"", b"pid=%d\n" % DEAD], ids=["unnamed", "stale"])
@pytest.mark.parametrize("operation", [fcntl.LOCK_EX, fcntl.LOCK_SH], ids=["exclusive", "shared"])
def test_who_has_it_for_a_moment_is_no_holder(
    tmp_path: Path, locked: IO[bytes], operation: int, written: bytes
) -> None:
    """Another probe has the lock for as long as it takes the processor to come back to it."""
    locked.write(written)
    locked.flush()
    fcntl.flock(locked, operation)
    with let_go_soon(locked):
        assert probe(tmp_path) is None


@pytest.mark.parametrize("operation", [fcntl.LOCK_EX, fcntl.LOCK_SH], ids=["exclusive", "shared"])
def test_who_keeps_it_is_a_holder_without_a_name(tmp_path: Path, locked: IO[bytes], operation: int) -> None:
    """As flock(1) does, which writes nothing into the file."""
    fcntl.flock(locked, operation)
    assert probe(tmp_path)
