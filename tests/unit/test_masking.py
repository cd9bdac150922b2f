"""URLs in which no password can be read."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from runguard import urls

PASSWORDS = st.text(min_size=4, max_size=24) | st.text("@/?#:%&=[]+, ;ab1\\'\"$", min_size=4, max_size=24)
FORMS = {
    "user and password": "mariadb://user:{}@host:3306/base",
    "no user": "mysql://:{}@host",
    "no path": "postgresql://user:{}@host",
    "socket": "mariadb://user:{}@/base?unix_socket=/run/s",
    "user with an at sign": "postgresql://user@example:{}@host/base",
    "two hosts": "postgresql://user:{}@one:5432,two:5432/base?target_session_attrs=any",
    "IPv6": "postgresql://user:{}@[::1]:5432/base",
    "query": "postgresql://host/base?password={}",
    "query, first": "postgresql:///base?password={}&sslmode=require",
    "query, last": "mariadb://user@host/base?ssl=1&password={}",
    "key of a certificate": "mariadb://user@host/base?ssl_key_password={}",
    "percent-encoded option": "postgresql:///base?p%61ssword={}",
    "misspelt option": "mariadb://host/base?pasword={}",
    "no slashes": "mariadb:user:{}@host/base",
    "no host": "mariadb://user:{}@",
    "another scheme": "oracle://user:{}@host",
    "keywords": "postgresql:host=h password={}",
}


def pieces(text: str) -> set[str]:
    """Return what would give a password away: every four characters of it that stand side by side."""
    return {text[index : index + 4] for index in range(len(text) - 3)}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@given(password=PASSWORDS)
@example(password="s3cret@pass")
@example(password="ab/cd?ef#gh:ij")
@example(password="pa:ss@wo/rd")
@example(password="abcd&efgh=ijkl")
@example(password="100%sure")
def test_no_part_of_a_password_is_shown(form: str, password: str) -> None:
    """Raw or percent-encoded, with any characters: no four characters of a password stand in what is shown."""
    harmless = urls.masked(form.format("")) + urls.masked(form.format("x"))
    for written in (password, quote(password, safe=""), quote(password)):
        shown = urls.masked(form.format(written))
        given_away = {piece for piece in pieces(password) | pieces(written) if piece in shown and piece not in harmless}
        assert not given_away
        assert urls.has_password(form.format(written))


@pytest.mark.parametrize(
    "url",
    [
        "mariadb://host",
        "mariadb://user@host:3306/base",
        "mariadb:///base?unix_socket=/srv/compass/mysqld.sock&ssl=1",
        "mysql://host/base?ssl_ca=/etc/ca.pem&ssl_verify_cert=1",
        "postgresql://",
        "postgresql:///ops",
        "postgresql://user@host/base?sslmode=verify-full&connect_timeout=3",
        "postgresql://one:5432,two:5433/base?target_session_attrs=read-write",
        "postgresql://user@[2001:db8::1]:5432/base",
        "postgresql://[::1]/base",
        "postgresql://host/base?passfile=/home/u/.pgpass",
        "postgresql://host/base?require_auth=password",
        "POSTGRESQL://host/base",
        "file:",
        "file:/run/lock/shop",
        "file:///run/lock/shop",
        "file:/srv/a:b@c?password=d#e",
        "main",
    ],
)
def test_a_good_url_without_a_password_is_shown_as_it_is(url: str) -> None:
    """Nothing is hidden where there is no password: host, socket and options help to find the mistake."""
    assert urls.masked(url) == url
    assert not urls.has_password(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mariadb://user:s3cret@host:3306/base", "mariadb://user:***@host:3306/base"),
        ("mariadb://user:s3/cret@host/base", "mariadb://user:***@host/base"),
        ("mariadb://user:s3@cret@host/base", "mariadb://user:***@host/base"),
        ("mariadb://user:s3?cret@host/base", "mariadb://***"),
        ("mariadb://user:s3#cret@host/base", "mariadb://***"),
        ("mariadb://user:s3cret", "mariadb://user:***"),
        ("postgresql://[::1]:s3cret", "postgresql://[::1]:***"),
        ("postgresql://host/base?password=s3cret", "postgresql://host/base?password=***"),
        ("mariadb:user:s3cret@host", "mariadb:***"),
    ],
)
def test_what_is_hidden_is_no_more_than_needed(url: str, shown: str) -> None:
    """User and host stay readable as long as it is certain that they are no part of the password."""
    assert urls.masked(url) == shown


@given(st.text())
def test_masking_never_fails_and_is_stable(text: str) -> None:
    """Any text can be masked, and what was masked is not changed by masking it again."""
    once = urls.masked(text)
    assert urls.masked(once) == once


@pytest.mark.parametrize(
    ("url", "scheme"),
    [("file:", "file"), ("MariaDB://h", "mariadb"), ("postgresql:///d", "postgresql"), ("main", "main")],
)
def test_the_scheme_is_lower_case(url: str, scheme: str) -> None:
    """The scheme is what stands before the first colon, in lower case."""
    assert urls.scheme(url) == scheme
