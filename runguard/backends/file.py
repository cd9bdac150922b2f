"""A lock file and flock(2): one host, cooperating processes that see this file.

The file is never truncated before it is ours and never unlinked: a second file at the same path would be a second lock.
Its content is diagnosis; only flock(2) tells the truth.
"""

import errno
import fcntl
import os
import stat
import time

from runguard.backends import flockwait, lockdir, lockfacts, lockfile
from runguard.backends.base import Busy, Deadline, Identity
from runguard.backends.waiters import Waiters
from runguard.errors import BackendError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from runguard.backends.base import OnWait, Target

_PAUSES = (0.003, 0.01, 0.03)
"""A probe lasts for microseconds, but for milliseconds where it loses the processor in the middle."""

_FOREIGN_MODE = 0o600


def lock(target: "Target") -> "FileLock":
    """Return the lock file of a NAME, or the one that `key` names."""
    return FileLock(target)


class FileLock:
    """The lock of one file. A foreign one (its path was given) is taken as it is and keeps its content."""

    def __init__(self, target: "Target") -> None:
        self._holder = target.holder
        self._operation = fcntl.LOCK_SH if target.shared else fcntl.LOCK_EX
        self._chosen = _directory(target.url)
        if self._chosen and target.key is not None:
            message = f"--key names the lock file itself: leave the directory out of the backend {target.url!a}"
            raise UsageError(message)
        self._foreign = target.key is not None
        if target.key:
            self.path = _absolute(target.key)
            self._directory = os.path.dirname(self.path)
        else:
            self._directory = self._chosen or lockdir.default()
            self.path = os.path.join(self._directory, f"{target.name}.lock")

    def acquire(self, *, wait: float | None, on_wait: "OnWait") -> "HeldFile | Busy":
        """Take the lock; who waits is asleep in the kernel and has it as soon as it is free."""
        deadline = Deadline(wait)
        mode = self._file_mode()
        waiting = False
        while True:
            descriptor = lockfile.open_or_create(self.path, mode)
            held = False
            try:
                if not _persist(self._take_now, descriptor):
                    busy = self._busy(descriptor)
                    waiting = waiting or (wait != 0 and on_wait(busy))
                    if not waiting:
                        return busy
                    if not flockwait.take_before(descriptor, self._operation, deadline):
                        return self._busy(descriptor)
                held = lockfile.is_current(descriptor, self.path)
                if held:
                    return self._held(descriptor)
            except OSError as error:
                raise self._cannot_lock(descriptor, error) from None
            finally:
                if not held:
                    os.close(descriptor)

    def probe(self) -> "Busy | None":
        """Take the lock for microseconds, as often as `acquire` tries."""
        if not self._foreign and not self._chosen and lockdir.is_missing(self._directory):
            return None
        if not self._foreign:
            (lockdir.check if self._chosen else lockdir.check_default)(self._directory)
        descriptor = lockfile.open_existing(self.path)
        if descriptor is None:
            return None
        try:
            free = _persist(_is_free, descriptor)
            return None if free else self._busy(descriptor)
        except OSError as error:
            raise self._cannot_lock(descriptor, error) from None
        finally:
            os.close(descriptor)

    def identity(self) -> Identity:
        """Return the path, and lines for flock(1) and PHP."""
        for_shell = self.path.replace("'", "'\\''")
        for_php = self.path.replace("\\", "\\\\").replace("'", "\\'")
        shell = f"flock -n '{for_shell}' COMMAND"
        php = f"$lock = fopen('{for_php}', 'c'); $mine = flock($lock, LOCK_EX | LOCK_NB);"
        scope = "processes of this host that lock this file" if self._foreign else lockdir.scope(self._directory)
        return Identity("file", self.path, scope, (shell, php))

    def waiters(self) -> Waiters:
        """Return the count of those who wait for this file on this host."""
        if self._foreign:
            return lockdir.waiters_of(self.path)
        return Waiters(self.path.removesuffix(".lock") + ".waiters", self._file_mode())

    def _file_mode(self) -> int:
        """Return the mode of a new lock file, after the directory was found safe."""
        if self._foreign:
            return _FOREIGN_MODE
        return lockdir.check(self._directory) if self._chosen else lockdir.prepare_default(self._directory)

    def _take_now(self, descriptor: int) -> bool:
        return flockwait.take_now(descriptor, self._operation)

    def _busy(self, descriptor: int) -> Busy:
        return Busy(lockfacts.holder(descriptor))

    def _held(self, descriptor: int) -> "HeldFile":
        ours = not self._foreign and self._operation == fcntl.LOCK_EX
        if ours:
            lockfacts.write_holder(descriptor, self._holder)
        return HeldFile(descriptor, self.path, clear=ours)

    def _cannot_lock(self, descriptor: int, error: OSError) -> BackendError:
        kind = lockfacts.file_system_type(descriptor)
        advice = (
            "; name a lock directory on a local file system"
            if error.errno in {errno.ENOLCK, errno.ENOTSUP, errno.EBADF}
            else ""
        )
        return BackendError(f"cannot lock {self.path} (file system {kind}): {error.strerror}{advice}")


class HeldFile:
    """A lock file that is locked; a command that inherits the descriptor keeps the lock if we are killed."""

    def __init__(self, descriptor: int, path: str, *, clear: bool) -> None:
        self.descriptor: int | None = descriptor
        self.announce = None  # the command inherits the lock, and nobody has to hear of it
        self._path = path
        self._clear = clear

    def hints(self) -> list[str]:
        """Say if the lock may reach less far, or be in reach of more people, than one would think."""
        if self.descriptor is None:
            return []
        said = []
        kind = lockfacts.network_type(self.descriptor)
        if kind:
            said.append(f"{self._path} lies on {kind}: whether other hosts are excluded depends on that file system")
        mode = stat.S_IMODE(os.fstat(self.descriptor).st_mode)
        if mode & stat.S_IROTH and _reachable_by_others(os.path.dirname(self._path)):
            said.append(
                f"every user can open {self._path} (mode {mode:04o}) and hold the lock: chmod o-rwx {self._path}"
            )
        return said

    def loss(self) -> str | None:
        """Nothing to say: a file lock is not lost."""
        return None

    def release(self) -> str | None:
        """Unlock, also for a daemon that inherited the descriptor. A file lock is not lost before."""
        if self.descriptor is None:
            return None
        if self._clear:
            lockfacts.clear_holder(self.descriptor)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        except OSError:
            pass  # closing gives it back too, unless a daemon has the file
        os.close(self.descriptor)
        self.descriptor = None
        return None


def _directory(url: str) -> str | None:
    """Return the directory that a `file:` URL names, None for the default one."""
    path = url.partition(":")[2]
    path = path.removeprefix("//")
    if not path:
        return None
    if not path.startswith("/"):
        message = f"backend {url!a}: write file: for the default directory, or file: and an absolute path"
        raise UsageError(message)
    return os.path.normpath(path)


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        message = f"cannot open the lock file {path}: the working directory is gone; write an absolute path"
        raise BackendError(message) from None


def _persist(attempt: "Callable[[int], bool]", descriptor: int) -> bool:
    """Make an attempt, and make it again after the moments for which a probe may have had the lock.

    A run that the file names and the kernel confirms is no probe. The pauses are uneven, so that those that came at the
    same time do not come at the same time again.
    """
    for pause in _PAUSES:
        if attempt(descriptor):
            return True
        if lockfacts.names_its_holder(descriptor):
            return False
        time.sleep(pause * (0.75 + os.urandom(1)[0] / 512))
    return attempt(descriptor)


def _is_free(descriptor: int) -> bool:
    """Say whether the lock is to be had, in one attempt: shared, so that probes rarely see each other; then exclusive.

    The latter sees sharers.
    """
    if not flockwait.take_now(descriptor, fcntl.LOCK_SH):
        return False
    if flockwait.take_now(descriptor, fcntl.LOCK_EX):
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def _reachable_by_others(directory: str) -> bool:
    try:
        return bool(os.stat(directory).st_mode & stat.S_IXOTH)
    except OSError:
        return False
