"""The key that each backend derives from a name: a change would let two versions run at once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runguard.backends import file, mariadb, postgres
from runguard.backends.base import Target
from runguard.errors import UsageError

LONG = "z" * 64
# printf 'runguard:NAME' | openssl dgst -sha256: its first 16 digits as a signed number
GOLDEN = {
    "a": 5509452114912401610,
    "0": 357371857269492970,
    "shop.refresh": -2839305076558151543,
    "shop.catalog-refresh": 2419344633131567835,
    "app.deploy": -2078689712289463458,
    "a:b_c-d.e": 572696460999399851,
    LONG: -3586033593680175792,
}
SIGNED_64_BIT = range(-(1 << 63), 1 << 63)
LEAST, MOST = SIGNED_64_BIT[0], SIGNED_64_BIT[-1]


@pytest.mark.parametrize(("name", "key"), GOLDEN.items())
def test_the_advisory_key_of_a_name_never_changes(name: str, key: int) -> None:
    """The key of PostgreSQL is the first 8 bytes, big-endian and signed, of SHA-256 of runguard:NAME."""
    assert postgres.derived_key(name) == key
    assert postgres.lock(Target(url="postgresql://", name=name)).identity().key == str(key)


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_the_advisory_key_is_the_same_in_every_process(seed: str) -> None:
    """The seed of Python's own hashes has no part in the derivation."""
    program = "import sys; from runguard.backends.postgres import derived_key; print(*map(derived_key, sys.argv[1:]))"
    words = [sys.executable, "-c", program, *GOLDEN]
    printed = subprocess.run(words, check=True, capture_output=True, env=os.environ | {"PYTHONHASHSEED": seed}).stdout
    assert printed.split() == [str(key).encode() for key in GOLDEN.values()]


def test_a_million_names_have_a_million_keys() -> None:
    """No two of a million names share a key, and every key is a signed number of 64 bits."""
    keys = {postgres.derived_key(f"shop.job-{number}") for number in range(1_000_000)}
    assert len(keys) == 1_000_000
    assert LEAST <= min(keys) < 0 < max(keys) <= MOST


@pytest.mark.parametrize("name", GOLDEN)
def test_the_name_itself_is_the_key_of_mariadb(name: str) -> None:
    """GET_LOCK gets NAME as it is, so that any SQL client meets it."""
    identity = mariadb.lock(Target(url="mariadb://", name=name)).identity()
    assert identity.key == name
    assert identity.recipes == (f"SELECT GET_LOCK('{name}', 0);",)


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("url", ["file:/srv/locks", "file:///srv/locks", "file:/srv//x/../locks/"])
def test_the_key_of_a_file_is_its_path(url: str, name: str) -> None:
    """The lock file is DIR/NAME.lock, however the directory is written."""
    assert file.lock(Target(url=url, name=name)).identity().key == f"/srv/locks/{name}.lock"


@pytest.mark.parametrize("key", [LEAST, MOST, 0, -1, 42])
def test_a_foreign_advisory_key_is_taken_as_it_is(key: int) -> None:
    """--key passes any signed number of 64 bits, and no SQL is printed that would derive it from NAME."""
    identity = postgres.lock(Target(url="postgresql://", name="x", key=str(key))).identity()
    assert identity.key == str(key)
    assert identity.recipes == (f"SELECT pg_try_advisory_lock({key});",)


@pytest.mark.parametrize(
    "key", ["", "x", "1.5", "1e3", "0x10", "--1", "-", " 1", "1 ", "+1", "²", str(MOST + 1), str(LEAST - 1), "9" * 5000]
)
def test_another_advisory_key_is_refused(key: str) -> None:
    """What is no signed number of 64 bits is wrong usage, with the bounds."""
    with pytest.raises(UsageError, match=f"whole number from {LEAST} to {MOST}"):
        postgres.lock(Target(url="postgresql://", name="x", key=key))


@pytest.mark.parametrize("key", ["Backup", "with space", "käse", "k" * 192, "it's", "back\\slash"])
def test_a_foreign_get_lock_name_is_taken_as_it_is(key: str) -> None:
    """--key passes a GET_LOCK name of up to 192 bytes unchanged; the printed SQL quotes it."""
    identity = mariadb.lock(Target(url="mariadb://", name="x", key=key)).identity()
    literal = key.replace("\\", "\\\\").replace("'", "''")
    assert identity.key == key
    assert identity.recipes == (f"SELECT GET_LOCK('{literal}', 0);",)


@pytest.mark.parametrize("key", ["k" * 193, "ä" * 97, "", "\udcff"])
def test_a_get_lock_name_that_the_server_would_refuse_is_refused(key: str) -> None:
    """A name of more than 192 bytes, an empty one and one that is no text are wrong usage."""
    with pytest.raises(UsageError, match="1 to 192 bytes"):
        mariadb.lock(Target(url="mariadb://", name="x", key=key))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1).map("/srv/".__add__))
def test_a_foreign_path_is_the_key_whatever_it_holds(path: str) -> None:
    """--key names any lock file, and what a shell is told to lock is that file."""
    identity = file.lock(Target(url="file:", name="x", key=path)).identity()
    assert identity.key == os.path.abspath(path)
    shell, _ = identity.recipes
    assert shell == "flock -n '" + identity.key.replace("'", "'\\''") + "' COMMAND"
