"""Where a lock lives: names, variables and password files resolved."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runguard import place
from runguard.config import Settings
from runguard.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

WHERE = "/etc/runguard.toml [backend.main]"
VARIABLE_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1)


def found(url: str, password_file: str | None = None, environment: dict[str, str] | None = None) -> place.Place:
    backend = {"url": url, "where": WHERE} | ({"password_file": password_file} if password_file else {})
    return place.find(Settings([("the command line", {"backend": "main"})], {"main": backend}), environment or {})


def test_a_url_is_taken_as_it_is() -> None:
    """What has a colon is a URL and is not looked up nor expanded."""
    settings = Settings([("the command line", {"backend": "mariadb://u:${P}@h"})], {})
    assert place.find(settings, {"P": "x"}).url == "mariadb://u:${P}@h"


def test_a_name_is_looked_up() -> None:
    """A name of the configuration file stands for its URL; without password_file there is no password."""
    where = found("mariadb://u@h/d")
    assert (where.url, where.password) == ("mariadb://u@h/d", None)


@given(VARIABLE_TEXT)
def test_a_variable_inside_a_url_is_encoded(value: str) -> None:
    """A variable may hold any characters: inside a URL they mean only themselves."""
    url = found("mariadb://u:${P}@h/d", environment={"P": value}).url
    assert url.startswith("mariadb://u:")
    assert url.endswith("@h/d")
    encoded = url.removeprefix("mariadb://u:").removesuffix("@h/d")
    assert not set(encoded) & set("@/?#:&=$ ")
    assert unquote(encoded) == value


def test_bytes_of_a_variable_that_are_no_text_are_kept() -> None:
    """A variable that is not UTF-8 goes into the URL byte for byte."""
    url = found("mariadb://u:${P}@h", environment={"P": os.fsdecode(b"caf\xe9")}).url
    assert unquote_to_bytes(url) == b"mariadb://u:caf\xe9@h"


@given(VARIABLE_TEXT)
def test_a_variable_that_is_the_whole_url_is_taken_as_it_is(value: str) -> None:
    """`${NAME}` alone is a URL that somebody else wrote: nothing in it is encoded or expanded again."""
    assert found("${URL}", environment={"URL": value}).url == value


def test_several_variables_are_expanded_once() -> None:
    """Each variable is replaced, and what came from one is not expanded again."""
    environment = {"U": "${P}", "P": "p w", "D": "d"}
    assert found("mariadb://${U}:${P}@h/${D}", environment=environment).url == "mariadb://%24%7BP%7D:p%20w@h/d"


@pytest.mark.parametrize(
    ("url", "name"), [("mariadb://u:${P}@h", "P"), ("${URL}", "URL"), ("mariadb://${P", "P"), ("${}", "")]
)
def test_a_variable_that_is_not_set_is_a_wrong_file(url: str, name: str) -> None:
    """A missing variable is refused by name, and never becomes an empty password."""
    with pytest.raises(ConfigError, match=r"is not set in the environment") as refused:
        found(url)
    assert f"${{{name}}}" in str(refused.value)
    assert str(refused.value).startswith(WHERE)


@pytest.mark.parametrize(
    ("content", "password"),
    [(b"s3cret", "s3cret"), (b"s3cret\n", "s3cret"), (b"a b \n# more\n", "a b "), (b"\n", ""), ("pä\n".encode(), "pä")],
)
def test_the_password_is_the_first_line(tmp_path: Path, content: bytes, password: str) -> None:
    """The first line of the password file is the password, spaces included, the line end not."""
    path = tmp_path / "password"
    path.write_bytes(content)
    path.chmod(0o640)
    assert found("mariadb://u@h", str(path)).password == password


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_a_password_file_of_all_is_refused(tmp_path: Path, mode: int) -> None:
    """A password file that others can read or write is refused, with the line that mends it."""
    path = tmp_path / "password"
    path.write_text("s3cret\n")
    path.chmod(mode)
    with pytest.raises(ConfigError) as refused:
        found("mariadb://u@h", str(path))
    assert str(refused.value) == (
        f"{WHERE}: password_file {path} can be read by others (mode {mode:04o}): chmod o-rwx {path}"
    )


def fifo(path: Path) -> None:
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda _: None, "No such file or directory"),
        (lambda path: path.mkdir(), "Is a directory"),
        (fifo, "is not a regular file"),
        (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("/dev/null"), "is not a regular file"),
    ],
    ids=["missing", "directory", "FIFO", "link to itself", "device"],
)
def test_a_password_file_that_is_none_is_refused(tmp_path: Path, make: object, sentence: str) -> None:
    """What is no regular file is refused at once, a FIFO without a writer included."""
    path = tmp_path / "password"
    make(path)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=sentence) as refused:
        found("mariadb://u@h", str(path))
    assert str(path) in str(refused.value)


def test_a_relative_password_file_is_refused() -> None:
    """Which file a relative path means would depend on where cron starts: it is refused."""
    with pytest.raises(ConfigError, match="password_file secret: write an absolute path"):
        found("mariadb://u@h", "secret")


def test_a_password_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are refused without showing them."""
    path = tmp_path / "password"
    path.write_bytes(b"s3cr\xe9t")
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="is not UTF-8 text") as refused:
        found("mariadb://u@h", str(path))
    assert "s3cr" not in str(refused.value)


def test_a_place_shows_no_password() -> None:
    """The text of a place, as it goes into logs, has the password masked."""
    assert str(found("mariadb://u:${P}@h/d", environment={"P": "s3cret"})) == "mariadb://u:***@h/d"
