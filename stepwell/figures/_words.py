"""Numbers and settings as strings for a reader."""

import json
import math
from typing import Any

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.text import scientific

_RELATIONS = {"=": "", "<=": "at most ", ">=": "at least "}


@checked
def number(value: float | None, digits: int = 6) -> str:
    """Return a number as a string for a reader, with a power of ten where it is small or large.

    **Arguments:**

    - `value`: the number; one that is not finite is "not a number", and so is None, which JSON has for it.
    - `digits`: significant digits, at the most; not more than four where there is a power of ten.

    **Returns:** the string, with typographical minus signs.

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


@checked
def expected(relation: str, predicted: float | None, tolerance: float | None) -> str:
    """Return what a claim expects of the measured value, as a string for a reader.

    **Arguments:**

    - `relation`, `predicted`, `tolerance`: those of a claim, as in `claims.json`; None is not a number.

    **Returns:** the predicted value with its tolerance, such as "at most 0.5 ± 0.01"; "exactly 1" without one.

    **Example:**

    >>> from stepwell.figures import expected
    >>> expected("=", 1.0, 0.1), expected("=", 1.0, 0.0)
    ('1 ± 0.1', 'exactly 1')
    """
    words = _RELATIONS[checks.one_of("relation", relation, _RELATIONS)]
    if tolerance == 0:
        return f"{words or 'exactly '}{number(predicted)}"
    if relation == "<=" and predicted == 0:
        return f"at most {number(tolerance, 3)}"
    return f"{words}{number(predicted)} ± {number(tolerance, 3)}"


def as_setting(value: Any) -> str:
    """Return the value of a setting in one line.

    **Arguments:**

    - `value`: a number, a string, or a list of them.

    **Returns:** the line; consecutive integers are shortened.

    **Example:**

    >>> from stepwell.figures import as_setting
    >>> as_setting([0.1, 0.25]), as_setting([20, 21, 22, 23])
    ('0.1, 0.25', '20 to 23')
    """
    if isinstance(value, list | tuple):
        if len(value) > 3 and all(type(one) is int for one in value):
            if list(value) == list(range(value[0], value[-1] + 1)):
                return f"{value[0]} to {value[-1]}"
        return ", ".join(as_setting(each) for each in value)
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
