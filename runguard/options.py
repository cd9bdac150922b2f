"""The options of `run`, declared once.

The command line, the configuration keys, the environment variables and the tests of the manual pages read this table.
"""

from runguard import durations

Value = str | int | float | bool | None
"""A setting after it was read: durations are seconds, `forever` is None, flags are bool."""

DEFAULT_BACKEND = "file:"
ENVIRONMENT_PREFIX = "RUNGUARD_"


class Kind:
    """How the text of an option becomes a value.

    `read` takes text and raises `ValueError` with a sentence; `native` lists the types that a TOML file may hold
    instead of text.
    """

    def read(self, text: str) -> Value:
        """Read one value from text."""
        return text

    native: tuple[type, ...] = ()
    takes_value = True
    wanted = "a string"


class Text(Kind):
    """Any text that is not empty; without NUL, which no path and no argument can hold."""

    def read(self, text: str) -> Value:
        """Return the text if it may be used."""
        if not text:
            message = "the value is empty"
            raise ValueError(message)
        if "\0" in text:
            message = "the value holds a NUL character"
            raise ValueError(message)
        return text


class Flag(Kind):
    """On or off; on the command line it takes no value."""

    takes_value = False
    native = (bool,)
    wanted = "true or false"


class Choice(Kind):
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.wanted = "one of " + ", ".join(words)

    def read(self, text: str) -> Value:
        """Return the word if it is one of those allowed."""
        if text not in self.words:
            message = f"{text!a} is not {self.wanted}"
            raise ValueError(message)
        return text


class Whole(Kind):
    """A whole number between two bounds, both included."""

    native = (int,)

    def __init__(self, least: int, most: int) -> None:
        self.least, self.most = least, most
        self.wanted = f"a whole number from {least} to {most}"

    def read(self, text: str) -> Value:
        """Return the number; ASCII digits only."""
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(self.most)) + 3):
            message = f"{text!a} is not {self.wanted}"
            raise ValueError(message)
        number = int(text)
        if not self.least <= number <= self.most:
            message = f"{text} is not {self.wanted}"
            raise ValueError(message)
        return number


class Duration(Kind):
    """A duration in seconds."""

    native = (int, float)
    wanted = "a duration, as in 90, 1.5, 30s, 5m, 2h, 1d, 1h30m"

    def read(self, text: str) -> Value:
        """Return the seconds."""
        return durations.seconds(text)


class Limit(Duration):
    """A duration in seconds, or `forever`, which is None."""

    wanted = "a duration, or forever"

    def read(self, text: str) -> Value:
        """Return the seconds, or None."""
        return durations.limit(text)


class Option:
    """One option: `name` is the long flag and the configuration key, `short` the letter."""

    __slots__ = ("default", "from_environment", "in_config", "kind", "metavar", "name", "says", "short")

    def __init__(  # noqa: PLR0913 - a row of a table
        self,
        name: str,
        short: str | None,
        metavar: str | None,
        kind: Kind,
        default: Value,
        says: str,
        *,
        from_environment: bool = False,
        in_config: bool = True,
    ) -> None:
        self.name = name
        self.short = short
        self.metavar = metavar
        self.kind = kind
        self.default = default
        self.says = says
        self.from_environment = from_environment
        self.in_config = in_config

    @property
    def variable(self) -> str | None:
        """Return the environment variable that sets this option."""
        return ENVIRONMENT_PREFIX + self.name.upper().replace("-", "_") if self.from_environment else None


RUN = (
    Option(
        "backend",
        "b",
        "URL",
        Text(),
        DEFAULT_BACKEND,
        "where the lock lives: file:[DIR], mariadb://, postgresql://, or a name from the configuration file",
        from_environment=True,
    ),
    Option("on-conflict", None, "POLICY", Choice("skip", "wait"), None, "what a busy lock means: skip or wait"),
    Option("nonblock", "n", None, Flag(), default=False, says="the same as --on-conflict skip"),
    Option("wait", "w", "DURATION", Limit(), None, "wait for the lock at most so long; 0 is one try, or forever"),
    Option(
        "conflict-exit-code",
        "E",
        "N",
        Whole(0, 255),
        75,
        "the exit code of a skipped run and of an expired wait",
    ),
    Option(
        "key",
        None,
        "KEY",
        Text(),
        None,
        "an exact foreign lock: a file's path, a GET_LOCK name, or an advisory key (bigint)",
    ),
    Option("shared", "s", None, Flag(), default=False, says="take a shared lock (file and postgresql)"),
    Option("max-waiters", None, "N", Whole(0, 1_000_000), None, "with wait: skip when N already wait on this host"),
    Option("no-fork", "F", None, Flag(), default=False, says="file backend: replace runguard by the command"),
    Option(
        "allow-replica",
        None,
        None,
        Flag(),
        default=False,
        says="accept a read-only server, which excludes nobody on the primary",
    ),
    Option("jitter", None, "DURATION", Duration(), 0.0, "wait a random part of this first"),
    Option("quiet", "q", None, Flag(), default=False, says="say nothing about conflicts; errors are still said"),
    Option("verbose", "v", None, Flag(), default=False, says="say on stderr what happens, good news included"),
    Option("log-format", None, "FORMAT", Choice("text", "json"), "text", "the form of a line in the log: text or json"),
    Option("log-to", None, "WHERE", Text(), "stderr", "where each attempt is logged: stderr, syslog or a file's path"),
    Option(
        "config",
        None,
        "FILE",
        Text(),
        None,
        "read this configuration file and no other",
        from_environment=True,
        in_config=False,
    ),
)

LOOK = tuple(option for option in RUN if option.name in {"backend", "key", "allow-replica", "verbose", "config"})
"""What `test` takes of it: those that say which lock is meant."""

KEY = tuple(option for option in RUN if option.name in {"backend", "config"})
"""What `key` takes of it."""

BY_NAME = {option.name: option for option in RUN}
