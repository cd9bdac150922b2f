"""What a busy lock means: skip at once, or wait with a limit."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runguard.options import Value


class Skip:
    """Do not run when somebody else does."""

    __slots__ = ()
    word = "skip"
    limit: float | None = 0.0


class Wait:
    """Wait for the lock; `limit` in seconds, None for ever."""

    __slots__ = ("limit",)
    word = "wait"

    def __init__(self, limit: float | None) -> None:
        self.limit = limit


Policy = Skip | Wait


class PolicyError(ValueError):
    """The settings ask for two policies, or for half of one; `level` is the index of the level to blame."""

    def __init__(self, level: int, message: str) -> None:
        super().__init__(message)
        self.level = level


def decide(levels: "Sequence[Mapping[str, Value]]") -> "tuple[Policy, int | None]":
    """Choose the policy from levels of settings, strongest first, and say which level named it.

    A level names a policy by `nonblock`, `wait` or `on-conflict`; the first that names one decides.
    `on-conflict wait` may take its limit from a weaker level. None: nobody named one.
    """
    settled = False
    for index, level in enumerate(levels):
        word = _named(level, index, nonblock=not settled and bool(level.get("nonblock")))
        # `nonblock = false` takes back what a weaker level says.
        settled = settled or "nonblock" in level
        if word == Skip.word:
            return Skip(), index
        if word == Wait.word:
            for weaker in levels[index:]:
                if "wait" in weaker:
                    return Wait(_seconds(weaker["wait"])), index
            raise PolicyError(index, "on-conflict wait needs a limit: add --wait DURATION (or --wait forever)")
    return Skip(), None


def _named(level: "Mapping[str, Value]", index: int, *, nonblock: bool) -> str | None:
    """Return the word of the policy that one level names; raises `PolicyError` if it names two."""
    named = {}
    if nonblock:
        named["nonblock"] = Skip.word
    if "wait" in level:
        named["wait"] = Wait.word
    if "on-conflict" in level:
        named["on-conflict"] = str(level["on-conflict"])
    if len(set(named.values())) > 1:
        raise PolicyError(index, f"{' and '.join(named)} name different policies: keep one")
    return next(iter(named.values()), None)


def _seconds(value: "Value") -> float | None:
    return None if value is None else float(value)
