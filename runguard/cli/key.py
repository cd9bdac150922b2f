"""`runguard key`: the lock as other programs know it."""

import os

import click

from runguard import config, names, options, place, wiring
from runguard.cli import generate
from runguard.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runguard.backends.base import Identity


def key(name: str, **values: str | bool | None) -> int:
    """Print the native identity of the lock NAME, whom it excludes, and lines that take it elsewhere.

    Every kind of backend, or the one that --backend, the variable or the configuration file names.
    """
    try:
        names.check(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    settings = config.gather(name, generate.given(values), options.KEY, os.environ)
    where = place.find(settings, os.environ) if settings.level("backend") is not None else None
    identities = [lock.identity() for lock in wiring.locks_by_backend(name, where, settings)]
    click.echo("\n\n".join("\n".join(_lines(identity)) for identity in identities))
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
