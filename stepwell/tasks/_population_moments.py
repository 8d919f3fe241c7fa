"""The moments of any task that offers them, checked."""

from typing import get_args

import numpy as np

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import Normalization

from ._abstract import AbstractTask
from ._moments import PopulationMoments


@checked
def population_moments(task: AbstractTask, normalization: Normalization = "1/N") -> PopulationMoments:
    """The moments of a task in closed form, checked.

    `task.moments(normalization)` must be `PopulationMoments` with matrices of the right shapes, finite, and symmetric
    where they have to be. A class that changes how sequences are made and inherits `moments` is refused.

    **Arguments:**

    - `task`: a task with moments in closed form.
    - `normalization`: what the sum over context pairs is divided by: "1/N", "none" or "1/tokens".

    **Returns:** the `PopulationMoments`, with NumPy arrays of float64.

    **Example:**

    >>> import numpy as np
    >>> import stepwell as sw
    >>> moments = sw.tasks.population_moments(sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10))
    >>> np.diag(moments.second).round(3).tolist()
    [0.456, 0.216]
    """
    checks.one_of("normalization", normalization, get_args(Normalization))
    _check_own(type(task))
    moments = task.moments(normalization)
    name = f"moments() of {type(task).__name__}"
    if not isinstance(moments, PopulationMoments):
        raise InvalidInput(f"{name} returned a {type(moments).__name__}; it must return PopulationMoments")
    shape = (task.dim, task.dim)
    parts = {part: np.asarray(getattr(moments, part), np.float64) for part in ("input", "cross", "second")}
    for part, value in parts.items():
        if value.shape != shape or not np.all(np.isfinite(value)):
            raise InvalidInput(
                f"{name} has {part} of shape {value.shape}; it must be a matrix of finite numbers, {shape}"
            )
        gap = float(np.abs(value - value.T).max())
        if part != "cross" and gap > 1e-10 * float(np.abs(value).max()):
            raise InvalidInput(f"{name} has {part} that is not symmetric (entries differ by {gap:.2g}); it must be")
    power = checks.number(f"label_power of {name}", moments.label_power, least=0.0)
    return PopulationMoments(parts["input"], parts["cross"], parts["second"], power)


def _check_own(kind: type[AbstractTask]) -> None:
    """The moments are those of the sequences: a class that makes other sequences has moments of its own."""

    def place(method: str) -> int:
        return next((number for number, parent in enumerate(kind.__mro__) if method in vars(parent)), len(kind.__mro__))

    changed = [
        method for method in ("compose", "draw", "blocks", "chunks", "sample") if place(method) < place("moments")
    ]
    if changed and kind.moments is not AbstractTask.moments:
        other = kind.__mro__[place("moments")].__name__
        raise InvalidInput(
            f"{kind.__name__} has a {changed[0]}() of its own and the moments() of {other}, which are those of other "
            "sequences; write moments() too, or use Moments.of_task, which measures them on samples"
        )
