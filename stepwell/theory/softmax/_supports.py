r"""How many flat heads serve tasks whose supports overlap, and what they lose with fewer.

Task i depends on the coordinates $S_i$ of the input: $y_i = \beta_i^\top x_{S_i} + \varepsilon_i$,
$\beta_i \sim \mathcal N(0, \lambda_iI)$. Heads with scores $q^\top\mathrm{diag}(\omega^h)x_l$, flat and with
$\sum_h\mu_i^h = 0$, give task i the preconditioner $\Gamma_i = \sum_h\mu_i^h\mathrm{diag}(\omega^h)$. Of H heads only
the H - 1 differences of the $\omega^h$ count, and all $\Gamma_i$ are in their span.
"""

import numpy as np
from jaxtyping import Bool, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._types import PerTask

Supports = Bool[np.ndarray, "task coordinate"]

_STARTS = 8
"""Searches for the best span, of which the best is taken."""
_ROUNDS = 2000
_SETTLED = 1e-13


@checked
def heads_needed(supports: Supports) -> int:
    r"""Return the least number of flat heads that serve all tasks fully, one more than the rank of the supports.

    The wanted $\Gamma_i$ are multiples of the indicators of the supports, so that H - 1 must be at least their rank:
    tasks on the same inputs need two heads, I disjoint ones I + 1.

    **Arguments:**

    - `supports`: for each task and coordinate whether the task depends on it (task, coordinate).

    **Returns:** the number of heads.

    **Example:** two tasks that overlap need three heads, and a third task on the union of disjoint ones needs no more.

    >>> overlapping = np.array([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]], bool)
    >>> union = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]], bool)
    >>> sw.theory.softmax.heads_needed(overlapping), sw.theory.softmax.heads_needed(union)
    (3, 3)
    """
    _require_supports(supports)
    return 1 + int(np.linalg.matrix_rank(supports.astype(float)))


@checked
def flat_heads_loss(
    supports: Supports, strengths: PerTask, *, context: int, heads: int, noise: PerTask | None = None
) -> PerTask:
    r"""Return the loss of each task at the least sum of losses that H flat heads reach, to leading order.

    $\ell_i = \lambda_i\sum_{j\in S_i}(1-\Gamma_{ij})^2 + \tfrac{\lambda_id_i+\sigma_i^2}L\sum_j\Gamma_{ij}^2$ with
    $\Gamma$ (task, coordinate) of rank H - 1 at most. With `heads_needed` it is $S_i\gamma_i/(1+\gamma_i)$,
    $\gamma_i = \phi_id_i/L$; exactly, $S_i\tfrac{1+d_i\phi_i}{L+d_i\phi_i}$ (`best_gradient_step`). With fewer, Γ is
    searched by alternating least squares from several initial spans, so that it is an upper bound of the least loss.

    **Arguments:**

    - `supports`: for each task and coordinate whether the task depends on it (task, coordinate).
    - `strengths`: $\lambda_i$, the variance of one coordinate of each task vector.
    - `context`: the context length L.
    - `heads`: H, at least 2, for a single head cannot be flat.
    - `noise`: $\sigma_i^2$ of each task; by default none.

    **Returns:** the loss of each task; the target has no noise.

    **Example:** two overlapping tasks of four coordinates.

    >>> overlapping = np.array([[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]], bool)
    >>> for heads in (2, 3, 4):
    ...     loss = sw.theory.softmax.flat_heads_loss(overlapping, np.ones(2), context=48, heads=heads, noise=[0.4, 0.4])
    ...     print(round(float(loss.sum()), 4))
    0.9556
    0.6718
    0.6718
    """
    _require_supports(supports)
    length, heads = checks.whole("context", context), checks.whole("heads", heads, least=2)
    noise = np.zeros(len(supports)) if noise is None else noise
    if not (np.all(strengths > 0) and np.all(noise >= 0) and np.all(np.isfinite([strengths, noise]))):
        raise InvalidInput("strengths must be above 0 and noise at least 0, and both finite, for every task")
    signal = strengths * supports.sum(axis=1)
    bias = strengths[:, None] * supports
    weights = bias + ((signal + noise) / length)[:, None]
    targets = bias / weights

    def loss(gamma: np.ndarray) -> np.ndarray:
        return signal + np.sum(weights * gamma**2 - 2 * bias * gamma, axis=1)

    rank = heads - 1
    if rank >= heads_needed(supports) - 1:
        return loss(targets)
    rng, found = np.random.default_rng(0), []
    for attempt in range(_STARTS):
        moved = targets + (0.3 * rng.normal(size=targets.shape) if attempt else 0.0)
        span = np.linalg.svd(moved)[2][:rank]
        before = np.inf
        for _ in range(_ROUNDS):
            values = _fitted(weights, targets, span)
            span = _fitted(weights.T, targets.T, values.T).T
            losses = loss(values @ span)
            if before - losses.sum() < _SETTLED * signal.sum():
                break
            before = losses.sum()
        found.append(losses)
    return min(found, key=np.sum)


def _fitted(
    weights: Float[np.ndarray, "row column"],
    targets: Float[np.ndarray, "row column"],
    span: Float[np.ndarray, "rank column"],
) -> Float[np.ndarray, "row rank"]:
    """Coefficients of each row in the span, by least squares with weights of its own."""
    roots = np.sqrt(weights)
    return np.stack([np.linalg.lstsq((span * r).T, t * r)[0] for r, t in zip(roots, targets, strict=True)])


def _require_supports(supports: Supports) -> None:
    if not np.all((supports == 0) | (supports == 1)):
        raise InvalidInput(
            "supports has entries that are neither true nor false; say which coordinates each task reads"
        )
    if supports.size == 0 or not np.all(supports.any(axis=1)):
        raise InvalidInput("supports has a task without coordinates; each task must depend on at least one")
