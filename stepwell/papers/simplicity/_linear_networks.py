r"""A linear network from small weights on white inputs: times of its drops and its whole loss curve.

With $S = E[y x^\top] = \sum_k s_k q_k r_k^\top$ and weights $Q = (U^\top; V)$, all units as columns, small
weights have amplitudes $m_k = (V^\top q_k + U r_k)/2$ of each mode in the units, which grow as $e^{s_k t}$.
"""

import numpy as np
from jaxtyping import Float

Outer = Float[np.ndarray, "unit outputs"]
Inner = Float[np.ndarray, "unit inputs"]


def drop_times(cross: Float[np.ndarray, "outputs inputs"], outer: Outer, inner: Inner) -> Float[np.ndarray, " drop"]:
    r"""When the loss is midway between two levels: $t_k = \ln((\sqrt2 - 1) s_k/|m_k|^2)/2s_k$.

    A mode grows in the space of units at right angles to those before it, as what is left there of its m_k.
    """
    q, s, r = np.linalg.svd(cross)
    modes = (outer @ q[:, : s.size] + inner @ r[: s.size].T) / 2
    for k in range(1, s.size):
        before = np.linalg.qr(modes[:, :k])[0]
        modes[:, k] -= before @ (before.T @ modes[:, k])
    return np.log((np.sqrt(2) - 1) * s / np.sum(modes**2, axis=0)) / (2 * s)


def loss_curve(
    cross: Float[np.ndarray, "outputs inputs"], outer: Outer, inner: Inner, times: Float[np.ndarray, " time"]
) -> Float[np.ndarray, " time"]:
    r"""Of balanced weights exactly, without the part of it that no map reaches.

    Fukumizu's solution of the matrix Riccati equation, $QQ^\top = [e^{-Ft} G^{-1} e^{-Ft} + F^{-1}(1 -
    e^{-2Ft})/2]^{-1}$ with $F = \begin{pmatrix}0 & S^\top\\ S & 0\end{pmatrix}$ and $G = Q_0 Q_0^\top$, in the
    eigenbasis of F, where what grows is taken out. As many units as inputs and outputs are needed, or G has no inverse.
    """
    inputs = cross.shape[1]
    field = np.block([[np.zeros((inputs, inputs)), cross.T], [cross, np.zeros((cross.shape[0], cross.shape[0]))]])
    rates, basis = np.linalg.eigh(field)
    start = basis.T @ np.hstack([inner, outer]).T
    inverse = np.linalg.inv(start @ start.T)
    exponents = np.multiply.outer(times, rates)
    scale = np.exp(np.maximum(-exponents, 0.0))
    growth = np.exp(-exponents) / scale
    made = growth[:, :, None] * inverse * growth[:, None, :]
    made[:, range(rates.size), range(rates.size)] += -np.expm1(-2 * exponents) / (2 * rates) / scale**2
    squares = np.linalg.inv(made) / (scale[:, :, None] * scale[:, None, :])
    maps = (basis @ squares @ basis.T)[:, inputs:, :inputs]
    return np.sum((cross - maps) ** 2, axis=(1, 2))
