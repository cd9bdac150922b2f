"""The command sees no wrapper: words, environment, files, limits, and nothing between it and runguard."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from conftest import COMMAND, eventually, helper, is_alive

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from conftest import Runguard

LOCALES: dict[str, dict[str, str]] = {
    "none": {},
    "C": {"LC_ALL": "C"},
    "POSIX": {"LC_ALL": "POSIX"},
    "C.UTF-8": {"LC_ALL": "C.UTF-8"},
    "unknown": {"LANG": "xx_XX.ISO-8859-1"},
}
WORDS = (
    b"",
    b"caf\xe9",
    b"caf\xc3\xa9",
    b"\xff\xfe\x80",
    b"\xed\xb3\xa9",
    b" a  b ",
    b"line\nline\n",
    b"*",
    b"$x",
    b"-odd",
    b"--help",
    b"-w",
    b"--version",
    b"-n",
    b"x\\y'z\"",
    b"\x01\x1b[31m",
    b"",
)
ADDED = (b"RUNGUARD_NAME", b"RUNGUARD_RUN_ID", b"RUNGUARD_ATTEMPT", b"RUNGUARD_IDEMPOTENCY_KEY")
MODES = pytest.mark.parametrize("options", [(), ("-F",)], ids=["stays", "no-fork"])
IN_EVERY_WAY = pytest.mark.parametrize(
    ("locale", "options"), [*((locale, ()) for locale in LOCALES), ("none", ("-F",)), ("C.UTF-8", ("-F",))]
)
LOCALE = pytest.mark.parametrize("locale", list(LOCALES))


def bare_environment(runguard: Runguard, locale: str = "none") -> dict[bytes, bytes]:
    """Return what runguard needs and one locale: no PATH, no HOME."""
    kept = {"RUNGUARD_LOCK_DIR": runguard.environment["RUNGUARD_LOCK_DIR"]} | LOCALES[locale]
    return {os.fsencode(name): os.fsencode(value) for name, value in kept.items()}


def output(environment: dict[bytes, bytes], *words: str | bytes, before: tuple[str, ...] = ()) -> bytes:
    """Run runguard with exactly this environment; return what its command printed."""
    result = subprocess.run([*before, *COMMAND, *words], check=False, env=environment, capture_output=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, b"")
    return result.stdout


def seen(runguard: Runguard, tmp_path: Path, *options: str, before: Sequence[str] = (), **more: Any) -> Any:
    """Run the program that describes itself; return the description and the pid that was started."""
    file = tmp_path / "seen.json"
    words = [*before, *COMMAND, "run", *options, "see", "--", *helper("show_process.py", str(file))]
    process = subprocess.Popen(words, env=runguard.environment, **more)
    assert process.wait(60) == 0
    return json.loads(file.read_text()) | {"started": process.pid}


@IN_EVERY_WAY
def test_words_arrive_to_the_byte(runguard: Runguard, locale: str, options: tuple[str, ...]) -> None:
    """Every word after COMMAND arrives as it was given, whatever bytes it has and whatever the locale."""
    words = (*helper("show_words.py"), *WORDS)
    shown = output(bare_environment(runguard, locale), "run", *options, "see", "--", *words)
    assert [bytes.fromhex(line) for line in shown.decode().splitlines()] == list(WORDS)


@LOCALE
def test_one_separator_is_dropped_and_a_second_kept(runguard: Runguard, tmp_path: Path, locale: str) -> None:
    """One `--` after NAME is ours, a second one is the command's; what precedes the command is no option of it."""
    program = tmp_path / "--"
    program.write_text('#!/bin/sh\necho "ran $*"\n')
    program.chmod(0o755)
    environment = bare_environment(runguard, locale) | {b"PATH": os.fsencode(tmp_path) + b":/bin:/usr/bin"}
    assert output(environment, "run", "see", "--", "--", "--help") == b"ran --help\n"
    assert output(environment, "run", "see", "echo", "--", "-w", "x") == b"-- -w x\n"
    assert output(environment, "run", "see", "--", "echo", "--", "x") == b"-- x\n"


@IN_EVERY_WAY
def test_a_command_may_be_named_with_any_bytes(
    runguard: Runguard, tmp_path: Path, locale: str, options: tuple[str, ...]
) -> None:
    """A program whose path is no UTF-8 is found and run, and a missing one is said in printable words."""
    program = os.fsencode(tmp_path) + b"/caf\xe9 -x"
    with open(program, "wb", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
        file.write(b"#!/bin/sh\necho ran\n")
    environment = bare_environment(runguard, locale)
    assert output(environment, "run", *options, "see", "--", program) == b"ran\n"
    missing = [*COMMAND, "run", *options, "see", "--", program + b"\xff\n"]
    result = subprocess.run(missing, check=False, env=environment, capture_output=True, timeout=60)
    assert (result.returncode, result.stderr.count(b"\n")) == (127, 1)
    assert b"caf\\xe9 -x\\xff\\n" in result.stderr


@IN_EVERY_WAY
def test_the_environment_is_the_one_received(runguard: Runguard, locale: str, options: tuple[str, ...]) -> None:
    """The command has the environment runguard was given, to the byte, and four variables more."""
    given = bare_environment(runguard, locale) | {
        b"LATIN": b"caf\xe9",
        b"NA\xefVE": b"\xff",
        b"EMPTY": b"",
        b"LINES": b"a\nb=c",
        b"PYTHONHASHSEED": b"7",
        b"RUNGUARD_CONFIG": b"",
        b"RUNGUARD_OTHER": b"kept",
    }
    shown = output(given, "run", *options, "see", "--", "env", "-0")
    got = dict(entry.split(b"=", 1) for entry in shown.split(b"\0")[:-1])
    assert {name: value for name, value in got.items() if name not in ADDED} == given
    assert got[b"RUNGUARD_NAME"] == b"see"
    assert got[b"RUNGUARD_ATTEMPT"] == b"1"
    assert got[b"RUNGUARD_IDEMPOTENCY_KEY"] == got[b"RUNGUARD_RUN_ID"]
    assert len(bytes.fromhex(got[b"RUNGUARD_RUN_ID"].decode())) == 16


def test_what_an_outer_run_exported_is_not_handed_down(runguard: Runguard) -> None:
    """A run inside a run has values of its own, and neither a slot nor a token of the outer one."""
    outer = dict.fromkeys((*ADDED, b"RUNGUARD_SLOT", b"RUNGUARD_TOKEN"), b"from above")
    shown = output(bare_environment(runguard) | outer, "run", "see", "--", "env", "-0")
    assert b"from above" not in shown
    assert b"RUNGUARD_SLOT" not in shown
    assert b"RUNGUARD_TOKEN" not in shown


def test_path_and_home_are_not_invented(runguard: Runguard) -> None:
    """The command sees exactly the PATH that runguard got: cron's short one, or none, with and without HOME."""
    bare = bare_environment(runguard)
    for path in ({}, {b"PATH": b"/usr/bin:/bin"}):
        shown = output(bare | path, "run", "see", "--", "env").split(b"\n")
        assert [line for line in shown if line.startswith((b"PATH=", b"HOME="))] == [
            b"PATH=" + value for value in path.values()
        ]


@MODES
def test_directory_umask_and_limits_are_kept(runguard: Runguard, tmp_path: Path, options: tuple[str, ...]) -> None:
    """Working directory, umask, niceness and resource limits are those runguard was started with."""
    before = ["prlimit", "--nofile=333:444", "--core=0:0", "nice", "-n", "3"]
    file = tmp_path / "bare.json"
    subprocess.run([*before, *helper("show_process.py", str(file))], check=True, cwd=tmp_path, umask=0o137)
    bare = json.loads(file.read_text())
    described = seen(runguard, tmp_path, *options, before=before, cwd=tmp_path, umask=0o137)
    for what in ("directory", "umask", "nice", "limits"):
        assert described[what] == bare[what]
    assert described["limits"]["RLIMIT_NOFILE"] == [333, 444]
    assert described["umask"] == 0o137


@MODES
def test_the_files_are_the_same_and_one_more(
    runguard: Runguard, lock_directory: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Descriptors 0 to 2 and those above are the same files, and there is exactly one more: the lock file."""
    with (tmp_path / "in").open("w+b") as stdin, (tmp_path / "out").open("wb") as stdout:
        first, second = os.pipe()
        high = os.dup2(first, 57)
        described = seen(
            runguard, tmp_path, *options, stdin=stdin, stdout=stdout, stderr=second, pass_fds=(first, second, high)
        )["descriptors"]
        given = {0: stdin.fileno(), 1: stdout.fileno(), 2: second, first: first, second: second, high: high}
        for number, ours in given.items():
            there = os.fstat(ours)
            assert described.pop(str(number))[:2] == [there.st_dev, there.st_ino]
        for descriptor in (first, second, high):
            os.close(descriptor)
    ((number, lock),) = described.items()
    assert lock[2] == str(lock_directory / "see.lock")
    assert int(number) > 2


@MODES
@pytest.mark.parametrize(
    "closed",
    [combination for length in (1, 2, 3) for combination in itertools.combinations((0, 1, 2), length)],
    ids=str,
)
def test_closed_descriptors_stay_closed(
    runguard: Runguard, lock_directory: Path, tmp_path: Path, closed: tuple[int, ...], options: tuple[str, ...]
) -> None:
    """A standard descriptor that was closed is closed in the command, and the lock file is never put there."""
    # So few descriptors that the lock file is not moved far up, out of harm's way.
    few = ("prlimit", "--nofile=20:20")
    before = (*few, *helper("launch.py", *(f"close={number}" for number in closed)), "--")
    described = seen(runguard, tmp_path, *options, before=before)["descriptors"]
    assert [number for number in range(3) if str(number) not in described] == list(closed)
    (place,) = [int(number) for number, file in described.items() if file[2] == str(lock_directory / "see.lock")]
    assert place > 2


def test_nothing_stands_between(runguard: Runguard, tmp_path: Path) -> None:
    """The command is a child of runguard itself: no shell in between."""
    described = seen(runguard, tmp_path)
    assert described["parent"] == described["started"] != described["pid"]


def test_no_fork_is_the_same_process(runguard: Runguard, tmp_path: Path) -> None:
    """With `-F` the command is the process that was started, holds the lock itself and gives its own code."""
    described = seen(runguard, tmp_path, "-F")
    assert described["pid"] == described["started"]
    process = runguard.start("run", "-F", "see", "--", "sh", "-c", "echo $$; read line; exit 5", stdin=subprocess.PIPE)
    assert process.stdout
    assert int(process.stdout.readline()) == process.pid
    assert runguard("run", "see", "true").returncode == 75
    process.communicate()
    assert process.returncode == 5
    assert runguard("run", "see", "true").returncode == 0


def test_a_stream_of_any_size_is_exact(runguard: Runguard) -> None:
    """What flows through the command's output arrives complete and unchanged."""
    command = ["seq", "1", "6500000"]
    wanted = subprocess.run(command, check=True, capture_output=True).stdout
    got = runguard("run", "see", "--", *command).stdout
    assert len(got) > 50_000_000
    assert hashlib.sha256(got).digest() == hashlib.sha256(wanted).digest()


def test_input_is_the_commands(runguard: Runguard) -> None:
    """Runguard reads nothing of the standard input: all of it is there for the command."""
    text = b"line\n" * 30_000
    result = runguard("run", "see", "cat", stdin=None, input=text)
    assert result.stdout == text


@pytest.mark.parametrize(
    "script",
    ["sleep 60 & echo $!", "nohup sleep 60 & echo $!", "setsid -f sh -c 'echo $$; exec sleep 60'"],
)
def test_what_the_command_leaves_behind_keeps_nobody(runguard: Runguard, tmp_path: Path, script: str) -> None:
    """A command that leaves a process behind, even one with its files open, has ended: so has the run, and the lock."""
    file = tmp_path / "output"
    with file.open("wb") as output:
        result = runguard("run", "see", "sh", "-c", script, stdout=output, stderr=output, timeout=30)
    assert result.returncode == 0
    free = runguard("run", "see", "true").returncode
    left = int(eventually(file.read_text))  # type: ignore[call-overload]
    assert is_alive(left)
    os.kill(left, signal.SIGKILL)
    assert free == 0


def test_no_bytecode_or_state_is_written_by_the_way(runguard: Runguard, tmp_path: Path, lock_directory: Path) -> None:
    """A run leaves one file behind: the empty lock file."""
    before = {str(path) for path in tmp_path.rglob("*")}
    assert runguard("run", "see", sys.executable, "-c", "").returncode == 0
    after = {str(path) for path in tmp_path.rglob("*")}
    assert after - before == {str(lock_directory / "see.lock")}
    assert (lock_directory / "see.lock").read_bytes() == b""
