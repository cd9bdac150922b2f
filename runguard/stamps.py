"""Wall-clock times for people and logs: RFC 3339 in UTC. Never used to measure a duration."""

import time


def now() -> str:
    """Return the time to the millisecond."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest // 1_000_000:03d}Z"
