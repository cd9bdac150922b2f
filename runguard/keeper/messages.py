"""What runguard and its keeper say to each other, as values, and as bytes. Knows no socket."""

from runguard.holder import Holder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Texts = list[str | None]

_BETWEEN, _NOTHING = b"\xff", b"\xfe"
"""Neither stands in UTF-8, so that no text needs an escape."""

_LONGEST = 4096
_HOLDER = ("pid", "host", "user", "since", "command", "session")


class GarbageError(Exception):
    """What came is no message: a bug in runguard."""


def _present(text: str | None) -> str:
    if text is None:
        raise ValueError(text)
    return text


def _number(text: str | None) -> int:
    return int(_present(text))


def _moment(text: str | None) -> float | None:
    return None if text is None else float(text)


class Message:
    """Something said; a kind that says no more than its name has no fields."""

    __slots__ = ()
    fields: "tuple[tuple[str, Callable[[str | None], object]], ...]" = ()
    """What is sent, by name, and how its text is read; in the order of the constructor."""

    def texts(self) -> "Texts":
        """Return the fields as they are sent."""
        values = (getattr(self, name) for name, _ in self.fields)
        return [None if value is None else str(value) for value in values]

    @classmethod
    def of(cls, texts: "Texts") -> "Message":
        """Return the value of fields as they were sent. Raises `ValueError`."""
        return cls(*(read(text) for (_, read), text in zip(cls.fields, texts, strict=True)))

    def __eq__(self, other: object) -> bool:
        """Compare kind and fields."""
        return type(other) is type(self) and other.texts() == self.texts()

    def __hash__(self) -> int:
        """Return a hash that fits the comparison."""
        return hash((type(self), *self.texts()))


class _Sentence(Message):
    __slots__ = ("text",)
    fields = (("text", _present),)

    def __init__(self, text: str) -> None:
        self.text = text


class _AboutHolder(Message):
    __slots__ = ("holder",)

    def __init__(self, holder: Holder) -> None:
        self.holder = holder

    def texts(self) -> "Texts":
        values = (getattr(self.holder, name) for name in _HOLDER)
        return [None if value is None else str(value) for value in values]

    @classmethod
    def of(cls, texts: "Texts") -> "Message":
        pid, host, user, since, command, session = texts
        number = None if pid is None else int(pid)
        return cls(Holder(pid=number, host=host, user=user, since=since, command=command, session=session))


class Acquire(Message):
    """To the keeper: take the lock, and ask until this moment of CLOCK_BOOTTIME; None is for as long as it takes."""

    __slots__ = ("until",)
    fields = (("until", _moment),)

    def __init__(self, until: float | None) -> None:
        self.until = until


class Watch(Message):
    """To the keeper: this process is to become the command. Its pidfd goes with the message."""

    __slots__ = ("pid", "pidfd")
    fields = (("pid", _number),)

    def __init__(self, pid: int, pidfd: int = -1) -> None:
        self.pid = pid
        self.pidfd = pidfd


class Release(Message):
    """To the keeper: the command has ended, give the lock back."""

    __slots__ = ()


class Overheard(_Sentence):
    """From the keeper: what a driver wrote to standard error by itself."""

    __slots__ = ()


class Waiting(_AboutHolder):
    """From the keeper: the lock is busy and will be waited for."""

    __slots__ = ()


class Unreachable(_Sentence):
    """From the keeper: the server does not answer and will be asked again."""

    __slots__ = ()


class Hint(_Sentence):
    """From the keeper, before `Acquired`: what an operator should know about the lock."""

    __slots__ = ()


class Acquired(Message):
    """From the keeper: the lock is ours."""

    __slots__ = ()


class Refused(_AboutHolder):
    """From the keeper: the lock is busy, and there is no more time to wait."""

    __slots__ = ()


class Broken(Message):
    """From the keeper: the lock cannot be asked for. `kind` is the class of the error."""

    __slots__ = ("kind", "reason")
    fields = (("kind", _present), ("reason", _present))

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason


class Lost(_Sentence):
    """From the keeper: the lock was lost before it was given back."""

    __slots__ = ()


class Released(Message):
    """From the keeper: the lock is given back."""

    __slots__ = ()


class Bug(_Sentence):
    """From the keeper: it fails, and that is a bug in runguard."""

    __slots__ = ()


_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        *(Acquire, Watch, Release),
        *(Overheard, Waiting, Unreachable, Hint, Acquired, Refused, Broken, Lost, Released, Bug),
    )
}


def encoded(message: Message) -> bytes:
    """Return a message as bytes; a text that nobody would read to its end is cut."""
    return _BETWEEN.join(_bytes(text) for text in (type(message).__name__, *message.texts()))


def decoded(data: bytes) -> Message:
    """Return the message of bytes. Raises `GarbageError`."""
    name, *fields = data.split(_BETWEEN)
    try:
        return _KINDS[name.decode()].of([_text(field) for field in fields])
    except (KeyError, ValueError):
        message = f"no message between runguard and its keeper: {data[:80]!r}"
        raise GarbageError(message) from None


def _bytes(text: str | None) -> bytes:
    # Texts may come from names that are no UTF-8, as Python decodes them.
    return _NOTHING if text is None else text[:_LONGEST].encode("utf-8", "surrogatepass")


def _text(field: bytes) -> str | None:
    return None if field == _NOTHING else field.decode("utf-8", "surrogatepass")
