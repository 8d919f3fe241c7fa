"""A control variate with coefficients fitted over the sequences, from sums over them."""

import jax.numpy as jnp
from jaxtyping import Array, Float

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


def controlled_mean(sums: Float[Array, "task 8"], sequences: int) -> Float[Array, " task"]:
    """The mean loss of each task, less that of its fit by the control variate."""
    first, second = coefficients(sums, sequences)
    return (sums[:, 0] - first * sums[:, 1] - second * sums[:, 2]) / sequences
