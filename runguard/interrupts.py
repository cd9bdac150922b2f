"""Signals that end runguard while it waits: they become an exception, so that nothing is left behind."""

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import NoReturn

SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal asked runguard to end; not an `Exception`, so that no driver swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


class raised:  # noqa: N801 - reads as `with interrupts.raised():`
    """Within this block a signal to end raises `Interrupted`; one that was ignored on entry stays ignored."""

    def __enter__(self) -> None:
        """Install the handlers, remembering those that stood there."""
        self.before = {
            number: signal.signal(number, _raise) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN
        }

    def __exit__(
        self, kind: "type[BaseException] | None", error: "BaseException | None", trace: "TracebackType | None"
    ) -> None:
        """Put the former handlers back."""
        for number, handler in self.before.items():
            signal.signal(number, handler)


def _raise(number: int, _frame: "FrameType | None") -> "NoReturn":
    raise Interrupted(number)
