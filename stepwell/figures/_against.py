"""What a change moved: two reports compared, claim by claim."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._report_text import as_setting, number

DIGITS = 6
"""Measured values that agree to so many digits have not moved."""


class Movement(NamedTuple):
    """One difference between an earlier report and this one."""

    what: str
    """holds now, fails now, new, gone, measured, or settings."""
    name: str
    """The claim or the figure."""
    before: str
    after: str

    def as_json(self) -> dict[str, str]:
        return self._asdict()


def moved(before: dict[str, Any], after: dict[str, Any], *, names: Iterable[str] | None = None) -> list[Movement]:
    """Differences between two documents as in `claims.json`, of the figures that both have: verdicts first.

    **Arguments:**

    - `before`: the earlier document.
    - `after`: this one.
    - `names`: the figures to compare; by default all.

    **Returns:** the differences: claims that hold or fail now, new and missing ones, measured values that moved in
    their first six digits, and figures whose settings changed.

    **Example:**

    >>> from stepwell.figures import moved
    >>> figure = {"name": "linear/fig1", "settings": {"seeds": 6}, "status": "done"}
    >>> claim = {"id": "linear/fig1/one-drop", "passed": True, "measured": 1.0}
    >>> before = {"figures": [figure], "claims": [claim]}
    >>> after = {"figures": [figure], "claims": [{**claim, "passed": False, "measured": 2.0}]}
    >>> [(one.what, one.name, one.before, one.after) for one in moved(before, after)]
    [('fails now', 'linear/fig1/one-drop', '1', '2')]
    """
    figures = [{entry["name"]: entry for entry in document["figures"]} for document in (before, after)]
    both = [name for name in figures[1] if name in figures[0] and (names is None or name in set(names))]
    old, new = (
        {claim["id"]: claim for claim in document["claims"] if _figure_of(claim) in both}
        for document in (before, after)
    )
    verdicts, values = [], []
    for name, claim in new.items():
        if name not in old:
            values.append(Movement("new", name, "", _verdict(claim)))
        elif claim["passed"] != old[name]["passed"]:
            what = "holds now" if claim["passed"] else "fails now"
            verdicts.append(Movement(what, name, number(old[name]["measured"]), number(claim["measured"])))
        elif not _same(claim["measured"], old[name]["measured"]):
            values.append(Movement("measured", name, number(old[name]["measured"]), number(claim["measured"])))
    gone = [Movement("gone", name, _verdict(claim), "") for name, claim in old.items() if name not in new]
    pairs = {name: (figures[0][name]["settings"], figures[1][name]["settings"]) for name in both}
    settings = [
        Movement("settings", name, _without(first, second), _without(second, first))
        for name, (first, second) in pairs.items()
        if first != second
    ]
    return [*verdicts, *gone, *values, *settings]


def _figure_of(claim: dict[str, Any]) -> str:
    return claim["id"].rpartition("/")[0]


def _verdict(claim: dict[str, Any]) -> str:
    return "holds" if claim["passed"] else "fails"


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=10.0**-DIGITS, abs_tol=1e-300)


def _without(settings: dict[str, Any], others: dict[str, Any]) -> str:
    """The settings that the others do not have, or have otherwise."""
    changed = {key: value for key, value in settings.items() if key not in others or others[key] != value}
    return "; ".join(f"{key}: {as_setting(value)}" for key, value in changed.items())
