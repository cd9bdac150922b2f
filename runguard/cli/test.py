"""`runguard test`: says whether the lock is free."""

import os
import sys

import click

from runguard import config, exits, options, place, wiring
from runguard.cli import generate
from runguard.cli.generate import check_name, show
from runguard.errors import BackendError, RunguardError
from runguard.printable import printable
from runguard.sinks.stderr import say


def test(name: str, *, exec_condition: bool, **values: str | bool | None) -> int:
    """Say by exit code whether the lock NAME is free (0), held (75) or not to be found out (69).

    With --exec-condition the codes are those of systemd's ExecCondition=: 0 free, 1 held, 255 not to be found out.
    """
    free, held, unknown = (
        (exits.CONDITION_FREE, exits.CONDITION_HELD, exits.CONDITION_UNKNOWN)
        if exec_condition
        else (exits.FREE, exits.HELD, exits.UNKNOWN)
    )
    try:
        check_name(name)
        settings = config.gather(name, generate.given(values), options.LOOK, os.environ)
        busy = wiring.lock(place.find(settings, os.environ), name, settings).probe()
    except RunguardError as error:
        if not exec_condition and not isinstance(error, BackendError):
            raise
        say(printable(f"runguard: {name}: {error}"))
        return unknown
    if values.get("verbose") or (sys.stdout and sys.stdout.isatty()):
        show(printable(f"{name}: held by {busy.holder}" if busy else f"{name}: free"))
    return held if busy else free


command = click.Command(
    "test",
    callback=test,
    params=[
        *generate.parameters(options.LOOK),
        click.Option(["--exec-condition"], is_flag=True, help="exit as systemd's ExecCondition= wants it: 0, 1, 255"),
        click.Argument(["name"], type=click.UNPROCESSED),
    ],
    help=test.__doc__,
)
