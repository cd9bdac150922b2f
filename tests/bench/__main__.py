"""Hand-off times, side by side: from the end of the holder's command to the start of the waiter's.

    python -m tests.bench [ROUNDS]

Prints medians, 90th percentiles and the ratio to flock(1) of the same run. Never part of pass or fail.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from servers import MariaDB, Missing, Postgres, scratch

STAMP = ["date", "+%s.%N"]  # small, so that its own start does not hide the hand-off
HOLD = ["sh", "-c", "echo held; read line; exec date +%s.%N"]
ROUNDS = 20
SETTLE_SECONDS = 0.5  # for the waiter to be asleep; not part of what is measured


def hand_off(take: list[str], wait: list[str], environment: dict[str, str]) -> float:
    """Return the seconds of one hand-off."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": environment, "text": True}
    with subprocess.Popen([*take, *HOLD], **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == "held\n"
        with subprocess.Popen([*wait, *STAMP], **pipes) as waiter:  # type: ignore[call-overload]
            time.sleep(SETTLE_SECONDS)
            holder.stdin.close()
            ended = float(holder.stdout.readline())
            started = float(waiter.stdout.readline())
    return started - ended


def candidates(directory: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return for each candidate the words that take the lock and those that wait for it."""
    file = str(Path(directory) / "flock")
    found = {"flock(1)": (["flock", file], ["flock", file])}
    runguard = [sys.executable, "-m", "runguard", "run", "-w", "60"]
    for label, url in urls().items():
        words = [*runguard, "-b", url, "bench.hand-off", "--"]
        found[label] = (words, words)
    return found


def urls() -> dict[str, str]:
    """Return the backends that can be had here."""
    found = {"file": "file:"}
    for label, server in SERVERS.items():
        found[label] = server.socket_url if isinstance(server, MariaDB) else server.url
    return found


SERVERS: dict[str, MariaDB | Postgres] = {}


def main(rounds: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as directory, scratch("m") as of_mariadb, scratch("p") as of_postgres:
        for label, make in (("mariadb", lambda: MariaDB(of_mariadb)), ("postgresql", lambda: Postgres(of_postgres))):
            try:
                SERVERS[label] = make()
            except Missing as missing:
                print(f"{label}: left out: {missing}")
        environment = {**os.environ, "RUNGUARD_LOCK_DIR": directory}
        try:
            report(candidates(directory), environment, rounds)
        finally:
            for server in SERVERS.values():
                server.stop()


def report(tools: dict[str, tuple[list[str], list[str]]], environment: dict[str, str], rounds: int) -> None:
    """Alternate between the candidates, so that a slow moment hits all of them."""
    measured: dict[str, list[float]] = {label: [] for label in tools}
    for _ in range(rounds):
        for label, (take, wait) in tools.items():
            measured[label].append(hand_off(take, wait, environment))
    reference = statistics.median(measured["flock(1)"])
    print(f"hand-off, {rounds} rounds    median     p90  ratio to flock(1)")
    for label, seconds in measured.items():
        median, p90 = statistics.median(seconds), statistics.quantiles(seconds, n=10)[-1]
        print(f"{label:22} {median * 1e3:7.1f} ms {p90 * 1e3:5.1f} ms {median / reference:6.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
