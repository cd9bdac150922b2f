"""Lock files: which one a name means, what is left alone, who holds it, and who waits for it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from conftest import COMMAND, children, eventually, is_alive
from hosts import need_root, nobody, private, tool, tree
from servers import scratch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Runguard

HOLD = ("sh", "-c", "echo held; read line; :")
MODES = ("stat", "-c", "%a %U %n")


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Return a directory that every user can reach."""
    with scratch("f") as directory:
        yield directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def until_held(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Return a process once the command under its lock says that it runs."""
    assert process.stdout
    assert process.stdout.readline() == b"held\n"
    return process


def hold(runguard: Runguard, *options: str) -> subprocess.Popen[bytes]:
    return until_held(runguard.start("run", *options, "--", *HOLD, stdin=subprocess.PIPE))


def let_go(process: subprocess.Popen[bytes]) -> None:
    """End a command that holds a lock."""
    process.communicate(b"\n", timeout=30)


# Identity: which file a name means


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_roots_directory_is_in_run(umask: int) -> None:
    """For root it is /run/runguard, 0755 with files of 0600, whatever umask, HOME and the login session say."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/tmp", "XDG_RUNTIME_DIR": "/tmp", "XDG_STATE_HOME": "/tmp"}
    words = ("run", "x", "--", *MODES, "/run/runguard", "/run/runguard/x.lock")
    command = private("mount -t tmpfs -o mode=755 tmpfs /run", *COMMAND, *words)
    result = subprocess.run(command, check=False, capture_output=True, env=environment, umask=umask)
    wanted = b"755 root /run/runguard\n600 root /run/runguard/x.lock\n"
    assert (result.returncode, result.stderr, result.stdout) == (0, b"", wanted)


def test_roots_directory_is_not_replaced_by_another() -> None:
    """If /run/runguard cannot be used it is 69: another place would be another lock."""
    environment = {"PATH": os.environ["PATH"]}
    for setup in ("touch /run/runguard", "mkdir -m 777 /run/runguard", "ln -s /tmp /run/runguard"):
        command = private(f"mount -t tmpfs tmpfs /run; {setup}", *COMMAND, "run", "x", "--", "true")
        result = subprocess.run(command, check=False, capture_output=True, env=environment)
        assert result.returncode == 69
        assert b"cannot use the lock directory /run/runguard: " in result.stderr


SESSIONS: list[dict[str, str]] = [
    {},
    {"HOME": "/tmp", "XDG_RUNTIME_DIR": "/tmp", "XDG_STATE_HOME": "/tmp", "USER": "root"},
]
RUN_LOCK = "mount -t tmpfs -o mode=755 tmpfs /run; mkdir /run/lock; chmod {} /run/lock"


@pytest.mark.parametrize("session", SESSIONS, ids=["cron", "login"])
@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_a_users_directory_is_in_run_lock(session: dict[str, str], umask: int) -> None:
    """Where /run/lock has mode 1777 it is /run/lock/runguard-UID, 0700, with and without a login session."""
    user = nobody()
    path = f"/run/lock/runguard-{user.user.pw_uid}"
    words = ("run", "x", "--", *MODES, path, f"{path}/x.lock")
    result = user(*words, setup=RUN_LOCK.format("1777"), environment=session, umask=umask)
    wanted = f"700 nobody {path}\n600 nobody {path}/x.lock\n".encode()
    assert (result.returncode, result.stderr, result.stdout) == (0, b"", wanted)


@pytest.fixture
def home(open_place: Path) -> Path:
    """Return a home directory of the user nobody."""
    directory = open_place / "home"
    directory.mkdir(mode=0o755)
    return nobody().own(directory)


def with_home(home: Path, run_lock: str) -> str:
    """Return shell commands that make `home` the user's home in the password database."""
    database = home.parent / "passwd"
    user = nobody().user
    database.write_text(f"root:x:0:0:root:/root:/bin/sh\nnobody:x:{user.pw_uid}:{user.pw_gid}::{home}:/bin/sh\n")
    database.chmod(0o644)
    return f"{run_lock}; mount --bind {database} /etc/passwd"


@pytest.mark.parametrize("session", SESSIONS, ids=["cron", "login"])
@pytest.mark.parametrize("run_lock", [RUN_LOCK.format("755"), RUN_LOCK.format("777"), "mount -t tmpfs tmpfs /run"])
def test_elsewhere_it_is_in_the_home_of_the_password_database(
    home: Path, session: dict[str, str], run_lock: str
) -> None:
    """Without such a /run/lock it is below the home that the password database names, whatever HOME says."""
    path = f"{home}/.local/state/runguard/locks"
    result = nobody()("run", "x", "--", *MODES, f"{path}/x.lock", setup=with_home(home, run_lock), environment=session)
    wanted = f"600 nobody {path}/x.lock\n".encode()
    assert (result.returncode, result.stderr, result.stdout) == (0, b"", wanted)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_what_is_made_in_a_home_is_closed(home: Path, umask: int) -> None:
    """Every directory made on the way is 0700, whatever the umask; those that were there stay as they were."""
    (home / ".local").mkdir()
    (home / ".local").chmod(0o755)
    nobody().own(home / ".local")
    result = nobody()("run", "x", "--", "true", setup=with_home(home, RUN_LOCK.format("755")), umask=umask)
    assert (result.returncode, result.stderr) == (0, b"")
    found = {path: stat.S_IMODE(status[0]) for path, status in tree(home).items()}
    state = ".local/state"
    made = {state: 0o700, f"{state}/runguard": 0o700, f"{state}/runguard/locks": 0o700}
    assert found == {".local": 0o755, **made, f"{state}/runguard/locks/x.lock": 0o600}


@pytest.mark.parametrize("trap", ["mkdir -m 777 {}", "mkdir -m 700 {}", "touch {}", "ln -s /tmp {}", "mkfifo {}"])
def test_a_directory_that_cannot_be_used_is_not_replaced(home: Path, trap: str) -> None:
    """What another user put at the chosen place makes it 69: falling back would be a second lock."""
    path = f"/run/lock/runguard-{nobody().user.pw_uid}"
    setup = f"{with_home(home, RUN_LOCK.format('1777'))}; {trap.format(path)}"
    result = nobody()("run", "x", "--", "true", setup=setup)
    assert (result.returncode, result.stderr.count(b"\n")) == (69, 1)
    assert path.encode() in result.stderr
    assert tree(home) == {}


def test_a_home_that_is_not_there_is_69() -> None:
    """A user without a usable home gets 69 with the path, and no lock elsewhere."""
    home = nobody().directory / "no-home"
    result = nobody()("run", "x", "--", "true", setup=with_home(home, RUN_LOCK.format("755")))
    assert (result.returncode, result.stderr.count(b"\n")) == (69, 1)
    assert f"cannot make the lock directory {home}/".encode() in result.stderr


# Directories and modes


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
@pytest.mark.parametrize(
    ("directory", "file"),
    [
        (0o700, 0o600),
        (0o755, 0o600),
        (0o750, 0o600),
        (0o1777, 0o600),
        (0o2770, 0o660),
        (0o2775, 0o660),
        (0o3777, 0o660),
    ],
    ids=oct,
)
def test_files_are_as_open_as_their_directory_is_meant(
    runguard: Runguard, tmp_path: Path, directory: int, file: int, umask: int
) -> None:
    """Lock files are 0600, in a directory made for a group (setgid, group-writable) 0660, whatever the umask."""
    path = tmp_path / "shop"
    path.mkdir()
    path.chmod(directory)
    result = runguard("run", "-b", f"file:{path}", "x", "--", "true", umask=umask)
    assert (result.returncode, result.stderr) == (0, b"")
    assert (mode(path / "x.lock"), mode(path)) == (file, directory)


@pytest.mark.parametrize("kind", [0o2770, 0o3777], ids=["of a group", "of all, sticky, setgid"])
def test_users_of_a_group_exclude_each_other(runguard: Runguard, open_place: Path, kind: int) -> None:
    """In a directory made for a group the lock of one user is busy for the other, both ways, whoever made the file."""
    user = nobody()
    path = open_place / "shop"
    path.mkdir()
    os.chown(path, 0, user.user.pw_gid)
    path.chmod(kind)
    for name in ("roots", "users"):
        where = ("-b", f"file:{path}", name)
        if name == "users":
            assert user("run", *where, "--", "true").returncode == 0
        holder = hold(runguard, *where)
        assert (user("run", *where, "--", "true").returncode, user("test", *where).returncode) == (75, 75)
        let_go(holder)
        command = [*user.command, "run", *where, "--", *HOLD]
        with subprocess.Popen(command, env=user.environment, cwd="/", stdin=-1, stdout=-1) as other:
            until_held(other)
            assert (runguard("run", *where, "--", "true").returncode, runguard("test", *where).returncode) == (75, 75)
            let_go(other)


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_a_foreign_file_that_is_missing_is_made_closed(runguard: Runguard, tmp_path: Path, umask: int) -> None:
    """--key makes the file with 0600 if it is missing, so that no other user can hold the lock."""
    path = tmp_path / "made.lock"
    assert runguard("run", "--key", str(path), "x", "--", "true", umask=umask).returncode == 0
    assert (mode(path), path.read_bytes()) == (0o600, b"")


# What is left alone


@pytest.mark.parametrize("options", [[], ["-s"], ["-F"], ["-w", "1"]], ids=["plain", "shared", "no fork", "wait"])
@pytest.mark.parametrize("content", [b"", b"precious\n", b"pid=1\nhost=x\n", b"\xff\0" * 5000])
def test_a_foreign_file_is_left_as_it_was(
    runguard: Runguard, tmp_path: Path, content: bytes, options: list[str]
) -> None:
    """Content, mode and times of the file that --key names do not change: it is only locked."""
    path = tmp_path / "foreign"
    path.write_bytes(content)
    path.chmod(0o640)
    os.utime(path, (1, 2))
    before = (path.stat().st_ino, tree(tmp_path)["foreign"])
    result = runguard("run", *options, "--key", str(path), "x", "--", "true")
    assert (result.returncode, result.stderr) == (0, b"")
    assert (path.stat().st_ino, tree(tmp_path)["foreign"], path.read_bytes()) == (*before, content)


def test_the_target_of_a_link_is_untouched(runguard: Runguard, lock_directory: Path, tmp_path: Path) -> None:
    """A link at the lock path leads nowhere: its target is not changed, and one that is missing is not made."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (lock_directory / "x.lock").symlink_to(victim)
    (lock_directory / "y.lock").symlink_to(tmp_path / "absent")
    before = tree(tmp_path)["victim"]
    assert [runguard("run", name, "--", "true").returncode for name in "xy"] == [69, 69]
    assert tree(tmp_path)["victim"] == before
    assert victim.read_text() == "precious"
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"pid=1\n",
        b"garbage",
        b"pid=99999999999999999999\nhost\n=\n",
        b"\xff\0\n" * 100_000,
        b"pid=-1\nsince=\x1b[2J\n",
    ],
    ids=["empty", "a live pid", "garbage", "no pid", "large", "control characters"],
)
def test_a_file_left_behind_is_no_obstacle(runguard: Runguard, lock_directory: Path, content: bytes) -> None:
    """A file at the lock path that nobody has locked is free, whatever stands in it."""
    path = lock_directory / "x.lock"
    path.write_bytes(content)
    assert runguard("test", "x").returncode == 0
    assert path.read_bytes() == content
    result = runguard("run", "x", "--", "true")
    assert (result.returncode, result.stderr, path.read_bytes()) == (0, b"", b"")


@pytest.mark.parametrize(
    "content", [b"pid=-1\nsince=\x1b[2J\n", b"\xff\0\r\n" * 9, b"user=\xe2\x80\xae\ncommand=a\rb\n"]
)
def test_what_stands_in_a_file_cannot_forge_a_line(runguard: Runguard, lock_directory: Path, content: bytes) -> None:
    """Whatever was written into a lock file, the line about its holder is one line that can be printed."""
    path = lock_directory / "x.lock"
    path.write_bytes(content)
    with path.open("rb") as file, subprocess.Popen([tool("flock"), str(path), *HOLD], stdin=-1, stdout=-1) as holder:
        until_held(holder)
        assert file.read() == content
        result = runguard("run", "-v", "x", "--", "true")
        let_go(holder)
    line = result.stderr.decode()
    assert (result.returncode, line.count("\n"), line[:-1].isprintable()) == (75, 1, True)


def test_a_lock_file_is_never_removed(runguard: Runguard, lock_directory: Path) -> None:
    """Through runs, skips, expired waits, probes and a killed runguard it stays the same file."""
    assert runguard("run", "x", "--", "true").returncode == 0
    path = lock_directory / "x.lock"
    inode = path.stat().st_ino
    holder = hold(runguard, "x")
    assert [runguard("run", *options, "x", "--", "true").returncode for options in ([], ["-w", "0.1"])] == [75, 75]
    assert runguard("test", "x").returncode == 75
    holder.kill()
    let_go(holder)
    eventually(lambda: runguard("run", "x", "--", "true").returncode == 0)
    assert path.stat().st_ino == inode


def test_a_file_that_was_replaced_is_not_the_lock(runguard: Runguard, tmp_path: Path) -> None:
    """A waiter whose file was renamed over goes on to wait for the file that has the name now."""
    path, new, trace = tmp_path / "x.lock", tmp_path / "new.lock", tmp_path / "trace"
    options = ("--key", str(path), "x")
    first = hold(runguard, *options)
    waiter = runguard.start("run", "-v", "-w", "60", *options, "--", "touch", str(trace))
    assert waiter.stderr
    assert b"waiting" in waiter.stderr.readline()
    with subprocess.Popen([tool("flock"), str(new), *HOLD], stdin=-1, stdout=-1) as second:
        until_held(second)
        new.rename(path)
        wanted = path.stat()

        def has_the_new_file_open() -> bool:
            descriptors = f"/proc/{waiter.pid}/fd"
            return any(os.path.samestat(os.stat(f"{descriptors}/{entry}"), wanted) for entry in os.listdir(descriptors))

        let_go(first)
        eventually(has_the_new_file_open)
        assert not trace.exists()
        assert waiter.poll() is None
        let_go(second)
    assert waiter.wait(30) == 0
    assert trace.exists()


# Who holds it


def skip_line(runguard: Runguard, *options: str) -> str:
    result = runguard("run", "-v", *options, "--", "true")
    assert (result.returncode, result.stderr.count(b"\n")) == (75, 1)
    return result.stderr.decode()


def test_flock_is_named_as_the_holder(runguard: Runguard, lock_directory: Path) -> None:
    """Behind flock(1) the line says its pid and command, and not who was there before."""
    path = lock_directory / "x.lock"
    path.write_text("pid=1\nhost=elsewhere\ncommand=an old run\n")
    with subprocess.Popen([tool("flock"), str(path), *HOLD], stdin=-1, stdout=-1) as holder:
        until_held(holder)
        line = skip_line(runguard, "x")
        let_go(holder)
    assert f"runguard: x: skipped: held by pid {holder.pid} on {os.uname().nodename}: " in line
    assert "flock" in line
    assert "an old run" not in line


def test_runguard_is_named_as_the_holder(runguard: Runguard) -> None:
    """Behind runguard the line says pid, host, user, since when, and the command; a second skip says the same."""
    holder = hold(runguard, "x")
    line = skip_line(runguard, "x")
    assert f"held by pid {holder.pid} on {os.uname().nodename} (user " in line
    assert " since 2" in line
    assert "sh -c echo held; read line; :" in line
    assert skip_line(runguard, "x") == line
    let_go(holder)


def test_a_command_whose_runguard_was_killed_is_named(runguard: Runguard, lock_directory: Path) -> None:
    """When runguard was killed and its command goes on, the lock stays and the line still says which command."""
    holder = hold(runguard, "x")
    (command,) = children(holder.pid)
    holder.kill()
    eventually(lambda: not is_alive(holder.pid))
    assert is_alive(command)
    assert "sh -c echo held; read line; :" in skip_line(runguard, "x")
    assert runguard("test", "x").returncode == 75
    let_go(holder)
    eventually(lambda: not is_alive(command))
    eventually(lambda: runguard("test", "x").returncode == 0)
    assert (lock_directory / "x.lock").read_bytes()
    assert runguard("run", "x", "--", "true").returncode == 0
    assert (lock_directory / "x.lock").read_bytes() == b""


# test


def codes_of_test(runguard: Runguard, *options: str) -> tuple[int, int]:
    """Return the exit codes without and with --exec-condition."""
    results = [runguard("test", *more, *options) for more in ([], ["--exec-condition"])]
    assert [result.stdout for result in results] == [b"", b""]
    return results[0].returncode, results[1].returncode


def test_test_tells_free_from_held(runguard: Runguard) -> None:
    """0 free and 75 held, 1 for --exec-condition; a shared holder holds it too, and silence is kept."""
    assert codes_of_test(runguard, "x") == (0, 0)
    for options in ([], ["-s"]):
        holder = hold(runguard, *options, "x")
        assert codes_of_test(runguard, "x") == (75, 1)
        let_go(holder)
        assert codes_of_test(runguard, "x") == (0, 0)


def test_test_says_when_it_cannot_know(runguard: Runguard, lock_directory: Path) -> None:
    """69 for a lock that cannot be asked for, 255 for --exec-condition, which makes the unit fail."""
    os.mkfifo(lock_directory / "x.lock")
    assert codes_of_test(runguard, "x") == (69, 255)
    assert codes_of_test(runguard, "-b", f"file:{lock_directory}/missing", "x") == (69, 255)


def test_a_mistake_is_never_a_condition_that_is_not_met(runguard: Runguard, tmp_path: Path) -> None:
    """With --exec-condition wrong usage and a wrong file are 255 too: less would silently skip the unit."""
    missing = ("--config", str(tmp_path / "missing"))
    for words in (("Job",), (), ("-b", "nowhere", "x"), ("--wrong", "x"), (*missing, "x")):
        assert runguard("test", "--exec-condition", *words).returncode == 255


def test_test_makes_nothing(runguard: Runguard, lock_directory: Path, tmp_path: Path) -> None:
    """`test` makes neither file nor directory, and changes no file."""
    (lock_directory / "old.lock").write_text("pid=1\n")
    before = tree(tmp_path)
    for options in (["x"], ["old"], ["--key", f"{tmp_path}/k", "x"]):
        assert codes_of_test(runguard, *options) == (0, 0)
    absent = {"RUNGUARD_LOCK_DIR": f"{tmp_path}/absent"}
    assert runguard("test", "x", environment=absent).returncode == 0
    assert tree(tmp_path) == before


def test_test_says_what_it_found_if_asked(runguard: Runguard) -> None:
    """With -v it is one line on stdout, with the holder."""
    assert runguard("test", "-v", "x").stdout == b"x: free\n"
    holder = hold(runguard, "x")
    assert runguard("test", "-v", "x").stdout.startswith(f"x: held by pid {holder.pid} on ".encode())
    let_go(holder)


ROUNDS = 200
AGAIN_AND_AGAIN = f"""
import os
from runguard import cli
codes = set()
for _ in range({ROUNDS}):
    pid = os.fork()
    if pid == 0:
        try:
            cli.main()
        except SystemExit as end:
            os._exit(end.code)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(*sorted(codes))
"""


def again_and_again(runguard: Runguard, *words: str) -> subprocess.Popen[bytes]:
    """Start runguard 200 times, one after the other, without the cost of starting Python."""
    command = [sys.executable, "-c", AGAIN_AND_AGAIN, *words]
    return subprocess.Popen(command, env=runguard.environment, stdout=subprocess.PIPE)


def codes_of(process: subprocess.Popen[bytes]) -> set[int]:
    """Return the exit codes that were seen."""
    return {int(code) for code in process.communicate(timeout=60)[0].split()}


def test_looking_makes_nobody_skip(runguard: Runguard) -> None:
    """200 runs beside 200 tests: no run is skipped because a test looked."""
    assert runguard("run", "x", "--", "true").returncode == 0
    looking = again_and_again(runguard, "test", "x")
    running = again_and_again(runguard, "run", "-n", "x", "--", "true")
    seen, ended = codes_of(looking), codes_of(running)
    assert ended == {0}
    assert seen <= {0, 75}


def test_those_who_look_do_not_see_each_other(runguard: Runguard) -> None:
    """400 tests, two at a time: none takes another one for a holder."""
    assert runguard("run", "x", "--", "true").returncode == 0
    looking = [again_and_again(runguard, "test", "x") for _ in range(2)]
    assert [codes_of(process) for process in looking] == [{0}, {0}]


# Who waits


def test_waiters_are_counted_exactly(runguard: Runguard) -> None:
    """Of eight that come at once with --max-waiters 5 exactly five wait, three skip, and the five get their turns."""
    holder = hold(runguard, "x")
    words = ("run", "-v", "-w", "60", "--max-waiters", "5", "x", "--", "true")
    came = [runguard.start(*words) for _ in range(8)]
    eventually(lambda: sum(process.poll() is not None for process in came) >= 3)
    refused = [process for process in came if process.poll() is not None]
    assert [process.returncode for process in refused] == [75, 75, 75]
    for process in refused:
        assert process.stderr
        assert b"and 5 already wait (policy wait)" in process.stderr.read()
    let_go(holder)
    assert [process.wait(30) for process in came if process not in refused] == [0] * 5


def test_a_waiter_that_was_killed_makes_room(runguard: Runguard) -> None:
    """The place of a killed waiter is free at once; one that was terminated gives its place back."""
    holder = hold(runguard, "x")
    waiters = [runguard.start("run", "-w", "60", "x", "--", "true") for _ in range(5)]

    def waiting() -> int:
        """Return how many wait: the least limit under which one more may."""
        for most in range(8):
            result = runguard("run", "-v", "-w", "0.001", "--max-waiters", str(most), "x", "--", "true")
            assert result.returncode == 75
            if b"already wait" not in result.stderr:
                return most - 1
        return 8

    eventually(lambda: waiting() == 5)
    waiters[0].send_signal(signal.SIGKILL)
    waiters[0].wait()
    assert waiting() == 4
    waiters[1].send_signal(signal.SIGTERM)
    assert waiters[1].wait(30) == 143
    assert waiting() == 3
    let_go(holder)
    assert [process.wait(30) for process in waiters[2:]] == [0, 0, 0]


def test_a_limit_of_no_waiters_is_a_skip(runguard: Runguard) -> None:
    """--max-waiters 0 never waits, but takes a lock that is free."""
    words = ("run", "-w", "60", "--max-waiters", "0", "x", "--", "true")
    assert runguard(*words).returncode == 0
    holder = hold(runguard, "x")
    assert runguard(*words).returncode == 75
    let_go(holder)


def test_waiters_that_cannot_be_counted(open_place: Path) -> None:
    """Where the count cannot be kept a wait without a limit goes on, and one with a limit is 69, naming the file."""
    need_root()
    user = nobody()
    locks = open_place / "locks"
    locks.mkdir(mode=0o700)
    (locks / "x.waiters").touch(mode=0o400)
    user.own(user.own(locks) / "x.waiters")
    where = ("-b", f"file:{locks}", "x", "--")
    command = [*user.command, "run", *where, *HOLD]
    with subprocess.Popen(command, env=user.environment, cwd="/", stdin=-1, stdout=-1) as holder:
        until_held(holder)
        assert user("run", "-w", "0.1", *where, "true").returncode == 75
        result = user("run", "-w", "0.1", "--max-waiters", "3", *where, "true")
        let_go(holder)
    assert result.returncode == 69
    assert result.stderr.decode() == (
        f"runguard: x: cannot count those who wait with {locks}/x.waiters: Bad file descriptor\n"
    )
