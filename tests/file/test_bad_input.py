"""Bad paths, bad hosts and bad words: one line, the right code, no command, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shlex
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import COMMAND
from hosts import need_root, nobody, private, traced, tree
from servers import free_port, scratch

import runguard as package

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Runguard


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory in which a test puts what is bad."""
    directory = tmp_path / "place"
    directory.mkdir(mode=0o755)
    return directory


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Return a directory that every user can reach."""
    with scratch("f") as directory:
        yield directory


def assert_refused(
    result: subprocess.CompletedProcess[bytes], code: int, *parts: str | Path, prefix: str = "runguard: "
) -> None:
    """Check that a run was refused: its code, and one line that can be printed and holds each of the parts."""
    line = result.stderr.decode()
    assert (result.returncode, result.stdout) == (code, b""), line
    assert line.endswith("\n")
    assert line.count("\n") == 1, line
    assert line[:-1].isprintable()
    assert line.startswith(prefix)
    assert "a bug in runguard" not in line
    assert not [part for part in parts if str(part) not in line], line


class Attempt:
    """A run whose command would leave a trace, below a directory that must not change."""

    def __init__(self, runguard: Runguard, place: Path) -> None:
        self.runguard = runguard
        self.place = place
        self.trace = place.parent / "started"

    def __call__(
        self,
        *options: str | bytes,
        code: int,
        parts: tuple[str | Path, ...],
        prefix: str = "runguard: x: ",
        **more: object,
    ) -> None:
        """Run it, and check that it was refused and changed nothing."""
        before = tree(self.place)
        result = self.runguard("run", *options, "x", "--", "touch", str(self.trace), timeout=20, **more)  # type: ignore[arg-type]
        assert_refused(result, code, *parts, prefix=prefix)
        assert not self.trace.exists()
        assert tree(self.place) == before


@pytest.fixture
def attempt(runguard: Runguard, place: Path) -> Attempt:
    """Return an attempt to run."""
    return Attempt(runguard, place)


def bound_socket(path: Path) -> None:
    directory = os.open(path.parent, os.O_PATH)
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
        made.bind(f"/proc/self/fd/{directory}/{path.name}")
    os.close(directory)


def link_to_file(path: Path) -> None:
    (path.parent / "victim").write_text("precious")
    path.symlink_to("victim")


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a symbolic link": (link_to_file, "it is a symbolic link; name the file itself"),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "it is a symbolic link"),
    "a link to itself": (lambda path: path.symlink_to(path), "it is a symbolic link"),
    "a link to a device": (lambda path: path.symlink_to("/dev/null"), "it is a symbolic link"),
    "a FIFO": (os.mkfifo, "it is a FIFO, not a regular file"),
    "a directory": (lambda path: path.mkdir(), "it is a directory, not a regular file"),
    "a socket": (bound_socket, "it is a special file, not a regular file"),
}


@pytest.mark.parametrize("wait", [[], ["-w", "5"]], ids=["skip", "wait"])
@pytest.mark.parametrize(("make", "sentence"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_lock_path_that_is_no_file(
    attempt: Attempt, place: Path, make: Callable[[Path], object], sentence: str, wait: list[str]
) -> None:
    """What stands at the lock path and is no regular file is 69 at once, and is left as it was."""
    path = place / "x.lock"
    make(path)
    place.chmod(0o700)
    for options in (["-b", f"file:{place}"], ["--key", str(path)]):
        attempt(*wait, *options, code=69, parts=(f"cannot open the lock file {path}: {sentence}",))
    assert_refused(attempt.runguard("test", "--key", str(path), "x"), 69, path, sentence)


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/tty", "/dev/full"])
def test_a_device_as_key(attempt: Attempt, device: str) -> None:
    """A device is no lock file: 69."""
    attempt("--key", device, code=69, parts=(f"cannot open the lock file {device}: it is a", "not a regular file"))


def test_a_block_device_as_key(attempt: Attempt, place: Path) -> None:
    """A block device is no lock file: 69, whether or not there is a disk behind it."""
    need_root()
    path = place / "disk"
    try:
        os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, 250))
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except PermissionError as error:
        pytest.skip(f"devices are not permitted here: {error}")
    except OSError:
        pass
    attempt("--key", str(path), code=69, parts=(path, "not a regular file"))


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("missing/x.lock", ("No such file or directory; make the directory", "missing first")),
        ("file/x.lock", ("Not a directory",)),
        ("a" * 256, ("File name too long",)),
        ("d/" * 2100 + "x", ("File name too long",)),
        ("trailing/", ("it is a directory",)),
        ("", ("--key: the value is empty",)),
    ],
    ids=["parent missing", "parent is a file", "name too long", "path too long", "directory", "empty"],
)
def test_a_key_that_is_no_path_of_a_file(attempt: Attempt, place: Path, key: str, parts: tuple[str, ...]) -> None:
    """A path where no file can be is 69 and named, and nothing is made there; an empty one is wrong usage."""
    (place / "file").touch()
    (place / "trailing").mkdir()
    path = f"{place}/{key}" if key else ""
    code, prefix = (69, "runguard: x: cannot open the lock file ") if key else (64, "runguard: ")
    attempt("--key", path, code=code, parts=parts, prefix=prefix)


def make_directory(mode: int, owner: int | None = None) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        path.mkdir()
        if owner is not None:
            need_root()
            os.chown(path, owner, owner)
        path.chmod(mode)

    return make


def linked_directory(path: Path) -> None:
    real = path.parent / "real"
    real.mkdir(mode=0o700)
    path.symlink_to(real)


BAD_DIRECTORIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _: None, "No such file or directory; make it first, for instance install -d -m 0700"),
    "a symbolic link": (linked_directory, "it is a symbolic link; name the directory itself, "),
    "a dangling link": (lambda path: path.symlink_to("nowhere"), "it is a symbolic link"),
    "a file": (lambda path: path.touch(), "it is not a directory"),
    "a FIFO": (os.mkfifo, "it is not a directory"),
    "open to all": (
        make_directory(0o777),
        "all can write and it is not sticky (mode 0777): chmod o-w or chmod +t",
    ),
    "open to others": (make_directory(0o702), "all can write and it is not sticky (mode 0702)"),
    "open to all, setgid": (make_directory(0o2777), "all can write and it is not sticky (mode 2777)"),
    "of a group, not setgid": (make_directory(0o770), "its group can write and it is not setgid (mode 0770)"),
    "of a group, sticky": (make_directory(0o1770), "its group can write and it is not setgid (mode 1770)"),
    "of somebody else": (make_directory(0o700, 12345), "it belongs to uid 12345, not to root or to uid 0"),
    "of somebody else, readable": (make_directory(0o755, 12345), "it belongs to uid 12345"),
    "below a file": (lambda path: path.parent.joinpath("y").touch(), "No such file or directory"),
}


@pytest.mark.parametrize(("make", "sentence"), BAD_DIRECTORIES.values(), ids=BAD_DIRECTORIES)
def test_a_lock_directory_that_cannot_be_trusted(
    attempt: Attempt, place: Path, make: Callable[[Path], object], sentence: str
) -> None:
    """A directory that is none, or where others could put files, is 69 with what is wrong; it is left as it was."""
    path = place / "locks"
    make(path)
    attempt("-b", f"file:{path}", code=69, parts=(f"cannot use the lock directory {path}: {sentence}",))
    result = attempt.runguard("test", "-b", f"file:{path}", "x")
    assert_refused(result, 69, f"cannot use the lock directory {path}: {sentence}")


def test_a_variable_names_the_same_kind_of_directory(attempt: Attempt, place: Path) -> None:
    """What RUNGUARD_LOCK_DIR names is held to the same rules, and a relative path is refused."""
    (place / "locks").mkdir()
    (place / "locks").chmod(0o777)
    environment = {"RUNGUARD_LOCK_DIR": f"{place}/locks"}
    attempt(code=69, parts=(f"{place}/locks: all can write",), environment=environment)
    environment = {"RUNGUARD_LOCK_DIR": "locks"}
    attempt(code=69, parts=("RUNGUARD_LOCK_DIR=locks: write an absolute path",), environment=environment, cwd=place)
    environment = {"RUNGUARD_LOCK_DIR": f"{place}/no/locks"}
    attempt(code=69, parts=(f"cannot make the lock directory {place}/no/locks: No such file",), environment=environment)


def test_a_file_of_another_user(open_place: Path) -> None:
    """As a plain user a file that may not be opened is 69, with its owner and mode."""
    path = open_place / "x.lock"
    path.touch(mode=0o600)
    path.chmod(0o600)
    result = nobody()("run", "--key", str(path), "x", "--", "true")
    sentence = f"cannot open the lock file {path}: Permission denied (owner root, mode 0600)"
    assert_refused(result, 69, sentence, prefix="runguard: x: ")
    assert_refused(nobody()("test", "--key", str(path), "x"), 69, sentence)


def test_a_directory_that_may_not_be_entered(open_place: Path) -> None:
    """As a plain user a closed directory is 69, for a file below it and as the lock directory, and never free."""
    closed = open_place / "closed"
    closed.mkdir(mode=0o700)
    key = ("--key", f"{closed}/x.lock")
    for words in (("run", *key, "x", "--", "true"), ("test", *key, "x")):
        assert_refused(nobody()(*words), 69, f"cannot open the lock file {closed}/x.lock: Permission denied")
    below = ("-b", f"file:{closed}/locks")
    for words in (("run", *below, "x", "--", "true"), ("test", *below, "x")):
        assert_refused(nobody()(*words), 69, f"cannot use the lock directory {closed}/locks: Permission denied")
    result = nobody()("run", "-b", f"file:{closed}", "x", "--", "true")
    assert_refused(result, 69, f"cannot open the lock file {closed}/x.lock: Permission denied")


def test_a_file_that_cannot_be_made(open_place: Path) -> None:
    """As a plain user a directory without write permission is 69, and no file is made there."""
    result = nobody()("run", "-b", f"file:{open_place}", "x", "--", "true")
    assert_refused(result, 69, f"cannot open the lock file {open_place}/x.lock: Permission denied")
    assert tree(open_place) == {}


def run_in(setup: str, runguard: Runguard, *words: str) -> subprocess.CompletedProcess[bytes]:
    command = private(setup, *COMMAND, *words)
    return subprocess.run(command, check=False, capture_output=True, env=runguard.environment, timeout=60)


def test_a_read_only_file_system(runguard: Runguard, place: Path) -> None:
    """On a read-only file system a file that is missing is 69, with the advice to name another place."""
    setup = f"mount -t tmpfs -o ro,mode=700 tmpfs {shlex.quote(str(place))}"
    result = run_in(setup, runguard, "run", "-b", f"file:{place}", "x", "--", "true")
    assert_refused(
        result, 69, f"cannot open the lock file {place}/x.lock: Read-only file system", "writable file system"
    )


@pytest.mark.parametrize("limit", ["nr_inodes=1", "nr_inodes=1,size=4k"])
def test_a_full_file_system(runguard: Runguard, place: Path, limit: str) -> None:
    """Without an inode for the lock file it is 69, with the advice to free some."""
    setup = f"mount -t tmpfs -o mode=700,{limit} tmpfs {shlex.quote(str(place))}"
    result = run_in(setup, runguard, "run", "-b", f"file:{place}", "x", "--", "true")
    assert_refused(result, 69, f"cannot open the lock file {place}/x.lock: No space left on device", "inodes", place)


def test_a_disk_without_a_free_block_is_no_obstacle(runguard: Runguard, place: Path) -> None:
    """Where only the diagnosis does not fit, the run goes on: the lock needs no block."""
    quoted = shlex.quote(str(place))
    setup = f"mount -t tmpfs -o mode=700,size=4k tmpfs {quoted}; touch {quoted}/x.lock; "
    setup += f"head -c 8192 /dev/zero >{quoted}/filler 2>/dev/null || :"
    result = run_in(setup, runguard, "run", "-b", f"file:{place}", "x", "--", "true")
    assert (result.returncode, result.stderr) == (0, b"")


ERRORS = {"EBADF": "Bad file descriptor", "ENOLCK": "No locks available", "EOPNOTSUPP": "Operation not supported"}
ERRORS |= {"EIO": "Input/output error", "EACCES": "Permission denied"}


@pytest.mark.parametrize("error", ERRORS)
def test_a_file_system_that_cannot_lock(runguard: Runguard, place: Path, error: str) -> None:
    """Every error of flock(2) but EWOULDBLOCK is 69, with the error and the type of the file system."""
    path = place / "x.lock"
    path.touch()
    for words in (["run", "--key", str(path), "x", "--", "true"], ["test", "--key", str(path), "x"]):
        command = traced(*COMMAND, *words, error=error)
        result = subprocess.run(command, check=False, capture_output=True, env=runguard.environment, timeout=60)
        assert_refused(result, 69, f"cannot lock {path} (file system ", f"): {ERRORS[error]}")
        assert re.search(r"\(file system [a-z0-9._-]+\)", result.stderr.decode())
    if error in {"EBADF", "ENOLCK", "EOPNOTSUPP"}:
        assert b"local file system" in result.stderr


def test_a_file_system_without_modes_is_69(runguard: Runguard, place: Path) -> None:
    """A lock file whose mode cannot be set is refused in one line."""
    path = place / "x.lock"
    command = traced(
        *COMMAND, "run", "--key", str(path), "x", "--", "touch", str(place / "ran"), error="EPERM", call="fchmod"
    )
    result = subprocess.run(command, check=False, capture_output=True, env=runguard.environment, timeout=60)
    assert_refused(result, 69, f"cannot open the lock file {path}", "Operation not permitted")
    assert not (place / "ran").exists()


def test_a_key_and_a_directory_contradict(runguard: Runguard, place: Path) -> None:
    """A directory in the backend means nothing beside an exact path: 64."""
    result = runguard("run", "-b", f"file:{place}", "--key", str(place / "x.lock"), "x", "true")
    assert_refused(result, 64, "--key names the lock file itself")


def test_only_ewouldblock_is_a_conflict(runguard: Runguard, place: Path) -> None:
    """The one error of flock(2) that means that somebody else has the lock is a conflict, quietly."""
    command = traced(
        *COMMAND, "run", "--key", str(place / "x.lock"), "x", "--", "true", error="EAGAIN"
    )  # its other name
    result = subprocess.run(command, check=False, capture_output=True, env=runguard.environment, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (75, b"", b"")


@pytest.mark.parametrize("limit", [6, 8, 16, 64])
def test_few_descriptors_are_enough(runguard: Runguard, limit: int) -> None:
    """With a small limit of open files the lock is taken and the command run as always."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    result = runguard("run", "x", "--", "sh", "-c", "exit 7", preexec_fn=limited)
    assert (result.returncode, result.stderr) == (7, b"")


def test_no_descriptor_left_is_69(runguard: Runguard, place: Path) -> None:
    """Where not even the lock file can be opened it is 69, with the reason."""
    program = (
        "import os, resource, sys; from runguard.backends import file; from runguard.backends.base import Target\n"
        "import pwd, runguard.errors\n"
        f"lock = file.lock(Target(url='file:', name='x', key={str(place / 'x.lock')!r}))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "try: lock.acquire(wait=0, on_wait=lambda busy: False)\n"
        "except runguard.errors.BackendError as error: print(error)\n"
    )
    words = [sys.executable, "-c", program]
    result = subprocess.run(words, check=True, capture_output=True, env=runguard.environment)
    assert result.stdout.decode() == f"cannot open the lock file {place}/x.lock: Too many open files\n"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (
            ("run", "--key", "x.lock", "x", "--", "true"),
            69,
            "cannot open the lock file x.lock: the working directory is",
        ),
        (("test", "--key", "x.lock", "x"), 69, "cannot open the lock file x.lock: the working directory is gone"),
        (
            ("run", "--config", "c.toml", "x", "--", "true"),
            78,
            "cannot read the configuration file c.toml: No such file",
        ),
        (("run", "--log-to", "log", "-v", "x", "--", "true"), 0, "cannot write to the log log: No such file"),
        (("run", "x", "--", "true"), 0, ""),
    ],
)
def test_a_working_directory_that_is_gone(
    runguard: Runguard, place: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    """In a directory that was removed a relative path is refused and named; without one the run goes on."""
    gone = place / "gone"
    gone.mkdir()
    command = ["sh", "-ec", 'rmdir "$1"; shift; exec "$@"', "sh", str(gone), *COMMAND, *words]
    environment = runguard.environment | {"PYTHONPATH": str(Path(package.__file__).parent.parent)}
    result = subprocess.run(command, check=False, capture_output=True, env=environment, cwd=gone)
    assert result.returncode == code
    assert sentence.encode() in result.stderr
    if code:
        assert_refused(result, code, sentence)


USAGE: dict[str, tuple[tuple[str | bytes, ...], tuple[str, ...]]] = {
    "no words": (("run",), ("NAME and COMMAND are missing",)),
    "no command": (("run", "x"), ("COMMAND is missing after NAME x",)),
    "no command after --": (("run", "x", "--"), ("COMMAND is missing after NAME x",)),
    "upper case": (("run", "Job", "true"), ("'Job' is not a valid NAME", "the nearest is 'job'")),
    "65 characters": (("run", "a" * 65, "true"), ("is not a valid NAME", f"the nearest is '{'a' * 64}'")),
    "1000 characters": (("run", "a" * 1000, "true"), ("is not a valid NAME",)),
    "empty name": (("run", "", "true"), ("'' is not a valid NAME", "the nearest is 'job'")),
    "traversal": (("run", "../x", "true"), ("'../x' is not a valid NAME", "the nearest is 'x'")),
    "leading dot": (("run", ".x", "true"), ("'.x' is not a valid NAME",)),
    "newline": (("run", "a\nb", "true"), ("'a\\nb' is not a valid NAME", "the nearest is 'a-b'")),
    "quote": (("run", "a'b", "true"), ("is not a valid NAME", "the nearest is 'a-b'")),
    "emoji": (("run", "a🙂b", "true"), ("is not a valid NAME", "the nearest is 'a-b'")),
    "no UTF-8": (("run", b"caf\xe9", "true"), ("'caf\\udce9' is not a valid NAME",)),
    "unknown option": (("run", "--wiat", "5", "x", "true"), ("--wiat", "see runguard run --help")),
    "option of a later version": (("run", "--every", "5m", "x", "true"), ("--every",)),
    "timeout": (("run", "--timeout", "5", "x", "true"), ("--timeout could mean two things", "--wait", "--max-runtime")),
    "negative wait": (("run", "-w", "-1", "x", "true"), ("--wait: '-1' is not a duration",)),
    "nan": (("run", "-w", "nan", "x", "true"), ("--wait: 'nan' is not a duration",)),
    "1e400": (("run", "-w", "1e400", "x", "true"), ("--wait: '1e400' is not a duration",)),
    "abc": (("run", "-w", "abc", "x", "true"), ("--wait: 'abc' is not a duration",)),
    "wait without value": (("run", "-w"), ("-w",)),
    "code 600": (("run", "-E", "600", "x", "true"), ("--conflict-exit-code: 600 is not a whole number from 0 to 255",)),
    "code -1": (("run", "-E", "-1", "x", "true"), ("--conflict-exit-code: '-1' is not a whole number",)),
    "two policies": (("run", "-n", "-w", "5", "x", "true"), ("nonblock and wait name different policies",)),
    "wait without a limit": (("run", "--on-conflict", "wait", "x", "true"), ("--wait DURATION",)),
    "unknown policy": (("run", "--on-conflict", "queue", "x", "true"), ("'queue' is not one of skip, wait",)),
    "waiters without wait": (("run", "--max-waiters", "1", "x", "true"), ("give --wait DURATION too",)),
    "quiet and verbose": (("run", "-q", "-v", "x", "true"), ("contradict each other",)),
    "relative directory": (("run", "-b", "file:locks", "x", "true"), ("'file:locks'", "an absolute path")),
    "directory on a host": (("run", "-b", "file://host/x", "x", "true"), ("'file://host/x'", "an absolute path")),
    "unknown backend": (("run", "-b", "main", "x", "true"), ("backend 'main' is neither a URL nor a known name",)),
    "unknown scheme": (("run", "-b", "redis://h", "x", "true"), ("the scheme is not known", "postgresql://")),
    "no slashes": (("run", "-b", "mariadb:u:s3cret@h", "x", "true"), ("the scheme is not known",)),
    "MariaDB URL": (("run", "-b", "mariadb://u:s3cret@h@i", "x", "true"), ("is not a URL", "%40")),
    "MariaDB option": (("run", "-b", "mariadb://h?sokcet=1", "x", "true"), ("'sokcet' is not known",)),
    "advisory key": (("run", "-b", "postgresql://h", "--key", "k", "x", "true"), ("--key 'k'", "whole number")),
    "shared GET_LOCK": (("run", "-s", "-b", "mariadb://h", "x", "true"), ("shared: GET_LOCK has no shared locks",)),
    "no fork": (("run", "-F", "-b", "mariadb://h", "x", "true"), ("use it with the file backend",)),
    "name of test": (("test", "Job"), ("'Job' is not a valid NAME", "the nearest is 'job'")),
    "name of key": (("key", "Job"), ("'Job' is not a valid NAME", "the nearest is 'job'")),
    "test without a name": (("test",), ("NAME",)),
    "two names of test": (("test", "a", "b"), ("unexpected extra argument",)),
    "unknown command": (("runn", "x", "true"), ("runn",)),
    "no subcommand": ((), ("see runguard --help",)),
}


@pytest.mark.parametrize(("words", "parts"), USAGE.values(), ids=USAGE)
def test_wrong_usage(
    runguard: Runguard, lock_directory: Path, place: Path, words: tuple[str | bytes, ...], parts: tuple[str, ...]
) -> None:
    """Wrong usage is 64 and one line that names what was written, before anything is opened, made or run."""
    result = runguard(*(f"{place}/started" if word == "true" else word for word in words), timeout=20)
    assert_refused(result, 64, *parts)
    assert b"s3cret" not in result.stderr
    assert tree(lock_directory) == {}


CONFIGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda _: None, "No such file or directory"),
    "a directory": (lambda path: path.mkdir(), "Is a directory"),
    "a FIFO": (os.mkfifo, "is not a regular file"),
    "no TOML": (lambda path: path.write_text("[defaults\n"), "at line 1"),
    "no UTF-8": (lambda path: path.write_bytes(b"a = '\xff'"), "can't decode byte 0xff"),
    "an unknown key": (lambda path: path.write_text("[defaults]\nwiat = 1\n"), "did you mean wait?"),
    "a wrong type": (lambda path: path.write_text("[defaults]\nmax-waiters = true\n"), "wants a whole number"),
    "NUL": (lambda path: path.write_text('[job.x]\nkey = "/a\\u0000b"\n'), "NUL"),
    "nested deeply": (lambda path: path.write_text("a = " + "[" * 99_999), "nested too deeply"),
    "two policies": (lambda path: path.write_text("[job.x]\nnonblock = true\nwait = 1\n"), "different policies"),
    "an unknown backend": (
        lambda path: path.write_text("[job.x]\nbackend = 'main'\n"),
        "neither a URL nor a known name",
    ),
    "an unknown scheme": (lambda path: path.write_text("[job.x]\nbackend = 'redis://h'\n"), "scheme is not known"),
    "open to all": (lambda path: (path.touch(), path.chmod(0o666)), "can be written by others"),
}


@pytest.mark.parametrize("way", ["flag", "variable"])
@pytest.mark.parametrize(("make", "sentence"), CONFIGS.values(), ids=CONFIGS)
def test_a_wrong_config_file(
    attempt: Attempt, place: Path, make: Callable[[Path], object], sentence: str, way: str
) -> None:
    """A configuration file that is missing or wrong is 78, and named, also by `test` and `key`."""
    path = place / "c.toml"
    make(path)
    options, environment = (["--config", str(path)], {}) if way == "flag" else ([], {"RUNGUARD_CONFIG": str(path)})
    attempt(*options, code=78, parts=(path, sentence), prefix="runguard: ", environment=environment)
    for command in ("test", "key"):
        if sentence != "different policies":
            result = attempt.runguard(command, *options, "x", environment=environment, timeout=20)
            assert_refused(result, 78, path, sentence)


@pytest.mark.parametrize("scheme", ["mariadb", "postgresql"])
def test_a_server_that_is_not_there(attempt: Attempt, scheme: str) -> None:
    """A closed port is 69, with the address and without the password, for `run` and for `test`."""
    url = f"{scheme}://u:s3cret@127.0.0.1:{free_port()}/d"
    shown = url.replace("s3cret", "***")
    attempt("-b", url, code=69, parts=(shown,))
    result = attempt.runguard("test", "-b", url, "x")
    assert_refused(result, 69, shown)
    assert b"s3cret" not in result.stderr


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_that_cannot_be_written_stops_nothing(runguard: Runguard, place: Path, form: str) -> None:
    """A bad --log-to is said in one line, and the command runs and gives its code."""
    path = f"{place}/no\nwhere/log"
    result = runguard("run", "--log-to", path, "--log-format", form, "x", "--", "sh", "-c", "exit 7")
    assert_refused(result, 7, f"cannot write to the log {place}/no\\nwhere/log: No such file or directory")
