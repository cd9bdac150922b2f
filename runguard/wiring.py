"""Settings to parts: the only module that names every backend and every sink. Each is loaded when it is wanted."""

from runguard import events, urls
from runguard.backends.base import Target
from runguard.sinks import stderr, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from runguard.backends.base import Lock
    from runguard.backends.session import SessionLock
    from runguard.config import Settings
    from runguard.events import Event
    from runguard.holder import Holder
    from runguard.place import Place

    class Sink(Protocol):
        """Where events are written."""

        def write(self, event: Event) -> None:
            """Write one event; an exception is caught, and said once."""


def lock(
    where: "Place", name: str, settings: "Settings", *, shared: bool = False, holder: "Holder | None" = None
) -> "Lock":
    """Return the lock of NAME in a place. Raises `UsageError`."""
    make = _BACKENDS.get(urls.scheme(where.url))
    if make is None or (make is not _file and "://" not in where.url):
        known = ", ".join(["file:[DIR]", *(f"{scheme}://" for scheme in _BACKENDS if scheme != "file")])
        level = settings.level("backend")
        raise settings.error(level, f"backend {str(where)!a}: the scheme is not known; known are {known}")
    key = settings["key"]
    return make(
        Target(
            url=where.url,
            password=where.password,
            name=name,
            key=None if key is None else str(key),
            shared=shared,
            allow_replica=bool(settings["allow-replica"]),
            holder=holder,
        )
    )


def locks_by_backend(name: str, where: "Place | None", settings: "Settings") -> "list[Lock]":
    """Return the lock of NAME in one place, or where nobody named one, one in each kind of backend."""
    if where is not None:
        return [lock(where, name, settings)]
    return [make(Target(url=url, name=name)) for url, make in _KINDS]


def check_run(settings: "Settings", where: "Place") -> None:
    """Refuse a combination of settings that `run` cannot honour. Raises `UsageError` or `ConfigError`."""
    policy, named = settings.policy()
    counted = settings.level("max-waiters")
    # A limit from a weaker level than the one that chose to skip is simply not needed.
    if counted is not None and policy.word != "wait" and (named is None or counted <= named):
        raise settings.error(counted, "max-waiters counts those who wait: give --wait DURATION too")
    if settings["no-fork"] and urls.scheme(where.url) != "file":
        message = "no-fork leaves nobody to keep a database session: use it with the file backend"
        raise settings.error(settings.level("no-fork"), message)
    if settings["shared"] and _BACKENDS.get(urls.scheme(where.url)) is _mariadb:
        message = "shared: GET_LOCK has no shared locks; use the file or postgresql backend"
        raise settings.error(settings.level("shared"), message)
    quiet, verbose = settings.level("quiet"), settings.level("verbose")
    if settings["quiet"] and settings["verbose"] and quiet == verbose:
        raise settings.error(quiet, "quiet and verbose contradict each other: keep one")


def interest(settings: "Settings", *, terminal: bool) -> int:
    """Return how much standard error shows: the stronger of quiet and verbose decides."""
    loud, soft = settings["verbose"], settings["quiet"]
    if loud and soft:
        loud = (settings.level("verbose") or 0) < (settings.level("quiet") or 0)
    if loud:
        return stderr.VERBOSE_SEES
    if soft:
        return stderr.QUIET_SEES
    return stderr.TERMINAL_SEES if terminal else stderr.OTHERS_SEE


def emitter(settings: "Settings", *, sees: int) -> "Callable[[Event], None]":
    """Return what writes an event to every sink; one that fails is said once and stops nothing."""
    form = text.line
    if settings["log-format"] == "json":
        from runguard.sinks import jsonlines

        form = jsonlines.line
    plain = form is text.line
    log = _log(str(settings["log-to"]), form, plain=plain)
    to_stderr = form if log is None else text.line
    sinks: list[Sink] = [stderr.Stderr(to_stderr, prefix=to_stderr is text.line, sees=sees)]
    if log is not None:
        sinks.append(log)

    def emit(event: "Event") -> None:
        for sink in list(sinks):
            try:
                sink.write(event)
            except Exception as error:  # noqa: BLE001 - whatever ails a log, the run goes on
                sinks.remove(sink)
                stderr.say(
                    f"runguard: {event.name}: cannot write to the log {sink}: {_why(error)}; the run is not affected"
                )

    return emit


def _why(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _log(where: str, form: "Callable[[Event], str]", *, plain: bool) -> "Sink | None":
    if where == "stderr":
        return None
    if where == "syslog":
        from runguard.sinks.syslog import Syslog

        return Syslog(form)
    from runguard.sinks.logfile import LogFile

    return LogFile(where, form, stamped=plain)


def _file(target: Target) -> "Lock":
    from runguard.backends import file

    return file.lock(target)


def _mariadb(target: Target) -> "Lock":
    from runguard.backends import mariadb

    return _kept(mariadb.lock(target), target.name)


def _postgres(target: Target) -> "Lock":
    from runguard.backends import postgres

    return _kept(postgres.lock(target), target.name)


def _kept(lock: "SessionLock", name: str) -> "Lock":
    """Return a server's lock with a process of its own that keeps it while the command lives."""
    from runguard.keeper.client import KeptLock

    def report(level: str, what: str, said: str) -> None:
        from runguard.sinks.syslog import Syslog

        Syslog(text.line).write(events.Notice(level, what, said, name=name, run_id=""))

    return KeptLock(lock, name, report)


_KINDS = (("file:", _file), ("mariadb://", _mariadb), ("postgresql://", _postgres))
_BACKENDS = {
    "file": _file,
    "mariadb": _mariadb,
    "mysql": _mariadb,
    "postgresql": _postgres,
    "postgres": _postgres,
}
