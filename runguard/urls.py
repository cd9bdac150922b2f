"""Backend URLs as text: the scheme, and a form in which no password can be read."""

ENCODE = "in a password write special characters as %40 (@), %2F (/), %3A (:), %3F (?), %23 (#), %26 (&), %25 (%)"
_OF_PASSWORDS = ("pas", "pwd", "%")
"""What the name of an option that holds a password has in it, misspelt or percent-encoded."""


def scheme(url: str) -> str:
    """Return what stands before the first colon, in lower case."""
    return url.partition(":")[0].lower()


def masked(url: str) -> str:
    """Return the URL without anything that is, or could be, part of a password.

    Works on malformed URLs too: with an unescaped `@` or `/` in the password all that could belong to it is hidden.
    """
    prefix = scheme(url)
    if prefix == "file" or ":" not in url:
        return url
    prefix, rest = url[: len(prefix)], url[len(prefix) + 1 :]
    if not rest.startswith("//"):
        return f"{prefix}:***"
    rest, query = _split(rest[2:], "?#")
    if "@" in query:
        return f"{prefix}://***"
    userinfo, at, tail = rest.rpartition("@")
    user, colon, _ = userinfo.partition(":")
    shown = f"{user}{':***' if colon else ''}{at}" if at else ""
    authority, path = _split(tail, "/")
    hosts = ",".join(map(_without_bad_port, authority.split(",")))
    return f"{prefix}://{shown}{hosts}{path}{_masked_query(query)}"


def has_password(url: str) -> bool:
    """Say whether a password stands in the URL itself."""
    return masked(url) != url


def _split(text: str, marks: str) -> tuple[str, str]:
    at = min((i for i in (text.find(mark) for mark in marks) if i >= 0), default=len(text))
    return text[:at], text[at:]


def _without_bad_port(host: str) -> str:
    """Hide a port that is no number: it may be a password whose `@` got lost."""
    address, bracket, rest = host.rpartition("]")
    name, _, port = rest.partition(":")
    return host if not port or port.isdigit() else f"{address}{bracket}{name}:***"


def _masked_query(query: str) -> str:
    """Hide from the first password on: what follows may belong to it, with an unescaped `&`."""
    shown: list[str] = []
    for pair in query[1:].split("&"):
        key = pair.partition("=")[0].lower()
        if key != "passfile" and any(mark in key for mark in _OF_PASSWORDS):
            return query[:1] + "&".join([*shown, f"{pair[: len(key)]}=***"])
        shown.append(pair)
    return query
