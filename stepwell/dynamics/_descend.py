"""Gradient descent on a fixed objective."""

import contextlib
from typing import Any

import xarray as xr

from stepwell._errors import InvalidInput
from stepwell.models import AbstractModel, is_proved
from stepwell.objectives import AbstractObjective

from ._devices import for_devices, placed
from ._ensemble import Ensemble, map_members
from ._host import train
from ._loop import Fixed
from ._options import Observable, TrainOptions, Transformation
from ._record import Steps


def descend(
    model: AbstractModel | Ensemble,
    objective: AbstractObjective | Ensemble,
    *,
    rate=None,
    steps: int,
    optimiser: Transformation | None = None,
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
    - `start`: the number of the first step, to resume a previous run.
    - `configuration`: what else the trajectory should remember, such as the task, the keys and the optimiser's
      settings: moments do not know where they come from.

    The result has `loss` and the observed curves over (run, step), and every weight over (run, snapshot, …). Its
    `outcome` is "finished"; "diverged" if the loss stopped being finite (recorded up to there, with advice in
    `message`; an ensemble goes on as long as one run is finite, "partly diverged"); or "interrupted" by Ctrl-C.

    Where JAX sees several devices, the sequences of a `Sampled` are spread over them.
    """
    check_fit(model, objective)
    template = model.member(0) if isinstance(model, Ensemble) else model
    source = placed(map_members(lambda member: Fixed(for_devices(member, template)), objective))
    options = TrainOptions(
        rate=rate,
        steps=steps,
        optimiser=optimiser,
        record=record,
        snapshots=snapshots,
        observe=observe,
        start=start,
        progress=progress,
        configuration=configuration,
    )
    return train(model, source, options, {"dynamics": "descend", "objective": objective})


def check_fit(model: AbstractModel | Ensemble, objective: AbstractObjective | Ensemble) -> None:
    """Every member of an ensemble must fit its objective, and the sizes each other."""
    if isinstance(objective, Ensemble):
        if not isinstance(model, Ensemble) or model.size != objective.size:
            raise InvalidInput(
                f"{objective.size} objectives need as many models; give an Ensemble of {objective.size} models"
            )
        objective = objective.member(0)
    if not isinstance(model, Ensemble):
        objective.check(model)  # pyright: ignore
        return
    # Settings are the same for all members; only values can differ, and what is asked of them is that label blocks are
    # zero. In the classes of this package those are sums of products of weights: they are zero if they are with the
    # largest absolute weights of all. Of other classes nothing is known, and every member is checked.
    if is_proved(model.member(0)):
        with contextlib.suppress(InvalidInput):
            objective.check(model.largest())  # pyright: ignore
            return
    for number in range(model.size):
        objective.check(model.member(number))  # pyright: ignore
