"""Print `ready` and then each signal received, one a line; exit with the given code at the end of standard input."""

import os
import signal
import sys
from types import FrameType

CAUGHT = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGCONT", "SIGWINCH")


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


def caught(number: int, _frame: FrameType | None) -> None:
    say(signal.Signals(number).name)


for name in CAUGHT:
    signal.signal(signal.Signals[name], caught)
say(f"ready {os.getpid()}")
while os.read(0, 1):
    pass
sys.exit(int(sys.argv[1]))
