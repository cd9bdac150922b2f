"""Kill runguard again and again at a random moment of its start, and see whether two commands are ever alive together.

    python -m tests.chaos [ROUNDS]

A round: a run is killed with SIGKILL somewhere in its first 300 ms, and at once a second run waits for the lock. Two
witnesses: a directory that exists while a command is inside, and stamps of CLOCK_BOOTTIME. Kills only what it started.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from servers import MariaDB, Missing, Postgres, scratch

ROUNDS = 100
FIRST_SECONDS = 0.3
GENEROUS_SECONDS = 60

INSIDE = """
import os, sys, time
room, log = sys.argv[1:]
enter = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
try:
    os.mkdir(room)
except FileExistsError:
    os.write(os.open(log + '.two', os.O_WRONLY | os.O_CREAT, 0o600), b'two inside')
    sys.exit(99)
time.sleep(0.4)
os.rmdir(room)
line = f'{enter} {time.clock_gettime_ns(time.CLOCK_BOOTTIME)}\\n'.encode()
os.write(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), line)
"""


def rounds(url: str, directory: Path, count: int) -> str:
    """Return what became of so many rounds; `AssertionError` where two were inside."""
    room, log = directory / "room", directory / "log"
    locks = directory / "locks"
    locks.mkdir(mode=0o700)
    environment = os.environ | {"RUNGUARD_LOCK_DIR": str(locks), "HOME": str(directory)}
    run = [sys.executable, "-m", "runguard", "run", "-b", url]
    command = ["chaos.kill", "--", sys.executable, "-S", "-E", "-c", INSIDE, str(room), str(log)]
    quiet = {"env": environment, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    started = 0
    for _ in range(count):
        before = entered(log)
        first = subprocess.Popen([*run, *command], stderr=subprocess.DEVNULL, start_new_session=True, **quiet)  # type: ignore[call-overload]
        time.sleep(random.uniform(0, FIRST_SECONDS))
        first.kill()
        first.wait()
        second = subprocess.run([*run, "-w", str(GENEROUS_SECONDS), *command], check=False, **quiet)  # type: ignore[call-overload]
        assert second.returncode == 0, second.returncode
        assert not log.with_name("log.two").exists(), "two commands were alive, says the room"
        started += entered(log) - before - 1
    stays = sorted(tuple(map(int, line.split())) for line in log.read_text().splitlines())
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(stays)), "two were alive, say the stamps"
    assert not room.exists()
    return f"{count} rounds, {started} commands outlived their runguard, 0 overlaps by two witnesses"


def entered(log: Path) -> int:
    """Return how many commands have been inside."""
    return len(log.read_text().splitlines()) if log.exists() else 0


def main() -> None:
    """Try each backend that can be had here."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    for label, kind in (("file", None), ("mariadb", MariaDB), ("postgresql", Postgres)):
        with tempfile.TemporaryDirectory() as directory, scratch("c") as place:
            try:
                server = kind(place) if kind else None
            except Missing as missing:
                print(f"{label}: {missing}")
                continue
            try:
                print(f"{label}: {rounds(server.url if server else 'file:', Path(directory), count)}", flush=True)
            finally:
                if server:
                    server.stop()


if __name__ == "__main__":
    main()
