r"""The equations of the paper as they are written there, for weights and moments as arrays.

Merged attention, equation 8: $\tau\dot W_1 = w_2 R^\top$, $\tau\dot w_2 = W_1 R$ with
$R = E[y_q z] - E[zz^\top] W_1^\top w_2$. Separate attention of rank one, equation 14:
$\tau\dot v_i = k_i^\top G q_i$, $\tau\dot k_i = v_i G q_i$, $\tau\dot q_i = v_i G^\top k_i$ with
$G = \Lambda^2 - E[\hat\Lambda^2] A \Lambda$, $A = \sum_i v_i k_i q_i^\top$. On given sequences moments are means.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from stepwell.models import MergedAttention, SeparateAttention
from stepwell.tasks import Batch, InContextRegression

from ._runs import DIM, weights_of

Means = tuple[Float[np.ndarray, "dim dim"], Float[np.ndarray, "dim dim dim dim"]]
r"""Two means over sequences: $E[y_q\beta x_q^\top]$, and $E[\beta_a\beta_b x_{q,c}x_{q,d}]$, which is E[zzᵀ]."""


def features_of(batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """β, the query and its label in every sequence."""
    tokens = np.asarray(batch.tokens)
    context = tokens[:, :-1]
    beta = np.einsum("sn,snd->sd", context[:, :, DIM], context[:, :, :DIM]) / context.shape[1]
    return beta, tokens[:, -1, :DIM], np.asarray(batch.labels)[:, -1, 0]


def means_of(batch: Batch) -> Means:
    """Over given sequences."""
    beta, query, label = features_of(batch)
    cross = np.einsum("s,sa,sb->ab", label, beta, query) / label.size
    return cross, np.einsum("sa,sb,sc,sd->abcd", beta, beta, query, query, optimize=True) / label.size


def equation_fifteen(lam: Float[np.ndarray, "dim dim"], context: int) -> Float[np.ndarray, "dim dim"]:
    r"""$E[\hat\Lambda^2]$, where $\hat\Lambda$ is the covariance of a context."""
    return lam @ lam + (lam + np.trace(lam) * np.eye(len(lam))) @ lam / context


def means_at_infinity(task: InContextRegression) -> Means:
    lam = task.covariance
    return lam @ lam, np.einsum("ab,cd->abcd", equation_fifteen(lam, task.context.longest), lam)


def equation_eight(model: MergedAttention, means: Means) -> np.ndarray:
    """The velocity of all values and then of all U."""
    values, key_queries = weights_of(model)
    cross, second = means
    hidden, residual = key_queries.reshape(len(values), -1), cross.ravel()
    residual = residual - second.transpose(0, 2, 1, 3).reshape(DIM**2, DIM**2) @ hidden.T @ values
    return np.concatenate([hidden @ residual, np.outer(values, residual).ravel()])


def equation_fourteen(model: SeparateAttention, means: Means) -> np.ndarray:
    """The velocity of all values, then of all keys and of all queries."""
    values, keys, queries = weights_of(model)
    keys, queries = keys[:, 0], queries[:, 0]
    cross, second = means
    drive = cross - np.einsum("abcd,bc->ad", second, np.einsum("h,hb,hc->bc", values, keys, queries))
    of_values = np.einsum("ha,ab,hb->h", keys, drive, queries)
    of_keys, of_queries = (values[:, None] * each for each in (queries @ drive.T, keys @ drive))
    return np.concatenate([of_values, of_keys.ravel(), of_queries.ravel()])


def regress(batch: Batch) -> Float[np.ndarray, "dim dim"]:
    """E[y_q z] E[zzᵀ]⁻¹ of these sequences."""
    beta, query, label = features_of(batch)
    z = np.einsum("sa,sb->sab", beta, query).reshape(label.size, -1)
    return np.linalg.solve(z.T @ z, z.T @ label).reshape(DIM, DIM)


def equation_twenty(task: InContextRegression) -> Float[np.ndarray, " component"]:
    """v of the head that has learned each component, the largest eigenvalue first."""
    lam = np.sort(np.linalg.eigvalsh(task.covariance))[::-1]
    return (lam * (1 + (1 + lam.sum() / lam) / task.context.longest)) ** (-1 / 3)


def equation_ten(times: Any, initial: Any, context: int) -> Any:
    """σ(t), as the paper has it, from weights of norm `initial` in the direction that grows."""
    grown = np.exp(2 * DIM**0.5 * times)
    return grown / ((1 + (1 + DIM) / context) * (grown - 1) + DIM**0.5 / initial**2)
