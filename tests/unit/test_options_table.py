"""The table of options, and how the text of each kind is read."""

from __future__ import annotations

import re

import pytest

from runguard import options
from runguard.options import Choice, Duration, Flag, Limit, Option, Text, Whole


def test_names_and_letters_are_unique() -> None:
    """No two options share a long name, a letter or a variable."""
    for values in (
        [option.name for option in options.RUN],
        [option.short for option in options.RUN if option.short],
        [option.variable for option in options.RUN if option.variable],
    ):
        assert len(values) == len(set(values))


@pytest.mark.parametrize("option", options.RUN, ids=lambda option: option.name)
def test_a_row_is_complete(option: Option) -> None:
    """Each option has a plain long name, a sentence, and a metavar exactly if it takes a value."""
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", option.name)
    assert option.short is None or re.fullmatch(r"[A-Za-z]", option.short)
    assert option.says
    assert option.says[0].islower()
    assert not option.says.endswith(".")
    assert bool(option.metavar) == option.kind.takes_value
    assert option.variable in {None, "RUNGUARD_" + option.name.upper().replace("-", "_")}


def test_the_defaults_are_those_documented() -> None:
    """Built in are: the file backend, 75 for a conflict, text on stderr, and nothing else switched on."""
    assert {option.name: option.default for option in options.RUN if option.default not in (None, False)} == {
        "backend": "file:",
        "conflict-exit-code": 75,
        "log-format": "text",
        "log-to": "stderr",
    }


def test_the_bare_word_timeout_is_no_option() -> None:
    """flock(1) and timeout(1) give it opposite meanings, so no option has it."""
    assert "timeout" not in options.BY_NAME


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Text(), "x", "x"),
        (Text(), " ", " "),
        (Choice("skip", "wait"), "wait", "wait"),
        (Whole(0, 255), "0", 0),
        (Whole(0, 255), "255", 255),
        (Whole(0, 255), "007", 7),
        (Duration(), "1m", 60.0),
        (Limit(), "1m", 60.0),
        (Limit(), "forever", None),
    ],
)
def test_a_kind_reads_its_text(kind: options.Kind, text: str, value: options.Value) -> None:
    """Each kind turns good text into its value."""
    assert kind.read(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Text(), ""),
        (Text(), "a\0b"),
        (Choice("skip", "wait"), "Skip"),
        (Choice("skip", "wait"), "queue"),
        (Choice("skip", "wait"), ""),
        *(
            (Whole(0, 255), text)
            for text in ("", "-1", "+1", "256", "600", "1.0", "1e2", " 1", "0x1", "٣", "²", "1_0", "9" * 9999)
        ),
        (Whole(5, 9), "4"),
        (Duration(), "forever"),
        (Duration(), "soon"),
        (Limit(), "never"),
    ],
)
def test_a_kind_refuses_other_text_in_one_line(kind: options.Kind, text: str) -> None:
    """Each kind refuses bad text with a sentence of one line."""
    with pytest.raises(ValueError, match=r".") as refused:
        kind.read(text)
    assert str(refused.value).isprintable()


def test_a_flag_takes_no_value() -> None:
    """A flag is a boolean in a file and stands alone on the command line."""
    assert not Flag().takes_value
    assert Flag().native == (bool,)


def test_test_and_key_take_rows_of_the_same_table() -> None:
    """`test` and `key` share the rows of `run`: the same names, letters and variables."""
    assert set(options.LOOK) < set(options.RUN)
    assert set(options.KEY) < set(options.RUN)
    for table in (options.LOOK, options.KEY):
        assert {"RUNGUARD_BACKEND", "RUNGUARD_CONFIG"} <= {option.variable for option in table}
