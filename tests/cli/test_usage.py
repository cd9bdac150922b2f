"""Wrong command lines are refused before anything happens, and runs say no more than they should."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import eventually

if TYPE_CHECKING:
    from conftest import Runguard

FIELDS = {
    "time", "event", "name", "run_id", "backend", "policy", "host", "pid", "slot", "attempt", "started", "ended",
    "exit_code", "message",
}  # fmt: skip
OF_OUTCOME = {
    "ran": {"ran_seconds"},
    "skipped": {"holder", "waiters"},
    "wait_expired": {"holder", "waited_seconds"},
    "backend_error": {"reason"},
    "interrupted": {"signal"},
}
MARIADB, POSTGRES = "mariadb://nobody@127.0.0.1:1/x", "postgresql://nobody@127.0.0.1:1/x"

BAD_OPTIONS = {
    **{
        f"wait {word!r}": (["-w", word], "duration")
        for word in ("-1", "nan", "1e400", "abc", "", "1h30", "5m1h", "inf")
    },
    **{f"jitter {word!r}": (["--jitter", word], "duration") for word in ("-1", "nan", "1e400", "abc", "", "forever")},
    **{f"code {word!r}": (["-E", word], "0 to 255") for word in ("600", "256", "-1", "abc", "", "1.0", "0x1", "²")},
    "two policies": (["-n", "-w", "5"], "different policies"),
    "two policies by word": (["--on-conflict", "skip", "--wait", "5"], "different policies"),
    "skip and wait": (["-n", "--on-conflict", "wait", "-w", "1"], "different policies"),
    "no limit": (["--on-conflict", "wait"], "--wait DURATION"),
    "queue": (["--on-conflict", "queue"], "skip, wait"),
    "policy": (["--on-conflict", "Skip"], "skip, wait"),
    "waiters without wait": (["--max-waiters", "2"], "--wait DURATION"),
    "waiters with skip": (["-n", "--max-waiters", "2"], "--wait DURATION"),
    "waiters": (["-w", "1", "--max-waiters", "-1"], "whole number"),
    "no-fork on mariadb": (["-F", "-b", MARIADB], "file backend"),
    "no-fork on postgresql": (["-F", "-b", POSTGRES], "file backend"),
    "shared on mariadb": (["--shared", "-b", MARIADB], "shared"),
    "quiet and verbose": (["-q", "-v"], "contradict"),
    "format": (["--log-format", "xml"], "text, json"),
    "log": (["--log-to", ""], "empty"),
    "key": (["--key", ""], "empty"),
    "scheme": (["-b", "redis://x"], "not known"),
    "backend name": (["-b", "ops"], "ops"),
    "relative directory": (["-b", "file:locks"], "absolute path"),
    "bigint": (["-b", POSTGRES, "--key", "9223372036854775808"], "9223372036854775808"),
    "a value for a flag": (["--shared=yes"], "shared"),
    "unknown letter": (["-Z"], "-Z"),
}
OF_LATER_VERSIONS = (
    "--every", "--schedule", "--tz", "--slot-tolerance", "--catch-up", "--queue-limit", "--queue-env", "--lease",
    "--max-runtime", "--kill-after", "--signal", "--on-lost", "--lost-grace", "--no-host-lock", "--retries",
    "--retry-delay", "--queued-exit-code", "--warn-after-skips", "--no-record", "--state-dir", "--keep", "-k",
)  # fmt: skip
BAD_NAMES = {
    "x" * 65: "x" * 64,
    "x" * 1000: "x" * 64,
    "Job": "job",
    "job\N{ROCKET}": "job",
    "a\nb": "a-b",
    "a'b": "a-b",
    'a"b': "a-b",
    "../x": "x",
    "../../etc/passwd": "etc-passwd",
    "": "job",
    "a b": "a-b",
    ".hidden": "hidden",
    "_x": "x",
    "Caf\N{LATIN SMALL LETTER E WITH ACUTE}": "cafe",
    b"caf\xe9": "caf",
    "\x1b[31m": "31m",
}


class Refusal:
    """Runs a command line that must be refused."""

    def __init__(self, runguard: Runguard, lock_directory: Path, marker: Path) -> None:
        self.runguard = runguard
        self.lock_directory = lock_directory
        self.marker = marker

    def __call__(self, *words: str | bytes) -> str:
        """Check that nothing happened but one line, which is returned."""
        result = self.runguard(*words, "touch", str(self.marker))
        text = result.stderr.decode()
        assert result.returncode == 64, text
        assert result.stdout == b""
        assert re.fullmatch(r"runguard: .+\n", text), text
        assert text[:-1].isprintable()
        assert "Traceback" not in text
        assert not self.marker.exists()
        assert list(self.lock_directory.iterdir()) == []
        return text


@pytest.fixture
def refuse(runguard: Runguard, lock_directory: Path, tmp_path: Path) -> Refusal:
    """Return a check that a command line is refused."""
    return Refusal(runguard, lock_directory, tmp_path / "marker")


@pytest.fixture
def held(runguard: Runguard) -> subprocess.Popen[bytes]:
    """Hold the lock `usage` during a test."""
    holder = runguard.start("run", "usage", "sh", "-c", "echo held; read line", stdin=subprocess.PIPE)
    assert holder.stdout
    assert holder.stdout.readline() == b"held\n"
    return holder


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_a_wrong_option_is_refused(refuse: Refusal, case: str) -> None:
    """A bad value or combination is exit code 64 and one line that says what is wrong."""
    options, said = BAD_OPTIONS[case]
    assert said in refuse("run", *options, "usage", "--")


@pytest.mark.parametrize("option", OF_LATER_VERSIONS)
def test_an_option_of_a_later_version_is_unknown(refuse: Refusal, option: str) -> None:
    """An option that this version does not have is never accepted and ignored."""
    said = refuse("run", option, "5", "usage", "--")
    assert re.search(rf"no such option:? '?{option}\b", said)


@pytest.mark.parametrize("words", [["--timeout", "5"], ["--timeout=5"]], ids=len)
def test_timeout_is_refused_with_both_meanings(refuse: Refusal, words: list[str]) -> None:
    """`--timeout` has two meanings elsewhere, so the refusal names the two options that say which."""
    said = refuse("run", *words, "usage", "--")
    assert "--wait" in said
    assert "--max-runtime" in said


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_a_wrong_name_is_refused_with_the_nearest(refuse: Refusal, name: str | bytes) -> None:
    """A name that is not allowed is refused before anything is opened, and the nearest allowed one is proposed."""
    said = refuse("run", name, "--")
    assert said.endswith(f"the nearest is {BAD_NAMES[name]!r}\n")


@pytest.mark.parametrize("name", ["-odd", "--odd", "-"])
def test_a_name_like_an_option_is_refused(refuse: Refusal, name: str) -> None:
    """A name with a leading hyphen is refused, as an option or as a name."""
    refuse("run", name, "--")


@pytest.mark.parametrize(
    "words", [["run"], ["run", "usage"], ["run", "usage", "--"], ["run", "-n"], ["run", "--wait"], ["nonsense"], []]
)
def test_an_incomplete_command_line_is_refused(runguard: Runguard, lock_directory: Path, words: list[str]) -> None:
    """Without a name, a command, or a known command of runguard there is one line and exit code 64."""
    result = runguard(*words)
    assert (result.returncode, result.stdout) == (64, b"")
    assert result.stderr.count(b"\n") == 1
    assert list(lock_directory.iterdir()) == []


def test_an_empty_command_word_is_the_commands_fault(runguard: Runguard) -> None:
    """An empty word as command is a command that is not found, not wrong usage of runguard."""
    assert runguard("run", "usage", "").returncode == 127


@pytest.mark.parametrize(
    "options", [[], ["-n"], ["-w", "5"], ["-q"], ["--jitter", "0.01"], ["-E", "0"], ["-s"], ["-F"]]
)
def test_nothing_is_said_about_a_run_that_ran(runguard: Runguard, options: list[str]) -> None:
    """Whatever its exit code, a command that ran is all that speaks."""
    result = runguard("run", *options, "usage", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (result.returncode, result.stdout, result.stderr) == (3, b"out\n", b"err\n")


def on_terminal(runguard: Runguard, *words: str) -> bytes:
    """Run with a terminal as standard error; return what it shows."""
    master, slave = os.openpty()
    process = runguard.start(*words, stderr=slave)
    os.close(slave)
    process.communicate(timeout=30)
    shown = b""
    try:
        while data := os.read(master, 4096):
            shown += data
    except OSError:
        pass
    os.close(master)
    return shown


def test_a_skip_is_quiet_unless_somebody_looks(runguard: Runguard, held: subprocess.Popen[bytes]) -> None:
    """A skip says nothing to cron, one line to a terminal or with `-v`, and nothing anywhere with `-q`."""
    assert runguard("run", "usage", "true").stderr == b""
    said = runguard("run", "-v", "usage", "true").stderr
    assert said == on_terminal(runguard, "run", "usage", "true").replace(b"\r\n", b"\n")
    pattern = rb"runguard: usage: skipped: held by pid %d on \S+ \(user \S+\) since \S+: sh -c .* \(policy skip\)\n"
    assert re.fullmatch(pattern % held.pid, said)
    assert on_terminal(runguard, "run", "-q", "usage", "true") == b""


def test_an_expired_wait_is_said(runguard: Runguard, held: subprocess.Popen[bytes]) -> None:
    """A wait that expired is worth a line also without a terminal; `-q` silences it; the code is that of `-E`."""
    result = runguard("run", "-w", "0.1", "-E", "9", "usage", "true")
    assert result.returncode == 9
    assert re.fullmatch(
        rb"runguard: usage: gave up after waiting 0\.\d s: held by pid %d .*\n" % held.pid, result.stderr
    )
    quiet = runguard("run", "-q", "-w", "0.1", "usage", "true")
    assert (quiet.returncode, quiet.stderr) == (75, b"")


def test_errors_are_said_even_when_quiet(runguard: Runguard) -> None:
    """`-q` does not silence a command that is missing or a lock that cannot be had."""
    missing = runguard("run", "-q", "usage", "no-such-command")
    broken = runguard("run", "-q", "-b", "file:/no/such/directory", "usage", "true")
    assert (missing.returncode, missing.stderr.count(b"\n")) == (127, 1)
    assert (broken.returncode, broken.stderr.count(b"\n")) == (69, 1)


def events(text: bytes) -> list[dict[str, object]]:
    """Read a log of JSON lines; every end of an attempt has its documented fields and no others."""
    found = [json.loads(line) for line in text.splitlines()]
    for event in found:
        if "exit_code" in event:
            extra = {"reason"} if event["exit_code"] in {126, 127} else OF_OUTCOME[event["event"]]
            assert set(event) == FIELDS | extra
            assert event["slot"] is None
            assert event["attempt"] == 1
            assert len(event["run_id"]) == 32
            assert all(
                re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event[key]) for key in ("time", "started")
            )
        else:
            assert set(event) == {"time", "event", "level", "name", "run_id", "message"}
    return found


@pytest.mark.parametrize(
    ("options", "command", "code", "wanted"),
    [
        (["-v"], ["true"], 0, ["acquired", "ran"]),
        (["-v", "-w", "1"], ["sh", "-c", "kill -9 $$"], 137, ["acquired", "ran"]),
        ([], ["no-such-command"], 127, ["ran"]),
        (["-b", "file:/no/such/directory"], ["true"], 69, ["backend_error"]),
    ],
)
def test_json_lines_of_what_ended(
    runguard: Runguard, options: list[str], command: list[str], code: int, wanted: list[str]
) -> None:
    """With `--log-format json` each event is one object on a line, with the documented fields."""
    result = runguard("run", "--log-format", "json", *options, "usage", *command)
    found = events(result.stderr)
    assert [event["event"] for event in found] == wanted
    assert found[-1]["exit_code"] == result.returncode == code


def test_json_lines_of_conflicts(runguard: Runguard, held: subprocess.Popen[bytes]) -> None:
    """Skips and expired waits say in fields of their own who has the lock."""
    json_log = ("run", "-v", "--log-format", "json")
    (skipped,) = events(runguard(*json_log, "usage", "true").stderr)
    waiting, expired = events(runguard(*json_log, "-w", "0.1", "usage", "true").stderr)
    assert (skipped["event"], waiting["event"], expired["event"]) == ("skipped", "waiting", "wait_expired")
    for event in (skipped, expired):
        assert isinstance(event["holder"], dict)
        assert event["holder"]["pid"] == held.pid


def test_a_log_line_is_printable_whatever_the_command(runguard: Runguard) -> None:
    """Control characters and bytes of a holder's command line cannot break a line of the log or of a terminal."""
    holder = runguard.start("run", "usage", "sh", "-c", "echo held; read line", b"\x1b[2J\n\xff", stdin=subprocess.PIPE)
    assert holder.stdout
    assert holder.stdout.readline() == b"held\n"
    said = runguard("run", "-v", "usage", "true").stderr
    assert said.count(b"\n") == 1
    assert said[:-1].decode("ascii").isprintable()
    assert len(events(runguard("run", "-v", "--log-format", "json", "usage", "true").stderr)) == 1


def test_a_log_file_gets_every_event(runguard: Runguard, tmp_path: Path) -> None:
    """`--log-to FILE` is appended to, made with mode 0640, and takes nothing from standard error or the exit code."""
    log = tmp_path / "log"
    for code in (0, 3):
        result = runguard("run", "--log-to", str(log), "usage", "sh", "-c", f"exit {code}")
        assert (result.returncode, result.stderr) == (code, b"")
    lines = log.read_text().splitlines()
    assert [line.rpartition("usage: ")[2] for line in lines if "ran for" in line][-1].endswith("exit code 3")
    assert sum("ran for" in line for line in lines) == 2
    assert log.stat().st_mode & 0o777 & ~0o640 == 0


def test_a_json_log_file(runguard: Runguard, tmp_path: Path) -> None:
    """A log file of JSON lines parses line by line; standard error stays text for people."""
    log = tmp_path / "log"
    result = runguard("run", "-v", "--log-to", str(log), "--log-format", "json", "usage", "true")
    assert [event["event"] for event in events(log.read_bytes())][-1] == "ran"
    assert b"runguard: usage: ran for" in result.stderr


@pytest.mark.parametrize("where", ["syslog", "/no/such/directory/log", "/", "fifo", "/dev/full", "unreadable/log", "."])
@pytest.mark.parametrize("code", [0, 7])
def test_a_log_that_fails_changes_nothing(runguard: Runguard, tmp_path: Path, where: str, code: int) -> None:
    """A log that cannot be written is said once; the command runs and its exit code comes back."""
    if where == "fifo":
        os.mkfifo(tmp_path / "fifo")
    (tmp_path / "unreadable").touch()
    script = f"echo ran; exit {code}"
    result = runguard("run", "--log-to", where, "usage", "sh", "-c", script, cwd=tmp_path, timeout=30)
    assert (result.returncode, result.stdout) == (code, b"ran\n")
    assert result.stderr.count(b"\n") == (where != "syslog")
    assert where == "syslog" or b"cannot write to the log" in result.stderr


def test_standard_error_that_fails_changes_nothing(runguard: Runguard, held: subprocess.Popen[bytes]) -> None:
    """A full disk behind standard error does not change the code of a run or of a conflict."""
    with Path("/dev/full").open("wb") as full:
        assert runguard("run", "-v", "usage", "true", stderr=full).returncode == 75
        assert runguard("run", "-v", "usage.other", "sh", "-c", "exit 3", stderr=full).returncode == 3
        assert runguard("run", "--nonsense", stderr=full).returncode == 64


def test_max_waiters(runguard: Runguard, held: subprocess.Popen[bytes], lock_directory: Path) -> None:
    """With two waiting already, `--max-waiters 2` is a conflict at once; when one leaves there is a place again."""
    waiters = [runguard.start("run", "-w", "60", "usage", "sleep", "0") for _ in range(2)]
    eventually(lambda: taken_places(lock_directory / "usage.waiters") == 2)
    refused = runguard("run", "-v", "-w", "60", "--max-waiters", "2", "usage", "echo", "ran")
    assert (refused.returncode, refused.stdout) == (75, b"")
    assert b", and 2 already wait (policy wait)" in refused.stderr.splitlines()[-1]
    waiters[0].terminate()
    assert waiters[0].wait(30) == 143
    third = runguard.start("run", "-w", "60", "--max-waiters", "2", "usage", "echo", "ran")
    eventually(lambda: taken_places(lock_directory / "usage.waiters") == 2)
    held.communicate()
    assert third.communicate(timeout=30)[0] == b"ran\n"
    assert waiters[1].wait(30) == 0


def taken_places(file: Path) -> int:
    """Return how many runs the kernel sees waiting."""
    if not file.exists():
        return 0
    inode = f":{file.stat().st_ino}"
    rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(row[1] == "OFDLCK" and row[5].endswith(inode) for row in rows)


def test_nobody_may_wait(runguard: Runguard, held: subprocess.Popen[bytes]) -> None:
    """`--max-waiters 0` never waits, and runs when the lock is free."""
    words = ("run", "-w", "60", "--max-waiters", "0")
    assert runguard(*words, "usage", "true").returncode == 75
    assert runguard(*words, "usage.other", "true").returncode == 0


def test_jitter_comes_before_the_lock(runguard: Runguard) -> None:
    """While a run sleeps its random time it does not hold the lock, and a signal ends it with 128+N."""
    sleeper = runguard.start("run", "--jitter", "30d", "usage", "true")
    eventually(lambda: catches(sleeper.pid, signal.SIGTERM))
    assert runguard("run", "usage", "true").returncode == 0
    sleeper.terminate()
    out, err = sleeper.communicate(timeout=30)
    assert (sleeper.returncode, out) == (143, b"")
    assert b"interrupted by signal 15" in err


def catches(pid: int, number: int) -> bool:
    """Say whether a process has a handler for a signal."""
    found = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(found and int(found[1], 16) >> (number - 1) & 1)
