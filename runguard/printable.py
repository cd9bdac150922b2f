"""Text from outside, made safe for one line of a terminal or a log."""

_SURROGATES = range(0xDC80, 0xDD00)


def printable(text: str) -> str:
    """Return the text with control characters and bytes that are no text shown as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if code in _SURROGATES:  # a byte that was no UTF-8: PEP 383
        return f"\\x{code - 0xDC00:02x}"
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
