"""The directory that holds lock files: which one, and whether it is safe to use.

The choice depends on the system alone, never on a login session and never on whether making it worked:
two runs that chose differently would both run.
"""

import os
import stat

from runguard.backends.waiters import Waiters
from runguard.errors import BackendError

VARIABLE = "RUNGUARD_LOCK_DIR"
OF_ROOT = "/run/runguard"
SHARED_PARENT = "/run/lock"
UNDER_HOME = ".local/state/runguard/locks"

_OTHERS_WRITE = stat.S_IWOTH
_GROUP_WRITE = stat.S_IWGRP
_FILES_OF_OWNER = 0o600
_FILES_OF_GROUP = 0o660
_ELSEWHERE = f"name a directory of your own with {VARIABLE}"


def default() -> str:
    """Return the path of this user's lock directory; makes nothing."""
    given = os.environ.get(VARIABLE)
    if given:
        if not os.path.isabs(given):
            message = f"{VARIABLE}={given}: write an absolute path"
            raise BackendError(message)
        return os.path.normpath(given)
    user = os.geteuid()
    if user == 0:
        return OF_ROOT
    try:
        parent = os.stat(SHARED_PARENT)
        if stat.S_ISDIR(parent.st_mode) and stat.S_IMODE(parent.st_mode) == 0o1777:
            return f"{SHARED_PARENT}/runguard-{user}"
    except OSError:
        pass
    return os.path.join(_home(user), UNDER_HOME)


def prepare_default(path: str) -> int:
    """Make the default directory if it is missing, 0700 or for root 0755; return the mode for new files there."""
    mode = 0o755 if os.geteuid() == 0 and path == OF_ROOT else 0o700
    try:
        if path.endswith("/" + UNDER_HOME):
            _make_parents(os.path.dirname(path))
        _make(path, mode)
    except OSError as error:
        message = f"cannot make the lock directory {path}: {error.strerror}"
        raise BackendError(message) from None
    return check_default(path)


def _make_parents(path: str) -> None:
    if not os.path.isdir(path):
        _make_parents(os.path.dirname(path))
        _make(path, 0o700)


def _make(path: str, mode: int) -> None:
    """Make a directory with exactly this mode, whatever the umask; one that is there stays as it is."""
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    os.chmod(path, mode)


def is_missing(path: str) -> bool:
    """Say whether nobody has made a directory yet; one that cannot be seen is not missing."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def check_default(path: str) -> int:
    """Return the mode for new files in the default directory. Raises `BackendError`.

    One that nobody named must be ours alone: others can make it in /run/lock before we do.
    """
    mode = check(path)
    if os.environ.get(VARIABLE):
        return mode
    found = os.lstat(path)
    if found.st_uid != os.geteuid():
        raise _unsafe(path, f"it belongs to uid {found.st_uid}, not to uid {os.geteuid()}; {_ELSEWHERE}")
    if found.st_mode & (_GROUP_WRITE | _OTHERS_WRITE):
        raise _unsafe(path, f"others can write there (mode {stat.S_IMODE(found.st_mode):04o}): chmod go-w {path}")
    return mode


def check(path: str) -> int:
    """Return the mode for new files in a directory that somebody named.

    Ours or root's and writable by nobody else; or made for a group (setgid and group-writable) or for all
    (sticky), whose owner is trusted. Raises `BackendError` for any other.
    """
    try:
        found = os.lstat(path)
    except OSError as error:
        advice = f"make it first, for instance install -d -m 0700 {path}"
        message = f"cannot use the lock directory {path}: {error.strerror}; {advice}"
        raise BackendError(message) from None
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        raise _unsafe(path, f"it is a symbolic link; name the directory itself, {os.path.realpath(path)}")
    if not stat.S_ISDIR(found.st_mode):
        raise _unsafe(path, "it is not a directory")
    if mode & _OTHERS_WRITE and not mode & stat.S_ISVTX:
        raise _unsafe(path, f"all can write and it is not sticky (mode {mode:04o}): chmod o-w or chmod +t")
    for_group = bool(mode & _GROUP_WRITE and mode & stat.S_ISGID)
    if mode & _GROUP_WRITE and not for_group and not mode & _OTHERS_WRITE:
        raise _unsafe(path, f"its group can write and it is not setgid (mode {mode:04o}): chmod g-w or chmod g+s")
    if not for_group and not mode & _OTHERS_WRITE and found.st_uid not in {0, os.geteuid()}:
        raise _unsafe(path, f"it belongs to uid {found.st_uid}, not to root or to uid {os.geteuid()}")
    return _FILES_OF_GROUP if for_group else _FILES_OF_OWNER


def waiters_of(identity: str) -> Waiters:
    """Return the count of those on this host who wait for a lock that has no file of its own in a lock directory."""
    import hashlib

    directory = default()
    digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return Waiters(os.path.join(directory, f"{digest}.waiters"), prepare_default(directory))


def scope(path: str) -> str:
    """Say in words who shares the locks of a directory."""
    import pwd

    try:
        found = os.stat(path)
    except OSError:
        found = None
    if found and found.st_mode & _GROUP_WRITE:
        import grp

        try:
            group = grp.getgrgid(found.st_gid).gr_name
        except KeyError:
            group = str(found.st_gid)
        return "this host, every user" if found.st_mode & _OTHERS_WRITE else f"this host, group {group}"
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    return f"this host, user {user}"


def _unsafe(path: str, why: str) -> BackendError:
    return BackendError(f"cannot use the lock directory {path}: {why}")


def _home(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:
        message = f"uid {user} has no home in the password database: set {VARIABLE} to a directory for lock files"
        raise BackendError(message) from None
