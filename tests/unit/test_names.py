"""Names of locks."""

from __future__ import annotations

import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runguard import names

FIRST = string.ascii_lowercase + string.digits
LATER = FIRST + "._:-"


@given(st.text(FIRST, min_size=1, max_size=1), st.text(LATER, max_size=63))
def test_every_documented_name_is_accepted_as_it_is(first: str, rest: str) -> None:
    """1 to 64 characters of the documented set, the first a letter or digit, are a name."""
    assert names.check(first + rest) == first + rest


@pytest.mark.parametrize("code", range(0x250))
def test_no_other_character_is_accepted(code: int) -> None:
    """Of all single characters exactly a-z and 0-9 are names, and after them also the four marks."""
    character = chr(code)
    for text, allowed in ((character, FIRST), ("a" + character, LATER)):
        if character in allowed:
            assert names.check(text) == text
        else:
            with pytest.raises(ValueError, match="is not a valid NAME"):
                names.check(text)


@given(st.text() | st.text(LATER + string.ascii_uppercase + " /", max_size=80))
@example("")
@example("a" * 65)
@example("a" * 1000)
@example("İßﬁ①Ⅷ")
@example("..--__::")
@example("\udcff\ud800")
def test_the_nearest_name_is_valid(text: str) -> None:
    """Whatever was written, what is proposed instead is a name."""
    near = names.nearest(text)
    assert names.check(near) == near


@given(st.text(FIRST, min_size=1, max_size=64))
def test_the_nearest_to_a_good_name_is_itself(text: str) -> None:
    """A name of letters and digits is its own nearest."""
    assert names.nearest(text) == text


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("Job", "job"),
        ("BACKUP", "backup"),
        ("Café Montag", "cafe-montag"),
        ("backup ", "backup"),
        ("../x", "x"),
        (".hidden", "hidden"),
        ("a/b", "a-b"),
        ("shop.Catalog_refresh", "shop.catalog_refresh"),
        ("ab\n", "ab"),
        ("it's", "it-s"),
        ("", "job"),
        ("☃", "job"),
        ("a" * 65, "a" * 64),
        ("a\0b", "a-b"),
    ],
)
def test_a_bad_name_is_refused_with_the_nearest(text: str, near: str) -> None:
    """The refusal is one line that ends in the name that was probably meant."""
    with pytest.raises(ValueError, match="is not a valid NAME") as refused:
        names.check(text)
    assert str(refused.value).endswith(f"the nearest is {near!r}")
    assert str(refused.value).isprintable()


def test_a_long_name_is_not_repeated_whole() -> None:
    """A name of any length makes a line that can be read."""
    with pytest.raises(ValueError, match="is not a valid NAME") as refused:
        names.check("a" * 100_000)
    assert len(str(refused.value)) < 300
