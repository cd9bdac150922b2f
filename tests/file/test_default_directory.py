"""The lock directory that nobody named: it must be ours alone, since others may have made it first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hosts import need_root

from runguard.backends import lockdir
from runguard.errors import BackendError

if TYPE_CHECKING:
    from pathlib import Path

STRANGER = 65534


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that stands where the default one would."""
    monkeypatch.delenv(lockdir.VARIABLE)
    made = tmp_path / "default"
    made.mkdir()
    return made


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o2770, 0o3777, 0o1777])
def test_a_strangers_directory_is_refused(directory: Path, mode: int) -> None:
    """A default directory of somebody else is not used, whatever its mode: its owner could make two locks of one."""
    need_root()
    os.chown(directory, STRANGER, STRANGER)
    directory.chmod(mode)
    with pytest.raises(BackendError, match=f"belongs to uid {STRANGER}"):
        lockdir.check_default(str(directory))


@pytest.mark.parametrize("mode", [0o2770, 0o3777, 0o1777])
def test_one_that_others_write_is_refused(directory: Path, mode: int) -> None:
    """A default directory of ours that others can write is refused, though the same modes are fine for a named one."""
    directory.chmod(mode)
    with pytest.raises(BackendError, match="others can write there"):
        lockdir.check_default(str(directory))
    assert lockdir.check(str(directory)) in {0o600, 0o660}


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_ours_alone_is_used(directory: Path, mode: int) -> None:
    """A default directory that is ours, and that nobody else can write, is used; files in it are ours too."""
    directory.chmod(mode)
    assert lockdir.check_default(str(directory)) == 0o600


def test_a_directory_that_cannot_be_seen_is_not_missing(directory: Path) -> None:
    """Only a directory that is not there holds no locks; one behind a closed door is unknown."""
    assert lockdir.is_missing(str(directory / "none"))
    assert not lockdir.is_missing(str(directory))
    (directory / "file").touch()
    assert not lockdir.is_missing(str(directory / "file" / "below"))
