"""The moments of any task that offers them, checked, and beside those of samples."""

import math
from typing import get_args

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import Normalization, RandomKey

from ._abstract_task import AbstractTask, PopulationMoments
from ._batch import Batch
from ._context_lengths import attention_scale


@checked
def population_moments(task: AbstractTask, normalization: Normalization = "1/N") -> PopulationMoments:
    """Return the moments of a task in closed form, checked.

    `task.moments(normalization)` must be `PopulationMoments` with matrices of the right shapes, finite, and symmetric
    where they have to be. A class that changes how sequences are made and inherits `closed_form` is refused.

    **Arguments:**

    - `task`: a task with moments in closed form.
    - `normalization`: what the sum over context pairs is divided by: "1/N", "none" or "1/tokens".

    **Returns:** the `PopulationMoments`, with NumPy arrays of float64.

    **Example:**

    >>> moments = sw.tasks.population_moments(sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10))
    >>> np.diag(moments.second).round(3).tolist()
    [0.456, 0.216]
    """
    checks.one_of("normalization", normalization, get_args(Normalization))
    _check_own(type(task))
    moments = task.moments(normalization)
    name = f"moments() of {type(task).__name__}"
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

    made = ("compose", "draw", "drawn_blocks", "blocks", "chunks", "sample")
    changed = [method for method in made if place(method) < place("closed_form")]
    if changed and kind.closed_form is not None:
        other = kind.__mro__[place("closed_form")].__name__
        raise InvalidInput(
            f"{kind.__name__} has a {changed[0]}() of its own and the closed_form() of {other}, which is that of "
            "other sequences; write closed_form() too, or use Moments.of_task, which measures them on samples"
        )


_ERRORS = 6.0
"""Standard errors that sampled moments may differ by: by chance one entry in a billion does."""


@checked
def check_moments(
    task: AbstractTask, sequences: int = 100_000, *, normalization: Normalization = "1/N", key: RandomKey
) -> dict[str, float]:
    r"""Compare the closed-form moments of a task with those of its samples.

    Compared are the means over sequences of $x_q x_q^\top$, $\beta y_q x_q^\top$, $\beta\beta^\top$ and $y_q^2$ with
    $\Lambda$, $M\Lambda$, $C$ and $E[y_q^2]$, and that of $\beta\beta^\top |x_q|^2$ with $C\,\mathrm{tr}\Lambda$, as
    the query is to be independent of the context. `InvalidInput` is raised if an entry differs by more than six
    standard errors.

    **Arguments:**

    - `task`: a task with moments in closed form.
    - `sequences`: how many sequences are drawn.
    - `normalization`: what the sum over context pairs is divided by: "1/N", "none" or "1/tokens".
    - `key`: a JAX random key for the sequences.

    **Returns:** by name, the largest difference of an entry in standard errors.

    **Example:**

    >>> task = sw.tasks.InContextRegression(np.diag([0.6, 0.4]), 10, noise_variance=0.1)
    >>> max(sw.tasks.check_moments(task, 4000, key=jax.random.key(0)).values()) < 6
    True
    """
    sequences = checks.whole("number of sequences", sequences, least=100)
    closed = population_moments(task, normalization)
    expected = {
        "input": closed.input,
        "cross": closed.cross @ closed.input,
        "second": closed.second,
        "label_power": np.asarray(closed.label_power),
        "independence of the query": closed.second * np.trace(closed.input),
    }
    sums = {name: np.zeros((2, *value.shape)) for name, value in expected.items()}
    for chunk in task.chunks(sequences, key=key):
        for name, values in _products(chunk, normalization).items():
            difference = values - expected[name]  # so that squares lose no digits
            sums[name] += [difference.sum(axis=0), (difference**2).sum(axis=0)]
    gaps = {}
    for name, (total, squares) in sums.items():
        mean = total / sequences
        error = np.sqrt(np.clip(squares / sequences - mean**2, 0.0, None) / sequences)
        rounding = 1e-9 * max(1e-300, float(np.abs(expected[name]).max()))
        gaps[name] = float(np.max(np.abs(mean) / (error + rounding)))
        if not gaps[name] <= _ERRORS:
            what = name if " " in name else f"{name} of moments()"
            raise InvalidInput(
                f"{what} of {type(task).__name__} does not agree with {sequences} samples: an entry differs by "
                f"{_rounded(gaps[name])} standard errors; correct the closed form, or the sampler"
            )
    return gaps


def _products(batch: Batch, normalization: Normalization) -> dict[str, Float[np.ndarray, "sequences ..."]]:
    """What the moments are means of, for each sequence: averaged over context lengths and outputs."""
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)
    x, y = tokens[..., : batch.dim], tokens[..., batch.dim :]
    made: dict[str, np.ndarray] = {}
    for n, probability in zip(batch.context.counts, batch.context.probabilities, strict=True):
        beta = float(attention_scale(normalization, n)) * np.einsum("sno,sni->soi", y[:, :n], x[:, :n])
        query, target = x[:, n], labels[:, n]
        outer = np.einsum("soi,soj->sij", beta, beta) / batch.outputs
        each = {
            "input": np.einsum("si,sj->sij", query, query),
            "cross": np.einsum("soi,so,sj->sij", beta, target, query) / batch.outputs,
            "second": outer,
            "label_power": np.mean(target**2, axis=1),
            "independence of the query": outer * np.sum(query**2, axis=1)[:, None, None],
        }
        for name, values in each.items():
            made[name] = made.get(name, 0.0) + probability * values
    return made


def _rounded(gap: float) -> str:
    return f"{gap:.3g}" if math.isfinite(gap) else "infinitely many"
