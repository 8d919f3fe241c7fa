"""Tasks by their numbers alone: all that theory reads, and no matrices, so that dimensions may be as large as liked."""

from dataclasses import dataclass

from stepwell.tasks import ContextLengths

_CONTEXT = 10**9
"""Of a task given by d/L, which is then met to 8 digits from 0.01 on."""


@dataclass(frozen=True)
class Sizes:
    """What theory reads of a task."""

    dims: tuple[int, ...]
    strengths: tuple[float, ...]
    noise_variance: float
    context: ContextLengths


def like_tasks(ratio: float, tasks: int, noise: float = 1.0, *, context: int = _CONTEXT) -> Sizes:
    r"""Tasks of equal dimension d = `ratio`·L and total signal $S_i = 1$, so that $\phi = 1 + $ `noise`.

    Losses to leading order, and Bayes and ridge risks of large d and L, depend on d/L and φ only.
    """
    dim = round(ratio * context)
    return Sizes((dim,) * tasks, (1 / dim,) * tasks, noise, ContextLengths(context))
