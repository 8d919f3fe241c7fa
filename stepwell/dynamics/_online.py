"""Gradient descent on fresh sequences at every step."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
import xarray as xr

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.memory import require_memory
from stepwell._util.outcomes import return_or_raise
from stepwell._util.types import RandomKey
from stepwell.models import AbstractModel
from stepwell.objectives import Reduce, Sampled
from stepwell.tasks import AbstractTask, Batch, ContextLengths

from ._checkpoint import CheckpointPath
from ._descend import check_fit
from ._devices import divides, everywhere
from ._ensemble import Ensemble, as_ensemble
from ._host import TrainOptions, train
from ._loop import Fresh, Transformation
from ._record import Record


class OnHost(AbstractTask):
    """The same task: inside of a compiled program `draw` leaves it for Python, with the key as a value.

    This costs a fraction of a millisecond a call beside what the task itself takes.
    """

    context: ContextLengths
    dim: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    tokens: int = eqx.field(static=True)
    drawer: Callable[..., Batch] = eqx.field(static=True)
    """`draw` of the task, as a function that is equal to itself alone."""

    @classmethod
    def of(cls, task: AbstractTask, drawn: Batch) -> "OnHost":
        """The task, which has `drawn` some sequences."""
        return cls(task.context, task.dim, task.outputs, drawn.tokens.shape[1], lambda n, key: task.draw(n, key=key))

    def draw(self, sequences: int, *, key: RandomKey) -> Batch:
        kind = jax.random.key_impl(key)

        def on_host(data: Any) -> tuple[np.ndarray, np.ndarray]:
            drawn = self.drawer(sequences, key=jax.random.wrap_key_data(data, impl=kind))
            return np.asarray(drawn.tokens, float), np.asarray(drawn.labels, float)

        shapes = tuple(
            jax.ShapeDtypeStruct((sequences, self.tokens, width), float)
            for width in (self.dim + self.outputs, self.outputs)
        )
        tokens, labels = jax.pure_callback(on_host, shapes, jax.random.key_data(key), vmap_method="sequential")
        return Batch(tokens, labels, self.context)


@checked
def online(
    model: AbstractModel | Ensemble,
    task: AbstractTask,
    *,
    batch_size: int,
    reduce: Reduce = "mean",
    rate=None,
    steps: int,
    optimizer: Transformation | str | None = None,
    record: Record | None = None,
    first_step: int = 0,
    progress: bool = True,
    configuration: dict[str, Any] | None = None,
    checkpoint: CheckpointPath = None,
    throw: bool = True,
    key: RandomKey,
) -> xr.Dataset:
    """Train by gradient descent on new sequences at every step: one model, or an ensemble of them.

    The task's `centered` and `whitened` do not apply: each batch is a new sample. Step number t draws the same
    sequences whenever it is taken, so a run can be resumed with `first_step`. Where JAX sees several devices, each
    draws its part of the batch.

    **Arguments:**

    - `model`: the model at its initial weights, or an `Ensemble` of models, which all get the same
      batches; or one stacked by `eqx.filter_vmap`, as in `descend`.
    - `task`: the distribution that sequences are drawn from. One that JAX cannot trace, such as one written in NumPy,
      is called from the compiled loop at every step; it must draw the same sequences from the same key.
    - `batch_size`: the number of sequences in a step.
    - `reduce`: whether the loss is the "mean" over outputs or their "sum".
    - `rate`: the learning rate; one number, for an ensemble one for each run, or a schedule; as in `descend`.
    - `steps`: the number of gradient steps.
    - `optimizer`: an optax optimizer, in place of `rate`, or the name of one beside it; as in `descend`.
    - `record`: what is kept, and at which steps; a `Record`, as in `descend`.
    - `first_step`: the number of the first step, to resume a previous run; 0 by default.
    - `progress`: whether to show a progress bar.
    - `configuration`: what else the trajectory should remember, by default nothing. The task and the key it has
      already.
    - `checkpoint`: the path of a file where the state of the run is saved, or a `Checkpoint`; as in `descend`.
    - `throw`: whether a run that does not come to its end raises, or its trajectory is returned; as in `descend`.
    - `key`: the random key that all sequences are drawn from.

    **Returns:** a data set as `descend` returns it. The recorded loss is that of the step's own batch, before the step.

    **Example:**

    Losses of batches are noisy, so the loss over all sequences is observed beside them.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.3)
    >>> run = sw.dynamics.online(
    ...     model,
    ...     task,
    ...     batch_size=64,
    ...     rate=0.05,
    ...     steps=300,
    ...     record=sw.Record(observe={"population": sw.objectives.Population(task)}),
    ...     progress=False,
    ...     key=jax.random.key(0),
    ... )
    >>> run["population"].values[0, [0, -1]].round(1).tolist()
    [1.4, 0.1]
    """
    batch_size = checks.whole("batch_size", batch_size)
    model = as_ensemble(model)
    runs = model.size if isinstance(model, Ensemble) else 1
    tokens = 8 * batch_size * task.context.tokens * (task.dim + task.outputs)
    require_memory(
        6 * tokens * runs,
        what=f"training {runs} runs on {batch_size} sequences at a time",
        instead="take a smaller batch_size",
    )
    drawn = task.draw(2, key=key)
    check_fit(model, Sampled(drawn, reduce))
    traced = _is_traceable(task, key)
    spread = traced and divides(batch_size)  # a program that calls back to Python must not wait for other devices
    drawer = task if traced else OnHost.of(task, drawn)
    source = Fresh(drawer, batch_size, everywhere(key) if spread else key, reduce, spread)
    options = TrainOptions(rate, steps, optimizer, record or Record(), first_step, progress, configuration, checkpoint)
    about = {"dynamics": "online", "task": task, "batch_size": batch_size, "reduce": reduce, "key": key}
    return return_or_raise(train(model, source, options, about), throw)


def _is_traceable(task: AbstractTask, key: RandomKey) -> bool:
    """Whether sequences can be drawn inside of the compiled training loop."""
    try:
        jax.eval_shape(lambda key: task.draw(2, key=key), key)
    except Exception:  # NumPy's about tracers, or whatever else the task's code makes of one
        return False
    return True
