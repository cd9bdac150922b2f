"""The command as it is started: in a process group of its own or in our terminal's, or in our place."""

import errno
import os
import signal

from runguard import executable, exits
from runguard.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from runguard.watch import Signals, Tell, Tether


class Command:
    """What the user gave: words as bytes, and the whole environment the command will see."""

    __slots__ = ("environment", "words")

    def __init__(self, words: "list[bytes]", environment: "dict[bytes, bytes]") -> None:
        self.words = words
        self.environment = environment


def run(command: Command, signals: "Signals", *, tether: "Tether", kill_after: float, tell: "Tell") -> int:
    """Run the command to its end and return its exit code, or 128+N for signal N.

    `kill_after` is how many seconds the rest of its process group has once a forwarded signal has ended it. `tell`
    takes a level, a word and a sentence. Raises `CannotRun`, and what the announcement to `tether` raises.
    """
    if tether.descriptor is not None:
        os.set_inheritable(tether.descriptor, True)  # noqa: FBT003 - positional only
    own_group = not _has_terminal()
    if signals.child_ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def execute(path: bytes, words: "list[bytes]") -> int:
        program = _Program(path, words, command.environment)
        return _fork(program, signals, tether.announce, own_group=own_group)

    pid = _first_that_runs(command, execute)
    return Watch(pid, signals, tether, own_group=own_group, tell=tell).until_end(kill_after)


def replace(command: Command, signals: "Signals", *, inherit: int | None) -> "NoReturn":
    """Turn this process into the command. Raises `CannotRun`."""
    if inherit is not None:
        os.set_inheritable(inherit, True)  # noqa: FBT003 - positional only
    signals.restore()

    def execute(path: bytes, words: "list[bytes]") -> int:
        os.execve(path, words, command.environment)  # noqa: S606 - no shell is the point

    _first_that_runs(command, execute)
    raise AssertionError


def _first_that_runs(command: Command, execute: "Callable[[bytes, list[bytes]], int]") -> int:
    """Try the paths that may be meant, as a shell does; a script without `#!` is run by /bin/sh."""
    failure = None
    for path in executable.candidates(command.words[0], command.environment):
        try:
            return execute(path, command.words)
        except OSError as error:
            if error.errno == errno.ENOEXEC and executable.is_script(path):
                script = b"./" + path if path.startswith(b"-") else path
                return execute(executable.SHELL, [executable.SHELL, script, *command.words[1:]])
            failure = failure or executable.refusal(path, error)
            if error.errno not in {errno.EACCES, errno.ENOENT, errno.ENOTDIR}:
                break
    raise failure or AssertionError


class _Program:
    """What execve(2) takes."""

    __slots__ = ("environment", "path", "words")

    def __init__(self, path: bytes, words: "list[bytes]", environment: "dict[bytes, bytes]") -> None:
        self.path = path
        self.words = words
        self.environment = environment


def _fork(program: _Program, signals: "Signals", announce: "Callable[[int], None] | None", *, own_group: bool) -> int:
    """Start the command and return its pid once it is executed. Raises `OSError`, and what `announce` raises.

    It is executed only after it was announced: a process that nobody knows of, since we were killed, ends by itself.
    Not posix_spawn(3): it cannot leave SIGCHLD ignored, and glibc's leaves signals 32 and 33 ignored.
    """
    failed, failing = os.pipe()
    go, going = os.pipe() if announce else (-1, -1)
    pid = os.fork()
    if pid == 0:
        if announce:
            os.close(going)
        _become(program, signals, go, failing, own_group=own_group)
    os.close(failing)
    with open(failed, "rb") as report:
        if announce:
            os.close(go)
            _let_go(pid, going, announce)
        code = int(report.read() or 0)
    if code:
        os.waitpid(pid, 0)
        raise OSError(code, os.strerror(code))
    return pid


def _let_go(pid: int, going: int, announce: "Callable[[int], None]") -> None:
    """Announce a process, and give it the word to become the command; without it, it ends."""
    try:
        announce(pid)
        os.write(going, b"!")
    except BrokenPipeError:
        pass  # it was killed already, which its status tells
    except BaseException:
        os.close(going)
        os.waitpid(pid, 0)
        raise
    os.close(going)


def _become(program: _Program, signals: "Signals", go: int, failing: int, *, own_group: bool) -> "NoReturn":
    """Turn a forked process into the command, after a word if one is to come; tell why not by an error's number."""
    try:
        if own_group:
            os.setpgid(0, 0)
        if go < 0 or os.read(go, 1):
            signals.restore()
            os.execve(program.path, program.words, program.environment)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(failing, str(error.errno).encode())
    except ValueError:  # words or an environment that no execve(2) takes
        os.write(failing, str(errno.EINVAL).encode())
    finally:
        os._exit(exits.NOT_FOUND)


def _has_terminal() -> bool:
    """Say whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
