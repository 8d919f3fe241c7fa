"""What a paper says, what was measured, and whether the two agree."""

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from stepwell._errors import InvalidInput

Relation = Literal["=", "<=", ">="]
_RELATIONS = ("=", "<=", ">=")
_PART = r"[a-z0-9][a-z0-9.-]*"
_IDENTIFIER = re.compile(rf"{_PART}/{_PART}/{_PART}")


def slug(words: str) -> str:
    """Words as a part of an identifier: "separate, rank 1" becomes "separate-rank-1"."""
    return re.sub(r"[^a-z0-9.]+", "-", words.lower()).strip("-")


@dataclass(frozen=True)
class Claim:
    """A statement that can fail.

    `id` addresses the claim for good: "linear/fig3/levels" is the claim `levels` of Fig 3 of the paper `linear`. No two
    claims of a paper have the same; `paper` and `figure` are its parts. Statements may be reworded, identifiers stay.

    `measured` must lie within `tolerance` of `predicted` (relation "="), or not be above ("<=") or below (">=") it by
    more. `passed` is worked out here and cannot be given. `basis` says in a few words what the tolerance is derived
    from.

    Over several seeds the numbers are those of the seed that decides: from the best to the worst, the last of those
    that must hold. `seeds` is how many values were compared and `pass_rate` the fraction for which the claim holds.
    Where values do not differ by seed alone (components, plateaus, kinds of model), the statement says what they are.
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
    passed: bool = field(init=False)

    def __post_init__(self):
        if not _IDENTIFIER.fullmatch(self.id):
            raise InvalidInput(
                f"a claim has the identifier {self.id!r}; it must be PAPER/FIGURE/CLAIM, each of lower-case "
                "letters, digits, dots and hyphens, such as linear/fig3/levels"
            )
        paper, figure, _ = self.id.split("/")
        object.__setattr__(self, "paper", paper)
        object.__setattr__(self, "figure", figure)
        if self.relation not in _RELATIONS:
            raise InvalidInput(f"relation is {self.relation!r}; it must be one of {', '.join(_RELATIONS)}")
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise InvalidInput(
                f"the tolerance of {self.statement!r} is {self.tolerance}; it must be a number from 0 on"
            )
        object.__setattr__(self, "passed", _excess(self.relation, self.predicted, self.measured) <= self.tolerance)

    @classmethod
    def close(cls, id: str, statement: str, *, predicted, measured, tolerance, basis: str) -> "Claim":
        """`measured` is `predicted`, up to `tolerance`. `id` is such as "linear/fig3/levels"."""
        return cls(id, statement, float(predicted), float(measured), float(tolerance), basis)

    @classmethod
    def at_most(cls, id: str, statement: str, *, predicted=0.0, measured, tolerance=0.0, basis: str) -> "Claim":
        """`measured` is not above `predicted` by more than `tolerance`. By default it is a deviation from 0."""
        return cls(id, statement, float(predicted), float(measured), float(tolerance), basis, "<=")

    @classmethod
    def at_least(cls, id: str, statement: str, *, predicted, measured, tolerance=0.0, basis: str) -> "Claim":
        """`measured` is not below `predicted` by more than `tolerance`."""
        return cls(id, statement, float(predicted), float(measured), float(tolerance), basis, ">=")

    @classmethod
    def over_seeds(
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
    ) -> "Claim":
        """The claim for each seed, of which the fraction `required` must hold.

        `predicted` and `tolerance` are one number for all, or one for each seed, as `measured` is. Values may also be
        of something else than seeds, such as components or plateaus; `statement` then says of what.
        """
        values = [float(value) for value in measured]
        if not values or not 0 < required <= 1:
            raise InvalidInput(
                f"{len(values)} values, of which the fraction {required} must hold; give at least one value, and a "
                "fraction above 0 and at most 1"
            )
        wanted, allowed = _each(predicted, len(values)), _each(tolerance, len(values))
        single = [cls(id, statement, p, m, t, basis, relation) for p, m, t in zip(wanted, values, allowed, strict=True)]
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
        )

    def _badness(self) -> tuple[bool, float]:
        """Failing after passing, then by the deviation in units of the tolerance."""
        excess = _excess(self.relation, self.predicted, self.measured)
        return not self.passed, excess / self.tolerance if self.tolerance > 0 else excess

    def as_json(self) -> dict[str, Any]:
        """For a JSON document: what is not finite becomes null."""
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}


def _excess(relation: str, predicted: float, measured: float) -> float:
    """How far the measured value is on the wrong side; infinite if it is no number."""
    difference = measured - predicted
    if math.isnan(difference):
        return math.inf
    return {"=": abs(difference), "<=": difference, ">=": -difference}[relation]


def _each(value: Any, count: int) -> list[float]:
    try:
        listed = [float(v) for v in value]
    except TypeError:
        return [float(value)] * count
    if len(listed) != count:
        raise InvalidInput(f"{len(listed)} values for {count} seeds; give one number, or one for each seed")
    return listed
