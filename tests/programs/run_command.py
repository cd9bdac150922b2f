"""Run a command as runguard does, without a lock, with a grace of one's own: `run_command.py KILL_AFTER COMMAND...`."""

import os
import sys

from unbound import Unbound

from runguard import command, watch


def tell(level: str, what: str, text: str) -> None:
    print(level, what, text, file=sys.stderr)


words = [os.fsencode(word) for word in sys.argv[2:]]
given = command.Command(words, dict(os.environb))
sys.exit(command.run(given, watch.Signals(), tether=Unbound(), kill_after=float(sys.argv[1]), tell=tell))
