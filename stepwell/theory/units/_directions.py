"""Linear units: the collective directions of the hidden space grow one after another."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from .._types import PerMode, PerTime

_EQUAL = 1e-10
"""Strengths that differ by less than this part are equal: the rounding of their modes is 1e-16 over it."""


@dataclass(frozen=True)
class LinearCourse:
    r"""A predicted run of a linear network: `times`, `loss` above that of the best map, `maps` $\sum_i v_iu_i^\top$."""

    times: PerTime
    loss: PerTime
    maps: Float[np.ndarray, "time output input"]


@checked
def direction_times(
    cross: Float[np.ndarray, "output input"],
    outer: Float[np.ndarray, "unit output"],
    inner: Float[np.ndarray, "unit input"],
) -> PerMode:
    r"""Return when each mode of a linear network of small weights and white inputs is learned.

    With $\mathbb E\,y z^\top = \sum_k s_k q_k r_k^\top$ small weights grow as $\tau\dot v_i = \mathbb E[yz^\top]u_i$,
    $\tau\dot u_i = \mathbb E[zy^\top]v_i$, so that of mode k only $m_{ki} = (q_k^\top v_i + r_k^\top u_i)/2$ does. What
    modes before it have of the hidden space is not seen by it: with $m_k$ made orthogonal to $m_1, \dots, m_{k-1}$, its
    size $|m_k|^2$ follows the logistic equation $\tau\dot a = 2a(s_k - a)$, and the loss is halfway down at
    $t_k/\tau = \ln\big((\sqrt2 - 1)\,s_k/|m_k|^2\big)/(2s_k)$. For weights of size w it is exact as w goes to 0.
    Modes of equal strength $s_k$ are chosen such that their $m_k$ are orthogonal. They are learned together: $t_k$ is
    when the part of the loss that is the mode's own is halfway down, and the whole curve is that of `riccati_course`.

    **Arguments:**

    - `cross`: $\mathbb E\,yz^\top$ of outputs and inputs, with $\mathbb E\,zz^\top = 1$.
    - `outer`, `inner`: the initial weights $v_i$ and $u_i$, a unit a row.

    **Returns:** $t_k$, in units of τ and in falling order of $s_k$; infinite for modes of no strength, or
    that no unit is left for.

    **Example:**

    >>> rng = np.random.default_rng(0)
    >>> weights = [1e-4 * rng.normal(size=shape) for shape in ((10, 2), (10, 3))]
    >>> sw.theory.units.direction_times(np.eye(2, 3) * [[1.0], [0.5]], *weights).round(2).tolist()
    [8.15, 15.91]
    """
    _require_finite(cross=cross, outer=outer, inner=inner)
    left, sizes, right = np.linalg.svd(cross, full_matrices=False)
    least = np.finfo(float).eps * max(cross.shape) * sizes.max(initial=0.0)
    # The triangular factor has on its diagonal what is orthogonal to the columns before.
    triangle = _triangle((outer @ left + inner @ right.T) / 2)
    times = np.full(sizes.size, np.inf)
    strong = np.arange(sizes.size)[sizes > least]
    for modes in np.split(strong, np.flatnonzero(-np.diff(sizes[strong]) > _EQUAL * sizes[strong][1:]) + 1):
        # Modes of one strength are any rotation of each other: these are those that grow apart.
        grown = np.linalg.svd(triangle[modes[modes < len(triangle), None], modes], compute_uv=False)
        some = modes[: grown.size]
        with np.errstate(divide="ignore"):
            times[some] = (np.log((np.sqrt(2) - 1) * sizes[some]) - 2 * np.log(grown)) / (2 * sizes[some])
    return times


@checked
def riccati_course(
    cross: Float[np.ndarray, "output input"],
    outer: Float[np.ndarray, "unit output"],
    inner: Float[np.ndarray, "unit input"],
    times: PerTime,
) -> LinearCourse:
    r"""Return the whole course of a linear network with white inputs, in closed form.

    With $Q = (U; V)$, a unit a column, and F the matrix of $\mathbb E\,yz^\top$ off its diagonal, the flow of balanced
    weights, $U^\top U = V^\top V$, is $\tau\dot Q = FQ - \tfrac12 QQ^\top Q$ (Fukumizu). In the eigenvectors of F, with
    falling eigenvalues f, and $\phi = (e^{2ft} - 1)/(2f)$, let $Q(0) = LO$ with L lower triangular and
    $OO^\top = 1$, and $L'_{ij} = L_{ij}\sqrt{\phi_i/\phi_j}$. Its solution is
    $QQ^\top = E\,L'(\phi^{-1} + L'^\top L')^{-1}L'^\top E$, $E = e^{ft}/\sqrt\phi$, where no number grows with t.
    Where weights of size w are not balanced, the loss is off by the order of $w^2$ of what it is at first.

    **Arguments:**

    - `cross`: $\mathbb E\,yz^\top$ of outputs and inputs, with $\mathbb E\,zz^\top = 1$.
    - `outer`, `inner`: the initial weights $v_i$ and $u_i$, a unit a row.
    - `times`: the times, from 0 on, in units of τ.

    **Returns:** the `LinearCourse`: at each of `times` the map, and how far the loss is above that of the best map.

    **Example:** from balanced weights of size 0.01.

    >>> course = sw.theory.units.riccati_course([[2.0]], [[0.01]], [[0.01]], [1.0, 2.0, 4.0])
    >>> course.maps[:, 0, 0].round(4).tolist(), course.loss.round(4).tolist()
    ([0.0054, 0.2594, 1.9955], [3.9782, 3.0295, 0.0])
    """
    _require_finite(cross=cross, outer=outer, inner=inner, times=times)
    if times.min(initial=0.0) < 0:
        raise InvalidInput(f"times begin at {times.min():g}; the course is from 0 on")
    count, dim = cross.shape
    block = np.zeros((dim + count, dim + count))
    block[:dim, dim:], block[dim:, :dim] = cross.T, cross
    rates, vectors = (part[..., ::-1] for part in np.linalg.eigh(block))
    start = vectors.T @ np.concatenate([inner.T, outer.T])
    lower = _triangle(start.T).T
    power = 2 * rates * times[:, None]
    shrunk = np.where(power == 0, 1.0, -np.expm1(-np.abs(power)) / np.where(power == 0, 1.0, np.abs(power)))
    # φ, of growing modes divided by e^(2ft); not 0 at t = 0.
    slow = np.maximum(times[:, None] * shrunk, 1e-300)
    log = (np.maximum(power, 0.0) + np.log(slow)) / 2
    columns = log[:, : lower.shape[1]]
    graded = lower * np.exp(np.minimum(log[:, :, None] - columns[:, None], 0.0))
    rest = np.exp(-np.minimum(columns, 300.0))[:, :, None] * np.eye(lower.shape[1])
    factor = np.linalg.qr(np.concatenate([graded, rest], axis=1), mode="r")
    parts = np.linalg.solve(np.swapaxes(factor, 1, 2), np.swapaxes(graded, 1, 2))
    parts *= (np.exp(np.minimum(power, 0.0) / 2) / np.sqrt(slow))[:, None]
    whole = vectors @ (np.swapaxes(parts, 1, 2) @ parts) @ vectors.T
    maps = whole[:, dim:, :dim]
    return LinearCourse(times, np.sum((cross - maps) ** 2, axis=(1, 2)), maps)


def _triangle(columns: Float[np.ndarray, "unit mode"]) -> Float[np.ndarray, "row mode"]:
    """The triangular factor, in which what is rounding of a column is zero: rounding would grow like any weight."""
    factor = np.asarray(np.linalg.qr(columns, mode="r"))
    rounding = 10 * np.finfo(float).eps * max(columns.shape) * np.linalg.norm(columns, axis=0)
    return np.where(np.abs(factor) > rounding, factor, 0.0)


def _require_finite(**arrays: Float[np.ndarray, "..."]) -> None:
    for name, array in arrays.items():
        checks.numbers_in(name, array)
