"""The environment and the descriptors as runguard was given them, not as Python changed them."""

import os

_STANDARD = (0, 1, 2)
_OF_A_RUN = (
    b"RUNGUARD_NAME",
    b"RUNGUARD_RUN_ID",
    b"RUNGUARD_ATTEMPT",
    b"RUNGUARD_SLOT",
    b"RUNGUARD_IDEMPOTENCY_KEY",
    b"RUNGUARD_TOKEN",
)


def received() -> "dict[bytes, bytes]":
    """Return the environment this process was started with; Python may have set LC_CTYPE since (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    found: dict[bytes, bytes] = {}
    for entry in entries:
        name, separator, value = entry.partition(b"=")
        if separator and name:
            found.setdefault(name, value)
    return found


def of_run(environment: "dict[bytes, bytes]", *, name: str, run_id: str, attempt: int) -> "dict[bytes, bytes]":
    """Return the environment of a command; what an outer run exported for itself is not handed down."""
    kept = {key: value for key, value in environment.items() if key not in _OF_A_RUN}
    return kept | {
        b"RUNGUARD_NAME": name.encode(),
        b"RUNGUARD_RUN_ID": run_id.encode(),
        b"RUNGUARD_ATTEMPT": str(attempt).encode(),
        b"RUNGUARD_IDEMPOTENCY_KEY": run_id.encode(),
    }


def reserve_standard_descriptors() -> None:
    """Occupy those of descriptors 0 to 2 that are closed, so that no file of ours lands there.

    The placeholders are close-on-exec: the command finds them closed as we did.
    """
    for descriptor in _STANDARD:
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor is the one that was found closed.
            os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


def arguments(last: list[str]) -> list[bytes]:
    """Return the last arguments of this process as bytes; from the kernel, since decoding cannot always be undone."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().split(b"\0")[:-1]
    except OSError:
        words = []
    return words[-len(last) :] if len(words) > len(last) else [os.fsencode(word) for word in last]
