"""`runguard test`: says whether the lock is free."""

import os
import sys

import click

from runguard import config, exits, options, place, wiring
from runguard.cli import generate
from runguard.cli.generate import check_name, show
from runguard.errors import BackendError
from runguard.printable import printable


def test(name: str, **values: str | bool | None) -> int:
    """Say by exit code whether the lock NAME is free (0), held (75) or not to be found out (69).

    With --exec-condition the codes are those of systemd's ExecCondition=: 0 free, 1 held, 255 not to be found out.
    """
    check_name(name)
    settings = config.gather(name, generate.given(values), options.LOOK, os.environ)
    try:
        busy = wiring.lock(place.find(settings, os.environ), name, settings).probe()
    except BackendError as error:
        message = f"{name}: {error}"
        raise BackendError(message) from None
    if values.get("verbose") or (sys.stdout and sys.stdout.isatty()):
        show(printable(f"{name}: held by {busy.holder}" if busy else f"{name}: free"))
    return exits.CONFLICT if busy else exits.OK


command = click.Command(
    "test",
    callback=test,
    params=[
        *generate.parameters(options.LOOK),
        click.Option(
            ["--exec-condition"],
            is_flag=True,
            expose_value=False,
            help="exit as systemd's ExecCondition= wants it: 0, 1, 255",
        ),
        click.Argument(["name"], type=click.UNPROCESSED),
    ],
    help=test.__doc__,
)
