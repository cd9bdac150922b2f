"""`python -m runguard`, and the start of the `runguard` command."""

import signal


def main() -> None:
    """Run what the command line says and exit with its code."""
    # Until the command line is understood an interrupt just ends us: there is nothing to put in order, or to say.
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from runguard import cli

    cli.main()


if __name__ == "__main__":
    main()
