"""What the page shows of a state: flat arrays and short texts, ready to be sent."""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from stepwell._util.errors import InvalidInput

from ._state import State

if TYPE_CHECKING:
    import xarray as xr

    from stepwell.experiments import Built, Experiment

    from ._stored import Library

View = dict[str, Any]  # arrays, texts and lists of them by name; docs/explorer.md lists them
Report = Callable[[float, View], None]  # takes how far the work is, from 0 to 1, and what there is of the view
Stop = Callable[[], bool]  # says whether the work is to be given up


class Cancelled(Exception):
    """The work was given up, since a newer state is waiting."""


def view(
    state: State, *, report: Report | None = None, stop: Stop | None = None, library: "Library | None" = None
) -> View:
    """What the page shows of a state; where nothing can be computed, `problems` by control (or "" for all of them).

    `report` is called now and then during longer work, with the part done and the view so far, and `stop` asked whether
    to give up, by `Cancelled`. `library` has stored runs.
    """
    try:
        if state.mode == "stored":
            return {"mode": "stored", "problems": {}} if library is None else library.view(state)
        return _run(state, report or (lambda part, partial: None), stop or (lambda: False))
    except InvalidInput as error:
        return {"mode": state.mode, "problems": {"run" if state.mode == "stored" else "": str(error)}}


def _run(state: State, report: Report, stop: Stop) -> View:
    from ._training import give_way, trajectory  # controls and states need no JAX

    experiment = state.run
    built = experiment.build()

    def share(part: float, run: "xr.Dataset") -> None:
        report(part, run_view(experiment, built, run))

    run = trajectory(experiment, built, share, stop, long=state.long)
    made = run_view(experiment, built, run)
    if not _is_compared(experiment, made):
        return made
    report(0.6, made)
    give_way(built.model, stop)
    return made | theory_view(experiment, built, run, made)


def run_view(experiment: "Experiment", built: "Built", run: "xr.Dataset") -> View:
    """What was recorded, as the figures of what the experiment is: one regression, several, whole heads, or a curve."""
    from . import _heads, _linear, _softmax

    if not _linear.has_weights(run, built.model.weight_dims):
        made = _linear.curve_view(experiment, run, _linear.points_of(run))
    elif _softmax.is_softmax(built):
        made = _softmax.run_view(experiment, built, run)
    elif _heads.is_multi_head(built):
        made = _heads.run_view(experiment, built, run)
    elif _linear.is_linear(built):
        made = _linear.run_view(experiment, built, run)
    else:
        made = _linear.curve_view(experiment, run, _linear.points_of(run))
    if experiment.objective.kind == "features":
        made |= _linear.levels_view(experiment.predict(built).levels)
    return {"mode": "explore"} | made


def theory_view(experiment: "Experiment", built: "Built", run: "xr.Dataset", made: View) -> View:
    """What theory says of a run, beyond what `run_view` has."""
    from . import _linear

    return _linear.theory_view(experiment, built, run, made) if _is_compared(experiment, made) else {}


def _is_compared(experiment: "Experiment", made: View) -> bool:
    """Whether theory is shown beside a run: it has the figures of one regression, or is a user's with a theory."""
    return made["kind"] == "linear" or (made["kind"] in ("curve", "heads") and not experiment.no_comparison())


@functools.lru_cache(maxsize=8)
def kept_view(state: State) -> View:
    made = view(state)
    if "time" not in made:
        raise InvalidInput("; ".join(made["problems"].values()))
    return made


def plain(value: Any) -> Any:
    """A value for JSON: numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
