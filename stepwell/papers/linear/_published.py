r"""Curves of the published figures, and when they could be ours.

Seeds of the published runs are PyTorch's, so that a run of ours at the same settings is another draw. The rules by
which the two are compared were fixed before any judged seed was run.

*A curve.* If the published curve and n of ours are draws of one distribution, all n + 1 are exchangeable. For each of
them count the points that lie outside the range of the other n, widened by the error of reading the picture. The
published curve passes if it has no more such points than one of ours has. A draw of ours fails with a probability of at
most 1/(n + 1), whatever the correlation of the points, since only one of n + 1 can be the farthest out. (This is the
rank test of Barnard, 1963, with a global envelope as in Myllymäki et al., 2017. A rule for single points would not do:
the range of n covers a point of a further draw with probability (n - 1)/(n + 1), and the points of a curve that drops
early or late are outside together.)

*Drop steps of k runs.* The number J of the k that lie outside the range of n of ours has the distribution
$P(J = j) = (j + 1)\,\frac{k!}{(k - j)!}\,\frac{n (n - 1)}{(n + k)(n + k - 1)\cdots(n + k - j - 1)}$,
since of the n + k in order the first a and the last j - a must be theirs, and the next ones ours. For k = 6 and n = 30,
P(J > 2) is 1.04 %; for four drops together, at most 4.2 %.
"""

import math
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from stepwell.figures import Claim, Origin

STEP_ERROR, LOSS_ERROR, DROP_ERROR = 10.0, 0.01, 15.0
"""Errors of reading a picture: steps and losses of a curve, steps of a drop (data/README.md)."""
_WINDOW = np.linspace(-STEP_ERROR, STEP_ERROR, 5)


def published(*names: str) -> dict[str, Float[np.ndarray, "point 2"]]:
    """Step and loss of published curves, by their names in data/README.md."""
    with np.load(Path(__file__).parent / "data" / "published_curves.npz") as curves:
        return {name: curves[name].astype(float) for name in names}


def as_dataset(curves: dict[str, Float[np.ndarray, "point 2"]]) -> xr.Dataset:
    """Published curves as they are kept beside ours: `NAME_step` and `NAME_loss`, each over points of its own."""
    columns = {}
    for name, curve in curves.items():
        for place, axis in enumerate(("step", "loss")):
            columns[f"{name}_{axis}"] = (f"{name}_point", curve[:, place])
    return xr.Dataset(columns)


def from_dataset(kept: xr.Dataset, name: str) -> Float[np.ndarray, "point 2"]:
    """The curve that `as_dataset` has kept."""
    return np.stack([kept[f"{name}_step"].values, kept[f"{name}_loss"].values], axis=1)


def points_outside(
    steps: Float[np.ndarray, " step"], ours: Float[np.ndarray, "seed step"], curve: Float[np.ndarray, "point 2"]
) -> Int[np.ndarray, " curves"]:
    """How many points of each curve, the published one first, lie outside the range of all others."""
    at = curve[:, 0, None] + _WINDOW
    around = np.stack([np.interp(at, steps, loss) for loss in ours])
    values = np.concatenate([curve[None, :, 1], around[:, :, _WINDOW.size // 2]])
    lows = np.concatenate([curve[None, :, 1], around.min(axis=2)])
    highs = np.concatenate([curve[None, :, 1], around.max(axis=2)])
    counts = []
    for one in range(len(values)):
        low, high = np.delete(lows, one, axis=0).min(axis=0), np.delete(highs, one, axis=0).max(axis=0)
        counts.append(np.sum((values[one] < low - LOSS_ERROR) | (values[one] > high + LOSS_ERROR)))
    return np.array(counts)


def curve_claim(identifier: str, what: str, source: str, counts: Int[np.ndarray, " curves"], points: int) -> Claim:
    """The published curve passes the rule above. `counts` is of `points_outside`, out of so many points of a curve."""
    seeds = len(counts) - 1
    rank, level = 1 + int(np.sum(counts[1:] > counts[0])), f"level {100 / len(counts):.1f} %"
    statement = (
        f"Beside {seeds} seeds of ours, {what} not the farthest out: fraction of points outside the range of all other "
        f"curves, {counts[0]} of {points:,}, by which it ranks {rank} of {len(counts)} (rank test, {level})"
    )
    return Origin("paper", source, only_published=True).at_most(
        identifier,
        statement,
        predicted=counts[1:].max() / points,
        measured=counts[0] / points,
        basis=f"the largest of ours; read to ±{STEP_ERROR:g} steps, ±{LOSS_ERROR:g}",
        unless="" if seeds > 1 else "a range needs two seeds",
    )


DROPS = ("first", "second", "third", "fourth")
PUBLISHED_RUNS = 6
ALLOWED_OUTSIDE = 2
"""Of six published runs, so many may have a drop outside the range of thirty of ours, or more; see above."""


def published_drops() -> list[Float[np.ndarray, "group 3"]]:
    """Of each drop of Fig 3: smallest and largest step of a group of runs that the picture does not part, and how many.

    Steps that coincide in the picture are given once. Five runs have their first drop in a cluster, of which the ends
    can be read, and one has not had its fourth at the end.
    """
    read = published(*(f"fig3_{name}_drops" for name in DROPS))
    groups = []
    for name, steps in zip(DROPS, read.values(), strict=True):
        ends = steps if steps.ndim == 2 else np.stack([steps, steps], axis=1)
        several = [PUBLISHED_RUNS - 1 if low < high else 1 for low, high in ends]
        rows = np.column_stack([ends, several])
        groups.append(np.vstack([rows, [[np.inf, np.inf, 1.0]]]) if name == DROPS[-1] else rows)
    return groups


def runs_outside(groups: Float[np.ndarray, "group 3"], ours: Float[np.ndarray, " seed"]) -> int:
    """How many of the published runs have their drop outside the range of ours; no drop by the end is infinite."""
    low, high = ours.min() - DROP_ERROR, ours.max() + DROP_ERROR
    first, last, runs = groups.T
    whole = (last < low) | (first > high)
    part = ((first < low) | (last > high)) & ~whole
    return int(np.sum(runs[whole]) + np.sum(part))


def chance_outside(ours: int, published: int, allowed: int) -> float:
    """The probability that more than `allowed` of so many `published` draws are outside the range of so many of
    ours."""
    inside = 0.0
    for j in range(allowed + 1):
        together = math.prod(range(ours + published - j - 1, ours + published + 1))
        inside += (j + 1) * math.perm(published, j) * ours * (ours - 1) / together
    return 1 - inside
