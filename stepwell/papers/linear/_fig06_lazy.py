r"""Fig 6: training linearized at its start.

While weights hardly move, the map A moves by $\tau\,\mathrm{vec}\dot A = K\,\mathrm{vec}(M\Lambda - CA\Lambda)$ with a
constant tangent kernel $K = JJ^\top$, $J = \partial\,\mathrm{vec}A/\partial W$. The excess of the loss over its minimum
is then a sum of exponentials. Written out from the weights; nothing of the models' code enters.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory


class Lazy(NamedTuple):
    r"""The excess of the loss is $\sum_j p_j e^{-2\kappa_j t/\tau}$, $p_j$ in `parts` and $\kappa_j$ in `rates`.

    `change` is the largest relative change of K in any direction, if the weights went where the linearized path ends.
    """

    parts: Float[np.ndarray, " mode"]
    rates: Float[np.ndarray, " mode"]
    change: float

    def excess(self, times: Float[np.ndarray, " time"]) -> Float[np.ndarray, " time"]:
        return np.exp(-2 * np.outer(times, self.rates)) @ self.parts


def merged_jacobian(weights: list[np.ndarray]) -> Float[np.ndarray, "map weights"]:
    r"""$dA = \sum_h dv_h U_h + v_h dU_h$, from $v_h$ and $U_h$."""
    v, u = weights
    dim = u.shape[1] ** 2
    by_u = v[:, None, None] * np.eye(dim)
    return np.concatenate([u.reshape(len(v), dim).T, np.concatenate(list(by_u), axis=1)], axis=1)


def separate_jacobian(weights: list[np.ndarray]) -> Float[np.ndarray, "map weights"]:
    r"""$dA = \sum_h dv_h k_h q_h^\top + v_h\, dk_h q_h^\top + v_h k_h dq_h^\top$, rank one."""
    v, k, q = weights
    dim = k.shape[1]
    by_v = np.einsum("ha,hb->abh", k, q).reshape(dim**2, -1)
    by_k = np.einsum("h,ac,hb->abhc", v, np.eye(dim), q).reshape(dim**2, -1)
    by_q = np.einsum("h,ha,bc->abhc", v, k, np.eye(dim)).reshape(dim**2, -1)
    return np.concatenate([by_v, by_k, by_q], axis=1)


def linearized(task: InContextRegression, weights: list[np.ndarray]) -> Lazy:
    """From weights (v, U) or (v, k, q) whose map is zero."""
    jacobian = merged_jacobian if len(weights) == 2 else separate_jacobian
    j = jacobian(weights)
    kernel = j @ j.T
    # L - L_min = vec(δ)ᵀ Q vec(δ) with δ = A - A*, Q = C ⊗ Λ in the order of rows and columns.
    lam, vectors = np.linalg.eigh(np.kron(theory.second_moment(task), task.covariance))
    root = (vectors * np.sqrt(lam)) @ vectors.T
    rates, modes = np.linalg.eigh(root @ kernel @ root)
    goal = theory.minimizer(task).ravel()
    parts = (modes.T @ root @ goal) ** 2
    moved = _shifted(weights, j.T @ np.linalg.solve(kernel, goal))
    j = jacobian(moved)
    half = np.linalg.inv(np.linalg.cholesky(kernel))
    change = np.abs(np.linalg.eigvalsh(half @ (j @ j.T) @ half.T) - 1).max()
    return Lazy(parts, rates, float(change))


def _shifted(weights: list[np.ndarray], by: Float[np.ndarray, " weights"]) -> list[np.ndarray]:
    parts = np.split(by, np.cumsum([weight.size for weight in weights])[:-1])
    return [weight + part.reshape(weight.shape) for weight, part in zip(weights, parts, strict=True)]
