"""Opening a lock file so that no trick with links, devices or masks can turn it into another file."""

import errno
import fcntl
import os
import stat

from runguard.errors import BackendError

_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_TRIES = 100
_HIGH = 100
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_existing(path: str) -> int | None:
    """Open a lock file that is there; None if it is not. Raises `BackendError`."""
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(path, error) from None
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind != stat.S_IFREG:
        os.close(descriptor)
        raise _not_regular(path, kind)
    return _moved_up(descriptor)


def open_or_create(path: str, mode: int) -> int:
    """Open a lock file, made with exactly `mode` if it is missing. Raises `BackendError`.

    Two steps, not one O_CREAT: fs.protected_regular refuses O_CREAT on another user's file in a sticky directory.
    """
    for _ in range(_TRIES):
        descriptor = open_existing(path)
        if descriptor is not None:
            return descriptor
        try:
            descriptor = os.open(path, _FLAGS | os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue
        except OSError as error:
            raise _refusal(path, error) from None
        try:
            os.fchmod(descriptor, mode)
        except OSError as error:  # a file system without modes
            os.close(descriptor)
            raise _refusal(path, error) from None
        return _moved_up(descriptor)
    message = f"cannot open the lock file {path}: it keeps appearing and vanishing"
    raise BackendError(message)


def is_current(descriptor: int, path: str) -> bool:
    """Say whether the path still names the open file."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _open(path: str) -> int:
    """Open for reading and writing, which flock(2) over NFS needs; for reading where the mode allows no more."""
    try:
        return os.open(path, _FLAGS | os.O_RDWR)
    except PermissionError as refused:
        try:
            return os.open(path, _FLAGS | os.O_RDONLY)
        except OSError:
            raise refused from None


def _moved_up(descriptor: int) -> int:
    """Move the descriptor out of the way of scripts, which number theirs from 3 up (`exec 9>file`)."""
    try:
        high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    except OSError:  # a limit of fewer descriptors
        return descriptor
    os.close(descriptor)
    return high


def _refusal(path: str, error: OSError) -> BackendError:
    if error.errno == errno.ELOOP:
        return BackendError(f"cannot open the lock file {path}: it is a symbolic link; name the file itself")
    if error.errno == errno.EISDIR:
        return _not_regular(path, stat.S_IFDIR)
    if error.errno in {errno.ENXIO, errno.ENODEV}:
        return _not_regular(path, 0)
    return BackendError(f"cannot open the lock file {path}: {error.strerror}{_owner(path)}{_advice(path, error)}")


def _not_regular(path: str, kind: int) -> BackendError:
    found = _KINDS.get(kind, "a special file")
    return BackendError(f"cannot open the lock file {path}: it is {found}, not a regular file")


def _owner(path: str) -> str:
    """Say whose file it is and its mode, in parentheses; nothing if that cannot be seen."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return ""
    import pwd

    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        owner = str(found.st_uid)
    return f" (owner {owner}, mode {stat.S_IMODE(found.st_mode):04o})"


def _advice(path: str, error: OSError) -> str:
    directory = os.path.dirname(path)
    return {
        errno.ENOENT: f"; make the directory {directory} first",
        errno.ENOSPC: f"; free space or inodes on the file system of {directory}",
        errno.EROFS: "; name a lock file on a writable file system",
    }.get(error.errno or 0, "")
