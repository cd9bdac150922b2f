"""The command line: words in, a number out. The only place that knows click, and the only one that exits."""

import os
import sys

import click

from runguard import environment, exits
from runguard.cli import key, run, test
from runguard.errors import BackendError, ConfigError, RunguardError, UnreachableError, UsageError
from runguard.printable import printable
from runguard.sinks.stderr import say

_CODES = {
    UsageError: exits.USAGE,
    ConfigError: exits.CONFIG,
    BackendError: exits.BACKEND,
    UnreachableError: exits.BACKEND,
}

_CONDITIONS = {exits.OK: exits.CONDITION_MET, exits.CONFLICT: exits.CONDITION_NOT_MET}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, no_args_is_help=False)
@click.version_option(package_name="runguard-cli", prog_name="runguard", message="%(prog)s %(version)s")
def commands() -> None:
    """Run a command under a named lock, so that it never runs twice at once."""


for _command in (run.command, test.command, key.command):
    commands.add_command(_command)


def main() -> None:
    """Run what the command line says and exit with its code."""
    environment.reserve_standard_descriptors()
    # Completion is not offered, and the variable by which click would serve it must not keep a command from running.
    os.environ.pop("_RUNGUARD_COMPLETE", None)
    arguments = sys.argv[1:]
    code = _code(arguments)
    # For systemd 1 to 254 would mean that the unit is not wanted now; nothing but a held lock may look like that.
    if "--exec-condition" in arguments[1:] and arguments[0] == "test":
        code = _CONDITIONS.get(code, exits.CONDITION_UNKNOWN)
    sys.exit(code)


def _code(arguments: list[str]) -> int:
    """Return the exit code; whatever goes wrong is one line on standard error."""
    try:
        code = commands.main(arguments, prog_name="runguard", standalone_mode=False)
    except click.UsageError as error:
        return _refuse(error.ctx, f"{_sentence(error)}; see {_path(error.ctx)} --help", exits.USAGE)
    except click.ClickException as error:
        return _refuse(None, error.format_message(), exits.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except RunguardError as error:
        return _refuse(None, str(error), _CODES[type(error)])
    except Exception as error:  # noqa: BLE001 - a bug of ours must not look like any other ending
        return _bug(arguments, error)
    return code if isinstance(code, int) else exits.OK


def _refuse(context: click.Context | None, message: str, code: int) -> int:
    command = "" if context is None or context.parent is None else f"{context.info_name}: "
    say(printable(f"runguard: {command}{message}"))
    return code


def _sentence(error: click.UsageError) -> str:
    """Return click's message in our form."""
    if isinstance(error, click.NoSuchOption) and error.option_name == "--timeout":
        meanings = "--wait limits the wait for the lock, --max-runtime (not in this version) the command"
        return f"--timeout could mean two things: {meanings}"
    message = error.format_message().replace("\n", " ").rstrip(".")
    return message[:1].lower() + message[1:]


def _path(context: click.Context | None) -> str:
    return context.command_path if context else "runguard"


def _bug(arguments: list[str], error: Exception) -> int:
    say(printable(f"runguard: a bug in runguard: {type(error).__name__}: {error}; run it with -v for the traceback"))
    if {"-v", "--verbose"} & set(arguments):
        import traceback

        traceback.print_exception(error)
    return exits.BUG
