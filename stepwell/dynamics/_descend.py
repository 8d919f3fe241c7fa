"""Gradient descent on a fixed objective."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective
from stepwell.trajectory import TIME_UNIT

from ._conversions import flow_time
from ._ensemble import Ensemble, skeleton_of
from ._march import ConstantRate, Fixed, March, Observable, Optimiser
from ._record import Steps
from ._train import train


def descend(
    model: AbstractModel | Ensemble,
    objective: AbstractObjective | Ensemble,
    *,
    rate=None,
    steps: int,
    optimiser: optax.GradientTransformation | None = None,
    record: Steps = 1,
    snapshots: Steps = 101,
    observe: dict[str, Observable] | None = None,
    start: int = 0,
    progress: bool = True,
    configuration: dict[str, Any] | None = None,
) -> xr.Dataset:
    r"""$W \leftarrow W - \eta\, \partial L/\partial W$, or any optax optimiser, for a model or an ensemble of them.

    - `objective`: one for all runs, or an ensemble with one for each.
    - `rate`: $\eta$; one number, or for an ensemble one for each run. Or give an `optimiser` instead.
    - `steps`: how many. The loss is recorded before each step and after the last.
    - `record`: record losses every so many steps, or at the steps listed.
    - `snapshots`: keep all weights at so many of the recorded steps, or at those listed.
    - `observe`: further curves, by name: functions of the model (an objective on test data is one).
    - `start`: the number of the first step, for a run that goes on from another.
    - `configuration`: what else the trajectory should remember, such as the task, the keys and the optimiser's
      settings: moments do not know where they come from.

    The result has `loss` and the observed curves over (run, step), and every weight over (run, snapshot, …). Its
    `outcome` is "finished"; "diverged" if the loss stopped being finite (recorded up to there, with advice in
    `message`; an ensemble goes on as long as one run is finite, "partly diverged"); or "interrupted" by Ctrl-C.
    """
    rule = rule_of(model, rate, optimiser)
    check(model, objective)
    source = Ensemble(Fixed(objective.stacked), objective.size) if isinstance(objective, Ensemble) else Fixed(objective)
    march = march_of(model, source, rule, observe)
    settings = {
        "dynamics": "descend",
        "model": model,
        "objective": objective,
        "rate": rate,
        "optimiser": None if optimiser is None else "given as an optax transformation",
        "steps": steps,
        "start": start,
        **(configuration or {}),
    }
    found = train(
        march,
        model,
        steps=steps,
        start=start,
        record=record,
        snapshots=snapshots,
        progress=progress,
        configuration=settings,
    )
    return with_time(found, rate)


def march_of(model: AbstractModel | Ensemble, source: Any, rule: Any, observe: dict[str, Observable] | None) -> March:
    """The march of a model or ensemble."""
    template = model.member(0) if isinstance(model, Ensemble) else model
    runs = model.size if isinstance(model, Ensemble) else None
    reserved = {"loss", *template.weight_dims}
    if observe and reserved & set(observe):
        raise InvalidInput(f"observed curves {sorted(reserved & set(observe))} have names that are taken; rename them")
    return March(skeleton_of(template), source, rule, dict(observe or {}), runs)


def with_time(trajectory: xr.Dataset, rate) -> xr.Dataset:
    r"""Beside the step, the flow time $t/\tau = 2\eta\cdot$step, where all runs have one constant rate."""
    if rate is None or np.ndim(rate) > 0:
        return trajectory
    time = flow_time(trajectory["step"], float(rate))
    return trajectory.assign_coords(time=time.assign_attrs(units=TIME_UNIT))


def check(model: AbstractModel | Ensemble, objective: AbstractObjective | Ensemble) -> None:
    """Every member of an ensemble must fit its objective, and the sizes each other."""
    if isinstance(objective, Ensemble):
        if not isinstance(model, Ensemble) or model.size != objective.size:
            raise InvalidInput(
                f"{objective.size} objectives need as many models; give an Ensemble of {objective.size} models"
            )
        objective = objective.member(0)
    # Settings are the same for all members; only values of weights (label blocks) can differ.
    for number in range(model.size) if isinstance(model, Ensemble) else [None]:
        objective.check(model if number is None else model.member(number))  # pyright: ignore


def rule_of(model: AbstractModel | Ensemble, rate, optimiser: optax.GradientTransformation | None) -> Any:
    if (rate is None) == (optimiser is None):
        raise InvalidInput("give either a rate, for plain gradient descent, or an optimiser")
    if optimiser is not None:
        return Optimiser(optimiser)
    if np.ndim(rate) == 0:
        return ConstantRate(jnp.asarray(_check.number("rate", rate, least=0.0, above=True)))
    rates = [_check.number("rate", value, least=0.0, above=True) for value in np.asarray(rate).tolist()]
    if not isinstance(model, Ensemble) or len(rates) != model.size:
        raise InvalidInput(f"{len(rates)} rates were given; give one number, or one for each run of an ensemble")
    return Ensemble.of([ConstantRate(jnp.asarray(value)) for value in rates])
