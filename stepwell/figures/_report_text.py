"""Numbers and settings as text for a reader."""

import json
import math
from typing import Any

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.text import scientific


@checked
def number(value: float | None, digits: int = 6) -> str:
    """A number as text for a reader, with a power of ten where it is small or large.

    **Arguments:**

    - `value`: the number; one that is not finite is "not a number", and so is None, which JSON has for it.
    - `digits`: significant digits, at the most; not more than four where there is a power of ten.

    **Returns:** the text, with typographical minus signs.

    **Example:**

    >>> from stepwell.figures import number
    >>> number(0.8810446), number(-2.5e-7), number(0.1360, 2)
    ('0.881045', '−2.5·10⁻⁷', '0.14')
    """
    digits = min(checks.whole("digits", digits), 17)
    if value is None or not math.isfinite(value):
        return "not a number"
    if value != 0 and (abs(value) < 1e-3 or abs(value) >= 1e6):
        return scientific(value, min(digits, 4))
    return f"{value:.{digits}g}".replace("-", "−")


def as_setting(value: Any) -> str:
    """A setting's value in one line.

    **Arguments:**

    - `value`: a number, a text, or a list of them.

    **Returns:** the text; whole numbers that follow each other are shortened.

    **Example:**

    >>> from stepwell.figures import as_setting
    >>> as_setting([0.1, 0.25]), as_setting([20, 21, 22, 23])
    ('0.1, 0.25', '20 to 23')
    """
    if _is_run(value):
        return f"{value[0]} to {value[-1]}"
    if isinstance(value, list | tuple):
        return ", ".join(as_setting(each) for each in value)
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def _is_run(value: Any) -> bool:
    """Whether it is a list of more than three whole numbers, each one more than the last."""
    if not isinstance(value, list | tuple) or len(value) < 4 or not all(type(each) is int for each in value):
        return False
    return list(value) == list(range(value[0], value[0] + len(value)))
