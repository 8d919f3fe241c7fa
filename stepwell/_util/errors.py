"""Errors that a user can act on: what was given, what is allowed, what to write instead."""


class InvalidInput(ValueError):
    """An argument is outside what is allowed. The message is one line and names the remedy."""


class WouldNotFit(InvalidInput):
    """The request needs more memory than the machine has to give."""


class AnotherRun(InvalidInput):
    """The checkpoint in the file belongs to a run with other arguments."""
