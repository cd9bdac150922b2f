"""What can go wrong before a command runs: one short tree, each with a sentence for the operator."""


class RunguardError(Exception):
    """Something kept runguard from its work; the text says what was tried, on what, and what to do."""


class UsageError(RunguardError):
    """The command line, or a combination of settings, cannot be honoured."""


class ConfigError(RunguardError):
    """A configuration file is missing, unsafe or wrong."""


class BackendError(RunguardError):
    """The place where the lock lives cannot be used; says nothing about who holds the lock."""


class UnreachableError(BackendError):
    """Nobody answered, or the connection broke: worth another try while there is time to wait."""
