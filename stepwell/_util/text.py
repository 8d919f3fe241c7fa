"""Numbers, errors, tasks, models and any values as text; the canonical text of plain values, and names made of it."""

import dataclasses
import difflib
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_LONGEST = 80
"""Characters of a value that are shown."""
_MANY = 8
"""Numbers of a list that are shown."""
_RAISED = str.maketrans("-−0123456789", "⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def superscript(power: int | str) -> str:
    """Return an integer as a superscript.

    **Arguments:**

    - `power`: the integer.

    **Returns:** its digits and sign, raised.

    **Example:**

    >>> from stepwell.analysis.style import superscript
    >>> "10" + superscript(-3)
    '10⁻³'
    """
    return str(power).translate(_RAISED)


def scientific(value: float, digits: int = 1) -> str:
    """Return a number as a mantissa and a power of ten.

    **Arguments:**

    - `value`: the number.
    - `digits`: of the mantissa.

    **Returns:** such as 2·10⁻⁸; 10⁻³ rather than 1·10⁻³.

    **Example:**

    >>> from stepwell.analysis.style import scientific
    >>> scientific(2e-8), scientific(0.00123, 2)
    ('2·10⁻⁸', '1.2·10⁻³')
    """
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    plain = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{'' if plain == '1' else plain + '·'}10{superscript(int(power))}".replace("-", "−")


def after_the_end(times: Sequence[float]) -> str:
    """What a legend adds about predicted drops that come after the end of a run, by their times or steps."""
    return f" (after the end: {', '.join(f'{time:.5g}' for time in times)})" if times else ""


def shortened(text: Any, longest: int = 300) -> str:
    """A message or path that has a word of thousands of letters in it, without its middle."""
    text = str(text)
    return text if len(text) <= longest else f"{text[: longest // 2]} … {text[-longest // 2 :]}"


def nearest(given: str, names: Sequence[str]) -> str:
    """Advice after a name that does not exist: the nearest that does, or all."""
    near = nearest_of(given, names)
    return f"did you mean {near}?" if near else f"there are {', '.join(names)}"


def nearest_of(given: str, names: Iterable[str]) -> str | None:
    """The name that was meant: one that begins so, or has most of the letters. Dashes of flags do not count."""
    word, bare = given[:100].lstrip("-"), {name.lstrip("-"): name for name in names}
    if len(word) < 2:
        return None
    begun = [name for name in bare if name.startswith(word)]
    near = difflib.get_close_matches(word, begun or bare, n=1, cutoff=0.0 if begun else 0.6)
    return bare[near[0]] if near else None


def listed(words: Iterable[str], conjunction: str = "or") -> str:
    """Words in a sentence: "a, b or c"."""
    *most, last = words
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def error_line(error: Exception) -> str:
    """An error in one line: its class and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def shown(value: Any) -> str:
    """Any value in a message of one line: as it is written, if that is short, or what it is."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape != ():
        return f"an array of shape {shape}"
    if isinstance(value, str | bytes | bool | int | float | complex | list | tuple | dict | None) or shape == ():
        try:
            text = " ".join(repr(value).split())
        except (ValueError, RecursionError):  # a number of too many digits
            return f"a very large {type(value).__name__}"
        if len(text) <= _LONGEST:
            return text
        if isinstance(value, str | int):
            return f"{text[:_LONGEST]}…"
    return f"a {type(value).__name__}"


def one_line(thing: Any, facts: dict[str, Any]) -> str:
    """The class of a task or model and what there is to say of it, for a console."""
    return f"{type(thing).__name__}({', '.join(f'{name}={value}' for name, value in facts.items())})"


def html_table(thing: Any, facts: dict[str, Any]) -> str:
    """The same as a table in HTML, for a notebook."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<table><caption>{html.escape(type(thing).__name__)}</caption><tbody>{rows}</tbody></table>"


def plain_fields(thing: Any, but: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a data class that are plain values, but for those named and those that are None or False."""
    fields = {f.name: getattr(thing, f.name, None) for f in dataclasses.fields(thing) if not f.name.startswith("_")}
    plain = {name: value for name, value in fields.items() if isinstance(value, str | bool | int | float | tuple)}
    return {name: repr(value) for name, value in plain.items() if name not in but and value is not False}


def short_numbers(values: Any) -> str:
    """Numbers in brackets; of many the first and the last."""
    texts = [f"{value:.4g}" for value in values]
    if len(texts) > _MANY:
        texts = [*texts[: _MANY - 2], "…", texts[-1]]
    return f"[{', '.join(texts)}]"


def canonical_text(value: Any) -> str:
    """A plain value as JSON, with sorted keys and without spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def name_of(canonical: Mapping[str, Any]) -> str:
    """The name of a run, 32 hexadecimal digits: the beginning of the SHA-256 of the text of its canonical form."""
    return hashlib.sha256(canonical_text(dict(canonical)).encode()).hexdigest()[:32]
