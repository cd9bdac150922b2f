"""Which policy the settings ask for."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from runguard import policy

if TYPE_CHECKING:
    from runguard.options import Value

SKIPS: list[dict[str, Value]] = [
    {"nonblock": True},
    {"on-conflict": "skip"},
    {"nonblock": True, "on-conflict": "skip"},
]
WAITS: list[dict[str, Value]] = [{"wait": 5.0}, {"wait": None}, {"wait": 0.0}, {"wait": 5.0, "on-conflict": "wait"}]
HALVES: list[dict[str, Value]] = [{"on-conflict": "wait"}]
SILENT: list[dict[str, Value]] = [{}, {"nonblock": False}]
TWICE: list[dict[str, Value]] = [
    {"nonblock": True, "wait": 5.0},
    {"nonblock": True, "on-conflict": "wait"},
    {"on-conflict": "skip", "wait": 5.0},
    {"nonblock": True, "on-conflict": "skip", "wait": None},
]
ALL = SKIPS + WAITS + HALVES + SILENT + TWICE


def first_that_speaks(levels: list[dict[str, Value]]) -> int | None:
    return next((index for index, level in enumerate(levels) if level not in SILENT), None)


def named(level: dict[str, Value]) -> set[object]:
    """Return the policies that one level names."""
    words: set[object] = {"skip"} if level.get("nonblock") else set()
    return (
        words
        | ({"wait"} if "wait" in level else set())
        | ({level["on-conflict"]} & {"skip", "wait"} if "on-conflict" in level else set())
    )


def with_nonblock_taken_back(levels: list[dict[str, Value]]) -> list[dict[str, Value]]:
    """Return the levels without what a stronger `nonblock`, true or false, overrides."""
    said: list[dict[str, Value]] = []
    for level in levels:
        settled = any("nonblock" in stronger for stronger in levels[: len(said)])
        said.append({key: value for key, value in level.items() if not (settled and key == "nonblock")})
    return said


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_strongest_level_that_names_a_policy_decides(depth: int) -> None:
    """In every combination of levels the first that says anything decides alone, and it is the one to blame."""
    for combination in itertools.product(ALL, repeat=depth):
        levels = list(combination)
        said = with_nonblock_taken_back(levels)
        index = first_that_speaks(said)
        if index is None:
            chosen, blamed = policy.decide(levels)
            assert (chosen.word, blamed) == ("skip", None)
            continue
        level = said[index]
        limits = [weaker["wait"] for weaker in said[index:] if "wait" in weaker]
        words = named(level)
        if len(words) > 1 or (words == {"wait"} and not limits):
            with pytest.raises(policy.PolicyError) as refused:
                policy.decide(levels)
            assert refused.value.level == index
            continue
        chosen, blamed = policy.decide(levels)
        assert blamed == index
        if words == {"skip"}:
            assert (chosen.word, chosen.limit) == ("skip", 0.0)
        else:
            assert (chosen.word, chosen.limit) == ("wait", limits[0])


def test_without_levels_a_busy_lock_is_skipped() -> None:
    """Nobody said anything: skip."""
    chosen, named = policy.decide([])
    assert (chosen.word, chosen.limit, named) == ("skip", 0.0, None)


def test_on_conflict_wait_takes_its_limit_from_a_weaker_level() -> None:
    """A job may say that it waits and leave it to the defaults for how long."""
    chosen, named = policy.decide([{}, {"on-conflict": "wait"}, {"wait": 7.0}])
    assert (chosen.limit, named) == (7.0, 1)


def test_two_policies_on_one_level_are_named() -> None:
    """The refusal names the settings that contradict each other."""
    with pytest.raises(policy.PolicyError, match=r"^nonblock and wait name different policies: keep one$"):
        policy.decide([{"nonblock": True, "wait": 5.0}])
