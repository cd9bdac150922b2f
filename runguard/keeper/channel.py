"""A pair of sockets between runguard and its keeper: messages whole and in order, and an end that both notice."""

import fcntl
import os
import select
import signal
import socket

from runguard.keeper import messages
from runguard.keeper.messages import GarbageError, Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runguard.keeper.messages import Message

_LARGEST = 1 << 18
_MOST_DESCRIPTORS = 4


class Channel:
    """One end; it is close-on-exec."""

    def __init__(self, end: socket.socket) -> None:
        # Not by flags of each call: send_fds() and recv_fds() of Python 3.11 do not hand them on.
        end.settimeout(0)
        self._socket = end

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def send(self, message: "Message") -> bool:
        """Send a message; False if the other end is gone or does not read. Never waits."""
        descriptors = [message.pidfd] if isinstance(message, Watch) else []
        try:
            socket.send_fds(self._socket, [messages.encoded(message)], descriptors)
        except OSError:
            return False
        return True

    def receive(self, seconds: float | None) -> "Message | None":
        """Return the next message, None if none came in time.

        Raises `EOFError` when the other end is gone and all that it said is read, `GarbageError` for what is no
        message.
        """
        if not self.has_news(seconds):
            return None
        try:
            data, descriptors, flags = self._receive()
        except ConnectionResetError:
            # The other end went with unread messages of ours; the kernel says so before it gives us its last ones.
            data, descriptors, flags = self._receive()
        if not data:
            raise EOFError
        try:
            return _whole(data, descriptors, cut=bool(flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC)))
        except GarbageError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def has_news(self, seconds: float | None) -> bool:
        """Wait until there is a message, or the other end is gone, for so many seconds at most."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(None if seconds is None else seconds * 1000))

    def end_with_peer(self, *, wanted: bool) -> None:
        """Have the kernel send SIGIO, which ends a process that does not expect it, when the other end goes or speaks.

        A driver, or the resolver of names, may not come back to look for itself.
        """
        fcntl.fcntl(self._socket, fcntl.F_SETOWN, os.getpid())
        flags = fcntl.fcntl(self._socket, fcntl.F_GETFL)
        fcntl.fcntl(self._socket, fcntl.F_SETFL, flags | os.O_ASYNC if wanted else flags & ~os.O_ASYNC)

    def close(self) -> None:
        """Let the other end know that we are gone."""
        self._socket.close()

    def _receive(self) -> "tuple[bytes, list[int], int]":
        data, descriptors, flags, _ = socket.recv_fds(self._socket, _LARGEST, _MOST_DESCRIPTORS)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)  # noqa: FBT003 - positional only
        return data, descriptors, flags


def _whole(data: bytes, descriptors: "list[int]", *, cut: bool) -> "Message":
    message = messages.decoded(data)
    if cut or len(descriptors) != isinstance(message, Watch):
        text = f"a message between runguard and its keeper is not whole: {data[:80]!r}"
        raise GarbageError(text)
    if isinstance(message, Watch):
        (message.pidfd,) = descriptors
    return message


def pair() -> tuple[Channel, Channel]:
    """Return two ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Channel(ours), Channel(theirs)


SIGNAL = signal.SIGIO
"""What `Channel.end_with_peer` has sent."""
