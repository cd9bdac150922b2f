"""What a run loads before its command starts: a prefix pays for it on every tick."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import runguard as package

if TYPE_CHECKING:
    from conftest import Runguard

NEVER = {"pymysql", "psycopg", "psycopg_binary", "sqlite3", "tomllib", "tomli", "asyncio"}
SLOW = {
    *("click", "re", "json", "typing", "subprocess", "dataclasses", "pathlib", "logging", "sqlite3", "tempfile"),
    *("inspect", "argparse", "importlib.metadata", "asyncio", "tomllib", "tomli", "pymysql", "psycopg"),
}
CORE = ["guard", "wiring", "backends.file", "command", "config"]


def imported(report: str) -> set[str]:
    """Return the modules of an `-X importtime` report."""
    return {line.rpartition("|")[2].strip() for line in report.splitlines() if line.startswith("import time:")}


@pytest.mark.parametrize(
    "words",
    [["run", "x", "--", "true"], ["run", "-b", "file:", "-w", "1", "x", "--", "true"], ["test", "x"], ["key", "x"]],
)
def test_a_run_on_a_file_loads_no_driver(runguard: Runguard, words: list[str]) -> None:
    """Without a database and a configuration file no driver, no SQLite and no TOML reader is loaded."""
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "runguard", *words],
        check=True,
        capture_output=True,
        env=runguard.environment,
    )
    loaded = imported(result.stderr.decode())
    assert "runguard.backends.file" in loaded
    assert not {name for name in loaded if name.partition(".")[0] in NEVER}


def loaded_by(*modules: str) -> set[str]:
    """Return all that a bare interpreter has loaded after these modules of ours."""
    root = Path(package.__file__).parent.parent
    program = (
        f"import sys; sys.path.insert(0, {str(root)!r})\n"
        + "".join(f"import {name}\n" for name in modules)
        + "print(*sys.modules)"
    )
    words = [sys.executable, "-I", "-S", "-c", program]
    return set(subprocess.run(words, check=True, capture_output=True).stdout.decode().split())


def test_the_hot_path_loads_nothing_slow() -> None:
    """All that a run on a file needs beside the command line costs no import that is dearer than the interpreter."""
    ours = [f"runguard.{name}" for name in CORE]
    slow = loaded_by(*ours) & SLOW
    guilty = {name: sorted(slow & loaded_by(name)) for name in ours} if slow else {}
    assert not slow, guilty


def test_the_guard_does_not_know_the_command_line() -> None:
    """Nothing below `cli` loads it."""
    assert not {name for name in loaded_by(*(f"runguard.{name}" for name in CORE)) if name.startswith("runguard.cli")}
