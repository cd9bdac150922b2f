"""`runguard run`: one guarded run."""

import os

import click

from runguard import config, environment, events, guard, options, place, stamps, urls, wiring
from runguard.cli import generate
from runguard.cli.generate import check_name
from runguard.command import Command
from runguard.errors import UsageError
from runguard.holder import Holder
from runguard.printable import printable
from runguard.sinks import stderr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runguard.config import Settings

_STDERR = 2


def run(words: tuple[str, ...], **values: str | bool | None) -> int:
    """Run COMMAND while holding the lock NAME; if it is busy, skip or wait.

    Options end at NAME: all that follows it belongs to the command.
    """
    name, arguments = _split(words)
    flags = generate.given(values)
    settings = config.gather(name, flags, options.RUN, os.environ)
    where = place.find(settings, os.environ)
    wiring.check_run(settings, where)
    sees = wiring.interest(settings, terminal=os.isatty(_STDERR))
    emit = wiring.emitter(settings, sees=sees)
    run_id = os.urandom(16).hex()
    if urls.has_password(str(flags.get("backend", ""))):
        text = "every user of this host can read the password in --backend; put it into a file of the driver or ours"
        emit(events.Notice(events.HINT, "password_in_argv", text, name=name, run_id=run_id))
    holder, shared = _myself(arguments), bool(settings["shared"])
    return guard.run(
        guard.Run(
            name=name,
            run_id=run_id,
            backend=str(where),
            command=_command(arguments, name=name, run_id=run_id),
            policy=settings.policy()[0],
            conflict_code=_whole(settings, "conflict-exit-code"),
            max_waiters=None if settings["max-waiters"] is None else _whole(settings, "max-waiters"),
            jitter=float(settings["jitter"] or 0.0),
            replace=bool(settings["no-fork"]),
            attended=sees >= stderr.TERMINAL_SEES,
        ),
        lambda: wiring.lock(where, name, settings, shared=shared, holder=holder),
        emit,
    )


class _NameFirst(click.Command):
    """A command line on which `--` cannot stand where NAME belongs.

    Click would drop it, and `run -- php job.php` would hold the lock "php" around `job.php`.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, then look at the word before NAME."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        words = ctx.params["words"]
        if words and given[-len(words) - 1 : -len(words)] == ["--"]:
            message = "NAME is missing before --; write: runguard run [OPTIONS] NAME -- COMMAND"
            raise UsageError(message)
        return rest


command = _NameFirst(
    "run",
    callback=run,
    params=[
        *generate.parameters(options.RUN),
        click.Argument(["words"], nargs=-1, type=click.UNPROCESSED, metavar="NAME [--] COMMAND [ARG]..."),
    ],
    help=run.__doc__,
    context_settings={"allow_interspersed_args": False},
)


def _split(words: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return NAME and the command's words; one `--` between them is dropped."""
    if not words:
        message = "NAME and COMMAND are missing; see runguard run --help"
        raise UsageError(message)
    name, *rest = words
    check_name(name)
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if not rest:
        message = f"COMMAND is missing after NAME {name}"
        raise UsageError(message)
    return name, rest


def _command(arguments: list[str], *, name: str, run_id: str) -> Command:
    received = environment.received()
    return Command(environment.arguments(arguments), environment.of_run(received, name=name, run_id=run_id, attempt=1))


def _myself(arguments: list[str]) -> Holder:
    """Return what others may be told about this run."""
    import pwd

    user = os.geteuid()
    try:
        login = pwd.getpwuid(user).pw_name
    except KeyError:
        login = str(user)
    return Holder(
        pid=os.getpid(),
        host=os.uname().nodename,
        user=login,
        since=stamps.now(),
        command=printable(" ".join(arguments)),
    )


def _whole(settings: "Settings", name: str) -> int:
    return int(settings[name] or 0)
