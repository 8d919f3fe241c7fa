"""A control variate with coefficients fitted over the sequences, from sums over them."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._util.arguments import checked

CONTROL_SUMS = 8
"""How many sums a control variate needs of each task."""
_NOTHING = 1e-100
"""Added to denominators that may be zero."""


def control_sums(
    loss: Float[Array, "task sequences"],
    surplus: Float[Array, "task sequences"],
    shifts: Float[Array, "task sequences"],
) -> Float[Array, "task 8"]:
    r"""$\sum_s (l, u, cu, u^2, cu^2, c^2u^2, lu, lcu)$: `loss` is l, `surplus` u, `shifts` c."""
    u, cu = surplus, shifts * surplus
    terms = (loss, u, cu, u * u, cu * u, cu * cu, loss * u, loss * cu)
    return jnp.stack([jnp.sum(term, axis=1) for term in terms], axis=1)


def coefficients(sums: Float[Array, "task 8"], sequences: int) -> tuple[Float[Array, " task"], Float[Array, " task"]]:
    r"""a, b of the least squares $l - \bar l \approx a u + b c u$, where $u$ and $cu$ have mean zero over all draws.

    $cu$ is first made orthogonal to $u$. Where u is zero, as for a task that no head serves, so are a and b.
    """
    loss, u, cu, uu, cuu, ccuu, lu, lcu = sums.T
    lu, lcu = lu - loss * u / sequences, lcu - loss * cu / sequences
    along = cuu / (uu + _NOTHING)
    second = (lcu - along * lu) / (ccuu - along * cuu + _NOTHING)
    return lu / (uu + _NOTHING) - along * second, second


@checked
def controlled_mean(sums: Float[Array, "task 8"], sequences: int) -> Float[Array, " task"]:
    r"""The mean loss of each task, less that of its fit by the control variate.

    The variates are u and cu, which have mean zero over all draws. The loss l of a sequence is fitted by least squares,
    $l - \bar l \approx a u + b c u$, and the mean of the fit is subtracted. What is left has a smaller variance and,
    since a and b are fitted to the same sequences, a bias of the order of 1/sequences.

    **Arguments:**

    - `sums`: $\sum_s (l, u, cu, u^2, cu^2, c^2u^2, lu, lcu)$ over the sequences, of each task: shape (task, 8).
    - `sequences`: how many sequences were summed over.

    **Returns:** the mean losses, of shape (task,).

    **Example:**

    The loss is 1 + 2u, so its mean over all draws is 1. In this sample u has mean ½ and the loss has mean 2; the
    control variate (with c = 0) takes most of that back.

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> u = jnp.array([1.0, -1.0, 2.0, 0.0])
    >>> loss, none = 1 + 2 * u, 0 * u
    >>> sums = jnp.stack([loss, u, none, u * u, none, none, loss * u, none]).sum(axis=1)[None]
    >>> sw.objectives.controlled_mean(sums, sequences=4).round(3).tolist()
    [1.167]
    """
    first, second = coefficients(sums, sequences)
    return (sums[:, 0] - first * sums[:, 1] - second * sums[:, 2]) / sequences
