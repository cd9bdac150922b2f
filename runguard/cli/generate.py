"""Click's view of the options table."""

import os
import signal

import click

from runguard import names
from runguard.errors import BackendError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runguard.options import Option


def parameters(table: "Sequence[Option]") -> "list[click.Parameter]":
    """Return one click option for each row; values stay text, since the settings read them all in one way."""
    return [_parameter(option) for option in table]


def given(values: "Mapping[str, str | bool | None]") -> "dict[str, str | bool]":
    """Return the options that stand on the command line, by long name."""
    return {name.replace("_", "-"): value for name, value in values.items() if value is not None and value is not False}


def check_name(name: str) -> None:
    """Refuse a bad NAME as wrong usage, before anything is opened."""
    try:
        names.check(name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def show(text: str) -> None:
    """Print what was asked for. Raises `BackendError` if it cannot be written."""
    try:
        click.echo(text)
    except BrokenPipeError:
        # Nobody reads any more: end as other tools do (141 in a shell).
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    except OSError as error:
        # What is left in the buffer would fail again at the interpreter's end, and make 120 of our exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)
        message = f"cannot write to standard output: {error.strerror}"
        raise BackendError(message) from None


def _parameter(option: "Option") -> click.Option:
    letter = [f"-{option.short}"] if option.short else []
    return click.Option(
        [f"--{option.name}", *letter],
        metavar=option.metavar,
        is_flag=not option.kind.takes_value,
        type=click.UNPROCESSED if option.kind.takes_value else None,
        default=None,
        help=_help(option),
    )


def _help(option: "Option") -> str:
    facts = [f"default {option.default}"] if option.default not in (None, False, 0.0) else []
    facts += [f"variable {option.variable}"] if option.variable else []
    return f"{option.says} [{'; '.join(facts)}]" if facts else option.says
