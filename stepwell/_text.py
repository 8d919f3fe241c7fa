"""Numbers and errors as text."""

_RAISED = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def superscript(power: int | str) -> str:
    """A whole number, raised: `10` + superscript(-3) is 10⁻³."""
    return str(power).translate(_RAISED)


def error_line(error: Exception) -> str:
    """An error in one line: its class and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
