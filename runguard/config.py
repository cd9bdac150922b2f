"""Settings and where each comes from: flag, environment, job, defaults, built-in, in this order."""

import os

from runguard import configfile, options, policy
from runguard.errors import ConfigError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runguard.configfile import Document
    from runguard.options import Option, Value

SYSTEM_FILE = "/etc/runguard.toml"
USER_FILE = ".config/runguard/config.toml"


class Settings:
    """The values of one invocation. `levels` are (origin, values), strongest first."""

    __slots__ = ("backends", "levels")

    def __init__(self, levels: "list[tuple[str, dict[str, Value]]]", backends: "dict[str, dict[str, str]]") -> None:
        self.levels = levels
        self.backends = backends

    def __getitem__(self, name: str) -> "Value":
        """Return the strongest value of an option, the built-in default if nobody set it."""
        return next((values[name] for _, values in self.levels if name in values), options.BY_NAME[name].default)

    def level(self, name: str) -> int | None:
        """Return the index of the level that set an option; None when it is the built-in default."""
        return next((index for index, (_, values) in enumerate(self.levels) if name in values), None)

    def error(self, level: int | None, message: str) -> UsageError | ConfigError:
        """Return the error for a bad combination: a wrong file if the file said it, else wrong usage."""
        origin = self.levels[level][0] if level is not None else ""
        if "[" in origin:
            return ConfigError(f"{origin}: {message}")
        return UsageError(message)

    def policy(self) -> "tuple[policy.Policy, int | None]":
        """Return the conflict policy and the level that named it."""
        try:
            return policy.decide([values for _, values in self.levels])
        except policy.PolicyError as error:
            raise self.error(error.level, str(error)) from None


def gather(
    name: str, flags: "Mapping[str, str | bool]", table: "Sequence[Option]", environment: "Mapping[str, str]"
) -> Settings:
    """Collect the settings of NAME; `flags` are the options given, as text, by long name.

    Raises `UsageError` for a bad flag or variable, `ConfigError` for a bad file.
    """
    given = {flag: _from_text(f"--{flag}", options.BY_NAME[flag], text) for flag, text in flags.items()}
    variables = {
        option.name: _from_text(option.variable, option, environment[option.variable])
        for option in table
        if option.variable and environment.get(option.variable)
    }
    path = given.get("config", variables.get("config"))
    files = [configfile.load(str(path))] if path is not None else _standard_files(environment)
    tables = [(f"{path} [job.{name}]", document.get("job", {}).get(name, {})) for path, document in reversed(files)]
    tables += [(f"{path} [defaults]", document.get("defaults", {})) for path, document in reversed(files)]
    backends: dict[str, dict[str, str]] = {}
    for _, document in files:
        backends |= document.get("backend", {})
    return Settings([("the command line", given), ("the environment", variables), *tables], backends)


def home(environment: "Mapping[str, str]") -> str:
    """Return the home directory: HOME, else that of the password database."""
    if environment.get("HOME"):
        return environment["HOME"]
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


def _from_text(origin: str, option: "Option", text: str | bool) -> "Value":  # noqa: FBT001 - as click gives it
    if isinstance(text, bool):
        return text
    try:
        return option.kind.read(text)
    except ValueError as error:
        message = f"{origin}: {error}"
        raise UsageError(message) from None


def _standard_files(environment: "Mapping[str, str]") -> "list[tuple[str, Document]]":
    mine = os.path.join(home(environment), USER_FILE)
    found = [configfile.load(SYSTEM_FILE)] if os.path.lexists(SYSTEM_FILE) else []
    if os.path.lexists(mine):
        _check_owner(mine)
        found.append(configfile.load(mine))
    return found


def _check_owner(path: str) -> None:
    """Refuse a file in a home that is not ours: sudo may leave HOME pointing at somebody else's."""
    try:
        owner = os.stat(path).st_uid
    except OSError as error:
        raise configfile.unreadable(path, error) from None
    if owner not in {0, os.geteuid()}:
        message = (
            f"{path}: belongs to uid {owner}, not to root or to uid {os.geteuid()}; name it with --config to use it"
        )
        raise ConfigError(message)
