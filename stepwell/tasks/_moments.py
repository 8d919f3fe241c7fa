"""Closed-form population moments of in-context regression."""

from typing import get_args

import equinox as eqx
import numpy as np
from jaxtyping import Float

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell._types import Normalisation

from ._abstract import AbstractTask
from ._lengths import attention_scale
from ._regression import InContextRegression


class PopulationMoments(eqx.Module):
    r"""Second moments of $\beta = s_N \sum_n y_n x_n$, of the task vector and of the query.

    - `input`: $\Lambda = E[x_q x_q^\top]$
    - `cross`: $M = E[\beta w^\top]$
    - `second`: $C = E[\beta \beta^\top]$
    - `label_power`: $E[y_q^2] = \mathrm{tr}(\Omega\Lambda)$

    each averaged over context lengths. Outputs are independent, so these serve every output.
    """

    input: Float[np.ndarray, "dim dim"]
    cross: Float[np.ndarray, "dim dim"]
    second: Float[np.ndarray, "dim dim"]
    label_power: float


def population_moments(task: AbstractTask, normalisation: Normalisation = "1/N") -> PopulationMoments:
    r"""For a context of n pairs and $s_n = 1/n$,

    $M = \Lambda\Omega$ and
    $C = (1 + \tfrac1n)\Lambda\Omega\Lambda + \tfrac1n(\mathrm{tr}(\Omega\Lambda) + \sigma^2)\Lambda$,

    by Isserlis' theorem. Another normalisation multiplies $\beta$ by $n s_n$, M once and C twice. A mix of lengths
    averages M and C. Finite-sample options of the task (`centred`, `whitened`) do not change the population.
    """
    if not isinstance(task, InContextRegression):
        raise InvalidInput(
            f"no closed-form moments for {type(task).__name__}; use Moments.of_task, which measures them on samples"
        )
    _check.one_of("normalisation", normalisation, get_args(Normalisation))
    lam, omega = task.covariance, task.task_covariance
    power = float(np.trace(omega @ lam))
    signal = lam @ omega @ lam
    cross, second = np.zeros_like(lam), np.zeros_like(lam)
    for n, probability in zip(task.lengths.counts, task.lengths.probabilities, strict=True):
        ratio = n * attention_scale(normalisation, n)
        cross += probability * ratio * lam @ omega
        second += probability * ratio**2 * ((1 + 1 / n) * signal + (power + task.noise_variance) / n * lam)
    return PopulationMoments(lam, cross, second, power)
