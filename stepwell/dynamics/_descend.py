"""Gradient descent on a fixed objective."""

import contextlib
from typing import Any

import numpy as np
import xarray as xr

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.outcomes import return_or_raise
from stepwell.models import AbstractModel, is_proved
from stepwell.objectives import AbstractObjective

from ._checkpoint import CheckpointPath
from ._devices import for_devices, placed
from ._ensemble import Ensemble, as_ensemble, flatten, map_members, may_be_stacked
from ._host import TrainOptions, train
from ._loop import Fixed, Transformation
from ._record import Record


@checked
def descend(
    model: AbstractModel | Ensemble,
    objective: AbstractObjective | Ensemble,
    *,
    rate=None,
    steps: int,
    optimizer: Transformation | str | None = None,
    record: Record | None = None,
    first_step: int = 0,
    progress: bool = True,
    configuration: dict[str, Any] | None = None,
    checkpoint: CheckpointPath = None,
    advice: bool = True,
    throw: bool = True,
) -> xr.Dataset:
    r"""Train by gradient descent on a fixed objective: one model, or an ensemble of them.

    Every step is $W \leftarrow W - \eta\, \partial L/\partial W$, or one of an optax optimizer. Where JAX sees several
    devices, the sequences of a `Sampled` are spread over them.

    **Arguments:**

    - `model`: the model at its initial weights; or an `Ensemble` of models, which are trained side by side, or a model
      stacked by `eqx.filter_vmap`, whose class says how many axes its weights have.
    - `objective`: the loss; one for all runs, or an `Ensemble` with one for each.
    - `rate`: the learning rate $\eta$; one number, or for an ensemble one for each run; or a schedule, which is a
      function of the number of the step, such as those of optax.
    - `steps`: the number of gradient steps.
    - `optimizer`: an optax optimizer, in place of `rate`; or the name of one, such as "adam", beside its `rate`. It
      gets all weights of a run as one vector.
    - `record`: what is kept, and at which steps, counted from 0 to `steps`; a `Record`. By default every loss, one
      before each step and one after the last, and 101 snapshots of the weights.
    - `first_step`: the number of the first step, to resume a previous run; 0 by default.
    - `progress`: whether to show a progress bar.
    - `configuration`: what else the trajectory should remember, such as the task, the keys and the optimizer's
      settings: moments do not know where they come from. By default nothing.
    - `checkpoint`: the path of a file where the state of the run is saved about every half minute, or a `Checkpoint`,
      which says more. The same call with the same path continues a run that was killed or interrupted, and returns the
      trajectory that it would have had otherwise, bit for bit. By default nothing is saved.
    - `advice`: whether a smaller rate is searched for after a divergence, to be named in the message; that may take
      some seconds.
    - `throw`: whether a run that does not come to its end raises `RunFailed`, or `Interrupted`, which have its
      trajectory so far. If not, that is returned, and its attribute `outcome` says how it ended.

    **Returns:** a data set with `loss` and the observed curves over (run, step), and every weight over (run, snapshot,
    …). Where rates are known, the coordinates `time` of steps and `snapshot_time` of snapshots have the flow time
    $t/\tau = 2\sum\eta$ of plain gradient descent. The attribute `outcome` is "finished". Otherwise `RunFailed` or
    `Interrupted` is raised, and the outcome of its trajectory is "diverged" if the loss stopped being finite (recorded
    up to there, with advice in `message`; an ensemble goes on as long as one run is finite, "partly diverged"); or
    "interrupted" by Ctrl-C, SIGTERM or SIGHUP: the last snapshot has the weights from which to continue. A second
    SIGTERM has its usual effect. Ctrl-C three times within a second raises `KeyboardInterrupt` without a trajectory.

    **Example:**

    The loss passes from its first plateau to the second and the third, which is the lowest.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> run = sw.dynamics.descend(model, sw.objectives.Population(task), rate=0.05, steps=600, progress=False)
    >>> run["loss"].sel(run=0, step=[0, 150, 600]).values.round(2).tolist()
    [1.5, 0.57, 0.13]
    """
    model = as_ensemble(model)
    check_fit(model, objective)
    template = model.member(0) if isinstance(model, Ensemble) else model
    followed = map_members(lambda member: for_devices(member, template), objective)
    together = isinstance(followed, Ensemble)
    source = placed(Ensemble(Fixed(followed.stacked), followed.size) if together else Fixed(followed))
    options = TrainOptions(
        rate, steps, optimizer, record or Record(), first_step, progress, configuration, checkpoint, advice
    )
    return return_or_raise(train(model, source, options, {"dynamics": "descend", "objective": objective}), throw)


def check_fit(model: AbstractModel | Ensemble, objective: AbstractObjective | Ensemble) -> None:
    """Every member of an ensemble must fit its objective, and the sizes each other."""
    if isinstance(objective, Ensemble):
        if not isinstance(model, Ensemble) or model.size != objective.size:
            raise InvalidInput(
                f"{objective.size} objectives need as many models; give an Ensemble of {objective.size} models"
            )
        objective = objective.member(0)
    if not isinstance(model, Ensemble):
        try:
            objective.check(model)  # pyright: ignore
        except (InvalidInput, TypeError, ValueError) as error:
            if not may_be_stacked(model) or not np.isfinite(flatten(model)).all():
                raise
            raise InvalidInput(
                f"{error}; if this is a stack of models, as eqx.filter_vmap makes it, give Ensemble(model)"
            ) from error
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
