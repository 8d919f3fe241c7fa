"""One comparison of theory and run; table, terminal, page and figure are renderings of it."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.paper_time import PAPER_UNIT
from stepwell._util.runs import with_runs
from stepwell._util.types import Normalization
from stepwell.dynamics import weight_factor
from stepwell.objectives import Moments, Sampled
from stepwell.tasks import AbstractSupervisedTask, Batch
from stepwell.theory import LinearTask, linear
from stepwell.trajectory import model_settings

from ._recorded import Weights, weights_of
from ._sample_task import sample_task
from ._staircase import Drop, Status, is_hidden, level_drops, noise_of


class ComparedDrop(NamedTuple):
    r"""A drop of the loss, predicted and measured.

    - `run`, `drop`: the number of the run, as the trajectory has it, and of the drop, from 1.
    - `component`, `head`: what is predicted to be learned and by which head, both from 1; None where it is all of
      them (merged attention) or there is no prediction.
    - `predicted`, `measured`: the times $t/\tau$; nan where there is none, or where rates are not known.
    - `predicted_step`, `measured_step`: the same as steps; nan where there are none.
    - `uncertainty`: that of the predicted time, in $t/\tau$: of 100 at least some 95 are off by less. Nan for a finite
      sample, and for training in steps, which is later than the flow.
    - `error`: measured / predicted − 1.
    - `level`: the loss predicted after the drop.
    - `measured_level`: the loss on the plateau after it, halfway to the next drop by the logarithm of time, and after
      the last drop at the end of the run; nan where 90 % of the drop are not reached.
    - `measured_component`, `measured_head`: what was learned, by which head; None as above, and where no weights were
      recorded between this drop and its neighbor, which cannot be distinguished then.
    - `in_order`: whether the component was the predicted one, or one of the same gain; None if that is not known.
    - `status`: "measured", "below resolution" or "not reached", as in `level_drops`; or "after the end": not reached,
      and predicted for a time after the end of the run.
    - `population`: where `predicted` is for a finite sample, the time predicted for infinitely many sequences.
    """

    run: int
    drop: int
    component: int | None
    head: int | None
    predicted: float
    predicted_step: float
    uncertainty: float
    measured: float
    measured_step: float
    error: float
    level: float
    measured_level: float
    measured_component: int | None
    measured_head: int | None
    in_order: bool | None
    status: Status | Literal["after the end"]
    population: float | None


class ComparedRun(NamedTuple):
    """Theory beside one run.

    - `theory`: the equations of the model, "separate" or "merged"; "units" of a network of units.
    - `task`: what the theory is for: the task, or where finitely many sequences are trained on that of the sample.
    - `weights`: the initial weights as the theory takes them, for attention divided by N.
    - `levels`, `learned`: the loss of each plateau that the model can visit, and how many components are learned there.
    - `drops`: a `ComparedDrop` for each two neighboring levels.
    """

    theory: str
    task: Any
    weights: dict[str, np.ndarray]
    levels: Float[np.ndarray, " level"]
    learned: list[int]
    drops: tuple[ComparedDrop, ...]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Theory beside the runs of a trajectory: `str` is the whole table with its remarks.

    - `runs`: a `ComparedRun` for each run.
    - `stepped`: whether the runs were recorded by step.
    - `remarks`: why there are no predictions, or what the finite sample changes; a line each.
    """

    runs: tuple[ComparedRun, ...]
    stepped: bool
    remarks: tuple[str, ...]

    @cached_property
    def table(self) -> pd.DataFrame:
        """A `pandas.DataFrame` with a row for each drop of each run; its columns are the fields of `ComparedDrop`."""
        whole = ["component", "head", "measured_component", "measured_head"]
        kinds = dict.fromkeys(whole, "Int64") | {"in_order": "boolean", "population": float}
        table = pd.DataFrame(self.drops, columns=list(ComparedDrop._fields)).astype(kinds).filter(self._columns)
        table.attrs = {"unit": PAPER_UNIT, "remarks": list(self.remarks)}
        return table

    @property
    def drops(self) -> list[ComparedDrop]:
        """The drops of all runs."""
        return [drop for run in self.runs for drop in run.drops]

    @property
    def _columns(self) -> list[str]:
        sampled = any(drop.population is not None for drop in self.drops)
        return [name for name in ComparedDrop._fields if sampled or name != "population"]

    def records(self) -> list[dict[str, Any]]:
        """Return the rows of the table as plain values, None for what is not known."""
        return [{name: _plain(getattr(drop, name)) for name in self._columns} for drop in self.drops]

    def lines(self, runs: str = "") -> list[str]:
        """Return the table as a terminal shows it, and the remarks.

        **Arguments:**

        - `runs`: the heading of a column with the number of the run, such as "seed"; by default there is none.
        """
        step = "    (step)" if self.stepped else ""
        heading = f"{runs}{'  ' if runs else ''}drop  component  head  predicted t/τ{step}        ±  measured t/τ{step}"
        lines = [f"{heading}   error     loss to    measured"]
        for drop in self.drops:
            predicted = math.isfinite(drop.predicted)
            component, head = (each or "all" if predicted else "-" for each in (drop.component, drop.head))
            row = f"{drop.run:>{len(runs)}}  " if runs else ""
            row += f"{drop.drop:>4}  {component:>9}  {head:>4}"
            uncertainty = float(format(drop.uncertainty, ".1e"))
            for time, at, width, off in (
                (drop.predicted, drop.predicted_step, 13, f"  {_number(uncertainty, 'g'):>7}"),
                (drop.measured, drop.measured_step, 12, ""),
            ):
                at_step = f"{_number(at, '.0f'):>10}" if self.stepped else ""
                row += f"  {_number(time, '.6g'):>{width}}{at_step}{off}"
            error = f"{100 * drop.error:+.0f} %" if math.isfinite(drop.error) else "-"
            note = "" if drop.status == "measured" else f"  {drop.status}"
            note += "  out of order" if drop.in_order is False else ""
            lines.append(f"{row}  {error:>6}  {drop.level:>10.4g}  {_number(drop.measured_level, '.4g'):>10}{note}")
        return [*lines, *self.remarks]

    def __str__(self) -> str:
        text = self.table.to_string(index=False, float_format=lambda value: f"{value:.5g}", na_rep="-")
        return "\n".join([text, *self.remarks])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        remarks = "".join(f"<p>{remark}</p>" for remark in self.remarks)
        return f"{self.table.to_html(index=False, float_format='{:.5g}'.format, na_rep='-')}{remarks}"


@checked
def compare(
    trajectory: xr.Dataset,
    task: LinearTask | AbstractSupervisedTask,
    *,
    sample: Moments | Sampled | Batch | None = None,
) -> Comparison:
    r"""Return the drops of a trajectory: predicted by the theory from its initial weights, and measured.

    A drop is measured where the loss is halfway between two of the theory's levels (`level_drops`; `staircase` detects
    drops without them). The component that it brought is the one that has grown most in the effective map between the
    recorded weights before and after, and the head is the one whose own map has come to have most components more
    (`theory.linear.total_share`). Times are the paper's $t/\tau$, attention divided by N.

    **Arguments:**

    - `trajectory`: a run, or an ensemble, of linear separate or merged attention from `descend`, `online` or `flow`; or
      of a network of units, whose prediction is that of `unit_drops`: components count its drops there, and heads are
      units.
    - `task`: the regression that it was trained on; of a network of units the supervised task. Losses and times are the
      run's own, also where its loss is a mean over outputs (`reduce="mean"`).
    - `sample`: the sequences that it was trained on, or the loss over them, where they are finitely many. Predictions
      are then for the sample's own driving (`sample_task`), and `population` has those for `task`.

    **Returns:** a `Comparison`, of which `table` is a pandas table with a row for each drop of each run.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned([[1.0, 0.0], [0.0, 1.0]], heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> table = sw.analysis.compare(trajectory, task).table
    >>> table[["component", "head", "measured_head"]].values.tolist(), table["in_order"].tolist()
    ([[1, 1, 1], [2, 2, 2]], [True, True])
    >>> table["predicted"].round().tolist(), table["measured"].round().tolist()
    ([9.0, 36.0], [9.0, 36.0])
    """
    if isinstance(task, AbstractSupervisedTask):
        from ._compare_units import compare_units

        return compare_units(trajectory, task)
    trajectory = with_runs(trajectory)
    weights = weights_of(trajectory)
    units = convention(trajectory, task, weights)
    predictor = linear.PREDICTORS[weights.theory]
    own, remarks = task, _one_task_for_all(trajectory)
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
    predictions = predictor.drops_of_runs(own, start)
    others = predictor.drops_of_runs(task, start) if own is not task else None
    runs = []
    for number, name in enumerate(weights.runs.tolist()):
        axis, reason = _Axis.of(trajectory, number, units), predictions[number].reason
        remarks += [f"run {name}: {reason}"] if reason else []
        time, loss = _curve(trajectory, number)
        measured = level_drops(time, loss, levels[learned])
        noise, spans = noise_of(loss), dict[int, tuple[int, int] | None]()
        for place, drop in enumerate(measured):
            seen = drop.status != "not reached" and not is_hidden(drop.before, drop.after, noise)
            if weights.theory == "separate" and seen:
                spans[place] = _span(measured, place, weights.points)
        remarks += _indistinguishable(int(name), [place + 1 for place, span in spans.items() if span is None])
        maps = _head_maps({name: value[number] for name, value in at.items()}, units.scale)
        brought = {place: _learned(own, *maps[list(span)]) for place, span in spans.items() if span is not None}
        drops = []
        for place, drop in enumerate(measured):
            when, predicted = axis.time(drop.time), _predicted(predictions[number], place, axis)
            predicted = (*predicted[:-1], np.nan if sample is not None or axis.stepped else predicted[-1])
            late = drop.status == "not reached" and predicted[2] > axis.times[-1]
            component, head = brought.get(place, (None, None))
            compared = ComparedDrop(
                int(name),
                place + 1,
                *predicted,
                measured=when,
                measured_step=drop.time if axis.stepped else np.nan,
                error=when / predicted[2] - 1 if predicted[2] else np.nan,
                level=drop.after,
                measured_level=_plateau(time, loss, measured[place:]),
                measured_component=component,
                measured_head=head,
                in_order=_in_order(own, place + 1, brought),
                status="after the end" if late else drop.status,
                population=None if others is None else _predicted(others[number], place, axis)[2],
            )
            drops.append(compared)
        initial = {name: value[number] for name, value in start.items()}
        runs.append(ComparedRun(weights.theory, own, initial, levels[learned], learned, tuple(drops)))
    return Comparison(tuple(runs), "step" in trajectory.dims, tuple(remarks))


def _one_task_for_all(trajectory: xr.Dataset) -> list[str]:
    """A remark on several runs that were each trained on a loss of its own; of an experiment's they are refused."""
    try:
        loss = json.loads(trajectory.attrs["configuration"])["objective"]["class"]
    except (KeyError, ValueError, TypeError):
        return []
    if trajectory.sizes["run"] == 1 or loss != "Ensemble":
        return []
    if "experiment" in trajectory.attrs:
        raise InvalidInput(
            "each run of the experiment has a task of its own, and one task is given for all; leave it out, as in "
            "run.stepwell.compare() or run.stepwell.plot(), or take one run, such as run.isel(run=[0])"
        )
    return ["each run was trained on a loss of its own; all are predicted from one task"]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


class Convention(NamedTuple):
    """From a run to the theory, where attention is divided by N: what weights, maps and times are multiplied by."""

    factor: float
    scale: float
    time: float


def convention(trajectory: xr.Dataset, task: Any, weights: Weights | None = None) -> Convention:
    """How weights, maps and times of a run become those of the theory; `InvalidInput` where there is none."""
    weights, settings = weights_of(trajectory) if weights is None else weights, model_settings(trajectory)
    if settings.get("activation", "linear") != "linear":
        raise InvalidInput(
            f"the model has {settings['activation']} attention; there are predictions for linear attention"
        )
    given: Normalization = settings.get("normalization") or "1/N"
    counts = task.context.counts
    if given != "1/N" and len(counts) > 1:
        raise InvalidInput(
            f"attention is divided by {given} at {len(counts)} context lengths; the theory is for normalization='1/N'"
        )
    factors = weights.model.factors
    factor = weight_factor(given, "1/N", length=max(counts), factors=factors)
    papers = "time" in trajectory.coords and trajectory["time"].attrs.get("units") == PAPER_UNIT
    return Convention(factor, factor**factors, 1.0 if papers else factor**2)


class _Axis(NamedTuple):
    """The recorded points of one run, steps or times, and the theory's time at each; nan where rates are not known."""

    points: np.ndarray
    times: np.ndarray
    stepped: bool

    @classmethod
    def of(cls, trajectory: xr.Dataset, number: int, units: Convention) -> "_Axis":
        axis = "step" if "step" in trajectory.dims else "time"
        points = trajectory[axis].values
        if "time" not in trajectory.coords:
            return cls(points, np.full(points.size, np.nan), stepped=True)
        time = trajectory["time"].isel(run=number) if "run" in trajectory["time"].dims else trajectory["time"]
        return cls(points, time.values * units.time, axis == "step")

    def step(self, time: float) -> float:
        """The step at a time; nan where there are none. Beyond the last one the last rate is continued."""
        points, times = self.points, self.times
        if not self.stepped or times.size < 2:
            return np.nan
        if time <= times[-1]:
            return float(np.interp(time, times, points))
        if not times[-1] > times[-2]:
            return np.nan
        return float(points[-1] + (points[-1] - points[-2]) / (times[-1] - times[-2]) * (time - times[-1]))

    def time(self, point: float) -> float:
        """The theory's time at a point of the run."""
        return float(np.interp(point, self.points, self.times)) if np.isfinite(point) else np.nan


def _predicted(
    drops: Sequence[linear.PredictedDrop], place: int, axis: _Axis
) -> tuple[int | None, int | None, float, float, float]:
    """Component, head, time, step and uncertainty of a drop; no time where there is no prediction."""
    if place >= len(drops) or not np.isfinite(axis.times).all():
        return None, None, np.nan, np.nan, np.nan
    drop = drops[place]
    component, head = (None if each is None else each + 1 for each in (drop.component, drop.head))
    return component, head, drop.time, axis.step(drop.time), drop.uncertainty


def _curve(trajectory: xr.Dataset, number: int) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, " point"]]:
    """The loss of one run, as far as it is finite."""
    loss = trajectory["loss"].isel(run=number).values
    finite = np.isfinite(loss)
    end = loss.size if finite.all() else int(np.argmin(finite))
    return trajectory["step" if "step" in trajectory.dims else "time"].values[:end].astype(float), loss[:end]


def _head_maps(at: dict[str, np.ndarray], scale: float) -> Float[np.ndarray, "point head dim dim"]:
    """What each head adds to the effective map, at each recorded point."""
    values = at["values"][..., None, None] * scale
    if "key_queries" in at:
        return values * at["key_queries"]
    return values * np.einsum("thri,thrj->thij", at["keys"], at["queries"])


def _plateau(time: np.ndarray, loss: np.ndarray, drops: Sequence[Drop]) -> float:
    """The loss between the end of the first of these drops and the start of the next; nan if it does not end."""
    begin = drops[0].end
    if not np.isfinite(begin):
        return np.nan
    if len(drops) == 1:
        return float(loss[-1])
    end = drops[1].start if np.isfinite(drops[1].start) else time[-1]
    return float(np.interp(np.sqrt(begin) * np.sqrt(max(begin, end)), time, loss))


def _span(drops: Sequence[Drop], place: int, points: Float[np.ndarray, " point"]) -> tuple[int, int] | None:
    """The recorded weights before and after a drop; None if another begins or ends between them.

    A drop ends before the next begins, so that there are weights between where they were recorded often enough.
    """
    drop, earlier, later = drops[place], drops[:place][-1:], drops[place + 1 :][:1]
    before = int(np.searchsorted(points, drop.start, side="right")) - 1
    after = int(np.searchsorted(points, drop.end)) if np.isfinite(drop.end) else points.size - 1
    if not 0 <= before < after < points.size:
        return None
    mixed = any(each.end > points[before] for each in earlier) or any(each.start < points[after] for each in later)
    return None if mixed else (before, after)


def _indistinguishable(run: int, drops: list[int]) -> list[str]:
    if not drops:
        return []
    which = f"drop{'s' if len(drops) > 1 else ''} {', '.join(map(str, drops))}"
    return [
        f"run {run}: the weights recorded about {which} are too few to tell which component and head each brought; "
        "record more snapshots"
    ]


def _learned(
    task: LinearTask, before: Float[np.ndarray, "head dim dim"], after: Float[np.ndarray, "head dim dim"]
) -> tuple[int, int]:
    """Component and head that grew most, from 1. Other heads may turn while one grows, by more than it grows."""
    gained = linear.shares(task, after.sum(axis=0))[1] - linear.shares(task, before.sum(axis=0))[1]
    growth = linear.total_share(task, after) - linear.total_share(task, before)
    return int(np.argmax(gained)) + 1, int(np.argmax(growth)) + 1


def _in_order(task: LinearTask, expected: int, brought: dict[int, tuple[int, int]]) -> bool | None:
    """Whether the drop `expected`, from 1, brought the component of that number, or one of the same gain.

    A component that two drops seem to have brought was learned across a level, which is then not one of the run's: that
    of a small sample is known roughly.
    """
    if expected - 1 not in brought:
        return None
    component, gains = brought[expected - 1][0], linear.components(task).gains
    if np.isclose(gains[component - 1], gains[expected - 1], rtol=1e-6, atol=0.0):
        return True
    return False if [each[0] for each in brought.values()].count(component) == 1 else None


def _what_changes(population: np.ndarray, sample: np.ndarray) -> str:
    own, others = (", ".join(f"{level:.3g}" for level in levels) for levels in (sample, population))
    return (
        f"predicted for the finite sample trained on: its levels are {own}; those of the population, {others}; "
        "how far off times are is not known"
    )
