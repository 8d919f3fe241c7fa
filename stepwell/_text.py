"""Numbers as text."""

_RAISED = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def superscript(power: int | str) -> str:
    """A whole number, raised: `10` + superscript(-3) is 10⁻³."""
    return str(power).translate(_RAISED)
