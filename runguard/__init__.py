"""Run a command under a named lock, so that it never runs twice at once.

The map, from the outside in; imports point down only:

- `cli`: words in, a number out. The only place that knows click.
- `wiring`: settings to parts. The only module that names every backend and sink.
- `guard`: one guarded run: take the lock or follow the policy, run, release.
- `keeper`: the process that keeps a server's lock, and our side of it. Knows what a lock promises, and no server.
- `backends`, `command` (with `watch`), `interrupts`, `sinks`: the services, which do not know each other.
- `config` and `options`: the settings of a run and where each comes from.
- everything else: plain values and decisions, without input or output.
"""

__version__ = "0.1.0"
