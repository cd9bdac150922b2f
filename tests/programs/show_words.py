"""Print each word of this program's command line that follows its own name, as hexadecimal digits on a line."""

import os
import sys
from pathlib import Path

words = Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]
own = next(index for index, word in enumerate(words) if word == os.fsencode(__file__))
sys.stdout.write("".join(f"{word.hex()}\n" for word in words[own + 1 :]))
