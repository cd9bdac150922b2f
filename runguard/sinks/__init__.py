"""Where events are written: one event to one line or message. A sink that fails never stops a run."""
