"""What a paper says, what was measured, and whether the two agree."""

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, Required, TypedDict, Unpack, get_args

from stepwell._util import checks
from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown

Relation = Literal["=", "<=", ">="]
Kind = Literal["paper", "theory", "check"]
"""Who says it: the paper; a derivation of ours, against simulation; or an internal consistency check."""
KINDS: tuple[Kind, ...] = get_args(Kind)
PART = r"[a-z0-9][a-z0-9.-]*"
_IDENTIFIER = re.compile(rf"({PART}/{PART}/)?{PART}")


def slug(words: str) -> str:
    """Return words as a part of an identifier.

    **Arguments:**

    - `words`: any string.

    **Returns:** lower-case letters, digits and dots, with hyphens between them.

    **Example:**

    >>> from stepwell.figures import slug
    >>> slug("separate, rank 1")
    'separate-rank-1'
    """
    return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")


class Known(NamedTuple):
    """Why a claim is known to fail.

    **Arguments:**

    - `reason`: a sentence.
    - `heading`: the heading of docs/differences.md that explains it, as in a link to it, docs/differences.md#heading.
    - `quick`: whether it fails with `--quick` only (True), at the full settings only (False), or at both (None).
    """

    reason: str
    heading: str
    quick: bool | None = None


class Origin(TypedDict, total=False):
    """Keywords of every constructor of `Claim`, which see."""

    kind: Required[Kind]
    source: Required[str]
    known: Known | None
    explored: bool
    only_published: bool


@dataclass(frozen=True)
class Claim:
    """A statement that can fail: what is predicted, what was measured, and whether the two agree.

    Use the constructors `close`, `at_most` and `at_least` for one value, `over` for one of each seed, head, plateau or
    component, and `fraction` for how many of them have a property. Whether it holds, `passed`, is worked out and cannot
    be given.

    **Arguments:**

    - `id`: the identifier, which stays when the statement is reworded. A figure calls its claim `levels`; it is
      reported as "linear/fig3/levels" (`of_figure`), of which `paper` and `figure` are parts. No two claims of a figure
      have the same.
    - `statement`: what is claimed, in a sentence.
    - `predicted`, `measured`, `tolerance`, `relation`: `measured` must lie within `tolerance` of `predicted` ("="), or
      not be above ("<=") or below (">=") it by more than `tolerance`. For several values these are the numbers of the
      one that decides: sorted from the best to the worst, the last of those that must hold.
    - `basis`: what the tolerance is derived from, in a few words. Settings and tolerances are fixed before the seeds
      that judge them are drawn.
    - `count`, `counted`, `pass_rate`: how many values were compared, what they are (seeds, heads, plateaus, …), and the
      fraction of them for which the claim holds; None for a claim about one value.
    - `kind`: "paper" (the paper says it), "theory" (a derivation of ours, against simulation) or "check" (internal
      consistency: the same quantity computed in two independent ways).
    - `source`: the theorem, equation, section or figure that says it.
    - `known`: why it fails, if that is understood. Unexpected are a failure that is not known, and a known one that
      holds.
    - `explored`: whether its settings were chosen after outcomes were seen; it is then judged on fresh seeds.
    - `only_published`: whether it compares with data of the paper; at other settings than its own it is not judged.
    - `unjudged`: why there is nothing to judge, such as no plateau that is long enough; at the figure's own settings
      that is unexpected. Empty for all others.
    """

    id: str
    paper: str = field(init=False)
    figure: str = field(init=False)
    statement: str
    predicted: float
    measured: float
    tolerance: float
    basis: str
    relation: Relation = "="
    count: int | None = None
    pass_rate: float | None = None
    counted: str | None = None
    kind: Kind = field(kw_only=True)
    source: str = field(kw_only=True)
    known: Known | None = field(kw_only=True, default=None)
    explored: bool = field(kw_only=True, default=False)
    only_published: bool = field(kw_only=True, default=False)
    unjudged: str = field(kw_only=True, default="")
    passed: bool = field(init=False)

    def __post_init__(self):
        if self.kind not in KINDS or not self.source:
            raise InvalidInput(
                f"the claim {self.id!r} has kind {self.kind!r} and source {self.source!r}; give one of "
                f"{', '.join(KINDS)}, and the theorem, equation, section or figure that says it"
            )
        if not _IDENTIFIER.fullmatch(self.id):
            raise InvalidInput(
                f"a claim has the identifier {self.id!r}; it must be of lower-case letters, digits, dots and hyphens, "
                "such as levels"
            )
        checks.one_of("relation", self.relation, get_args(Relation))
        paper, figure, _ = self.id.split("/") if "/" in self.id else ("", "", "")
        numbers = {name: float(getattr(self, name)) for name in ("predicted", "measured", "tolerance")}
        for name, value in {"paper": paper, "figure": figure, **numbers}.items():
            object.__setattr__(self, name, value)
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise InvalidInput(
                f"the tolerance of {self.statement!r} is {self.tolerance}; it must be a number from 0 on"
            )
        object.__setattr__(self, "passed", self._excess() <= self.tolerance and not self.unjudged)

    def of_figure(self, name: str) -> "Claim":
        """Return the claim with its whole identifier, as one of the figure of this name, such as "linear/fig3"."""
        return replace(self, id=f"{name}/{self.id.rpartition('/')[2]}")

    @classmethod
    def cannot_be_judged(cls, id: str, statement: str, *, why: str, **origin: Unpack[Origin]) -> "Claim":
        """Return a claim about which these settings say nothing, because of `why`: "no plateau is long enough"."""
        return cls(id, statement, math.nan, math.nan, 0.0, "", unjudged=why, **origin)

    @classmethod
    def close(
        cls, id: str, statement: str, *, predicted, measured, tolerance, basis: str, **origin: Unpack[Origin]
    ) -> "Claim":
        """Return the claim that `measured` is `predicted`, up to `tolerance`."""
        return cls(id, statement, predicted, measured, tolerance, basis, **origin)

    @classmethod
    def at_most(
        cls, id: str, statement: str, *, predicted=0.0, measured, tolerance=0.0, basis: str, **origin: Unpack[Origin]
    ) -> "Claim":
        """Return the claim that `measured` is not above `predicted`, by default 0, by more than `tolerance`."""
        return cls(id, statement, predicted, measured, tolerance, basis, "<=", **origin)

    @classmethod
    def at_least(
        cls, id: str, statement: str, *, predicted, measured, tolerance=0.0, basis: str, **origin: Unpack[Origin]
    ) -> "Claim":
        """Return the claim that `measured` is not below `predicted` by more than `tolerance`."""
        return cls(id, statement, predicted, measured, tolerance, basis, ">=", **origin)

    @classmethod
    def over(
        cls,
        id: str,
        statement: str,
        *,
        predicted,
        measured: Iterable[Any],
        tolerance,
        basis: str,
        relation: Relation = "=",
        required: float = 1.0,
        counted: str = "seeds",
        **origin: Unpack[Origin],
    ) -> "Claim":
        """Return the claim for each of several values, of which the fraction `required` must hold.

        `predicted` and `tolerance` are one number for all, or one for each value, as `measured` is. `counted` says what
        the values are: seeds, heads, components, plateaus, … Without values the claim is not judged.
        """
        values = _row("measured", measured)
        if not 0 < required <= 1:
            raise InvalidInput(f"required is {required}; it must be a fraction above 0 and at most 1")
        if not values:
            return cls.cannot_be_judged(id, statement, why=f"there are no {counted} to judge", **origin)
        wanted, allowed = _row("predicted", predicted, len(values)), _row("tolerance", tolerance, len(values))
        single = [
            cls(id, statement, p, m, t, basis, relation, **origin)
            for p, m, t in zip(wanted, values, allowed, strict=True)
        ]
        best_first = sorted(single, key=lambda one: (not one.passed, one._excess() / (one.tolerance or 1.0)))
        decisive = best_first[math.ceil(required * len(single) - 1e-9) - 1]
        rate = sum(claim.passed for claim in single) / len(single)
        return replace(decisive, count=len(single), pass_rate=rate, counted=counted)

    @classmethod
    def fraction(
        cls,
        id: str,
        statement: str,
        *,
        holds: Iterable[Any],
        basis: str,
        required: float = 1.0,
        counted: str = "seeds",
        **origin: Unpack[Origin],
    ) -> "Claim":
        """Return the claim that at least the fraction `required` of seeds, or what is `counted`, have a property.

        `holds` says which have it, a boolean each. Without any the claim is not judged.
        """
        values = _row("holds", holds)
        if not values:
            return cls.cannot_be_judged(id, statement, why=f"there are no {counted} to judge", **origin)
        rate = sum(values) / len(values)
        return cls(id, statement, required, rate, 0.0, basis, ">=", len(values), rate, counted, **origin)

    def _excess(self) -> float:
        """How far the measured value is on the wrong side of the predicted one; infinite if it is no number."""
        difference = self.measured - self.predicted
        if math.isnan(difference):
            return math.inf
        return {"=": abs(difference), "<=": difference, ">=": -difference}[self.relation]

    def judged(self, changed: Iterable[str] = ()) -> bool:
        """Return whether it can be judged where these settings were changed. Other seeds are the same experiment."""
        return not self.why_not_judged(changed)

    def why_not_judged(self, changed: Iterable[str] = ()) -> str:
        """Return why it is not judged where these settings were changed; empty if it is."""
        if self.only_published and any("seeds" not in name for name in changed):
            return "it compares with the paper's own data"
        return self.unjudged

    def unexpected(self, quick: bool, changed: Iterable[str] = ()) -> bool:
        """Return whether it fails and that is not known, is known to fail and holds, or cannot be judged.

        Where settings were changed, a known failure may hold, and a claim may be one that cannot be judged.
        """
        listed = list(changed)
        if listed:
            return self.judged(listed) and not self.passed and self.known is None
        fails = self.known is not None and self.known.quick in (None, quick)
        return bool(self.unjudged) or self.passed == fails

    def as_json(self) -> dict[str, Any]:
        """Return its fields for a JSON document: null for what is not finite."""
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}
        return plain | {"known": None if self.known is None else self.known._asdict()}


def _row(name: str, values: Any, count: int | None = None) -> list[float]:
    """Numbers in one row, from a list, an array or an iterator; one number stands for `count` of them."""
    shape = getattr(values, "shape", None)
    try:
        if count is not None and (shape == () or not isinstance(values, Iterable)):
            return [float(values)] * count
        row = [float(value) for value in values]
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} is {shown(values)}; give one number for each value that is compared") from None
    if len(shape or (0,)) != 1 or count not in (None, len(row)):
        raise InvalidInput(f"{name} has {len(row)} values; give one number for each value that is compared, in one row")
    return row
