"""Run `sh -c 'exit N'` as runguard does for each N of 0 to 255, and print what comes back where it is not N."""

import os

from unbound import Unbound

from runguard import command, watch


def tell(level: str, what: str, text: str) -> None:
    print(level, what, text)


signals = watch.Signals()
for number in range(256):
    given = command.Command([b"/bin/sh", b"-c", b"exit %d" % number], dict(os.environb))
    code = command.run(given, signals, tether=Unbound(), kill_after=1.0, tell=tell)
    if code != number:
        print(f"exit {number} came back as {code}")
print("done")
