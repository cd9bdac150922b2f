"""What must not be guessed, and what looks like a bug but is bad input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Runguard
    from servers import MariaDB


def missing(path: Path) -> str:
    """Return the path of a file that is not there."""
    return str(path)


def for_all(path: Path) -> str:
    """Return the path of a file that everybody can write."""
    path.write_text("[client]\nhost = 127.0.0.2\n")
    path.chmod(0o666)
    return str(path)


@pytest.mark.parametrize("make", [missing, for_all])
def test_a_named_option_file_is_never_passed_over(
    runguard: Runguard, mariadb: MariaDB, tmp_path: Path, make: object
) -> None:
    """An option file that the URL names and that cannot be used is 69: another server must not be taken instead."""
    assert callable(make)
    url = f"mariadb://rg:rgpass@/rg?defaults_file={make(tmp_path / 'named.cnf')}"
    environment = {"MYSQL_UNIX_PORT": str(mariadb.socket)}
    result = runguard("run", "-b", url, "refusals", "--", "echo", "ran", environment=environment)
    assert (result.returncode, result.stdout) == (69, b"")
    assert b"named.cnf" in result.stderr


def test_an_account_that_is_full_is_waited_for(runguard: Runguard, mariadb: MariaDB) -> None:
    """While there is time, an account with too many connections is asked again; then it is 69, not a conflict."""
    mariadb.rows("CREATE USER IF NOT EXISTS few@'localhost' IDENTIFIED BY 'rgpass' WITH MAX_USER_CONNECTIONS 1")
    busy = mariadb.connect("few", "rgpass")
    url = f"mariadb://few:rgpass@localhost/?unix_socket={mariadb.socket}"
    result = runguard("run", "-v", "-b", url, "-w", "0.5", "refusals", "--", "echo", "ran")
    busy.close()
    assert (result.returncode, result.stdout) == (69, b"")
    assert b"trying again" in result.stderr
    assert runguard("run", "-b", url, "-w", "10", "refusals", "--", "echo", "ran").stdout == b"ran\n"


@pytest.mark.parametrize("url", ["postgresql://db..invalid/x", "postgresql:///x?host=a..b", b"postgresql://h/\xff"])
def test_a_name_that_is_none_is_no_bug(runguard: Runguard, url: str | bytes) -> None:
    """A host that cannot be a host, or bytes that are no text, are refused in one line."""
    result = runguard("run", "-b", url, "refusals", "true")
    assert result.returncode in {64, 69}
    assert result.stderr.count(b"\n") == 1
    assert b"a bug" not in result.stderr


def test_completion_does_not_replace_a_run(runguard: Runguard) -> None:
    """A variable of click cannot make a run print a script and succeed."""
    environment = {"_RUNGUARD_COMPLETE": "bash_source"}
    result = runguard("run", "refusals", "--", "sh", "-c", "exit 5", environment=environment)
    assert (result.returncode, result.stdout) == (5, b"")
