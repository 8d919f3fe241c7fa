"""Gradient flow of separate attention to the end, and when each drop comes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from stepwell.analysis import passage_time
from stepwell.dynamics import Ensemble, Record, flow
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

COARSE = 300
"""Save times of a first run, evenly in log time."""
GAP = 1e-4
"""A run has ended when so much of the fall is left."""
MARGIN = 5e-3
"""By so much of its time a drop may come earlier or later where tolerances are loose."""


def drop_times(
    task: InContextRegression, models: Sequence[SeparateAttention], lanes: int, *, fine: int = 20
) -> Float[np.ndarray, "run drop"]:
    """When each run on infinitely many sequences is halfway from one level to the next, `lanes` runs at a time; nan
    where it has not the heads for that.

    Drops of different runs come at different times, and each is short beside its own. So all run twice: first with save
    times evenly in log time, with loose tolerances, and then with `fine` save times in each interval where there was
    the middle of a drop.
    """
    levels = theory.levels(task)
    halfway = (levels[1:] + levels[:-1]) / 2
    parts = [models[first : first + lanes] for first in range(0, len(models), lanes)]
    return np.concatenate([_some_drop_times(task, part, halfway, fine) for part in parts])


def _some_drop_times(
    task: InContextRegression, models: Sequence[SeparateAttention], halfway: Float[np.ndarray, " drop"], fine: int
) -> Float[np.ndarray, "run drop"]:
    runs, options = Ensemble.of(list(models)), {"gap": GAP, "progress": False}
    coarse = flow(runs, Population(task), record=Record(points=COARSE, spacing="log"), rtol=1e-4, **options)
    times = coarse["time"].values
    passages = _passages(times, coarse["loss"].values, halfway)
    after = np.unique(np.searchsorted(times, passages[np.isfinite(passages)]))
    finer = [np.linspace(times[i - 1] * (1 - MARGIN), times[i] * (1 + MARGIN), fine) for i in after]
    end = 1.2 * float(times[-1])
    save = np.unique(np.concatenate([times, *finer, [end]]))
    accurate: dict[str, Any] = {"until": end, "record": Record(points=save), "rtol": 1e-6, "progress": False}
    losses = flow(runs, Population(task), **accurate)["loss"].values
    return _passages(save, losses, halfway)


def _passages(
    times: Float[np.ndarray, " time"], losses: Float[np.ndarray, "run time"], levels: Float[np.ndarray, " drop"]
) -> Float[np.ndarray, "run drop"]:
    return np.array([[passage_time(times, loss, level) for level in levels] for loss in losses])
