"""Where events are written: one line each, whatever they hold, and a sink that fails stops nothing."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runguard import config, events, outcome, wiring
from runguard.holder import Holder
from runguard.printable import printable
from runguard.sinks import jsonlines, stderr, text
from runguard.sinks.logfile import LogFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ANY = st.text(st.characters()) | st.text("\n\r\t\x1b\0\x7f\x85\u2028\u202e\udc80\udcff\ud800ab", max_size=12)
HOLDERS = st.builds(Holder, **{name: st.none() | ANY for name in ("host", "user", "since", "command", "session")})
OUTCOMES = st.one_of(
    st.builds(outcome.Ran, st.integers(0, 255), st.floats(0, 1e6)),
    st.builds(outcome.NotStarted, st.sampled_from([126, 127]), ANY),
    st.builds(outcome.Skipped, HOLDERS, st.none() | st.integers(0, 9)),
    st.builds(outcome.WaitExpired, HOLDERS, st.floats(0, 1e6)),
    st.builds(outcome.BackendFailed, ANY),
    st.builds(outcome.Interrupted, st.integers(1, 64)),
)


def attempt(ended: outcome.Outcome, backend: str = "file:", name: str = "shop.refresh") -> events.Attempt:
    return events.Attempt(
        name=name,
        run_id="r1",
        backend=backend,
        policy="skip",
        host="h",
        pid=7,
        attempt=1,
        started="2026-01-01T00:00:00.000Z",
        ended="2026-01-01T00:00:01.000Z",
        outcome=ended,
        code=75,
    )


def notice(said: str, level: str = events.ERROR) -> events.Notice:
    return events.Notice(level, "lock_lost", said, name="shop.refresh", run_id="r1")


EVENTS = st.builds(attempt, OUTCOMES, backend=ANY) | st.builds(notice, ANY)


@given(EVENTS)
def test_text_is_one_line_that_can_be_printed(event: events.Event) -> None:
    """Control characters, line ends of any kind and bytes that are no text are shown as escapes."""
    line = text.line(event)
    assert line.isprintable()
    assert line.encode()
    assert line.startswith("shop.refresh: ")


@given(EVENTS)
def test_json_is_one_line_that_any_parser_takes(event: events.Event) -> None:
    """Each event is one ASCII object on one line, its texts valid Unicode, the line for people its `message`."""
    line = jsonlines.line(event)
    assert line.isascii()
    assert line.isprintable()
    read = json.loads(line)
    json.dumps(read, ensure_ascii=False).encode()
    assert read["message"] == text.line(event)
    assert read["name"] == "shop.refresh"


@given(ANY)
@example("")
def test_printable_changes_only_what_cannot_be_printed(given_text: str) -> None:
    """Text that can be printed is left alone; the rest becomes escapes in place."""
    made = printable(given_text)
    assert made.isprintable()
    if given_text.isprintable():
        assert made == given_text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\nb", "a\\nb"),
        ("\x1b[31m", "\\x1b[31m"),
        ("caf\udce9", "caf\\xe9"),
        ("\u2028", "\\u2028"),
        ("ü", "ü"),
        ("\0", "\\x00"),
    ],
)
def test_escapes_are_the_familiar_ones(raw: str, shown: str) -> None:
    """What is escaped looks as it would in a string of Python or a shell."""
    assert printable(raw) == shown


HOLDER = Holder(pid=812, host="web1", user="www-data", since="2026", command="/usr/bin/php refresh.php")
LINES: list[tuple[outcome.Outcome, str]] = [
    (outcome.Ran(3, 61.25), "ran for 61.2 s, exit code 3"),
    (outcome.NotStarted(127, "no-such: command not found"), "no-such: command not found"),
    (
        outcome.Skipped(HOLDER),
        "skipped: held by pid 812 on web1 (user www-data) since 2026: /usr/bin/php refresh.php (policy skip)",
    ),
    (outcome.Skipped(Holder(), 2), "skipped: held by somebody, and 2 already wait (policy skip)"),
    (
        outcome.WaitExpired(Holder(session="session 9", user="root"), 2.04),
        "gave up after waiting 2.0 s: held by session 9 (user root)",
    ),
    (outcome.BackendFailed("cannot reach it"), "cannot reach it"),
    (outcome.Interrupted(15), "interrupted by signal 15 before the command started"),
]


@pytest.mark.parametrize(("ended", "said"), LINES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_line_says_what_happened(ended: outcome.Outcome, said: str) -> None:
    """For people each ending is NAME and one sentence, a conflict with its holder."""
    assert text.line(attempt(ended)) == f"shop.refresh: {said}"


def test_json_has_the_documented_fields() -> None:
    """The object of an attempt says name, run, slot, attempt, host, pid, times, exit code and what the ending adds."""
    read = json.loads(jsonlines.line(attempt(outcome.Skipped(HOLDER, 2), "postgresql:///ops")))
    message = read.pop("message")
    assert message.startswith("shop.refresh: skipped")
    assert read == {
        "time": "2026-01-01T00:00:01.000Z",
        "event": "skipped",
        "name": "shop.refresh",
        "run_id": "r1",
        "backend": "postgresql:///ops",
        "policy": "skip",
        "host": "h",
        "pid": 7,
        "slot": None,
        "attempt": 1,
        "started": "2026-01-01T00:00:00.000Z",
        "ended": "2026-01-01T00:00:01.000Z",
        "exit_code": 75,
        "holder": HOLDER.fields(),
        "waiters": 2,
    }


def emitter(**values: str) -> Callable[[events.Event], None]:
    level = {name.replace("_", "-"): value for name, value in values.items()}
    settings = config.Settings([("the command line", level)], {})  # type: ignore[list-item]
    return wiring.emitter(settings, sees=stderr.OTHERS_SEE)


def full(path: Path) -> None:
    path.symlink_to("/dev/full")


BROKEN = {
    "no directory": lambda path: path.parent.rmdir(),
    "a directory": lambda path: path.mkdir(),
    "a FIFO that nobody reads": os.mkfifo,
    "a full disk": full,
    "a link to itself": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN)
def test_a_sink_that_fails_is_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], make: Callable[[Path], object], form: str
) -> None:
    """A log that cannot be written is said once on standard error, in one line, and later events go on to the rest."""
    path = tmp_path / "logs" / "log"
    path.parent.mkdir()
    make(path)
    emit = emitter(log_to=str(path), log_format=form)
    for said in ("first", "second"):
        emit(notice(said))
    lines = capfd.readouterr().err.splitlines()
    assert [line for line in lines if "cannot write to the log" not in line] == [
        "runguard: shop.refresh: first",
        "runguard: shop.refresh: second",
    ]
    (complaint,) = (line for line in lines if "cannot write to the log" in line)
    assert str(path) in complaint
    assert complaint.endswith("; the run is not affected")


@given(st.lists(EVENTS, max_size=5))
def test_a_log_file_gets_every_event_on_a_line(written: list[events.Event]) -> None:
    """As many events, so many lines: nothing in an event can forge another line."""
    path = f"/proc/self/fd/{(descriptor := os.memfd_create('log'))}"
    try:
        for event in written:
            LogFile(path, text.line, stamped=False).write(event)
        content = os.pread(descriptor, 1 << 20, 0).decode()
    finally:
        os.close(descriptor)
    assert content == "".join(f"{text.line(event)}\n" for event in written)


def test_a_log_file_in_text_says_when_and_who(tmp_path: Path) -> None:
    """A line of text in a file begins with the time, the host and the process; a line of JSON holds them already."""
    emitter(log_to=str(tmp_path / "text"))(notice("said"))
    stamp, host, who, *rest = (tmp_path / "text").read_text().split(" ")
    assert (stamp[-1], len(stamp), host, who) == ("Z", 24, os.uname().nodename, f"runguard[{os.getpid()}]:")
    assert " ".join(rest) == "shop.refresh: said\n"
    emitter(log_to=str(tmp_path / "json"), log_format="json")(notice("said"))
    assert json.loads((tmp_path / "json").read_text())["message"] == "shop.refresh: said"


def test_a_log_file_is_appended_to_and_found_again(tmp_path: Path) -> None:
    """What stands in the file stays, and one that was rotated away is made anew, not readable by others."""
    path = tmp_path / "log"
    path.write_text("before\n")
    emit = emitter(log_to=str(path))
    emit(notice("one"))
    path.rename(tmp_path / "log.1")
    emit(notice("two"))
    assert [len((tmp_path / name).read_text().splitlines()) for name in ("log", "log.1")] == [1, 2]
    assert stat.S_IMODE(path.stat().st_mode) & 0o007 == 0


def test_a_log_elsewhere_does_not_silence_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """With a log in JSON the terminal still gets text; without one it gets the JSON itself."""
    emitter(log_to=str(tmp_path / "log"), log_format="json")(notice("said"))
    assert capfd.readouterr().err == "runguard: shop.refresh: said\n"
    emitter(log_format="json")(notice("said"))
    assert json.loads(capfd.readouterr().err)["event"] == "lock_lost"


def test_a_closed_standard_error_is_no_failure() -> None:
    """Where nobody can read, saying something raises nothing."""
    kept = os.dup(2)
    os.close(2)
    try:
        stderr.say("nobody hears this")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
