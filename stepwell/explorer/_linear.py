"""One regression, learned by attention: the run, and what theory says of it, as arrays for the page."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from stepwell._util.errors import InvalidInput
from stepwell._util.paper_time import TIME_NAME, weight_factor
from stepwell.analysis import ComparedDrop, ComparedRun, compare
from stepwell.experiments import Built, Experiment, Level, compare_run, sample_of
from stepwell.models import is_attention, theory_of
from stepwell.tasks import InContextRegression
from stepwell.theory import IntegrationFailed, linear

from ._view import View

_POINTS, _FEW = 1000, 30  # points of a view, at the most; and snapshots of the weights at the least
_LARGEST = 1e30  # numbers are cut off here, so that they fit into 32 bits: of what diverges
_GROWN = (1 - 0.5**0.5) ** (1 / 3)
"""Of its end, the value of a head when the loss has fallen by half of its drop: 1 - (1 - x³)² is a half."""
_EARLY = 0.02
"""Of its end, the value from which on the scalar equation of a head is drawn: before, the head still rotates."""
_COLUMNS = {
    "drop": "drop",
    "component": "component",
    "measured_component": "measured component",
    "head": "head",
    "measured_head": "measured head",
    "predicted": "t/τ",
    "uncertainty": "±",
    "measured": "measured t/τ",
    "predicted_step": "step",
    "measured_step": "measured step",
    "level": "level",
    "measured_level": "measured level",
    "in_order": "in order",
    "status": "status",
}
"""Columns of `analysis.Comparison`, and what the page calls them."""


class Points(NamedTuple):
    """What was recorded of one run where its weights were: times t/τ, steps of a descent, losses, and weights."""

    time: np.ndarray  # steps, where an optimizer or a schedule has no flow time
    steps: np.ndarray | None
    loss: np.ndarray
    weights: dict[str, np.ndarray]


def points_of(trajectory: xr.Dataset, names: Any = ()) -> Points:
    """Recorded points of a run as far as its loss is finite; with `names` of weights, those that have them."""
    axis = "step" if "step" in trajectory.dims else "time"
    loss = trajectory["loss"].values[0]
    finite = np.isfinite(loss)
    end = loss.size if finite.all() else int(np.argmin(finite))
    along, loss = trajectory[axis].values[:end], loss[:end]
    kept = "snapshot" if names and "snapshot" in trajectory.dims else axis
    places = np.flatnonzero(trajectory[kept].values <= along[-1])
    places = places[np.unique(np.linspace(0, places.size - 1, min(places.size, _POINTS)).round().astype(int))]
    points = trajectory[kept].values[places].astype(float)
    weights = {name: trajectory[name].values[0][places] for name in names}
    time = points
    if axis == "step" and "time" in trajectory.coords:
        time = np.interp(points, along, trajectory["time"].values.reshape(-1, trajectory.sizes["step"])[0][:end])
    return Points(time, points if axis == "step" else None, np.interp(points, along, loss), weights)


def has_weights(trajectory: xr.Dataset, names: Any) -> bool:
    """Whether weights were recorded about as often as the loss: at few snapshots there is nothing to be seen."""
    axis = "snapshot" if "snapshot" in trajectory.dims else "time"
    enough = trajectory.sizes.get(axis, 0) >= min(_FEW, trajectory["loss"].shape[1])
    return enough and all(name in trajectory for name in names)


def small(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)


def curve_view(experiment: Experiment, trajectory: xr.Dataset, points: Points) -> View:
    """What any run has: its loss."""
    timed = "time" in trajectory.coords
    made: View = {
        "kind": "curve",
        "time": points.time,
        "time_name": TIME_NAME if timed else "step",
        "time_unit": experiment.time_scale.unit if timed else "step",
        "loss": points.loss,
        "outcome": str(trajectory.attrs.get("outcome", "")),
        "message": str(trajectory.attrs.get("message", "")),
        "caption": caption(experiment, trajectory, points),
        "problems": {},
        "levels": np.zeros(0),
        "level_names": [],
        "drop_times": np.zeros(0),
        "drop_uncertainties": np.zeros(0),
        "drop_names": [],
        "measured_times": np.zeros(0),
        "table": {"columns": [], "rows": []},
        "remark": experiment.no_theory(),
    }
    if points.steps is not None:
        made["steps"] = points.steps
    return made


def is_linear(built: Built) -> bool:
    task, model, _ = built
    if not is_attention(model) or theory_of(type(model)) is None:
        return False
    return isinstance(task, InContextRegression) and task.outputs == 1 and not (task.target_noise and task.noisy)


def run_view(experiment: Experiment, built: Built, trajectory: xr.Dataset) -> View:
    points = points_of(trajectory, built.model.weight_dims)
    task: Any = built.task
    modes, weights = linear.modes(task), type(built.model).theory_weights(points.weights)  # pyright: ignore
    basis = modes.directions
    made = curve_view(experiment, trajectory, points) | {
        "kind": "linear",
        "values": small(weights["values"]),
        "eigenvalues": modes.variances,
        "values_theory": np.full(weights["values"].shape, np.nan, np.float32),
    }
    if "keys" in weights:
        keys, queries = weights["keys"] @ basis, weights["queries"] @ basis
        made |= {"keys": small(keys), "queries": small(queries)}
        heads = np.swapaxes(keys, 2, 3) @ queries
    else:
        heads = basis.T @ weights["key_queries"] @ basis
        made["merged"] = small(heads)
    if experiment.model.get("activation", "linear") == "linear":
        made["map"] = small(np.einsum("th,thij->tij", weights["values"], heads))
        made["target"] = np.diag(modes.ends) / _scale(experiment, built.model) ** built.model.factors  # pyright: ignore
    if not experiment.no_theory() and experiment.objective.kind == "population":
        made |= levels_view(experiment.predict(built).levels, task.dim)
    return made


def levels_view(levels: tuple[Level, ...], dim: int | None = None) -> View:
    """The levels of the loss; with a dimension, that of all that can be learned is called so."""
    return _levels(
        [level.loss for level in levels], [level.learned for level in levels], dim or max(len(levels) - 1, 1)
    )


def _scale(experiment: Experiment, model: Any) -> float:
    """What a weight of the run is multiplied by to be one of attention divided by N."""
    given, context = experiment.normalization, experiment.task.get("context")
    if given == "1/N" or not isinstance(context, int):
        return 1.0
    return float(weight_factor(given, "1/N", length=context, factors=model.factors))


def _levels(losses: Any, learned: list[int], dim: int) -> View:
    names = {0: "nothing learned", **({dim: f"all {dim} learned"} if dim > 1 else {})}
    return {"levels": np.array(losses), "level_names": [names.get(number, f"{number} learned") for number in learned]}


def theory_view(experiment: Experiment, built: Built, trajectory: xr.Dataset, made: View) -> View:
    """What theory says of a run: that of its own sample, where finitely many sequences are trained on."""
    if experiment.no_theory() or made["time"].size < 2:
        return {}
    try:
        if experiment.theory == "units":
            compared = compare_run(trajectory)
        else:
            compared = compare(trajectory, built.task, sample=sample_of(experiment))  # pyright: ignore[reportArgumentType]
    except InvalidInput as error:
        return {"remark": str(error)}
    run = compared.runs[0]
    names = [name for name in _COLUMNS if compared.stepped or not name.endswith("_step")]
    rows = [[record[name] for name in names] for record in compared.records()]
    dim = max(len(run.levels) - 1, 1) if experiment.theory == "units" else built.task.dim
    view = _levels(run.levels, run.learned, dim) | {
        "remark": "; ".join(line.partition(": ")[2] or line for line in compared.remarks),
        "drop_times": np.array([drop.predicted for drop in run.drops]),
        "drop_uncertainties": np.array([drop.uncertainty for drop in run.drops]),
        "drop_names": [_drop_name(drop) for drop in run.drops],
        "measured_times": np.array([drop.measured for drop in run.drops]),
        "table": {"columns": [_COLUMNS[name] for name in names], "rows": rows},
    }
    if "values" in made:
        values = _theory_values(run, made["time"], made["values"][-1])
        view["values_theory"] = small(values / _scale(experiment, built.model))
    return view


def _drop_name(drop: ComparedDrop) -> str:
    if not np.isfinite(drop.predicted):
        return ""
    names = (("component", drop.component), ("head", drop.head))
    return ", ".join(f"all {name}s" if number is None else f"{name} {number}" for name, number in names)


def _theory_values(run: ComparedRun, time: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The value of each head by the scalar equations, (point, head); nan where they say nothing. Of the measured values
    in the end, `end`, the sign is taken, which the loss does not know."""
    made = np.full((time.size, end.size), np.nan)
    try:
        if run.theory == "merged":
            v, u = linear.merged_initial(run.task, **run.weights)
            if v > 0:
                modes = linear.modes(run.task)
                unit = modes.driving / np.linalg.norm(modes.driving)
                course = linear.merged_course(run.task, time, v, u)
                along = np.einsum("hij,id,jd->hd", run.weights["key_queries"], modes.directions, modes.directions)
                share = (run.weights["values"] + along @ unit) / 2
                made[:] = course.value[:, None] * share / np.linalg.norm(share)
        else:
            _separate_values(run, time, np.sign(end), made)
    except (IntegrationFailed, InvalidInput):
        pass
    return made


def _separate_values(run: ComparedRun, time: np.ndarray, signs: np.ndarray, made: np.ndarray) -> None:
    """Of the first component that each head learns, up to its second."""
    of_heads: dict[int, list[ComparedDrop]] = {}
    for drop in run.drops:
        if drop.head is not None and np.isfinite(drop.predicted):
            of_heads.setdefault(drop.head - 1, []).append(drop)
    for head, (drop, *later) in of_heads.items():
        assert drop.component is not None
        component = drop.component - 1
        final = linear.aligned_end(run.task, component)
        if not final > 0:
            continue
        first = _EARLY * final
        half = float(linear.aligned_time(run.task, component, first, np.array([_GROWN * final]))[0])
        since = time - (drop.predicted - half)
        shown = (since >= 0) & (time < (later[0].predicted if later else np.inf))
        made[shown, head] = signs[head] * linear.aligned_value(run.task, component, first, since[shown])


def caption(experiment: Experiment, trajectory: xr.Dataset, points: Points) -> str:
    task, model, training = experiment.task, experiment.model, experiment.training
    activation = {"softmax": "softmax "}.get(model.get("activation", ""), "")
    heads = f", {model.heads} head{'' if model.heads == 1 else 's'}" if "heads" in model else ""
    rank = f" of rank {model.rank}" if "rank" in model else ""
    context = task.get("context")
    length = "" if context is None else f", {'L' if task.kind == 'multitask' else 'N'} = {context}"
    dim = f", D = {len(task.eigenvalues)}" if task.get("eigenvalues") else ""
    how = {"flow": "gradient flow"}.get(training.kind, training.kind)
    if training.kind == "descent":
        how = f"{training.optimizer} at rate {training.rate:g}".replace("sgd", "gradient descent")
    count = experiment.objective.get("sequences")
    on = "" if count is None else f" on {count} sequences"
    loss = "no finite loss" if not points.loss.size else f"the loss falls from {points.loss[0]:.4g} to "
    loss += f"{points.loss[-1]:.4g}" if points.loss.size else ""
    named = f"{model.kind.capitalize()} {activation}attention" if heads else model.kind
    outcome = trajectory.attrs.get("outcome", "")
    return f"{named}{heads}{rank}; {task.kind}{dim}{length}; {how}{on}: {loss} ({outcome})."
