"""URLs of MariaDB servers, taken apart."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runguard.backends.mariadburl import URL_OPTIONS, parsed
from runguard.errors import UsageError


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("mariadb://", {}),
        ("mariadb:///", {}),
        ("mariadb://h", {"host": "h"}),
        ("mariadb://u@h", {"user": "u", "host": "h"}),
        ("mariadb://u:p@h:3307/d", {"user": "u", "password": "p", "host": "h", "port": "3307", "database": "d"}),
        ("mysql://u@/d", {"user": "u", "database": "d"}),
        ("mariadb://u%40x:p%3A%2F%25@h/d%2Fe", {"user": "u@x", "password": "p:/%", "host": "h", "database": "d/e"}),
        ("mariadb://u:a:b@h", {"user": "u", "password": "a:b", "host": "h"}),
        ("mariadb://[::1]:3307/d", {"host": "::1", "port": "3307", "database": "d"}),
        ("mariadb://[fe80::1]", {"host": "fe80::1"}),
        ("mariadb:///d?unix_socket=/run/s%20x", {"database": "d", "unix_socket": "/run/s x"}),
        ("mariadb://h?ssl=1&&read_timeout=2.5&", {"host": "h", "ssl": "1", "read_timeout": "2.5"}),
        ("mariadb://u@h?user=v&host=i", {"user": "v", "host": "i"}),
        ("mariadb://h?ssl_ca=a=b", {"host": "h", "ssl_ca": "a=b"}),
        ("mariadb://h?ssl=", {"host": "h", "ssl": ""}),
    ],
)
def test_a_url_is_taken_apart(url: str, found: dict[str, str]) -> None:
    """User, password, host, port, database and options are found and decoded; what is not written is not there."""
    assert parsed(url) == found


@given(*(st.text(st.characters(exclude_categories=("Cs",)), min_size=1) for _ in range(4)))
def test_encoded_parts_come_back(user: str, password: str, database: str, socket: str) -> None:
    """Whatever characters a part holds, percent-encoded it comes back as it was."""
    user_, password_, database_, socket_ = (quote(part, safe="") for part in (user, password, database, socket))
    url = f"mariadb://{user_}:{password_}@h/{database_}?unix_socket={socket_}"
    wanted = {"user": user, "password": password, "host": "h", "database": database, "unix_socket": socket}
    assert parsed(url) == wanted


@pytest.mark.parametrize(
    "url",
    [
        "mariadb://u:s3cr@t@h/d",
        "mariadb://u:s3/cret@h/d",
        "mariadb://u:s3?cret@h/d",
        "mariadb://u:s3#cret@h/d",
        "mariadb://u@h:s3cret",
        "mariadb://u@[::1]:s3cret",
        "mariadb://u:s3cret",
        "mariadb://h/d?password=s3c@ret",
        "mariadb://h/d?password=s3c&ret=1",
        "mariadb://h/d?password=s3&cret",
        "mariadb://h/d#s3cret",
    ],
)
def test_an_ambiguous_url_is_refused_without_its_password(url: str) -> None:
    """What may be a password with a bare special character is refused in one line that shows nothing of it."""
    with pytest.raises(UsageError) as refused:
        parsed(url)
    message = str(refused.value)
    assert "\n" not in message
    if "#" not in url:
        assert not any(part in message for part in ("s3c", "cret", "ret=", "'ret'", "@t"))


@pytest.mark.parametrize(
    ("option", "near"),
    [("unix_sock", "unix_socket"), ("unix-socket", "unix_socket"), ("sslca", "ssl_ca"), ("xyzzy", "")],
)
def test_an_unknown_option_is_refused_with_the_nearest(option: str, near: str) -> None:
    """An option that is not known is named, with the one that was probably meant."""
    with pytest.raises(UsageError, match=f"option '{option}' is not known") as refused:
        parsed(f"mariadb://h/d?{option}=1")
    assert (f"did you mean {near}?" if near else f"known are {', '.join(URL_OPTIONS)}") in str(refused.value)
