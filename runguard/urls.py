"""Backend URLs as text: the scheme, and a form in which no password can be read."""

ENCODE = "in a password write special characters as %40 (@), %2F (/), %3A (:), %3F (?), %23 (#)"


def scheme(url: str) -> str:
    """Return what stands before the first colon, in lower case."""
    return url.partition(":")[0].lower()


def masked(url: str) -> str:
    """Return the URL without anything that is, or could be, part of a password.

    Works on malformed URLs too: with an unescaped `@` or `/` in the password all that could belong to it is hidden.
    """
    prefix, separator, rest = url.partition("://")
    if not separator:
        return url
    rest, query = _split(rest, "?#")
    if "@" in query:
        return f"{prefix}://***"
    userinfo, at, tail = rest.rpartition("@")
    user, colon, _ = userinfo.partition(":")
    shown = f"{user}{':***' if colon else ''}{at}" if at else ""
    authority, path = _split(tail, "/")
    return f"{prefix}://{shown}{_without_bad_port(authority)}{path}{_masked_query(query)}"


def has_password(url: str) -> bool:
    """Say whether a password stands in the URL itself."""
    return masked(url) != url


def _split(text: str, marks: str) -> tuple[str, str]:
    at = min((i for i in (text.find(mark) for mark in marks) if i >= 0), default=len(text))
    return text[:at], text[at:]


def _without_bad_port(authority: str) -> str:
    """Hide a port that is no number: it may be a password whose `@` got lost."""
    if authority.startswith("["):
        return authority
    return ",".join(
        host if port.isdigit() or not port else f"{host.partition(':')[0]}:***"
        for host in authority.split(",")
        for port in [host.partition(":")[2]]
    )


def _masked_query(query: str) -> str:
    pairs = query[1:].split("&")
    hidden = [f"{pair.partition('=')[0]}=***" if "pass" in pair.lower() and "=" in pair else pair for pair in pairs]
    return query[:1] + "&".join(hidden)
