"""The process that keeps a database lock: what it has, what it heeds, and that nobody waits for it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from claims import Holder, one_line, until_said
from conftest import COMMAND, children, end_with_children, eventually, is_alive
from keepers import comm, descriptors, keeper_of, keepers_of_us

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Runguard
    from servers import MariaDB, Postgres

STANDARD = (0, 1, 2)
HEEDED_SECONDS = 5
"""Generous beside the second that is promised, and short beside what the servers here keep silent for."""


@pytest.fixture(params=["mariadb", "postgres"])
def server(request: pytest.FixtureRequest) -> MariaDB | Postgres:
    """Return each of the servers."""
    found: MariaDB | Postgres = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a name that no other test uses."""
    return f"keeper.{abs(hash(request.node.name)):x}"


@pytest.fixture
def url(server: MariaDB | Postgres) -> str:
    """Return the server's URL over TCP."""
    return server.url


def sessions(server: MariaDB | Postgres) -> int:
    """Ask the server how many sessions of our account it has."""
    if hasattr(server, "socket_url"):
        ((count,),) = server.rows("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'rg'")
    else:
        ((count,),) = server.sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'rg'")
    return int(count)


def held_by(runguard: Runguard, url: str, name: str, **more: object) -> tuple[subprocess.Popen[bytes], int]:
    """Return a run of cat that has the lock, and its keeper."""
    process = runguard.start("run", "-b", url, name, "cat", stdin=subprocess.PIPE, **more)
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"held\n")
    process.stdin.flush()
    # What it gives back comes from cat itself, whose libraries and locale are no longer open then.
    assert process.stdout.readline() == b"held\n", process.communicate()
    keeper = keeper_of(process.pid)
    assert keeper
    return process, keeper


def families(pid: int) -> list[str]:
    """Return the kinds of a process's sockets."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(link)
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for family, column in (("unix", 6), ("tcp", 9)):
        lines = Path(f"/proc/net/{family}").read_text().splitlines()[1:]
        found += [family for line in lines if line.split()[column] in inodes]
    return found


def test_what_a_keeper_has(runguard: Runguard, url: str, name: str) -> None:
    """A session of its own, its channel, the server's connection, the command's pidfd; no stream, nothing of ours."""
    reading, writing = os.pipe()
    process, keeper = held_by(runguard, url, name, pass_fds=(writing,))
    os.close(writing)
    found = descriptors(keeper)
    assert {found.pop(number) for number in STANDARD} == {"/dev/null"}
    assert sorted(found.values()) == ["anon_inode", "socket", "socket"]
    assert sorted(families(keeper)) == ["tcp", "unix"]
    assert os.getsid(keeper) == os.getpgid(keeper) == keeper
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert os.read(reading, 1) == b""
    os.close(reading)
    assert not is_alive(keeper)


def test_a_keeper_has_nothing_above_the_limit_either(runguard: Runguard, url: str, name: str) -> None:
    """What was opened before the limit of open files was lowered is left to the command alone."""
    reading, writing = os.pipe()
    high = os.dup2(writing, 500)
    os.close(writing)
    run = ["sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *COMMAND, "run", "-b", url, name, "--"]
    process = subprocess.Popen(
        [*run, "sh", "-c", "echo held; exec cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=runguard.environment,
        pass_fds=(high,),
    )
    os.close(high)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        keeper = keeper_of(process.pid)
        assert keeper
        assert max(descriptors(keeper)) < high
        process.communicate(timeout=30)
        assert os.read(reading, 1) == b""
    finally:
        end_with_children(process)
        os.close(reading)


def test_a_keeper_needs_no_proc(runguard: Runguard, url: str, name: str) -> None:
    """Where /proc is not mounted the lock is had and given back all the same."""
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", 'umount -l /proc; exec "$@"', "sh"]
    if subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        pytest.skip("mount namespaces cannot be made here")
    run = [*words, *COMMAND, "run", "-b", url, name, "--", "sh", "-c", "exit 7"]
    for _ in range(2):
        done = subprocess.run(run, check=False, capture_output=True, env=runguard.environment, timeout=60)
        assert (done.returncode, done.stderr) == (7, b"")


def test_what_a_waiting_keeper_has(runguard: Runguard, url: str, name: str) -> None:
    """A keeper that waits has no stream either."""
    holder = Holder(runguard, url, name)
    waiter = runguard.start("run", "-v", "-b", url, "-w", "60", name, "true")
    until_said(waiter, b"waiting")
    keeper = keeper_of(waiter.pid)
    assert keeper
    found = descriptors(keeper)
    assert {found.pop(number) for number in STANDARD} == {"/dev/null"}
    assert sorted(found.values()) == ["socket", "socket"]
    assert holder.end() == (0, b"")
    assert waiter.wait(30) == 0


def test_a_keeper_can_be_told_by_its_name(runguard: Runguard, url: str, name: str) -> None:
    """ps(1) shows what it is and whose lock it has, and none of the words that runguard was given."""
    process, keeper = held_by(runguard, url, name)
    assert comm(keeper) == "runguard-keeper"
    shown = subprocess.run(["ps", "-o", "args=", "-p", str(keeper)], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == f"runguard-keeper: {name}"
    assert keepers_of_us(name) == [keeper]
    assert b"rgpass" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    process.communicate(timeout=30)


def test_signals_for_all_leave_the_keeper(runguard: Runguard, url: str, name: str) -> None:
    """What a service manager sends to every process of a unit does not end a keeper before its command."""
    process, keeper = held_by(runguard, url, name)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        os.kill(keeper, number)
    assert runguard("run", "-b", url, name, "true").returncode == 75
    assert is_alive(keeper)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, b"")
    assert not is_alive(keeper)


def test_the_command_has_nothing_of_it(runguard: Runguard, url: str, name: str) -> None:
    """The command has the streams it was given and neither socket nor session of the keeper."""
    process, keeper = held_by(runguard, url, name)
    (command,) = (pid for pid in children(process.pid) if pid != keeper)
    assert sorted(descriptors(command)) == list(STANDARD)
    assert os.getsid(command) == os.getsid(process.pid) != os.getsid(keeper)
    process.communicate(timeout=30)


def test_nobody_waits_for_a_keeper(runguard: Runguard, url: str, name: str) -> None:
    """Who reads the output to its end has it when the command ends, though a keeper is stopped and runguard killed."""
    process, keeper = held_by(runguard, url, name)
    os.kill(keeper, signal.SIGSTOP)
    process.kill()
    try:
        assert process.communicate(timeout=20) == (b"", b"")  # closes the input, which ends the command
        assert is_alive(keeper)
    finally:
        os.kill(keeper, signal.SIGCONT)
    assert eventually(lambda: not is_alive(keeper))
    assert runguard("run", "-b", url, name, "true").returncode == 0


def test_runguard_is_killed_while_it_waits(runguard: Runguard, server: MariaDB | Postgres, url: str, name: str) -> None:
    """The keeper of a run that was killed while it waited ends at once, and with it its session."""
    holder = Holder(runguard, url, name)
    before = sessions(server)
    waiter = runguard.start("run", "-v", "-b", url, "-w", "60", name, "true")
    until_said(waiter, b"waiting")
    keeper = keeper_of(waiter.pid)
    assert keeper
    waiter.kill()
    waiter.communicate(timeout=20)
    assert eventually(lambda: not is_alive(keeper))
    assert eventually(lambda: sessions(server) == before)
    assert holder.end() == (0, b"")


def test_a_keeper_that_is_killed_while_it_asks(runguard: Runguard, url: str, name: str) -> None:
    """Nothing is known about the lock then: 69, and the command does not run."""
    holder = Holder(runguard, url, name)
    waiter = runguard.start("run", "-v", "-b", url, "-w", "60", name, "echo", "ran")
    until_said(waiter, b"waiting")
    keeper = keeper_of(waiter.pid)
    assert keeper
    os.kill(keeper, signal.SIGKILL)
    out, said = waiter.communicate(timeout=20)
    assert (waiter.returncode, out) == (69, b"")
    assert f"its keeper (pid {keeper}) was killed" in one_line(said)
    assert holder.end() == (0, b"")


@pytest.mark.parametrize("ignored", [(), ("CHLD",)], ids=["plain", "SIGCHLD ignored"])
def test_a_lost_keeper_is_said_whoever_started_us(
    runguard: Runguard, url: str, name: str, ignored: tuple[str, ...]
) -> None:
    """The death of a keeper is noticed also where children are reaped by nobody."""
    launch = [sys.executable, "-S", "-E", str(Path(__file__).parents[1] / "programs" / "launch.py")]
    words = [*launch, *(f"ignore={each}" for each in ignored), "--", *COMMAND, "run", "-b", url, name, "--"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [*words, "sh", "-c", "echo held; read line; exit 7"],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=runguard.environment,
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        keeper = keeper_of(process.pid)
        assert keeper
        os.kill(keeper, signal.SIGKILL)
        until_said(process, b"the lock is lost while the command runs")
        assert process.communicate(timeout=30) == (b"", b"")
        assert process.returncode == 7
    finally:
        end_with_children(process)


class Stingy:
    """A way to a real server that hands its answers on only as a mood allows."""

    def __init__(self, target: int, mood: str) -> None:
        self._target = target
        self._mood = mood
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.spoken = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Take no more clients."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()
            with contextlib.suppress(OSError):
                while block := client.recv(65536):
                    server.sendall(block)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := server.recv(65536):
                self.spoken.set()
                if self._mood == "frozen":
                    client.sendall(block[: len(block) // 2])
                    return
                for byte in block if self._mood == "dripping" else b"":
                    client.sendall(bytes([byte]))
                    time.sleep(1)


@pytest.fixture
def stingy(server: MariaDB | Postgres) -> Iterator[Callable[[str], Stingy]]:
    """Return a way to put a stingy one in front of a server."""
    with contextlib.ExitStack() as stack:

        def make(mood: str) -> Stingy:
            made = Stingy(server.port, mood)
            stack.callback(made.close)
            return made

        yield make


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("mood", ["silent", "dripping", "frozen"])
@pytest.mark.parametrize("wait", [(), ("-w", "60")], ids=["skip", "wait"])
def test_a_signal_waits_for_no_server(
    runguard: Runguard,
    server: MariaDB | Postgres,
    url: str,
    name: str,
    stingy: Callable[[str], Stingy],
    mood: str,
    number: int,
    code: int,
    wait: tuple[str, ...],
) -> None:
    """Whatever a server does when it is to answer, TERM and INT end a run at once, and leave no session there."""
    before = sessions(server)
    way = stingy(mood)
    process = runguard.start(
        "run", "-b", url.replace(str(server.port), str(way.port)), *wait, name, "--", "echo", "ran",
        start_new_session=True,
    )  # fmt: skip
    assert way.spoken.wait(30)
    begun = time.monotonic()
    process.send_signal(number)
    out, said = process.communicate(timeout=30)
    assert time.monotonic() - begun < HEEDED_SECONDS
    assert (process.returncode, out) == (code, b"")
    assert "interrupted" in one_line(said)
    assert keepers_of_us(name) == []
    assert eventually(lambda: sessions(server) <= before)


SLOW_NAMES = """
ip link set lo up
echo 'nameserver 127.0.0.1\\noptions timeout:8 attempts:1' >"$1/resolv.conf"
mount --bind "$1/resolv.conf" /etc/resolv.conf
shift
"$PYTHON" -c "$SILENT" &
read up <"$UP"
exec "$@"
"""
SILENT = "import os, socket; s = socket.socket(type=2); s.bind(('127.0.0.1', 53)); open(os.environ['UP'], 'w').write('up\\n'); print(len(s.recv(999)), flush=True); s.recv(999)"  # noqa: E501


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("scheme", ["mariadb", "postgresql"])
def test_a_signal_waits_for_no_name(
    runguard: Runguard, name: str, tmp_path: Path, scheme: str, number: int, code: int
) -> None:
    """While a name is looked up for 8 seconds, TERM and INT end a run at once."""
    unshare = ["unshare", "--mount", "--net", "--propagation", "private"]
    if subprocess.run([*unshare, "ip", "link", "set", "lo", "up"], check=False, capture_output=True).returncode:
        pytest.skip("network namespaces cannot be made here")
    (tmp_path / "resolv.conf").touch()
    os.mkfifo(tmp_path / "up")
    run = [*COMMAND, "run", "-b", f"{scheme}://rg@db.example.test/rg", "-w", "60", name, "--", "echo", "ran"]
    more = {"PYTHON": sys.executable, "SILENT": SILENT, "UP": str(tmp_path / "up")}
    process = subprocess.Popen(
        [*unshare, "sh", "-ec", SLOW_NAMES, "sh", str(tmp_path), *run],
        env=runguard.environment | more,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    resolvers = []
    try:
        assert process.stdout
        assert int(process.stdout.readline()) > 0, "no question came"  # the look-up has begun
        resolvers = [pid for pid in children(process.pid) if comm(pid) != "runguard-keeper"]
        begun = time.monotonic()
        process.send_signal(number)
        assert process.wait(30) == code
        assert time.monotonic() - begun < HEEDED_SECONDS
        assert process.stderr
        assert "interrupted" in one_line(os.read(process.stderr.fileno(), 4096))
        assert keepers_of_us(name) == []
    finally:
        for pid in resolvers:
            os.kill(pid, signal.SIGKILL)
        end_with_children(process)
        process.communicate()


def test_a_signal_waits_for_no_release(runguard: Runguard, url: str, name: str) -> None:
    """A server that falls silent before the lock is given back does not keep a run that is to end."""
    process, keeper = held_by(runguard, url, name, start_new_session=True)
    os.kill(keeper, signal.SIGSTOP)  # as good as a server that answers nothing
    assert process.stdin
    process.stdin.close()
    assert eventually(lambda: children(process.pid) == [keeper])
    begun = time.monotonic()
    process.terminate()
    assert process.wait(30) == 0
    assert time.monotonic() - begun < HEEDED_SECONDS
    assert process.stderr
    assert b"the server gave no answer" in process.stderr.read()
    assert not is_alive(keeper)


JOURNAL = """
mkdir "$1/dev"
for node in null zero full random urandom tty; do touch "$1/dev/$node"; mount --bind "/dev/$node" "$1/dev/$node"; done
ln -s "$1/log" "$1/dev/log"
mount --rbind "$1/dev" /dev
shift
exec "$@"
"""


@pytest.mark.parametrize("log", ["read", "stalled", "missing"])
def test_an_orphan_says_what_it_does_in_syslog(
    runguard: Runguard, url: str, name: str, tmp_path: Path, log: str
) -> None:
    """A keeper without its runguard says that it goes on and that it has ended; a log that takes nothing is no harm."""
    unshare = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("mount namespaces cannot be made here")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        if log != "missing":
            journal.bind(str(tmp_path / "log"))
            journal.settimeout(20)
        if log == "stalled":
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler, contextlib.suppress(BlockingIOError):
                filler.setblocking(False)  # noqa: FBT003 - positional only
                while True:
                    filler.sendto(b"x", str(tmp_path / "log"))
        words = ["run", "-b", url, name, "--", "sh", "-c", "echo $$; exec cat"]
        process = subprocess.Popen(
            [*unshare, "sh", "-ec", JOURNAL, "sh", str(tmp_path), *COMMAND, *words],
            env=runguard.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout
        command = int(process.stdout.readline())
        keeper = keeper_of(process.pid)
        assert keeper
        process.kill()
        process.wait()
        if log == "read":
            said = journal.recv(4096).decode()
            assert said.startswith(f"<{9 * 8 + 4}>")
            assert f": {name}: runguard was killed: its command (pid {command}) goes on" in said
        assert runguard("run", "-b", url, name, "true").returncode == 75
        process.communicate()
        if log == "read":
            said = journal.recv(4096).decode()
            assert said.startswith(f"<{9 * 8 + 5}>")
            assert f": {name}: runguard was killed: its command (pid {command}) has ended" in said
        assert eventually(lambda: runguard("run", "-b", url, name, "true").returncode == 0)
        assert eventually(lambda: not is_alive(keeper))


def test_output_through_pipes_ends_with_the_command(runguard: Runguard, url: str, name: str) -> None:
    """`runguard run ... | cat` and `$(runguard run ...)` end when the command ends."""
    run = " ".join(COMMAND) + f" run -b '{url}' {name} -- echo ran"
    for line in (f"{run} | cat", f'printf "%s\\n" "$({run})"'):
        done = subprocess.run(["sh", "-c", line], check=True, capture_output=True, env=runguard.environment, timeout=30)
        assert (done.stdout, done.stderr) == (b"ran\n", b"")
