"""The endings that no ordinary command line reaches: a bug of ours, and nobody who reads the output."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from conftest import COMMAND

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Runguard

# A standard library that breaks its word, as a bug of ours would.
BROKEN = "import os; from runguard.cli import main; os.urandom = None; main()"


@pytest.mark.parametrize(("options", "lines"), [((), 1), (("-v",), 5)])
def test_a_bug_is_70_and_shows_its_traceback_only_when_asked(
    runguard: Runguard, options: tuple[str, ...], lines: int
) -> None:
    """A bug is one line and 70, with -v a traceback too; the command is not started."""
    words = [sys.executable, "-c", BROKEN, "run", *options, "x", "--", "echo", "ran"]
    result = subprocess.run(words, check=False, env=runguard.environment, capture_output=True, timeout=30)
    assert (result.returncode, result.stdout) == (70, b"")
    assert b"a bug in runguard" in result.stderr
    assert (b"Traceback" in result.stderr) == bool(options)
    assert result.stderr.count(b"\n") >= lines


def test_a_bug_does_not_look_like_an_unmet_condition(runguard: Runguard) -> None:
    """With --exec-condition a bug is 255, which fails the unit; 70 would skip it quietly."""
    broken = BROKEN.replace("os.urandom", "os.lstat")
    words = [sys.executable, "-c", broken, "test", "--exec-condition", "x"]
    environment = runguard.environment | {"RUNGUARD_LOCK_DIR": "/"}
    result = subprocess.run(words, check=False, env=environment, capture_output=True, timeout=30)
    assert (result.returncode, result.stdout) == (255, b"")


@pytest.mark.parametrize("options", [(), ("-w", "5"), ("-v",)])
def test_a_forgotten_name_does_not_take_the_commands(
    runguard: Runguard, lock_directory: Path, options: tuple[str, ...]
) -> None:
    """`--` in the place of NAME is 64: the first word of the command must not become the lock."""
    result = runguard("run", *options, "--", "sh", "-c", "echo ran")
    assert (result.returncode, result.stdout) == (64, b"")
    assert result.stderr.startswith(b"runguard: NAME is missing before --; write: runguard run")
    assert result.stderr.count(b"\n") == 1
    assert list(lock_directory.iterdir()) == []


def test_output_that_nobody_reads_is_141(runguard: Runguard) -> None:
    """`key` ends as other tools do when its reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    words = [*COMMAND, "key", "x"]
    result = subprocess.run(words, check=False, env=runguard.environment, stdout=writing, stderr=-1, timeout=30)
    os.close(writing)
    assert (result.returncode, result.stderr) == (-13, b"")


def test_a_full_disk_behind_the_output_is_said(runguard: Runguard) -> None:
    """`key` says that its output could not be written."""
    with open("/dev/full", "wb") as full:
        result = runguard("key", "x", stdout=full)
    assert result.returncode == 69
    assert result.stderr == b"runguard: cannot write to standard output: No space left on device\n"
