"""What the theory predicts for a run, beside what the run did."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.paper_time import PAPER_UNIT
from stepwell._util.types import Normalization
from stepwell.dynamics import weight_factor
from stepwell.objectives import Moments, Sampled
from stepwell.tasks import Batch
from stepwell.theory import LinearTask, linear
from stepwell.trajectory import model_settings

from ._drop_table import DropTable
from ._level_drops import LevelDrop, level_drops
from ._sample_task import sample_task
from ._weights import weights_of


@checked
def compare(
    trajectory: xr.Dataset, task: LinearTask, *, sample: Moments | Sampled | Batch | None = None
) -> pd.DataFrame:
    r"""One table of the drops of a run: what the theory predicts from its initial weights, and what was measured.

    A drop is measured where the loss is halfway between two of the theory's levels (`level_drops`). Which component it
    brought, and which head, is what has grown most in the effective map between the recorded weights before and after.
    Times are the paper's $t/\tau$, attention divided by N, with steps beside where the run was recorded by step.

    **Arguments:**

    - `trajectory`: a run, or an ensemble, of linear separate or merged attention from `descend`, `online` or `flow`.
    - `task`: the regression that it was trained on.
    - `sample`: the sequences that it was trained on, or the loss over them, where they are finitely many. Predictions
      are then for the sample's own driving (`sample_task`), and the column `population` has those for `task`.

    **Returns:** a `pandas.DataFrame` with a row for each drop of each run:

    - `run`, `drop`: the number of the run, from 0, and of the drop, from 1.
    - `component`, `head`: what is predicted to be learned and by which head, both from 1; missing where it is all of
      them (merged attention) or there is no prediction.
    - `predicted`, `measured`: the times $t/\tau$; nan where there is none, or where rates are not known.
    - `predicted_step`, `measured_step`: the same as steps; nan where there are none.
    - `error`: measured / predicted − 1.
    - `level`: the loss predicted after the drop.
    - `measured_level`: the loss on the plateau after it, halfway to the next drop by the logarithm of time, and after
      the last drop at the end of the run; nan where 90 % of the drop are not reached.
    - `measured_component`, `measured_head`: what was learned, by which head; missing as above, and where two drops lie
      between the same recorded weights, which cannot tell one from the other.
    - `in_order`: whether the component was the predicted one, or one of the same gain; missing if that is not known.
    - `status`: "measured", "below resolution" or "not reached", as in `level_drops`.

    `attrs["remarks"]` is a list of lines: why there are no predictions, or what the finite sample changes.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> table = sw.analysis.compare(trajectory, task)
    >>> table[["component", "head", "measured_head"]].values.tolist(), table["in_order"].tolist()
    ([[1, 1, 1], [2, 2, 2]], [True, True])
    >>> table["predicted"].round().tolist(), table["measured"].round().tolist()
    ([9.0, 36.0], [9.0, 36.0])
    """
    weights = weights_of(trajectory)
    units = convention(trajectory, task)
    predictor = linear.PREDICTORS[weights.theory]
    own, remarks = task, []
    if sample is not None:
        try:
            own = sample_task(task, sample, commuting=weights.theory == "merged")
        except InvalidInput as error:
            remarks.append(f"predicted for infinitely many sequences: {error}")
    levels = linear.levels(own)
    at = weights.for_theory()
    pairs = at["keys"].shape[-2] if "keys" in at else 1  # over (run, point, head, pair, dim)
    learned = predictor.plateaus(int(np.sum(np.diff(levels) < 0)), at["values"].shape[-1] * pairs)
    if own is not task:
        remarks.append(_what_changes(linear.levels(task)[learned], levels[learned]))
    start = {name: units.factor * value[:, 0] for name, value in at.items()}
    drops_of_runs = predictor.drops_of_runs(own, start)
    others_of_runs = predictor.drops_of_runs(task, start) if own is not task else None
    rows = []
    for number in range(weights.runs.size):
        axis, drops = _Axis.of(trajectory, number, units), drops_of_runs[number]
        predictions = _predictions(drops, axis, len(learned) - 1)
        remarks += [f"run {weights.runs[number]}: {drops.reason}"] if drops.reason else []
        others = None if others_of_runs is None else _predictions(others_of_runs[number], axis, len(learned) - 1)
        time, loss = _curve(trajectory, number)
        measured = level_drops(time, loss, levels[learned])
        maps = _head_maps({name: value[number] for name, value in at.items()}, units)
        spans = [_span(drop, weights.points) for drop in measured]
        for place, (drop, predicted) in enumerate(zip(measured, predictions, strict=True)):
            row = {"run": int(weights.runs[number]), "drop": place + 1, **predicted._asdict()}
            row |= _measured(drop, predicted, axis, _plateau(time, loss, measured[place:]))
            span = spans[place]
            if weights.theory == "separate" and span is not None and spans.count(span) == 1:
                row |= _learned(own, span, place, maps)
            if others is not None:
                row["population"] = others[place].predicted
            rows.append(row)
    table = pd.DataFrame(rows)
    whole = ["component", "head", "measured_component", "measured_head"]
    table = DropTable(table.astype(dict.fromkeys(whole, "Int64") | {"in_order": "boolean"}))
    table.attrs = {"unit": PAPER_UNIT, "remarks": remarks}
    return table


class Convention(NamedTuple):
    """From the weights and the axis of a run to those of the theory, in which attention is divided by N."""

    factor: float
    """What weights are multiplied by."""
    scale: float
    """What maps are multiplied by."""
    unit: float
    """The theory's time for one unit of the run's axis; nan where the rate is not known."""
    time: float
    """What the run's times are multiplied by."""


class _Axis(NamedTuple):
    """The recorded points of one run, steps or times, and the theory's time at each; nan where rates are not known."""

    points: np.ndarray
    times: np.ndarray
    stepped: bool

    @classmethod
    def of(cls, trajectory: xr.Dataset, number: int, units: Convention) -> "_Axis":
        if "step" not in trajectory.dims:
            return cls(trajectory["time"].values, trajectory["time"].values * units.time, stepped=False)
        if "time" not in trajectory.coords:
            return cls(trajectory["step"].values, np.full(trajectory.sizes["step"], np.nan), stepped=True)
        time = trajectory["time"].isel(run=number) if "run" in trajectory["time"].dims else trajectory["time"]
        return cls(trajectory["step"].values, time.values * units.time, stepped=True)

    def step(self, time: float) -> float:
        """The step at a time; nan where there are none. Beyond its end the last rate goes on."""
        points, times = self.points, self.times
        if not self.stepped:
            return np.nan
        if time <= times[-1] or times.size < 2 or not times[-1] > times[-2]:
            inside = times.size > 1 and time <= times[-1]
            return float(np.interp(time, times, points)) if inside else np.nan
        pace = (points[-1] - points[-2]) / (times[-1] - times[-2])
        return float(points[-1] + pace * (time - times[-1]))

    def time(self, point: float) -> float:
        """The theory's time at a point of the run."""
        return float(np.interp(point, self.points, self.times)) if np.isfinite(point) else np.nan


class _Predicted(NamedTuple):
    component: int | None
    head: int | None
    predicted: float
    predicted_step: float


@checked
def convention(trajectory: xr.Dataset, task: LinearTask) -> Convention:
    r"""How the weights and times of a run convert to those of the theory, where attention is divided by N.

    **Arguments:**

    - `trajectory`: a run of linear separate or merged attention from `descend`, `online` or `flow`.
    - `task`: the regression that it was trained on.

    **Returns:** what weights are multiplied by (`factor`), what effective maps are (`scale`), and the theory's time
    $t/\tau$ for one unit of the run's own axis, a step or a time (`unit`; nan where the rate is not known), and for one
    unit of its times (`time`; 1 where they are the paper's already).

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 8)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1, normalization="none")
    >>> objective = sw.objectives.Population(task, "none")
    >>> trajectory = sw.dynamics.descend(model, objective, rate=0.125, steps=2, progress=False)
    >>> [round(value, 9) for value in sw.analysis.convention(trajectory, task)]  # 8^(1/3), 8, 2 rate 8^(2/3), 8^(2/3)
    [2.0, 8.0, 1.0, 4.0]
    """
    weights = weights_of(trajectory)
    settings = model_settings(trajectory)
    if settings.get("activation", "linear") != "linear":
        raise InvalidInput(
            f"the model has {settings['activation']} attention; there are predictions for linear attention"
        )
    given: Normalization = settings.get("normalization") or "1/N"
    counts = task.lengths.counts
    if given != "1/N" and len(counts) > 1:
        raise InvalidInput(
            f"attention is divided by {given} at {len(counts)} context lengths; the theory is for normalization='1/N'"
        )
    factors = weights.model.factors
    factor = weight_factor(given, "1/N", length=max(counts), factors=factors)
    unit, time = 1.0, factor**2
    if "time" in trajectory.coords and trajectory["time"].attrs.get("units") == PAPER_UNIT:
        time = 1.0
    if "step" in trajectory.dims:
        constant = _constant_rate(trajectory)
        unit = float(trajectory["time"][-1] / trajectory["step"][-1]) if constant else np.nan
    return Convention(factor, factor**factors, unit * time, time)


def _constant_rate(trajectory: xr.Dataset) -> bool:
    if "time" not in trajectory.coords or trajectory["time"].dims != ("step",):
        return False
    ratio = trajectory["time"].values[1:] / trajectory["step"].values[1:]
    return bool(ratio.size and np.allclose(ratio, ratio[-1], rtol=1e-9))


def _predictions(drops: Sequence[linear.PredictedDrop], axis: "_Axis", count: int) -> list[_Predicted]:
    """As many as there are drops; those for which there is none have no time."""
    predicted = [
        _Predicted(_from_1(drop.component), _from_1(drop.head), drop.time, axis.step(drop.time))
        for drop in drops[:count]
        if np.isfinite(axis.times).all()
    ]
    return predicted + [_Predicted(None, None, np.nan, np.nan)] * (count - len(predicted))


def _from_1(index: int | None) -> int | None:
    return None if index is None else index + 1


def _curve(trajectory: xr.Dataset, number: int) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """The loss of one run, as far as it is finite."""
    axis = "step" if "step" in trajectory.dims else "time"
    loss = trajectory["loss"].isel(run=number).values
    finite = np.isfinite(loss)
    end = loss.size if finite.all() else int(np.argmin(finite))
    return trajectory[axis].values[:end].astype(float), loss[:end]


def _head_maps(at: dict[str, np.ndarray], units: Convention) -> Float[np.ndarray, "point head dim dim"]:
    """What each head adds to the effective map, at each recorded point."""
    values = at["values"][..., None, None] * units.scale
    if "key_queries" in at:
        return values * at["key_queries"]
    keys, queries = at["keys"], at["queries"]
    return values * np.einsum("thri,thrj->thij", keys, queries)


def _plateau(time: np.ndarray, loss: np.ndarray, drops: Sequence[LevelDrop]) -> float:
    """The loss between the end of the first of these drops and the start of the next; nan if it does not end."""
    begin = drops[0].end
    if not np.isfinite(begin):
        return np.nan
    if len(drops) == 1:
        return float(loss[-1])
    end = drops[1].start if np.isfinite(drops[1].start) else time[-1]
    return float(np.interp(np.sqrt(begin) * np.sqrt(max(begin, end)), time, loss))


def _measured(drop: LevelDrop, predicted: _Predicted, axis: _Axis, plateau: float) -> dict[str, Any]:
    time = axis.time(drop.time)
    return {
        "measured": time,
        "measured_step": drop.time if axis.stepped else np.nan,
        "error": time / predicted.predicted - 1 if predicted.predicted else np.nan,
        "level": drop.after,
        "measured_level": plateau,
        "measured_component": None,
        "measured_head": None,
        "in_order": None,
        "status": drop.status,
    }


def _span(drop: LevelDrop, points: Float[np.ndarray, " point"]) -> tuple[int, int] | None:
    """The recorded weights before and after a drop; None if it is not reached."""
    if drop.status == "not reached":
        return None
    before = max(int(np.searchsorted(points, drop.start, side="right")) - 1, 0)
    end = drop.end if np.isfinite(drop.end) else points[-1]
    return before, max(min(int(np.searchsorted(points, end)), len(points) - 1), before)


def _learned(
    task: LinearTask, span: tuple[int, int], expected: int, maps: Float[np.ndarray, "point head dim dim"]
) -> dict[str, Any]:
    """Component and head that grew most during a drop, and whether it is the component of that number, from 0."""
    before, after = span
    gained = linear.shares(task, maps[after].sum(axis=0))[1] - linear.shares(task, maps[before].sum(axis=0))[1]
    component = int(np.argmax(gained))
    head = int(np.argmax(np.linalg.norm(maps[after] - maps[before], axis=(1, 2))))
    gains = linear.component_gains(task)
    return {
        "measured_component": component + 1,
        "measured_head": head + 1,
        "in_order": bool(np.isclose(gains[component], gains[expected], rtol=1e-6, atol=0.0)),
    }


def _what_changes(population: np.ndarray, sample: np.ndarray) -> str:
    own, others = (", ".join(f"{level:.3g}" for level in levels) for levels in (sample, population))
    return f"predicted for the finite sample trained on: its levels are {own}; those of the population, {others}"
