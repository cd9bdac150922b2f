"""Durations as operators write them: `90`, `1.5`, `30s`, `5m`, `2h`, `1d`, `1h30m`."""

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_DIGITS = frozenset("0123456789")
LONGEST = 100 * 365 * 86400.0

FOREVER = "forever"


def seconds(text: str) -> float:
    """Read a duration in seconds; a bare number is seconds, units go from large to small.

    Raises `ValueError` with a sentence for anything else: signs, exponents and `nan` included.
    """
    total, number, allowed = 0.0, "", "dhms"
    for character in text:
        if character in _DIGITS or character == ".":
            number += character
            continue
        if character not in allowed:
            raise ValueError(_advice(text))
        total += _number(number, text) * _UNITS[character]
        number, allowed = "", allowed[allowed.index(character) + 1 :]
    if number:
        if total or allowed != "dhms":
            raise ValueError(_advice(text))
        total = _number(number, text)
    elif allowed == "dhms":
        raise ValueError(_advice(text))
    if total > LONGEST:
        message = f"{text!r} is longer than 100 years"
        raise ValueError(message)
    return total


def limit(text: str) -> float | None:
    """Read how long to wait: a duration, or `forever`, which is None."""
    return None if text == FOREVER else seconds(text)


def _number(digits: str, text: str) -> float:
    if digits.count(".") > 1 or not digits.strip("."):
        raise ValueError(_advice(text))
    return float(digits)


def _advice(text: str) -> str:
    return f"{text!r} is not a duration: write seconds or units, as in 90, 1.5, 30s, 5m, 2h, 1d, 1h30m"
