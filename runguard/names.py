"""Names of locks: which are allowed, and the nearest allowed one to what was written."""

LONGEST = 64
_FIRST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LATER = _FIRST | frozenset("._:-")
_RULE = "a name is 1 to 64 of a-z 0-9 . _ : - and starts with a letter or digit"


def check(text: str) -> str:
    """Return the name as it is; raises `ValueError` naming the nearest valid one.

    Lower case only, since MySQL folds case and MariaDB and files do not; 64 at most, since MySQL takes no more.
    """
    if 0 < len(text) <= LONGEST and text[0] in _FIRST and _LATER.issuperset(text):
        return text
    shown = text if len(text) <= LONGEST + 16 else text[:LONGEST] + "..."
    message = f"{shown!a} is not a valid NAME ({_RULE}); the nearest is {nearest(text)!r}"
    raise ValueError(message)


def nearest(text: str) -> str:
    """Return the valid name that looks most like `text`."""
    import unicodedata

    plain = unicodedata.normalize("NFKD", text).lower()
    kept = "".join(c if c in _LATER else "" if unicodedata.combining(c) else "-" for c in plain)
    start = next((i for i, c in enumerate(kept) if c in _FIRST), len(kept))
    return kept[start : start + LONGEST].rstrip("-.:_") or "job"
