"""Durations as operators write them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runguard import durations

UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0", 0),
        ("0s", 0),
        ("90", 90),
        ("1.5", 1.5),
        (".5", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86400),
        ("1h30m", 5400),
        ("1d2h3m4.5s", 93784.5),
        ("36500d", durations.LONGEST),
    ],
)
def test_the_documented_forms_are_read(text: str, wanted: float) -> None:
    """Bare numbers are seconds, units go from large to small and may be combined."""
    assert durations.seconds(text) == wanted


@given(st.fixed_dictionaries({}, optional={unit: st.integers(0, 999) for unit in UNITS}).filter(bool))
def test_a_sum_of_units_is_its_seconds(parts: dict[str, int]) -> None:
    """Whatever units are combined, largest first, the value is their sum."""
    text = "".join(f"{parts[unit]}{unit}" for unit in UNITS if unit in parts)
    assert durations.seconds(text) == sum(count * UNITS[unit] for unit, count in parts.items())


@given(st.floats(0, durations.LONGEST))
def test_seconds_come_back_as_they_were_written(number: float) -> None:
    """A number of seconds written with a decimal point is read as itself, to the precision it was written with."""
    text = f"{number:.6f}"
    assert durations.seconds(text) == float(text)
    assert durations.seconds(text + "s") == float(text)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(list(UNITS)))
def test_more_of_a_unit_is_never_less(one: int, other: int, unit: str) -> None:
    """The reading is monotone: a larger number of the same unit is not a shorter duration."""
    small, large = sorted((one, other))
    try:
        longest = durations.seconds(f"{large}{unit}")
    except ValueError:
        assert large * UNITS[unit] > durations.LONGEST
    else:
        assert durations.seconds(f"{small}{unit}") <= longest


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            ".",
            "..",
            "1..2",
            "1.2.3",
            "-1",
            "+1",
            "-1s",
            "nan",
            "NaN",
            "inf",
            "infinity",
            "1e400",
            "1e3",
            "0x10",
        ),
        *("abc", "5x", "5M", "5 m", " 5", "5\n", "m", "1m2h", "1s1s", "1h30", "5m3", "0s5", "1_000", "1,5", "५", "²"),
        *("forever", "5minutes", "1h-30m", "9" * 400, "36501d", "3153600001", "\0", "\udcff"),
    ],
)
def test_anything_else_is_refused_with_a_sentence(text: str) -> None:
    """Signs, exponents, unknown or misordered units and durations beyond a century are refused in one line."""
    with pytest.raises(
        ValueError, match=r"(is not a duration: write seconds or units|is longer than 100 years)"
    ) as refused:
        durations.seconds(text)
    assert "\n" not in str(refused.value)


@given(st.text(max_size=12) | st.text("0123456789.dhmsefn+-", max_size=8))
def test_every_text_is_a_finite_duration_or_refused(text: str) -> None:
    """No text makes a duration that is negative, infinite or not a number."""
    try:
        read = durations.seconds(text)
    except ValueError:
        return
    assert 0 <= read <= durations.LONGEST
    assert math.isfinite(read)


def test_a_limit_may_be_forever() -> None:
    """Only the word forever means no limit; any other text is read as a duration."""
    assert durations.limit("forever") is None
    assert durations.limit("5m") == 300
    with pytest.raises(ValueError, match="not a duration"):
        durations.limit("Forever")
