"""Print `ready` and then each signal received, one a line; exit with the given code at the end of standard input."""

import os
import select
import signal
import sys

CAUGHT = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGCONT", "SIGWINCH")


def say(word: str) -> None:
    os.write(1, f"{word}\n".encode())


# The numbers come through a pipe: a handler that prints would be late when a signal comes just before a read.
numbers, woken = os.pipe()
os.set_blocking(woken, False)
signal.set_wakeup_fd(woken)
for name in CAUGHT:
    signal.signal(signal.Signals[name], lambda _number, _frame: None)
say(f"ready {os.getpid()}")
while True:
    ready, _, _ = select.select([0, numbers], [], [])
    if numbers in ready:
        for number in os.read(numbers, 100):
            say(signal.Signals(number).name)
    elif not os.read(0, 1):
        sys.exit(int(sys.argv[1]))
