"""What can be found out about a lock file: who holds it, and what it lies on. Diagnosis, never truth."""

import os

from runguard.holder import Holder

_FIELDS = ("pid", "host", "user", "since", "command")
_CONTENT_LIMIT = 4096
_SHOWN_COMMAND = 200
_NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "ceph", "afs", "lustre", "gfs2", "ocfs2")
)


def write_holder(descriptor: int, holder: Holder) -> None:
    """Write into a lock file that is ours who has it; a full disk or a read-only descriptor is no reason to stop."""
    lines = [f"{field}={_one_line(str(value))}\n" for field, value in holder.fields().items() if field in _FIELDS]
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, "".join(lines).encode("utf-8", "backslashreplace")[:_CONTENT_LIMIT], 0)
    except OSError:
        pass


def clear_holder(descriptor: int) -> None:
    """Empty a lock file that is ours, so that the next holder is not taken for us."""
    try:
        os.ftruncate(descriptor, 0)
    except OSError:
        pass


def holder(descriptor: int) -> Holder:
    """Say who holds the lock: the file's content where the kernel confirms it or knows nobody else."""
    written = _written(descriptor)
    pids = _pids(os.fstat(descriptor))
    if written.pid is not None and (not pids or written.pid in pids):
        return written
    if not pids:
        return Holder()
    pid = pids[0]
    return Holder(pid=pid, host=os.uname().nodename, command=_command_of(pid))


def names_its_holder(descriptor: int) -> bool:
    """Say whether the file names a process that the kernel knows to hold the lock."""
    return _written(descriptor).pid in _pids(os.fstat(descriptor))


def network_type(descriptor: int) -> str | None:
    """Return the type of the file system if flock(2) on it is another machine's word, None if it is local."""
    kind = file_system_type(descriptor)
    return kind if kind in _NETWORK or kind.startswith("fuse") else None


def file_system_type(descriptor: int) -> str:
    """Return the type of the file system that an open file lies on, `unknown` where it cannot be seen."""
    device = os.fstat(descriptor).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                if before.split(" ", 3)[2] == wanted:
                    return after.split(" ", 1)[0]
    except OSError:
        pass
    return "unknown"


def _written(descriptor: int) -> Holder:
    text = os.pread(descriptor, _CONTENT_LIMIT, 0).decode("utf-8", "replace")
    found = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
    pid = found.get("pid", "")
    return Holder(
        pid=int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 10 else None,
        **{field: found[field] for field in _FIELDS[1:] if field in found},
    )


def _pids(file: os.stat_result) -> list[int]:
    """Return the pids that hold an flock on a file, from /proc/locks: `1: FLOCK ADVISORY WRITE 812 fe:00:131 0 EOF`."""
    wanted = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            rows = [line.split() for line in locks]
    except OSError:
        return []
    return [int(row[4]) for row in rows if row[1] == "FLOCK" and row[5] == wanted and int(row[4]) > 0]


def _command_of(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(_SHOWN_COMMAND).rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return None
    return _one_line(os.fsdecode(words)) or None


def _one_line(text: str) -> str:
    return (
        text[:_SHOWN_COMMAND].encode("unicode_escape").decode("ascii")
        if not text.isprintable()
        else text[:_SHOWN_COMMAND]
    )
