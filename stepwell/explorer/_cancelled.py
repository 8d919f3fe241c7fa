"""How work that is no longer wanted ends."""


class Cancelled(Exception):
    """The work was given up, since a newer state is waiting."""
