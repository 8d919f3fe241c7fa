"""Closed-form moments of the population, all that the loss of linear attention needs of a task."""

import equinox as eqx
import numpy as np
from jaxtyping import Float


class PopulationMoments(eqx.Module):
    r"""Second moments of $\beta = s_N \sum_n y_n x_n$, of the task vector and of the query.

    - `input`: $\Lambda = E[x_q x_q^\top]$
    - `cross`: $M = E[\beta w^\top]$
    - `second`: $C = E[\beta \beta^\top]$
    - `label_power`: $E[y_q^2] = \mathrm{tr}(E[w w^\top]\Lambda)$

    each averaged over context lengths, with $s_N$ set by the attention's normalisation. They are for targets
    $y_q = w^\top x_q$ with a query $x_q$ of mean zero that is independent of the context and of w. With several outputs
    these moments are those of every one of them, and the $\beta$ of two outputs are uncorrelated with each other and
    with the other's w.
    """

    input: Float[np.ndarray, "dim dim"]
    cross: Float[np.ndarray, "dim dim"]
    second: Float[np.ndarray, "dim dim"]
    label_power: float
