"""What the command's ending makes of runguard's exit code."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import PROGRAMS

if TYPE_CHECKING:
    from conftest import Runguard


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """Return an empty directory for programs."""
    directory = tmp_path / "commands"
    directory.mkdir()
    return directory


def program(path: Path, content: bytes, mode: int = 0o755) -> Path:
    """Make a program, and the directory it lies in."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def code_and_line(runguard: Runguard, *words: str | bytes, **more: object) -> tuple[int, bytes]:
    """Run words under a lock; return the exit code and the only line on standard error."""
    result = runguard("run", "codes", "--", *words, **more)  # type: ignore[arg-type]
    assert result.stdout == b""
    assert result.stderr.count(b"\n") == 1
    assert result.stderr.startswith(b"runguard: codes: ")
    return result.returncode, result.stderr


def with_path(runguard: Runguard, path: str | None) -> None:
    """Give runguard this PATH, or none at all."""
    runguard.environment.pop("PATH", None)
    if path is not None:
        runguard.environment["PATH"] = path


def test_every_exit_code_comes_back() -> None:
    """Each of the 256 exit codes of a command is the exit code of its run."""
    result = subprocess.run(
        [sys.executable, str(PROGRAMS / "every_exit_code.py")], check=True, capture_output=True, timeout=60
    )
    assert (result.stdout, result.stderr) == (b"done\n", b"")


@pytest.mark.parametrize("code", [0, 1, 2, 64, 69, 75, 99, 126, 127, 128, 130, 143, 200, 255])
def test_a_code_of_the_command_is_never_changed(runguard: Runguard, code: int) -> None:
    """A code that means something to runguard too comes back as the command gave it, without a word."""
    result = runguard("run", "-E", "3", "codes", "sh", "-c", f"exit {code}")
    assert (result.returncode, result.stdout, result.stderr) == (code, b"", b"")


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "ABRT", "KILL", "USR1", "SEGV", "PIPE", "ALRM", "TERM", "XFSZ"])
def test_a_command_that_died_of_a_signal_is_128_and_its_number(runguard: Runguard, name: str) -> None:
    """A command that signal N ended makes runguard exit with 128+N, as a shell would."""
    result = runguard("run", "codes", "sh", "-c", f"ulimit -c 0; kill -{name} $$; exit 1")
    assert (result.returncode, result.stderr) == (128 + signal.Signals["SIG" + name], b"")


@pytest.mark.parametrize("word", ["no-such-command", "./no-such-command", "/no/such/command", ""])
def test_a_missing_command_is_127(runguard: Runguard, word: str) -> None:
    """A word that names nothing is 127, with a sentence that repeats the word."""
    code, line = code_and_line(runguard, word)
    assert code == 127
    assert (word or "''").encode() in line


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("kind", ["garbage", "directory", "not executable", "missing", "directory in PATH", "no #!"])
def test_the_code_is_the_one_a_shell_gives(runguard: Runguard, commands: Path, shell: str, kind: str) -> None:
    """What cannot be run, or only by a shell, gets the code that a shell itself gives."""
    word = str(commands / "it")
    if kind.startswith("directory"):
        (commands / "it").mkdir()
        word = "it" if kind == "directory in PATH" else word
    elif kind != "missing":
        content = b"\0\1\2\3\n" if kind == "garbage" else b"exit 5\n"
        program(commands / "it", content, 0o644 if kind == "not executable" else 0o755)
    with_path(runguard, f"{commands}:/usr/bin:/bin")
    wanted = subprocess.run(
        [shell, "-c", '"$0" 2>/dev/null', word], check=False, env=runguard.environment, stderr=subprocess.DEVNULL
    ).returncode
    assert runguard("run", "codes", "--", word).returncode == wanted
    assert wanted in {5, 126, 127}


def test_a_file_in_path_that_is_not_executable_is_126(runguard: Runguard, commands: Path) -> None:
    """A word found in PATH that nobody may execute is 126, and the sentence names the file."""
    program(commands / "it", b"exit 0\n", 0o644)
    with_path(runguard, str(commands))
    code, line = code_and_line(runguard, "it")
    assert code == 126
    assert f"{commands}/it".encode() in line


def test_an_executable_later_in_path_is_found(runguard: Runguard, commands: Path) -> None:
    """Files that cannot be executed and directories earlier in PATH do not hide a program later in it."""
    program(commands / "first" / "it", b"exit 3\n", 0o644)
    (commands / "second" / "it").mkdir(parents=True)
    program(commands / "third" / "it", b"exit 4\n")
    with_path(runguard, ":".join(str(commands / name) for name in ("first", "second", "no-such", "third")))
    assert runguard("run", "codes", "it").returncode == 4


@pytest.mark.parametrize("path", ["", ":/nowhere", "/nowhere:", "/nowhere::/no"])
def test_an_empty_element_of_path_is_the_working_directory(runguard: Runguard, commands: Path, path: str) -> None:
    """An empty element of PATH means the working directory, as POSIX says."""
    program(commands / "it", b"#!/bin/sh\nexit 4\n")
    with_path(runguard, path)
    assert runguard("run", "codes", "it", cwd=commands).returncode == 4


def test_without_path_the_systems_own_is_searched(runguard: Runguard) -> None:
    """With PATH unset a command is looked for where the system keeps its standard programs."""
    with_path(runguard, None)
    assert runguard("run", "codes", "sh", "-c", "exit 4").returncode == 4
    assert code_and_line(runguard, "no-such-command")[0] == 127


def test_a_script_without_an_interpreter_line_is_run_by_sh(runguard: Runguard, commands: Path) -> None:
    """A text file without `#!` is run by /bin/sh and gets its arguments as they are."""
    script = program(commands / "script", b"for word; do printf '<%s>' \"$word\"; done\nexit 6\n")
    result = runguard("run", "codes", "--", str(script), "a b", "", "-x", "*", "\n")
    assert (result.returncode, result.stdout) == (6, b"<a b><><-x><*><\n>")


def test_such_a_script_may_be_named_like_an_option(runguard: Runguard, commands: Path) -> None:
    """A script without `#!` whose name begins with a hyphen is run, its name is not read as an option of the shell."""
    program(commands / "-x", b"exit 6\n")
    with_path(runguard, ":/usr/bin:/bin")
    assert runguard("run", "codes", "--", "-x", cwd=commands).returncode == 6


def test_an_empty_file_succeeds(runguard: Runguard, commands: Path) -> None:
    """An executable file without content is an empty script: exit code 0."""
    empty = program(commands / "empty", b"")
    assert runguard("run", "codes", "--", str(empty)).returncode == 0


@pytest.mark.parametrize("in_path", [False, True])
def test_a_missing_interpreter_is_127_and_named(runguard: Runguard, commands: Path, *, in_path: bool) -> None:
    """A script whose interpreter is missing is 127; the sentence names the script and the interpreter."""
    script = program(commands / "script", b"#! /no/such/php -q\n")
    with_path(runguard, str(commands))
    code, line = code_and_line(runguard, "script" if in_path else str(script))
    assert code == 127
    assert f"{script}: its interpreter /no/such/php was not found".encode() in line


def test_a_file_that_is_no_program_is_126(runguard: Runguard, commands: Path) -> None:
    """Bytes that are neither a program nor text are 126: they are not given to a shell."""
    garbage = program(commands / "garbage", b"\x7fELF\0\0\0\0 garbage\n")
    code, line = code_and_line(runguard, str(garbage))
    assert code == 126
    assert b"cannot execute" in line


@pytest.mark.parametrize("options", [(), ("-F",)])
@pytest.mark.parametrize(("word", "wanted"), [("/etc", 126), ("/etc/passwd", 126), ("/no/such", 127)])
def test_no_fork_gives_the_same_codes(runguard: Runguard, options: tuple[str, ...], word: str, wanted: int) -> None:
    """What cannot be run is said and coded in the same way with and without `-F`, and the lock is free afterwards."""
    result = runguard("run", *options, "codes", word)
    assert (result.returncode, result.stderr.count(b"\n")) == (wanted, 1)
    assert runguard("test", "codes").returncode == 0


def test_a_busy_program_file_is_126(runguard: Runguard, commands: Path) -> None:
    """A refusal of the kernel that lies not in the file's mode or content is 126, with the kernel's reason."""
    busy = program(commands / "busy", Path("/bin/true").read_bytes())
    with busy.open("ab"):
        code, line = code_and_line(runguard, str(busy))
    assert code == 126
    assert b"Text file busy" in line
