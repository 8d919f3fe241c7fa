"""Claims as the figures of this paper write them, slopes with their intervals, and settings as they are shown."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy
import xarray as xr
from jaxtyping import Float

from stepwell.figures import KINDS, Claim

DEVIATIONS = 4.0
"""Standard errors allowed of each of some twenty numbers: one in some 16,000 falls outside."""
CHANCE = 0.0027
"""How often a slope is further off than allowed: as three standard errors of a Gaussian."""


def named_settings(settings: Any) -> dict[str, Any]:
    """All fields of the settings of a figure, as its report shows them: common ones by their symbols."""
    symbols = {"dim": "dimension d", "dims": "dimensions d", "context": "context length L", "contexts": "contexts L"}
    names = {**symbols, "noise": "noise σ²"}
    return {names.get(name, name): value for name, value in asdict(settings).items()}


class Slope(NamedTuple):
    """A slope by least squares, and the half of its interval by Student's t: it misses the truth once in 370 times."""

    value: float
    allowed: float


def slope(x: Float[np.ndarray, " run"], y: Float[np.ndarray, " run"], others: Float[np.ndarray, " other"]) -> Slope:
    """Through independent runs of at least two different x. Their scatter is that of the y of other runs at one x."""
    centered = x - x.mean()
    value = centered @ y / (centered @ centered)
    error = others.std(ddof=1) / np.sqrt(centered @ centered)
    return Slope(float(value), float(scipy.stats.t.ppf(1 - CHANCE / 2, others.size - 1) * error))


def _claim(make: Callable[..., Claim], id: str, statement: str, *, unless: str = "", **values: Any) -> Claim:
    """The claim that a constructor of `Claim` makes; if `unless` says why it cannot be judged, one that is not judged.

    Its source is given as `paper=`, `theory=` or `check=`, its kind. `exact=` is the basis of a tolerance of zero.
    """
    (kind,) = {*KINDS} & {*values}
    origin: Any = {"kind": kind, "source": values.pop(kind)}
    origin |= {name: values.pop(name) for name in ("known", "explored") if name in values}
    if unless:
        return Claim.cannot_be_judged(id, statement, why=unless, **origin)
    if "exact" in values:
        values |= {"tolerance": 0.0, "basis": values.pop("exact")}
    numbers = {name: values[name] for name in ("predicted", "measured", "tolerance") if name in values}
    values |= {name: float(value) for name, value in numbers.items() if np.ndim(value) == 0}
    return make(id, statement, **values, **origin)


close, over, fraction = (partial(_claim, make) for make in (Claim.close, Claim.over, Claim.fraction))
at_most, at_least = (partial(_claim, make) for make in (Claim.at_most, Claim.at_least))


def worst_point(
    id: str, statement: str, *, measured: xr.DataArray, predicted: Any, tolerance: Any, unless: str = "", **others: Any
) -> Claim:
    """Equality at every point of every `run`; reported is the point furthest off in units of its tolerance."""
    if unless:
        return over(id, statement, unless=unless, **others)
    arrays = xr.broadcast(measured, *(xr.DataArray(given) for given in (predicted, tolerance)))
    values, wanted, allowed = (array.transpose("run", ...).values.reshape(array.sizes["run"], -1) for array in arrays)
    # What is not a number is the worst of all.
    off = np.nan_to_num(np.abs(values - wanted) / allowed, nan=np.inf)
    worst = np.arange(len(off)), off.argmax(axis=1)
    return over(id, statement, predicted=wanted[worst], measured=values[worst], tolerance=allowed[worst], **others)
