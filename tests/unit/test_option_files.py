"""MariaDB option files, read as MariaDB's own programs read them."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runguard.backends import optionfiles

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    path.write_text(text)
    path.chmod(mode)
    return optionfiles.read((str(path),))


LINES = {
    "plain": ("password=secret", "secret"),
    "spaces": (" password =  secret  ", "secret"),
    "inner space": ("password = a b", "a b"),
    "single quotes": ("password='a # b'", "a # b"),
    "double quotes": ('password="a # b" # c', "a # b"),
    "comment": ("password=abc # def", "abc"),
    "comment without space": ("password=abc#def", "abc"),
    "number sign in quotes": ("password='abc#def'", "abc#def"),
    "semicolon": ("password=a;b", "a;b"),
    "escapes": (r"password=\s\\\t|", " \\\t|"),
    "escaped quotes": (r"""password="a\"b\'c" """, "a\"b'c"),
    "unknown escape": (r"password=\q", r"\q"),
    "backslash at the end": ("password=a\\", "a\\"),
    "open quote": ('password="open', '"open'),
    "quote inside": ("password=x'y#z", "x'y#z"),
    "equals sign": ("password=a=b", "a=b"),
    "nothing": ("password=", ""),
    "no value": ("password", ""),
    "unusual line end": ("password=a\x0cb", "a\x0cb"),
}


@pytest.mark.parametrize(("line", "value"), LINES.values(), ids=LINES)
def test_a_value_is_read(tmp_path: Path, line: str, value: str) -> None:
    """Quotes, escapes and comments mean what they mean to the mariadb client."""
    assert read(tmp_path / "my.cnf", f"[client]\n{line}\n") == {"password": value}


def by_mariadb(path: Path) -> dict[str, str]:
    """Return what MariaDB's own reader makes of the group [client]."""
    program = shutil.which("my_print_defaults")
    if not program:
        reason = (
            "my_print_defaults is not installed; it comes with the mariadb-client-core or mariadb-server-core package"
        )
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    words = [program, f"--defaults-file={path}", "client"]
    printed = subprocess.run(words, check=True, capture_output=True).stdout.decode()
    found = {}
    for line in filter(None, printed.split("\n")):
        name, _, value = line[2:].partition("=")
        found[name.replace("_", "-")] = value
    return found


@pytest.mark.parametrize("line", [line for line, _ in LINES.values()], ids=LINES)
def test_mariadb_reads_the_same_line_alike(tmp_path: Path, line: str) -> None:
    """MariaDB's own reader gives the same value for each of the lines."""
    path = tmp_path / "my.cnf"
    assert read(path, f"[client]\n{line}\n") == by_mariadb(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.lists(st.text("ab =#'\"\\;", max_size=12), max_size=6))
def test_mariadb_reads_any_lines_alike(tmp_path: Path, values: list[str]) -> None:
    """Whatever stands after the equals sign, both readers agree."""
    path = tmp_path / "my.cnf"
    text = "[client]\n" + "".join(f"name-{number}={value}|\n" for number, value in enumerate(values))
    assert read(path, text) == by_mariadb(path)


def test_only_the_groups_of_a_client_count(tmp_path: Path) -> None:
    """[client], [client-server], [client-mariadb] and [runguard] are read, in the order of the file; no others."""
    text = (
        "user=nobody\n[mysqld]\nuser=mysql\n[client]\nuser=a\nport=1\n[client-mariadb]\nport=2\n"
        "[mysql]\nhost=x\n[runguard] # ours\nsocket=/s\n[client-server]\nssl-ca=/ca\n[clients]\nhost=y\n"
    )
    assert read(tmp_path / "my.cnf", text) == {"user": "a", "port": "2", "socket": "/s", "ssl-ca": "/ca"}


def test_underscores_are_dashes_and_the_last_line_wins(tmp_path: Path) -> None:
    """`ssl_ca` and `ssl-ca` are one option; of several lines the last counts."""
    assert read(tmp_path / "my.cnf", "[client]\nssl_ca=/a\nssl-ca=/b\n") == {"ssl-ca": "/b"}


def test_comments_and_empty_lines_say_nothing(tmp_path: Path) -> None:
    """Lines that begin with a number sign or a semicolon are comments; unknown directives are ignored."""
    assert read(tmp_path / "my.cnf", "[client]\n\n# user=a\n ;user=b\n!unknown x\n!\n") == {}


def test_included_files_are_read_where_they_stand(tmp_path: Path) -> None:
    """`!include` and `!includedir` read files in place, the latter in order of name and only *.cnf."""
    directory = tmp_path / "conf.d"
    directory.mkdir()
    for name, user in (("b.cnf", "b"), ("a.cnf", "a"), ("c.txt", "c")):
        (directory / name).write_text(f"[client]\nuser={user}\n{user}=1\n")
    (tmp_path / "one.cnf").write_text("[client]\nhost=one\nport=1\n")
    text = f"[client]\nhost=zero\n!include {tmp_path}/one.cnf\n!includedir\t{directory}\nport=2\n!include missing.cnf\n"
    found = read(tmp_path / "my.cnf", text)
    assert found == {"host": "one", "port": "2", "a": "1", "b": "1", "user": "b"}


def test_an_included_group_does_not_leak(tmp_path: Path) -> None:
    """After an included file the group of the outer file goes on."""
    (tmp_path / "one.cnf").write_text("[mysqld]\n")
    assert read(tmp_path / "my.cnf", f"[client]\n!include {tmp_path}/one.cnf\nuser=a\n") == {"user": "a"}


def test_files_that_include_each_other_end(tmp_path: Path) -> None:
    """A file that includes itself, its directory, or a file that includes it, is read to an end, and quickly."""
    for name in "abcde":
        (tmp_path / f"{name}.cnf").write_text(
            f"[client]\n{name}=1\n!includedir {tmp_path}\n!include {tmp_path}/a.cnf\n"
        )
    assert optionfiles.read((str(tmp_path / "a.cnf"),)) == dict.fromkeys("abcde", "1")


def test_a_file_that_all_can_write_is_ignored(tmp_path: Path) -> None:
    """As the mariadb client does, a world-writable file is not trusted, not even an included one."""
    assert read(tmp_path / "open.cnf", "[client]\nuser=a\n", 0o666) == {}
    assert read(tmp_path / "my.cnf", f"[client]\nport=1\n!include {tmp_path}/open.cnf\n") == {"port": "1"}


@pytest.mark.parametrize(
    "make", [lambda _: None, os.mkfifo, lambda path: path.mkdir()], ids=["missing", "FIFO", "directory"]
)
def test_what_is_no_file_says_nothing(tmp_path: Path, make: object) -> None:
    """A missing file, a FIFO without a writer and a directory are read as empty, at once."""
    make(tmp_path / "my.cnf")  # type: ignore[operator]
    assert optionfiles.read((str(tmp_path / "my.cnf"),)) == {}


def test_the_file_in_the_home_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` is the home directory, and a later file of the list wins."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "system.cnf").write_text("[client]\nuser=a\nport=1\n")
    (tmp_path / ".my.cnf").write_text("[client]\nuser=b\n")
    assert optionfiles.read((str(tmp_path / "system.cnf"), "~/.my.cnf")) == {"user": "b", "port": "1"}
    assert optionfiles.STANDARD[-1] == "~/.my.cnf"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.text("[]client=!include\0 \n'\"\\#", max_size=40).map(str.encode))
def test_no_bytes_break_the_reader(tmp_path: Path, content: bytes) -> None:
    """Whatever stands in a file, reading it raises nothing."""
    path = tmp_path / "my.cnf"
    path.write_bytes(b"[client]\n" + content)
    optionfiles.read((str(path),))
