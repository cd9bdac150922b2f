"""How an ending becomes an exit code, and who sees it on standard error."""

from __future__ import annotations

import pytest

from runguard import config, events, options, outcome, wiring
from runguard.errors import ConfigError, UsageError
from runguard.holder import Holder
from runguard.place import Place
from runguard.sinks import stderr

ENDINGS = {
    "ran": (outcome.Ran(0, 1.0), 0),
    "failed": (outcome.Ran(75, 1.0), 75),
    "killed": (outcome.Ran(137, 1.0), 137),
    "cannot execute": (outcome.NotStarted(126, "reason"), 126),
    "not found": (outcome.NotStarted(127, "reason"), 127),
    "skipped": (outcome.Skipped(Holder()), 99),
    "too many wait": (outcome.Skipped(Holder(), 3), 99),
    "wait expired": (outcome.WaitExpired(Holder(), 1.0), 99),
    "backend failed": (outcome.BackendFailed("reason"), 69),
    "interrupted": (outcome.Interrupted(2), 130),
    "terminated": (outcome.Interrupted(15), 143),
    "hung up": (outcome.Interrupted(1), 129),
}


@pytest.mark.parametrize(("ended", "code"), ENDINGS.values(), ids=ENDINGS)
def test_each_ending_has_its_code(ended: outcome.Outcome, code: int) -> None:
    """Only a conflict takes the code that -E chose; a broken backend never does."""
    assert outcome.exit_code(ended, 99) == code


@pytest.mark.parametrize("conflict_code", [0, 69, 75, 255])
def test_a_broken_backend_is_never_a_conflict(conflict_code: int) -> None:
    """Whatever code a conflict has, a backend that could not be asked is 69."""
    assert outcome.exit_code(outcome.BackendFailed("reason"), conflict_code) == 69
    assert outcome.exit_code(outcome.Skipped(Holder()), conflict_code) == conflict_code


def attempt(ended: outcome.Outcome) -> events.Attempt:
    return events.Attempt(
        name="x",
        run_id="r",
        backend="file:",
        policy="skip",
        host="h",
        pid=1,
        attempt=1,
        started="then",
        ended="now",
        outcome=ended,
        code=0,
    )


def notice(level: str) -> events.Notice:
    return events.Notice(level, "what", "text", name="x", run_id="r")


SEEN_FROM = {
    "quiet": [events.ERROR, events.WARNING, "cannot execute", "not found", "backend failed"],
    "nobody in particular": ["wait expired", "interrupted", "terminated", "hung up"],
    "a terminal": [events.HINT, "skipped", "too many wait"],
    "verbose": [events.DETAIL, "ran", "failed", "killed"],
}


@pytest.mark.parametrize("what", [what for seen in SEEN_FROM.values() for what in seen])
@pytest.mark.parametrize("sees", range(4))
def test_who_sees_what(capfd: pytest.CaptureFixture[str], sees: int, what: str) -> None:
    """Errors are for everybody, expired waits for all but the quiet, skips for a terminal, success for -v."""
    least = next(level for level, seen in enumerate(SEEN_FROM.values()) if what in seen)
    event = attempt(ENDINGS[what][0]) if what in ENDINGS else notice(what)
    stderr.Stderr(lambda _: "line", prefix=True, sees=sees).write(event)
    assert capfd.readouterr() == ("", "runguard: line\n" if sees >= least else "")


def test_every_ending_has_its_place_in_the_table() -> None:
    """The table above names each ending once."""
    assert sorted(ENDINGS) == sorted(what for seen in SEEN_FROM.values() for what in seen if what in ENDINGS)


def given_settings(*levels: dict[str, options.Value]) -> config.Settings:
    return config.Settings([("the command line", levels[0]), *(("/f [defaults]", level) for level in levels[1:])], {})


@pytest.mark.parametrize(
    ("levels", "terminal", "sees"),
    [
        ([{}], False, stderr.OTHERS_SEE),
        ([{}], True, stderr.TERMINAL_SEES),
        ([{"quiet": True}], True, stderr.QUIET_SEES),
        ([{"verbose": True}], False, stderr.VERBOSE_SEES),
        ([{"quiet": True}, {"verbose": True}], False, stderr.QUIET_SEES),
        ([{"verbose": True}, {"quiet": True}], False, stderr.VERBOSE_SEES),
        ([{}, {"quiet": False, "verbose": False}, {"quiet": True}], True, stderr.TERMINAL_SEES),
    ],
)
def test_the_stronger_of_quiet_and_verbose_decides(
    levels: list[dict[str, options.Value]], terminal: object, sees: int
) -> None:
    """A terminal makes runguard speak of skips; --quiet and --verbose beat it, of the two the stronger level wins."""
    assert wiring.interest(given_settings(*levels), terminal=bool(terminal)) == sees


@pytest.mark.parametrize(
    ("levels", "url", "error"),
    [
        ([{"quiet": True, "verbose": True}], "file:", UsageError),
        ([{}, {"quiet": True, "verbose": True}], "file:", ConfigError),
        ([{"no-fork": True}], "mariadb://h", UsageError),
        ([{"no-fork": True}], "postgresql://h", UsageError),
        ([{}, {"no-fork": True}], "postgresql://h", ConfigError),
        ([{"shared": True}], "mariadb://h", UsageError),
        ([{}, {"shared": True}], "mysql://h", ConfigError),
        ([{"max-waiters": 1}], "file:", UsageError),
        ([{"max-waiters": 1, "nonblock": True}], "file:", UsageError),
        ([{"max-waiters": 1}, {"nonblock": True}], "file:", UsageError),
        ([{}, {"max-waiters": 1}], "file:", ConfigError),
        ([{"nonblock": True, "wait": 1.0}], "file:", UsageError),
    ],
)
def test_a_combination_that_cannot_be_honoured_is_refused(
    levels: list[dict[str, options.Value]], url: str, error: type[Exception]
) -> None:
    """It is wrong usage on the command line and a wrong file in a file, and never ignored."""
    with pytest.raises(error):
        wiring.check_run(given_settings(*levels), Place(url))


@pytest.mark.parametrize(
    "levels",
    [
        [{"max-waiters": 1, "wait": 5.0}],
        [{"wait": 5.0}, {"max-waiters": 1}],
        [{"max-waiters": 1}, {"wait": 5.0}],
        [{"nonblock": True}, {"wait": 5.0, "max-waiters": 1}],
        [{"quiet": True}, {"verbose": True}],
        [{"no-fork": True, "shared": True}],
    ],
)
def test_a_combination_that_makes_sense_is_accepted(levels: list[dict[str, options.Value]]) -> None:
    """A stronger level may switch off what a weaker one set up, without being told to clean up."""
    wiring.check_run(given_settings(*levels), Place("file:"))
