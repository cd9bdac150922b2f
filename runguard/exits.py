"""The exit codes of runguard: sysexits(3) where one fits, timeout(1) and the shell for the rest."""

OK = 0
USAGE = 64
BACKEND = 69
BUG = 70
CONFLICT = 75
CONFIG = 78
CANNOT_EXECUTE = 126
NOT_FOUND = 127
SIGNAL_BASE = 128
INTERRUPTED = 130

# ExecCondition= of systemd.service(5): 1 to 254 skip the unit, 255 fails it.
CONDITION_MET = 0
CONDITION_NOT_MET = 1
CONDITION_UNKNOWN = 255
