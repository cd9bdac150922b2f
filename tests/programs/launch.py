"""Become a command in a prepared state: `launch.py [block=SIGNAL] [ignore=SIGNAL] [close=FD] ... -- COMMAND...`.

A shell would not do: dash clears the signal mask.
"""

import os
import signal
import sys

split = sys.argv.index("--")
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them at its start
    signal.signal(number, signal.SIG_DFL)
for wish in sys.argv[1:split]:
    what, _, value = wish.partition("=")
    if what == "block":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.Signals["SIG" + value]])
    elif what == "ignore":
        signal.signal(signal.Signals["SIG" + value], signal.SIG_IGN)
    elif what == "close":
        os.close(int(value))
    else:
        raise SystemExit(what)
os.execvp(sys.argv[split + 1], sys.argv[split + 1 :])
