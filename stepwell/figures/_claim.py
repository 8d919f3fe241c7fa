"""What a paper says, what was measured, and whether the two agree."""

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, Required, TypedDict, Unpack, get_args

from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown

Relation = Literal["=", "<=", ">="]
Kind = Literal["paper", "theory", "check"]
"""Who says it: the paper; a derivation of ours, against simulation; or arithmetic of ours by a second route."""
KINDS: tuple[Kind, ...] = get_args(Kind)
_RELATIONS = ("=", "<=", ">=")
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
    """Why a claim is known to fail: a sentence, and the heading in docs/differences.md that explains it."""

    reason: str
    heading: str
    """As in a link to it, docs/differences.md#heading."""
    quick: bool | None = None
    """Whether it fails with `--quick` only (True), at the full settings only (False), or at both (None)."""

    def applies(self, quick: bool) -> bool:
        """Whether the claim is expected to fail at these settings."""
        return self.quick is None or self.quick == quick


class Origin(TypedDict, total=False):
    """Keywords of every constructor of `Claim`, which see."""

    kind: Required[Kind]
    source: Required[str]
    known: Known | None
    explored: bool
    only_published: bool


@dataclass(frozen=True)
class Claim:
    """A statement that can fail.

    `id` addresses the claim for good: a figure calls it `levels`, and it is reported as "linear/fig3/levels", the claim
    `levels` of Fig 3 of the paper `linear` (`of_figure`; `paper` and `figure` are its parts). No two claims of a figure
    have the same. Statements may be reworded, identifiers stay.

    `measured` must lie within `tolerance` of `predicted` (relation "="), or not be above ("<=") or below (">=") it by
    more. `passed` is worked out here and cannot be given. `basis` says in a few words what the tolerance is derived
    from. Settings and tolerances are fixed before the seeds that judge them are drawn; where the settings were chosen
    after seeing outcomes, the claim is `explored`, and is judged on fresh seeds.

    `kind` is "paper" (the paper says it), "theory" (a derivation of ours against simulation) or "check" (arithmetic of
    ours by a second route), and `source` the theorem, equation, section or figure that says it.

    Over several values the numbers are those of the one that decides: from the best to the worst, the last of those
    that must hold. `seeds` is how many values were compared, `counted` what they are (seeds, heads, plateaus, …) and
    `pass_rate` the fraction for which the claim holds.

    A failure that is understood is `known`. Unexpected are a failure that is not, and a known one that holds.

    A claim that compares with data of the paper is `only_published`: at other settings than its own it is not judged.
    Where there is nothing to judge, such as no plateau long enough to be read, `unjudged` says why; at the figure's own
    settings that is unexpected.
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
    seeds: int | None = None
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
        paper, figure, _ = self.id.split("/") if "/" in self.id else ("", "", "")
        object.__setattr__(self, "paper", paper)
        object.__setattr__(self, "figure", figure)
        if self.relation not in _RELATIONS:
            raise InvalidInput(f"relation is {self.relation!r}; it must be one of {', '.join(_RELATIONS)}")
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise InvalidInput(
                f"the tolerance of {self.statement!r} is {self.tolerance}; it must be a number from 0 on"
            )
        holds = _excess(self.relation, self.predicted, self.measured) <= self.tolerance
        object.__setattr__(self, "passed", holds and not self.unjudged)

    def of_figure(self, name: str) -> "Claim":
        """Return the claim with its whole identifier, as one of the figure of this name, such as "linear/fig3"."""
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return Claim(**{**values, "id": f"{name}/{self.id.rpartition('/')[2]}"})

    @classmethod
    def cannot_be_judged(cls, id: str, statement: str, *, why: str, **origin: Unpack[Origin]) -> "Claim":
        """A claim about which these settings say nothing; `why` is a clause, such as "no plateau is long enough"."""
        return cls(id, statement, math.nan, math.nan, 0.0, "", unjudged=why, **origin)

    @classmethod
    def close(
        cls, id: str, statement: str, *, predicted, measured, tolerance, basis: str, **origin: Unpack[Origin]
    ) -> "Claim":
        """`measured` is `predicted`, up to `tolerance`. `id` is such as "levels"."""
        return cls(id, statement, float(predicted), float(measured), float(tolerance), basis, **origin)

    @classmethod
    def at_most(
        cls, id: str, statement: str, *, predicted=0.0, measured, tolerance=0.0, basis: str, **origin: Unpack[Origin]
    ) -> "Claim":
        """`measured` is not above `predicted` by more than `tolerance`. By default it is a deviation from 0."""
        return cls(id, statement, float(predicted), float(measured), float(tolerance), basis, "<=", **origin)

    @classmethod
    def at_least(
        cls, id: str, statement: str, *, predicted, measured, tolerance=0.0, basis: str, **origin: Unpack[Origin]
    ) -> "Claim":
        """`measured` is not below `predicted` by more than `tolerance`."""
        return cls(id, statement, float(predicted), float(measured), float(tolerance), basis, ">=", **origin)

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
        """The claim for each of several values, of which the fraction `required` must hold.

        `predicted` and `tolerance` are one number for all, or one for each value, as `measured` is. `counted` says what
        the values are: seeds, heads, components, plateaus, … Where there are none, the claim is not judged.
        """
        values = _numbers(measured, "measured")
        if not 0 < required <= 1:
            raise InvalidInput(f"required is {required}; it must be a fraction above 0 and at most 1")
        if not values:
            return cls.cannot_be_judged(id, statement, why=f"there are no {counted} to judge", **origin)
        wanted, allowed = _each(predicted, len(values)), _each(tolerance, len(values))
        single = [
            cls(id, statement, p, m, t, basis, relation, **origin)
            for p, m, t in zip(wanted, values, allowed, strict=True)
        ]
        ordered = sorted(single, key=lambda claim: claim._badness())
        decisive = ordered[math.ceil(required * len(single) - 1e-9) - 1]
        rate = sum(claim.passed for claim in single) / len(single)
        return cls(
            id,
            statement,
            decisive.predicted,
            decisive.measured,
            decisive.tolerance,
            basis,
            relation,
            len(single),
            rate,
            counted,
            **origin,
        )

    def _badness(self) -> tuple[bool, float]:
        """Failing after passing, then by the deviation in units of the tolerance."""
        excess = _excess(self.relation, self.predicted, self.measured)
        return not self.passed, excess / self.tolerance if self.tolerance > 0 else excess

    def judged(self, changed: Iterable[str] = ()) -> bool:
        """Whether it can be judged where these settings were changed. Other seeds are the same experiment."""
        return not self.why_not_judged(changed)

    def why_not_judged(self, changed: Iterable[str] = ()) -> str:
        """Return why it is not judged where these settings were changed; empty if it is."""
        if self.only_published and any("seeds" not in name for name in changed):
            return "it compares with the paper's own data"
        return self.unjudged

    def unexpected(self, quick: bool, changed: Iterable[str] = ()) -> bool:
        """Whether it fails and that is not known, is known to fail at these settings and holds, or cannot be judged.

        Where settings were changed, a known failure may hold, and a claim may be one that cannot be judged.
        """
        listed = list(changed)
        if listed:
            return self.judged(listed) and not self.passed and self.known is None
        return bool(self.unjudged) or self.passed == (self.known is not None and self.known.applies(quick))

    def as_json(self) -> dict[str, Any]:
        """For a JSON document: what is not finite becomes null, and what is known a dictionary."""
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}
        return plain | {"known": None if self.known is None else self.known._asdict()}


def _excess(relation: str, predicted: float, measured: float) -> float:
    """How far the measured value is on the wrong side; infinite if it is no number."""
    difference = measured - predicted
    if math.isnan(difference):
        return math.inf
    return {"=": abs(difference), "<=": difference, ">=": -difference}[relation]


def _numbers(values: Any, name: str) -> list[float]:
    """Numbers from a list, an array or an iterator, if they are in one row."""
    shape = getattr(values, "shape", None)
    if shape is not None and len(shape) != 1:
        raise InvalidInput(f"{name} has shape {shape}; give one number for each value that is compared, in one row")
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} is {shown(values)}; give one number for each value that is compared") from None


def _each(value: Any, count: int) -> list[float]:
    if getattr(value, "shape", None) == () or not isinstance(value, Iterable):
        return [float(value)] * count  # pyright: ignore[reportArgumentType]
    listed = _numbers(value, "predicted or tolerance")
    if len(listed) != count:
        raise InvalidInput(f"{len(listed)} values for {count} measurements; give one number, or one for each")
    return listed
