"""What a command's life hangs on where there is no lock: nothing."""


class Unbound:
    """A tether that is not lost, and has nothing for the command to inherit."""

    descriptor = None
    announce = None

    def loss(self) -> None:
        """There is nothing to lose."""
