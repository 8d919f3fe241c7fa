"""Gradient descent on fresh sequences at every step."""

from typing import Any

import xarray as xr

from stepwell import _check
from stepwell._memory import require_memory
from stepwell._types import RandomKey
from stepwell.models import AbstractModel
from stepwell.objectives import Reduce, Sampled
from stepwell.tasks import AbstractTask

from ._descend import check_fit
from ._devices import divides, everywhere
from ._ensemble import Ensemble
from ._host import train
from ._loop import Fresh
from ._options import Observable, TrainOptions, Transformation
from ._record import Steps


def online(
    model: AbstractModel | Ensemble,
    task: AbstractTask,
    *,
    batch: int,
    reduce: Reduce = "mean",
    rate=None,
    steps: int,
    optimiser: Transformation | None = None,
    record: Steps = 1,
    snapshots: Steps = 101,
    observe: dict[str, Observable] | None = None,
    start: int = 0,
    progress: bool = True,
    configuration: dict[str, Any] | None = None,
    key: RandomKey,
) -> xr.Dataset:
    """Gradient descent on `batch` new sequences of `task` at every step; other keywords are those of `descend`.

    The recorded loss is that of the step's own batch, before the step. All runs of an ensemble get the same batches.
    The task's `centred` and `whitened` do not apply: each batch is a new sample. Step number t draws the same sequences
    whenever it is taken, so a run can be resumed with `start`. `reduce` says whether the loss is the mean over outputs
    or their sum. Where JAX sees several devices, each draws its part of the batch.
    """
    batch = _check.whole("batch", batch)
    runs = model.size if isinstance(model, Ensemble) else 1
    tokens = 8 * batch * task.lengths.tokens * (task.dim + task.outputs)
    require_memory(
        6 * tokens * runs, what=f"training {runs} runs on {batch} sequences at a time", instead="take a smaller batch"
    )
    check_fit(model, Sampled(task.draw(2, key=key), reduce))
    source = Fresh(task, batch, everywhere(key) if divides(batch) else key, reduce)
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
    about = {"dynamics": "online", "task": task, "batch": batch, "reduce": reduce, "key": key}
    return train(model, source, options, about)
