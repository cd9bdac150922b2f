"""runguard's side of a keeper: what it makes of one that is slow, fails, or is gone before the command starts."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from conftest import children
from keepers import COMM, comm

from runguard import command, watch
from runguard.backends.base import Busy
from runguard.errors import BackendError, ConfigError, UnreachableError, UsageError
from runguard.holder import Holder
from runguard.keeper.client import HeldByKeeper, KeptLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# The test's own process may have threads, which runguard has not.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Session:
    """A session of no server."""

    def hints(self) -> list[str]:
        """Have something to say."""
        return ["first", "second"]

    def release(self) -> None:
        """Release nothing."""


class Lock:
    """A lock that does as it is told when it is asked for; only a keeper asks."""

    def __init__(self, ask: Callable[..., object]) -> None:
        self.ask = ask

    def acquire(self, *, wait: float | None, on_wait: Callable[..., bool]) -> object:
        """Do as told."""
        return self.ask(wait, on_wait)


def kept(ask: Callable[..., object], patience: float = 30) -> KeptLock:
    """Return such a lock with a keeper."""
    return KeptLock(Lock(ask), "unit", lambda *_: None, patience=patience)  # type: ignore[arg-type]


def keepers() -> list[int]:
    """Return the keepers that are our children, zombies included."""
    return [pid for pid in children(os.getpid()) if comm(pid) == COMM]


def acquired(lock: KeptLock) -> HeldByKeeper:
    """Return the lock, which must be free."""
    held = lock.acquire(wait=0, on_wait=lambda _: False)
    assert isinstance(held, HeldByKeeper)
    return held


def test_a_lock_that_is_ours() -> None:
    """Its hints come with it, it is not lost, and after its release nothing is left."""
    held = acquired(kept(lambda *_: Session()))
    assert held.hints() == ["first", "second"]
    assert held.loss() is None
    assert held.release() is None
    assert keepers() == []


@pytest.mark.parametrize("kind", [BackendError, UnreachableError, UsageError, ConfigError])
def test_errors_keep_their_kind(kind: type[Exception]) -> None:
    """What a driver's module raises in the keeper is raised here, with its sentence."""
    sentence = "sentence with \udcff in it"

    def fail(*_: object) -> None:
        raise kind(sentence)

    with pytest.raises(kind) as caught:
        acquired(kept(fail))
    assert type(caught.value) is kind
    assert str(caught.value) == sentence
    assert keepers() == []


def test_a_bug_of_a_keeper_is_a_bug_of_ours() -> None:
    """It is no `RunguardError`, so that nobody takes it for a broken server, and it says where."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(RuntimeError, match=r"in the keeper: Traceback(?s:.)*ZeroDivisionError"):
        acquired(kept(fail))
    assert keepers() == []


def test_a_server_that_never_comes_to_an_end_is_given_up() -> None:
    """A keeper that says nothing for too long is unreachable, not busy, and is ended with whatever holds it up."""
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match=r"no answer for 0\.3 s"):
        acquired(kept(lambda *_: time.sleep(60), patience=0.3))
    assert time.monotonic() - begun < 30
    assert keepers() == []


def test_who_does_not_want_to_wait_is_told_who_has_it() -> None:
    """`on_wait` decides here, not in the keeper, which may be waiting already."""
    holder = Holder(pid=7, command="\udcff")

    def wait(_: float | None, on_wait: Callable[..., bool]) -> None:
        assert on_wait(Busy(holder))
        time.sleep(60)

    answer = kept(wait).acquire(wait=60, on_wait=lambda _: False)
    assert isinstance(answer, Busy)
    assert answer.holder.fields() == holder.fields()
    assert keepers() == []


def test_no_keeper_no_command(tmp_path: Path) -> None:
    """A keeper that is killed before the command starts: the command is not executed, and the loss is said once."""
    held = acquired(kept(lambda *_: Session()))
    (keeper,) = keepers()
    os.kill(keeper, signal.SIGKILL)
    os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOWAIT)
    given = command.Command([b"touch", os.fsencode(tmp_path / "ran")], dict(os.environb))
    signals = watch.Signals()
    try:
        with pytest.raises(BackendError, match=rf"before the command started: its keeper \(pid {keeper}\) was killed"):
            command.run(given, signals, tether=held, kill_after=1, tell=lambda *_: None)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, signals.mask)
    assert held.loss() is None
    assert held.release() is None
    assert not (tmp_path / "ran").exists()
    assert keepers() == []


def test_a_keeper_that_is_killed_is_lost_once() -> None:
    """The loss is told the first time it is asked for, and not again at the release."""
    held = acquired(kept(lambda *_: Session()))
    (keeper,) = keepers()
    os.kill(keeper, signal.SIGKILL)
    os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOWAIT)
    loss = held.loss()
    assert loss
    assert "the lock is lost" in loss
    assert held.loss() is None
    assert held.release() is None
    assert keepers() == []
