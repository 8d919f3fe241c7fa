"""One regression, learned by attention: the run, and what theory says of it, as arrays for the page."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from stepwell._util.paper_time import TIME_NAME, weight_factor
from stepwell.experiments import Built, Experiment, no_theory, normalization_of, time_scale
from stepwell.models import is_attention
from stepwell.models import theory_of as theory_of_class
from stepwell.tasks import InContextRegression
from stepwell.theory import linear

from ._drops import drops_of, table_of, theory_of, theory_values

View = dict[str, Any]

_POINTS, _FEW = 1000, 30
"""Points of a view, at the most; and snapshots of the weights at the least."""
_LARGEST = 1e30
"""Numbers are cut off here, so that they fit into 32 bits: of what diverges."""


class Points(NamedTuple):
    """What was recorded of one run where its weights were: times t/τ, steps of a descent, losses, and weights."""

    time: np.ndarray
    """Steps, where an optimizer or a schedule has no flow time."""
    steps: np.ndarray | None
    loss: np.ndarray
    weights: dict[str, np.ndarray]


def points_of(run: xr.Dataset, names: Any = ()) -> Points:
    """Recorded points of a run as far as its loss is finite; with `names` of weights, those that have them."""
    axis = "step" if "step" in run.dims else "time"
    loss = run["loss"].values[0]
    finite = np.isfinite(loss)
    end = loss.size if finite.all() else int(np.argmin(finite))
    along, loss = run[axis].values[:end], loss[:end]
    kept = "snapshot" if names and "snapshot" in run.dims else axis
    places = np.flatnonzero(run[kept].values <= along[-1])
    places = places[np.unique(np.linspace(0, places.size - 1, min(places.size, _POINTS)).round().astype(int))]
    points = run[kept].values[places].astype(float)
    weights = {name: run[name].values[0][places] for name in names}
    time = points
    if axis == "step" and "time" in run.coords:
        time = np.interp(points, along, run["time"].values.reshape(-1, run.sizes["step"])[0][:end])
    return Points(time, points if axis == "step" else None, np.interp(points, along, loss), weights)


def has_weights(run: xr.Dataset, names: Any) -> bool:
    """Whether weights were recorded about as often as the loss: at few snapshots there is nothing to be seen."""
    axis = "snapshot" if "snapshot" in run.dims else "time"
    return all(name in run for name in names) and run.sizes.get(axis, 0) >= min(_FEW, run["loss"].shape[1])


def small(values: np.ndarray) -> np.ndarray:
    """In 32 bits, which is enough for a picture."""
    return np.clip(np.nan_to_num(values, nan=np.nan, posinf=_LARGEST, neginf=-_LARGEST), -_LARGEST, _LARGEST).astype(
        np.float32
    )


def curve_view(experiment: Experiment, run: xr.Dataset, points: Points) -> View:
    """What any run has: its loss."""
    timed = "time" in run.coords
    made: View = {
        "kind": "curve",
        "time": points.time,
        "time_name": TIME_NAME if timed else "step",
        "time_unit": time_scale(experiment.task, experiment.model).unit if timed else "step",
        "loss": points.loss,
        "outcome": str(run.attrs.get("outcome", "")),
        "message": str(run.attrs.get("message", "")),
        "caption": caption(experiment, run, points),
        "problems": {},
        "levels": np.zeros(0),
        "level_names": [],
        "drop_times": np.zeros(0),
        "drop_names": [],
        "measured_times": np.zeros(0),
        "table": {"columns": [], "rows": []},
        "remark": no_theory(experiment),
    }
    if points.steps is not None:
        made["steps"] = points.steps
    return made


def is_linear(built: Built) -> bool:
    """Whether a run has the pictures of one regression."""
    task, model, _ = built
    if not is_attention(model) or theory_of_class(type(model)) is None:
        return False
    return isinstance(task, InContextRegression) and task.outputs == 1


def run_view(experiment: Experiment, built: Built, run: xr.Dataset) -> View:
    """What was recorded, in the eigenvectors of the task."""
    points = points_of(run, built.model.weight_dims)
    task: Any = built.task
    modes, weights = linear.modes(task), type(built.model).theory_weights(points.weights)  # pyright: ignore
    basis = modes.directions
    made = curve_view(experiment, run, points) | {
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
    if not no_theory(experiment) and experiment.objective.kind == "population":
        made |= _levels(theory_of(experiment, task, built.model), task.dim)
    return made


def _scale(experiment: Experiment, model: Any) -> float:
    """What a weight of the run is multiplied by to be one of attention divided by N."""
    given, context = normalization_of(experiment), experiment.task.get("context")
    if given == "1/N" or not isinstance(context, int):
        return 1.0
    return float(weight_factor(given, "1/N", length=context, factors=model.factors))


def _levels(theory: Any, dim: int) -> View:
    return {"levels": theory.levels, "level_names": [_level_name(number, dim) for number in theory.learned]}


def theory_view(experiment: Experiment, built: Built, run: xr.Dataset, made: View) -> View:
    """What theory says of a run: that of its own sample, where finitely many sequences are trained on."""
    if no_theory(experiment) or made["time"].size < 2:
        return {}
    theory = theory_of(experiment, built.task, built.model)
    drops, reason = drops_of(experiment, built.task, run)
    view = _levels(theory, built.task.dim) | {"remark": reason or theory.remark}
    if "values" in made:
        values = theory_values(theory, drops, made["time"], made["values"][-1])
        view["values_theory"] = small(values / _scale(experiment, built.model))
    if drops is None:
        return view
    return view | {
        "drop_times": drops["predicted"].to_numpy(float),
        "drop_names": [_drop_name(row) for _, row in drops.iterrows()],
        "measured_times": drops["measured"].to_numpy(float),
        "table": table_of(drops),
    }


def _drop_name(row: Any) -> str:
    if not np.isfinite(row["predicted"]):
        return ""
    if row.isna()["head"]:
        return "all components, all heads"
    return f"component {row['component']}, head {row['head']}"


def _level_name(learned: int, dim: int) -> str:
    if learned == 0:
        return "nothing learned"
    return f"all {dim} learned" if learned == dim and dim > 1 else f"{learned} learned"


def caption(experiment: Experiment, run: xr.Dataset, points: Points) -> str:
    """What was run, and what came of it."""
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
    outcome = run.attrs.get("outcome", "")
    return f"{named}{heads}{rank}; {task.kind}{dim}{length}; {how}{on}: {loss} ({outcome})."
