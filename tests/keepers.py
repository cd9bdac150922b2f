"""Looks at the processes that keep a database lock."""

from __future__ import annotations

import os
from pathlib import Path

from conftest import children

COMM = "runguard-keeper"


def comm(pid: int) -> str:
    """Return the short name of a process, an empty text for one that is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def keeper_of(guard: int) -> int | None:
    """Return the keeper that a run has started."""
    return next((pid for pid in children(guard) if comm(pid) == COMM), None)


def keepers_of_us(name: str) -> list[int]:
    """Return the keepers of a lock, whoever their parent is, by what ps(1) shows of them."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            shown = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if shown == f"{COMM}: {name}":
            found.append(pid)
    return found


def descriptors(pid: int) -> dict[int, str]:
    """Return what a process has open, by number; sockets and pipes without their inode."""
    found = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue
        found[int(link.name)] = target.partition(":[")[0]
    return found
