"""Messages between runguard and its keeper: whole, in order, with an open file, and an end that is noticed."""

from __future__ import annotations

import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest
from conftest import eventually
from hypothesis import given
from hypothesis import strategies as st

from runguard.holder import Holder
from runguard.keeper import channel, messages
from runguard.keeper.messages import GarbageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from runguard.keeper.channel import Channel

# Surrogates included: they stand for bytes of names that are no UTF-8.
texts = st.text(st.characters(exclude_categories=()), max_size=40)
unknown_or_text = st.none() | texts
holders = st.builds(
    Holder,
    pid=st.none() | st.integers(1, 1 << 22),
    host=unknown_or_text,
    user=unknown_or_text,
    since=unknown_or_text,
    command=unknown_or_text,
    session=unknown_or_text,
)
SENTENCES = (messages.Overheard, messages.Unreachable, messages.Hint, messages.Lost, messages.Bug)
without_descriptor = st.one_of(
    st.builds(messages.Acquire, st.none() | st.floats(0, allow_nan=False)),
    st.builds(messages.Broken, texts, texts),
    st.sampled_from([messages.Release(), messages.Acquired(), messages.Released()]),
    *(st.builds(kind, texts) for kind in SENTENCES),
    *(st.builds(kind, holders) for kind in (messages.Waiting, messages.Refused)),
)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Return both ends."""
    one, other = channel.pair()
    yield one, other
    one.close()
    other.close()


@given(st.lists(without_descriptor, max_size=5))
def test_messages_arrive_whole_and_in_order(said: list[messages.Message]) -> None:
    """Every kind of message comes back as it was sent, one at a time, and then the end of who said it."""
    one, other = channel.pair()
    for message in said:
        assert one.send(message)
    assert [other.receive(0) for _ in said] == said
    assert other.receive(0) is None
    one.close()
    with pytest.raises(EOFError):
        other.receive(None)
    other.close()


def test_every_kind_of_message_is_tried() -> None:
    """A kind that is added to the protocol is added to the test above."""
    tried = {messages.Acquire, messages.Broken, messages.Release, messages.Acquired, messages.Released, *SENTENCES}
    kinds = {kind for kind in vars(messages).values() if isinstance(kind, type) and issubclass(kind, messages.Message)}
    public = {kind for kind in kinds if not kind.__name__.startswith("_")} - {messages.Message}
    assert public == tried | {messages.Waiting, messages.Refused, messages.Watch}


def test_the_process_to_watch_goes_with_its_message(ends: tuple[Channel, Channel]) -> None:
    """The other end gets a descriptor of the same process, which no command inherits."""
    one, other = ends
    pidfd = os.pidfd_open(os.getpid())
    assert one.send(messages.Watch(os.getpid(), pidfd))
    os.close(pidfd)
    message = other.receive(1)
    assert isinstance(message, messages.Watch)
    assert message.pid == os.getpid()
    signal.pidfd_send_signal(message.pidfd, 0)
    assert not os.get_inheritable(message.pidfd)
    os.close(message.pidfd)


def test_what_was_said_outlives_who_said_it(ends: tuple[Channel, Channel]) -> None:
    """The last messages of an end that is gone are read, also if it went without having read ours."""
    one, other = ends
    assert other.send(messages.Hint("never read"))
    assert one.send(messages.Acquire(1.5))
    assert one.send(messages.Release())
    one.close()
    assert other.receive(None) == messages.Acquire(1.5)
    assert other.receive(None) == messages.Release()
    with pytest.raises(EOFError):
        other.receive(None)


def test_nobody_waits_for_a_reader(ends: tuple[Channel, Channel]) -> None:
    """A full queue, or an end that is gone, is said by False and costs no time."""
    one, other = ends
    begun = time.monotonic()
    while one.send(messages.Hint("y" * 4000)):
        assert time.monotonic() - begun < 30
    other.close()
    assert not one.send(messages.Release())


@pytest.mark.parametrize("letter", ["x", "\udcff", "\U0001f512"])
def test_the_longest_holder(ends: tuple[Channel, Channel], letter: str) -> None:
    """What a server or a file says may be long: each text is cut to what a person reads, and none is lost."""
    one, other = ends
    long = letter * 1_000_000
    holder = Holder(pid=1 << 22, host=long, user=long, since=long, command=long, session=long)
    assert one.send(messages.Refused(holder))
    message = other.receive(1)
    assert isinstance(message, messages.Refused)
    assert message.holder.pid == 1 << 22
    lengths = {len(str(message.holder.fields()[name])) for name in ("host", "user", "since", "command", "session")}
    assert lengths == {4096}


@given(
    st.binary(min_size=1, max_size=60)
    | st.builds(lambda m, t: messages.encoded(m) + t, without_descriptor, st.binary(min_size=1))
)
def test_garbage_is_said(data: bytes) -> None:
    """Bytes of any kind are a message or `GarbageError`, never a hang and no other error."""
    try:
        assert isinstance(messages.decoded(data), messages.Message)
    except GarbageError:
        pass


@pytest.mark.parametrize(
    "data",
    [
        b"?",
        b"Watch",
        b"Watch\xff12",
        b"Acquire\xffsoon",
        b"Release\xffmore",
        b"Refused\xffx",
        b"Hint\xff\xfe",
        b"Message",
    ],
)
def test_garbage_on_the_socket_is_said_at_once(data: bytes) -> None:
    """An unknown word, a missing or wrong field, and a process without its descriptor are said, and not waited for."""
    raw, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiver = channel.Channel(end)
    with raw:
        raw.send(data)
        with pytest.raises(GarbageError, match="keeper"):
            receiver.receive(None)
        assert receiver.receive(0) is None
    receiver.close()


def test_descriptors_of_garbage_are_closed() -> None:
    """A file that came with a message which takes none does not stay open."""
    raw, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiver = channel.Channel(end)
    reading, writing = os.pipe()
    with raw:
        socket.send_fds(raw, [b"Release"], [writing])
        os.close(writing)
        with pytest.raises(GarbageError):
            receiver.receive(None)
        assert os.read(reading, 1) == b""
    os.close(reading)
    receiver.close()


def test_a_message_that_is_cut_is_garbage() -> None:
    """More than is ever sent does not fit, and is not taken for a shorter message."""
    raw, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    receiver = channel.Channel(end)
    with raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        raw.send(b"Hint\xff" + b"x" * 300_000)
        with pytest.raises(GarbageError):
            receiver.receive(None)
    receiver.close()


def test_the_end_of_a_peer_raises_a_signal_when_wanted(ends: tuple[Channel, Channel]) -> None:
    """SIGIO comes with the end of the other side, and not before it was asked for, nor after it is not any more."""
    one, other = ends
    seen: list[int] = []
    before = signal.signal(channel.SIGNAL, lambda number, _: seen.append(number))
    try:
        other.send(messages.Hint("unheard"))
        assert one.receive(1)
        one.end_with_peer(wanted=True)
        one.end_with_peer(wanted=False)
        other.send(messages.Hint("unheard"))
        assert one.receive(1)
        assert seen == []
        one.end_with_peer(wanted=True)
        other.close()
        assert eventually(lambda: seen)
    finally:
        signal.signal(channel.SIGNAL, before)
