"""`runguard key`: the lock as other programs know it."""

import os

import click

from runguard import config, options, place, wiring
from runguard.cli import generate
from runguard.cli.generate import check_name, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runguard.backends.base import Identity


def key(name: str, **values: str | bool | None) -> int:
    """Print the native identity of the lock NAME, whom it excludes, and lines that take it elsewhere.

    Of every kind of backend, or of the lock that --backend, the variable or the configuration file names.
    """
    check_name(name)
    settings = config.gather(name, generate.given(values), options.KEY, os.environ)
    chosen = settings.level("backend") is not None or settings["key"] is not None
    where = place.find(settings, os.environ) if chosen else None
    identities = [lock.identity() for lock in wiring.locks_by_backend(name, where, settings)]
    show("\n\n".join("\n".join(_lines(identity)) for identity in identities))
    return 0


command = click.Command(
    "key",
    callback=key,
    params=[*generate.parameters(options.KEY), click.Argument(["name"], type=click.UNPROCESSED)],
    help=key.__doc__,
)


def _lines(identity: "Identity") -> list[str]:
    """Return a paragraph; each line that takes the lock stands alone, to be copied."""
    return [f"{identity.backend}: {identity.key}", f"excludes: {identity.scope}", *identity.recipes]
