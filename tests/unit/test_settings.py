"""Settings: where each comes from, and which files are refused."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runguard import config, configfile, options, place
from runguard.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Runguard


class Host:
    """Files as a host has them: one for the system, one in a home, and any number beside them."""

    def __init__(self, directory: Path) -> None:
        self.system = directory / "runguard.toml"
        self.user = directory / "home" / config.USER_FILE
        self.user.parent.mkdir(parents=True)
        self.environment = {"HOME": str(directory / "home")}

    def gather(self, name: str = "shop.refresh", table: object = options.RUN, **flags: str | bool) -> config.Settings:
        given_flags = {flag.replace("_", "-"): value for flag, value in flags.items()}
        return config.gather(name, given_flags, table, self.environment)  # type: ignore[arg-type]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return a host whose system file lies in a directory of its own."""
    (tmp_path / "host").mkdir()
    made = Host(tmp_path / "host")
    monkeypatch.setattr(config, "SYSTEM_FILE", str(made.system))
    return made


def test_without_files_every_setting_is_built_in(host: Host) -> None:
    """With no file, flag or variable each option has its default from the table."""
    found = host.gather()
    for option in options.RUN:
        assert found[option.name] == option.default
        assert found.level(option.name) is None


LEVELS = ("flag", "variable", "user job", "system job", "user defaults", "system defaults")


@pytest.mark.parametrize("strongest", range(len(LEVELS)))
def test_the_strongest_level_wins(host: Host, strongest: int) -> None:
    """Flag beats environment beats job beats defaults beats built-in, and the user's file beats the system's."""
    url = {level: f"file:/{number}" for number, level in enumerate(LEVELS)}
    said = LEVELS[strongest:]
    for path, whose in ((host.system, "system"), (host.user, "user")):
        lines = []
        if f"{whose} defaults" in said:
            lines += ["[defaults]", f"backend = '{url[f'{whose} defaults']}'"]
        if f"{whose} job" in said:
            lines += ["[job.'shop.refresh']", f"backend = '{url[f'{whose} job']}'"]
        path.write_text("\n".join(lines))
    if "variable" in said:
        host.environment["RUNGUARD_BACKEND"] = url["variable"]
    flags = {"backend": url["flag"]} if "flag" in said else {}
    assert host.gather(**flags)["backend"] == url[said[0]]


def test_a_named_file_replaces_the_standard_ones(host: Host, tmp_path: Path) -> None:
    """With --config, and with RUNGUARD_CONFIG, no other file is read."""
    host.system.write_text("[defaults]\nwait = 1\n[backend.main]\nurl = 'file:/a'\n")
    host.user.write_text("this is not TOML")
    mine = tmp_path / "mine.toml"
    mine.write_text("[defaults]\njitter = '2s'\n")
    by_flag = host.gather(config=str(mine))
    host.environment["RUNGUARD_CONFIG"] = str(mine)
    for found in (by_flag, host.gather()):
        assert (found["wait"], found.level("wait"), found["jitter"], found.backends) == (None, None, 2.0, {})


def test_the_flag_config_beats_its_variable(host: Host, tmp_path: Path) -> None:
    """With both, --config names the file, and the one of RUNGUARD_CONFIG need not even exist."""
    mine = tmp_path / "mine.toml"
    mine.write_text("[defaults]\njitter = 3\n")
    host.environment["RUNGUARD_CONFIG"] = str(tmp_path / "missing.toml")
    assert host.gather(config=str(mine))["jitter"] == 3.0


def test_an_empty_variable_is_no_variable(host: Host) -> None:
    """A variable that is set to nothing says nothing."""
    host.environment |= {"RUNGUARD_BACKEND": "", "RUNGUARD_CONFIG": ""}
    assert host.gather().level("backend") is None


def test_only_the_options_marked_so_have_a_variable(host: Host) -> None:
    """A variable named like an option without one changes nothing."""
    host.environment |= {"RUNGUARD_WAIT": "5", "RUNGUARD_NAME": "other", "RUNGUARD_KEY": "/x"}
    found = host.gather()
    assert (found.level("wait"), found.level("key")) == (None, None)


@pytest.mark.parametrize("table", [options.LOOK, options.KEY], ids=["test", "key"])
def test_test_and_key_read_the_same_levels(host: Host, table: object) -> None:
    """`test` and `key` find the backend of a job in the files and in the variable just as `run` does."""
    host.system.write_text("[job.'shop.refresh']\nbackend = 'file:/job'\n[defaults]\nbackend = 'file:/defaults'\n")
    assert host.gather(table=table)["backend"] == "file:/job"
    assert host.gather("other", table=table)["backend"] == "file:/defaults"
    host.environment["RUNGUARD_BACKEND"] = "file:/variable"
    assert host.gather(table=table)["backend"] == "file:/variable"
    assert host.gather(table=table, backend="file:/flag")["backend"] == "file:/flag"


def test_test_and_key_meet_the_lock_that_run_takes(runguard: Runguard, tmp_path: Path) -> None:
    """With file, variable and flag alike, `key` prints the lock that `run` holds and `test` calls it held."""
    for name in ("by-file", "by-variable"):
        (tmp_path / name).mkdir(mode=0o700)
    file = tmp_path / "mine.toml"
    file.write_text(f"[backend.here]\nurl = 'file:{tmp_path}/by-file'\n[defaults]\nbackend = 'here'\n")
    ways: list[tuple[str, list[str], dict[str, str]]] = [
        ("by-file", ["--config", str(file)], {}),
        ("by-file", [], {"RUNGUARD_CONFIG": str(file)}),
        ("by-variable", ["--config", str(file)], {"RUNGUARD_BACKEND": f"file:{tmp_path}/by-variable"}),
    ]
    for where, words, variables in ways:
        holder = runguard.start(
            *("run", *words, "x", "--", "sh", "-c", "echo held; read line"), environment=variables, stdin=-1
        )
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        key = runguard("key", *words, "x", environment=variables).stdout.splitlines()[0]
        assert key == f"file: {tmp_path}/{where}/x.lock".encode()
        assert runguard("test", *words, "x", environment=variables).returncode == 75
        assert runguard("test", "x").returncode == 0
        holder.communicate(b"\n")


def test_values_are_read_from_every_form(host: Host) -> None:
    """A duration may be a string, an integer or a float; a whole number an integer or a string; a flag a boolean."""
    host.system.write_text(
        "[defaults]\nwait = 90\njitter = 1.5\nconflict-exit-code = 0\nmax-waiters = '7'\nquiet = true\n"
        "[job.x]\nwait = 'forever'\njitter = '1h30m'\nconflict-exit-code = '75'\nquiet = false\n"
    )
    general, job = host.gather("other"), host.gather("x")
    assert [general[key] for key in ("wait", "jitter", "conflict-exit-code", "max-waiters", "quiet")] == [
        90,
        1.5,
        0,
        7,
        True,
    ]
    assert [job[key] for key in ("wait", "jitter", "conflict-exit-code", "max-waiters", "quiet")] == [
        None,
        5400,
        75,
        7,
        False,
    ]
    assert job.level("wait") is not None


BAD = {
    "unknown table": ("[default]\nwait = 1", "[default] is not known; did you mean defaults?"),
    "unknown table, nothing near": ("[xyzzy]", "[xyzzy] is not known; known are defaults, job, backend"),
    "key outside a table": ("wait = 1", "[wait] is not known"),
    "unknown key": ("[defaults]\nwiat = 1", "[defaults]: wiat is not known; did you mean wait?"),
    "underscore": ("[defaults]\nmax_waiters = 1", "max_waiters is not known; did you mean max-waiters?"),
    "letter": ("[defaults]\nw = 1", "[defaults]: w is not known"),
    "config in a config": ("[defaults]\nconfig = '/x'", "[defaults]: config is not known"),
    "unknown key of a job": ("[job.x]\nqueit = true", "[job.x]: queit is not known; did you mean quiet?"),
    "dotted job": ("[job.shop.refresh]\nwait = 1", 'a name with a dot is quoted: [job."shop.refresh"]'),
    "bad job name": ("[job.Shop]\nwait = 1", "the nearest is 'shop'"),
    "job is no table": ("job = 1", "[job]: is not a table"),
    "a job is no table": ("[job]\nx = 1", "[job.x]: is not a table"),
    "defaults is no table": ("defaults = []", "[defaults]: is not a table"),
    "tables in a list": ("[[defaults]]\nwait = 1", "[defaults]: is not a table"),
    "backend is no table": ("[backend]\nmain = 'file:'", "[backend.main]: is not a table"),
    "unknown key of a backend": ("[backend.main]\nulr = 'x'", "ulr is not known; did you mean url?"),
    "backend without url": ("[backend.main]\npassword_file = '/x'", "[backend.main]: url is missing"),
    "backend url is no string": ("[backend.main]\nurl = 1", "[backend.main]: url wants a string"),
    "backend url is empty": ("[backend.main]\nurl = ''", "[backend.main]: url wants a string"),
    "backend url with NUL": ('[backend.main]\nurl = "file:/a\\u0000b"', "[backend.main]: url wants a string"),
    "bool for a whole number": ("[defaults]\nmax-waiters = true", "max-waiters: wants a whole number"),
    "bool for a duration": ("[defaults]\nwait = true", "wait: wants a duration, or forever"),
    "bool for text": ("[defaults]\nkey = true", "key: wants a string"),
    "number for a flag": ("[defaults]\nquiet = 1", "quiet: wants true or false"),
    "word for a flag": ("[defaults]\nquiet = 'yes'", "quiet: wants true or false"),
    "number for text": ("[defaults]\nlog-to = 1", "log-to: wants a string"),
    "number for a choice": ("[defaults]\non-conflict = 1", "on-conflict: wants one of skip, wait"),
    "wrong choice": ("[defaults]\non-conflict = 'queue'", "'queue' is not one of skip, wait"),
    "float for a whole number": ("[defaults]\nmax-waiters = 1.0", "max-waiters: wants a whole number"),
    "negative": ("[defaults]\nmax-waiters = -1", "'-1' is not a whole number from 0"),
    "too large": ("[defaults]\nconflict-exit-code = 600", "600 is not a whole number from 0 to 255"),
    "enormous": (f"[defaults]\nmax-waiters = 0x{'f' * 5000}", "max-waiters: "),
    "negative duration": ("[defaults]\nwait = -1", "is not a duration"),
    "nan": ("[defaults]\nwait = nan", "'nan' is not a duration"),
    "infinite": ("[defaults]\nwait = inf", "'inf' is not a duration"),
    "date": ("[defaults]\nwait = 2026-01-01", "wait: wants a duration"),
    "list": ("[defaults]\nwait = [1]", "wait: wants a duration"),
    "empty text": ("[defaults]\nkey = ''", "key: the value is empty"),
    "NUL": ('[defaults]\nkey = "/a\\u0000b"', "key: the value holds a NUL character"),
    "syntax": ("[defaults\nwait = 1", "at line 1"),
    "key twice": ("[defaults]\nwait = 1\nwait = 2", "Cannot overwrite a value"),
    "nested deeply": ("a = " + "[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize(("text", "sentence"), BAD.values(), ids=BAD)
def test_a_wrong_file_is_refused_in_one_line(host: Host, text: str, sentence: str) -> None:
    """The refusal of a file names the file, what is wrong in it and, for a word that is not known, the nearest."""
    host.system.write_text(text)
    with pytest.raises(ConfigError) as refused:
        host.gather("x")
    assert str(refused.value).startswith(str(host.system))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_error_in_another_job_is_an_error_too(host: Host) -> None:
    """A file is read as a whole: a mistake in any job is found by every run."""
    host.system.write_text("[job.other]\nwiat = 1")
    with pytest.raises(ConfigError, match="wiat is not known"):
        host.gather("x")


def test_bytes_that_are_not_utf8_are_refused(host: Host) -> None:
    """A file in another encoding is refused, naming the file."""
    host.system.write_bytes(b"[defaults]\nkey = '/caf\xe9'\n")
    with pytest.raises(ConfigError, match="can't decode byte 0xe9") as refused:
        host.gather()
    assert str(refused.value).startswith(str(host.system))


def in_mode(mode: int, content: str = "") -> object:
    def make(path: Path) -> None:
        path.write_text(content)
        path.chmod(mode)

    return make


NO_FILE = {
    "missing": (lambda _: None, "No such file or directory"),
    "directory": (lambda path: path.mkdir(), "Is a directory"),
    "FIFO": (os.mkfifo, "is not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/null"), "is not a regular file"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
    "link to itself": (lambda path: path.symlink_to(path), "Too many levels of symbolic links"),
    "world-writable": (in_mode(0o666), "can be written by others (mode 0666): chmod o-w"),
    "password for all": (
        in_mode(0o644, "[backend.x]\nurl = 'mariadb://u:s3cret@h/d'"),
        "holds a password and can be read by others (mode 0644): chmod o-rwx",
    ),
    "password beside a variable": (
        in_mode(0o644, "[backend.x]\nurl = 'mariadb://${U}:s3cret@h/d'"),
        "holds a password and can be read by others (mode 0644)",
    ),
    "password after a variable": (
        in_mode(0o644, "[backend.x]\nurl = 'mariadb://u:${P}s3cret@h/d'"),
        "holds a password and can be read by others (mode 0644)",
    ),
    "password in a job for all": (
        in_mode(0o604, "[job.x]\nbackend = 'postgresql://u:s3cret@h/d'"),
        "holds a password and can be read by others (mode 0604)",
    ),
    "password in a query for all": (
        in_mode(0o644, "[defaults]\nbackend = 'postgresql:///d?password=s3cret'"),
        "holds a password and can be read by others (mode 0644)",
    ),
}


@pytest.mark.parametrize(("make", "sentence"), NO_FILE.values(), ids=NO_FILE)
def test_a_file_that_cannot_be_trusted_is_refused(host: Host, tmp_path: Path, make: object, sentence: str) -> None:
    """What --config names must be a regular file that others cannot write, nor read if it holds a password."""
    path = tmp_path / "named.toml"
    make(path)  # type: ignore[operator]
    with pytest.raises(ConfigError) as refused:
        host.gather(config=str(path))
    assert str(path) in str(refused.value)
    assert sentence in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("mode", "content"),
    [
        (0o644, "[backend.x]\nurl = 'mariadb://u@h/d'\npassword_file = '/x'"),
        (0o644, "[backend.x]\nurl = 'mariadb://u:${PASSWORD}@h/d'"),
        (0o644, "[backend.x]\nurl = 'postgresql:///d?passfile=/etc/pgpass'"),
        (0o644, "[backend.x]\nurl = 'mariadb:///d?unix_socket=/srv/compass/s'"),
        (0o640, "[backend.x]\nurl = 'mariadb://u:s3cret@h/d'"),
        (0o600, "[backend.x]\nurl = 'mariadb://u:s3cret@h/d'"),
    ],
)
def test_a_file_without_a_password_may_be_read_by_all(host: Host, tmp_path: Path, mode: int, content: str) -> None:
    """A reference to a password is no password; a file that holds one may be shared with a group."""
    path = tmp_path / "named.toml"
    path.write_text(content)
    path.chmod(mode)
    assert "x" in host.gather(config=str(path)).backends


def test_a_file_in_somebody_elses_home_is_refused(host: Host) -> None:
    """A HOME that sudo left pointing at another user's home does not configure root's runs."""
    host.user.write_text("[defaults]\nquiet = true\n")
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(host.user, 12345, -1)
    with pytest.raises(ConfigError, match="belongs to uid 12345, not to root or to uid 0; name it with --config"):
        host.gather()
    assert host.gather(config=str(host.user))["quiet"] is True


@pytest.mark.parametrize(
    ("flag", "text"), [("wait", "-1"), ("wait", ""), ("conflict-exit-code", "600"), ("on-conflict", "x")]
)
def test_a_bad_flag_is_wrong_usage_and_named(host: Host, flag: str, text: str) -> None:
    """Text of a flag that cannot be read is wrong usage, and the flag is named."""
    with pytest.raises(UsageError, match=f"^--{flag}: "):
        host.gather(**{flag: text})


def test_a_bad_combination_is_blamed_on_the_level_that_said_it(host: Host) -> None:
    """Two policies are wrong usage on the command line, and a wrong file where a file says them."""
    with pytest.raises(UsageError, match="name different policies"):
        host.gather(nonblock=True, wait="1").policy()
    host.system.write_text("[defaults]\nnonblock = true\nwait = 1\n")
    with pytest.raises(ConfigError, match=r"runguard.toml \[defaults\]: nonblock and wait name different policies"):
        host.gather().policy()


def test_an_unknown_backend_is_blamed_on_who_named_it(host: Host) -> None:
    """An unknown backend name is wrong usage on the command line, and a wrong file where a file says it."""
    host.system.write_text("[backend.main]\nurl = 'file:/x'\n")
    with pytest.raises(UsageError, match=r"'mian' is neither a URL nor a known name; did you mean main\?"):
        place.find(host.gather(backend="mian"), {})
    host.system.write_text("[defaults]\nbackend = 'mian'\n[backend.main]\nurl = 'file:/x'\n")
    with pytest.raises(ConfigError, match=r"\[defaults\]: backend 'mian' is neither a URL nor a known name"):
        place.find(host.gather(), {})


def test_a_backend_of_the_user_replaces_the_systems_whole(host: Host) -> None:
    """Two files that name the same backend do not mix: the user's is taken as it stands there."""
    host.system.write_text("[backend.main]\nurl = 'mariadb://a@h'\npassword_file = '/x'\n")
    host.user.write_text("[backend.main]\nurl = 'mariadb://b@h'\n")
    found = host.gather().backends["main"]
    assert found["url"] == "mariadb://b@h"
    assert "password_file" not in found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.binary(max_size=80) | st.text("[]\"'.=\n#ab1 -{}\\u", max_size=40).map(str.encode))
def test_no_bytes_break_the_reader(tmp_path: Path, content: bytes) -> None:
    """Whatever stands in a file, it is read or refused in one line."""
    path = tmp_path / "any.toml"
    path.write_bytes(content)
    try:
        configfile.load(str(path))
    except ConfigError as refused:
        assert "\n" not in str(refused)  # noqa: PT017 - being read is as good
