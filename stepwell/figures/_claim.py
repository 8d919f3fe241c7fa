"""What a paper says, what was measured, and whether the two agree."""

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, Required, TypedDict, Unpack, get_args

from stepwell._util import checks
from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown

Relation = Literal["=", "<=", ">="]
Kind = Literal["paper", "other", "theory", "check"]
"""Who says it: the paper; another paper; a derivation of ours, against simulation; or an internal consistency check."""
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


class Value(NamedTuple):
    """One of several values that a claim compares.

    **Arguments:**

    - `label`: what it belongs to, such as "seed 3, drop 2"; None where that was not given, and its place tells.
    - `measured`, `predicted`, `tolerance`, `passed`: as those of a `Claim`.
    """

    label: str | None
    measured: float
    predicted: float
    tolerance: float
    passed: bool


@dataclass(frozen=True)
class Claim:
    """A statement that can fail: what is predicted, what was measured, and whether the two agree.

    It is made by a method of its `Origin`: `close`, `at_most` or `at_least` for one value or for several, and
    `fraction` for how many have a property. Whether it holds, `passed`, is worked out and cannot be given.

    **Arguments:**

    - `id`: the identifier, which stays when the statement is reworded. A figure calls its claim `levels`; it is
      reported as "linear/fig3/levels" (`of_figure`), of which `paper` and `figure` are parts.
    - `statement`: what is claimed, in a sentence.
    - `predicted`, `measured`, `tolerance`, `relation`: `measured` must lie within `tolerance` of `predicted` ("="), or
      not be above ("<=") or below (">=") it by more than `tolerance`. For several values these are the numbers of the
      one that decides: sorted from the best to the worst, the last of those that must hold.
    - `basis`: what the tolerance is derived from, in a few words. Settings and tolerances are fixed before the seeds
      that judge them are drawn.
    - `count`, `counted`, `pass_rate`: how many values were compared, what they are (seeds, heads, plateaus, …), and the
      fraction of them for which the claim holds; None for a claim about one value.
    - `values`: of several values each, a `Value`.
    - `kind`: "paper" (the paper says it), "other" (another paper does), "theory" (a derivation of ours, against
      simulation) or "check" (internal consistency: the same quantity computed in two independent ways).
    - `source`: the theorem, equation, section or figure that says it.
    - `known`: why it fails, if that is understood; where it then holds, that is unexpected.
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
    values: tuple[Value, ...] = field(kw_only=True, default=())
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
        object.__setattr__(self, "passed", self.excess() <= self.tolerance and not self.unjudged)

    def of_figure(self, name: str) -> "Claim":
        """Return the claim with its whole identifier, as one of the figure of this name, such as "linear/fig3"."""
        return replace(self, id=f"{name}/{self.id.rpartition('/')[2]}")

    def excess(self) -> float:
        """Return how far the measured value is on the wrong side of the predicted one; infinite if it is no number."""
        difference = self.measured - self.predicted
        if math.isnan(difference):
            return math.inf
        return {"=": abs(difference), "<=": difference, ">=": -difference}[self.relation]

    def judged(self, changed: Iterable[str] = ()) -> bool:
        """Return whether it can be judged where these settings were changed; other seeds change nothing."""
        return not self.why_not_judged(changed)

    def why_not_judged(self, changed: Iterable[str] = ()) -> str:
        """Return why it is not judged where these settings were changed; empty if it is."""
        if self.only_published and any("seeds" not in name for name in changed):
            return "it compares with the paper's own data"
        return self.unjudged

    def unexpected(self, quick: bool, changed: Iterable[str] = ()) -> bool:
        """Return whether it fails and that is not known, is known to fail and holds, or cannot be judged; where
        settings were changed, the first alone."""
        listed = list(changed)
        if listed:
            return self.judged(listed) and not self.passed and self.known is None
        fails = self.known is not None and self.known.quick in (None, quick)
        return bool(self.unjudged) or self.passed == fails

    def as_json(self) -> dict[str, Any]:
        """Return its fields for a JSON document: null for what is not finite."""
        known = None if self.known is None else self.known._asdict()
        return _finite(asdict(self)) | {"known": known, "values": [_finite(value._asdict()) for value in self.values]}


def _finite(fields: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}


class Judging(TypedDict, total=False):
    """Keywords of every method of `Origin` that returns a claim.

    - `tolerance`, `basis`: how far off is allowed, by default not at all, and what that is derived from.
    - `counted`: what several values are: seeds (the default), heads, components, plateaus, …
    - `labels`: what each of several values belongs to; by default the coordinates of `measured`, if it is an
      `xarray.DataArray`; along an axis without coordinates the number, from 1 on.
    - `required`: the fraction of several values for which the claim must hold, by default all.
    - `unless`: why these settings say nothing about it, such as "no plateau is long enough"; then it is not judged.
    - `known`: why it fails, if that is understood.
    """

    basis: Required[str]
    tolerance: Any
    counted: str
    labels: Iterable[Any]
    required: float
    unless: str
    known: Known | None


@dataclass(frozen=True)
class Origin:
    """Who says what is claimed, and where; its methods return the claims.

    Each takes an identifier and a statement, `measured` and what `Judging` lists. `measured` is one number, or one for
    each seed, head, plateau, …; `predicted` and `tolerance` are then one number for all or one for each. Without values
    the claim is not judged. The coordinates of an `xarray.DataArray` say what each of its values belongs to.

    **Arguments:**

    - `kind`, `source`, `explored`, `only_published`: those of its claims (`Claim`).

    **Example:**

    >>> from stepwell.figures import Origin
    >>> paper = Origin("paper", "Fig 3(a)", explored=True)
    >>> claim = paper.at_most("rise", "The loss falls: largest rise", measured=[0.0, 0.1], basis="rounding")
    >>> claim.passed, claim.pass_rate, claim.source
    (False, 0.5, 'Fig 3(a)')
    """

    kind: Kind
    source: str
    explored: bool = field(kw_only=True, default=False)
    only_published: bool = field(kw_only=True, default=False)

    def close(self, id: str, statement: str, *, predicted: Any = 0.0, measured: Any, **how: Unpack[Judging]) -> Claim:
        """Return the claim that `measured` is `predicted`, by default 0, up to `tolerance`."""
        return self._compare("=", id, statement, predicted, measured, **how)

    def at_most(self, id: str, statement: str, *, predicted: Any = 0.0, measured: Any, **how: Unpack[Judging]) -> Claim:
        """Return the claim that `measured` is not above `predicted`, by default 0, by more than `tolerance`."""
        return self._compare("<=", id, statement, predicted, measured, **how)

    def at_least(self, id: str, statement: str, *, predicted: Any, measured: Any, **how: Unpack[Judging]) -> Claim:
        """Return the claim that `measured` is not below `predicted` by more than `tolerance`."""
        return self._compare(">=", id, statement, predicted, measured, **how)

    def fraction(self, id: str, statement: str, *, holds: Iterable[Any], **how: Unpack[Judging]) -> Claim:
        """Return the claim that at least the fraction `required` of what is `counted` `holds`, a boolean each."""
        labels, values = _labels(holds, how.pop("labels", None)), _row("holds", holds)
        required = checks.number("required", how.pop("required", 1.0), least=0.0, above=True, most=1.0)
        rate = [sum(values) / len(values)] if values else []
        claim = self._compare(">=", id, statement, required, rate, **how)
        each = [Value(label, held, 1.0, 0.0, bool(held)) for label, held in _labeled(labels, values)]
        counts: Any = {"count": len(values), "pass_rate": rate[0], "values": tuple(each)} if rate else {}
        return claim if claim.unjudged else replace(claim, **counts)

    def _compare(
        self,
        relation: Relation,
        id: str,
        statement: str,
        predicted: Any,
        measured: Any,
        *,
        basis: str,
        tolerance: Any = 0.0,
        counted: str = "seeds",
        labels: Iterable[Any] | None = None,
        required: float = 1.0,
        unless: str = "",
        known: Known | None = None,
    ) -> Claim:
        """The claim of one value, or of several the one that decides."""
        checks.number("required", required, least=0.0, above=True, most=1.0)
        shared: Any = {**vars(self), "known": known}
        several = _are_several(measured)
        values = _row("measured", measured) if several and not unless else []
        if unless or several and not values:
            why = unless or f"there are no {counted} to judge"
            return Claim(id, statement, math.nan, math.nan, 0.0, "", unjudged=why, **shared)
        if not several:
            p, m, t = (float(value) for value in (predicted, measured, tolerance))  # of xarray or NumPy, too
            return Claim(id, statement, p, m, t, basis, relation, **shared)
        wanted, allowed = _row("predicted", predicted, len(values)), _row("tolerance", tolerance, len(values))
        single = [
            Claim(id, statement, p, m, t, basis, relation, **shared)
            for p, m, t in zip(wanted, values, allowed, strict=True)
        ]
        best_first = sorted(single, key=lambda one: (not one.passed, one.excess() / (one.tolerance or 1.0)))
        decisive = best_first[math.ceil(required * len(single) - 1e-9) - 1]
        rate = sum(claim.passed for claim in single) / len(single)
        each = tuple(
            Value(label, one.measured, one.predicted, one.tolerance, one.passed)
            for label, one in _labeled(_labels(measured, labels), single)
        )
        return replace(decisive, count=len(single), pass_rate=rate, counted=counted, values=each)


def _are_several(values: Any) -> bool:
    return isinstance(values, Iterable) and getattr(values, "shape", None) != ()


def _labels(values: Any, given: Iterable[Any] | None) -> list[str] | None:
    """What each value belongs to: as given, or as the coordinates of an array of xarray say, "seed 3, drop 2"."""
    if given is not None:
        return [str(one) for one in given]
    if not hasattr(values, "dims"):
        return None
    return [", ".join(row) for row in itertools.product(*(_along(values, dim) for dim in values.dims))]


def _along(values: Any, dim: Any) -> list[str]:
    named = {name: one.values.tolist() for name, one in values.coords.items() if one.dims == (dim,)}
    named = {name: one for name, one in named.items() if not any(isinstance(value, tuple) for value in one)}  # stacked
    named = named or {dim: range(1, values.sizes[dim] + 1)}
    rows = zip(*named.values(), strict=True)
    return [", ".join(f"{name} {_plain(one)}" for name, one in zip(named, row, strict=True)) for row in rows]


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _labeled(labels: list[str] | None, values: list[Any]) -> list[tuple[str | None, Any]]:
    if labels is not None and len(labels) != len(values):
        raise InvalidInput(f"there are {len(labels)} labels of {len(values)} values; give one for each, or none")
    return list(zip(labels or [None] * len(values), values, strict=True))


def _row(name: str, values: Any, count: int | None = None) -> list[float]:
    """Numbers in one row; one number stands for `count` of them."""
    if name in ("measured", "holds") and hasattr(values, "dims"):
        values = values.values.ravel()  # of any shape: its coordinates say what each belongs to
    shape = getattr(values, "shape", None)
    try:
        if count is not None and not _are_several(values):
            return [float(values)] * count
        row = [float(value) for value in values]
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{name} is {shown(values)}; give one number for each value that is compared, in one row"
        ) from None
    if len(shape or (0,)) != 1 or count not in (None, len(row)):
        raise InvalidInput(f"{name} has {len(row)} values; give one number for each value that is compared, in one row")
    return row
