"""Merged key and query: one abrupt drop, in D+1 scalar equations."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .._integrate import integrate, require_positive, require_times
from .._task import RegressionTask
from ._levels import levels
from ._modes import Modes, modes
from ._moments import cross_moment, label_power


@dataclass(frozen=True)
class MergedCourse:
    """A predicted run: `times` in units of τ, `loss`, `value` v(t) and `key_query` u_d(t), modes as in `Modes`."""

    times: Float[np.ndarray, " time"]
    loss: Float[np.ndarray, " time"]
    value: Float[np.ndarray, " time"]
    key_query: Float[np.ndarray, "time mode"]


def merged_escape_rate(task: RegressionTask) -> float:
    r"""$\|M\Lambda\|_F$, or $\|\Lambda^2\|_F$ in the paper's case: the rate at which small weights grow.

    Zero is a strict saddle, whose lowest Hessian eigenvalue is $-2\|M\Lambda\|_F$, once per head.
    """
    return float(np.linalg.norm(cross_moment(task) @ task.covariance))


def merged_escape_time(task: RegressionTask, initial_weight: float) -> float:
    r"""When the drop comes: $t/\tau \approx \ln(1/w_{init}) / \|M\Lambda\|_F$, with $w_{init}$ the `initial_weight`."""
    require_positive("initial_weight", initial_weight)
    return -np.log(initial_weight) / merged_escape_rate(task)


def merged_start(
    task: RegressionTask, values: Float[np.ndarray, " head"], key_queries: Float[np.ndarray, "head dim dim"]
) -> tuple[float, Float[np.ndarray, " mode"]]:
    r"""(v(0), u(0)) of the scalar equations from weights $v_h$ (`values`) and $U_h$ (`key_queries`).

    Near zero $\dot v_h = \langle U_h, M\Lambda\rangle$, $\dot U_h = v_h M\Lambda$: only
    $\mu_h = \tfrac12(v_h + \langle U_h, g\rangle)$ grows, $g = M\Lambda/\|M\Lambda\|_F$. So all heads act as one, which
    starts at $v = \|\mu\|$, $U = \|\mu\|\, g$.
    """
    driving = cross_moment(task) @ task.covariance
    unit = driving / np.linalg.norm(driving)
    growing = (values + np.einsum("hij,ij->h", key_queries, unit)) / 2
    along = modes(task).driving
    size = float(np.linalg.norm(growing))
    return size, size * along / np.linalg.norm(along)


def merged_course(
    task: RegressionTask, times: Float[np.ndarray, " time"], value: float, key_query: Float[np.ndarray, " mode"]
) -> MergedCourse:
    r"""Integrate, from v(0) = `value` and $u_d(0)$ = `key_query`,

    $\tau\dot v = \sum_d u_d r_d$, $\tau\dot u_d = v r_d$, $r_d = \lambda_d m_d - \lambda_d c_d v u_d$:
    the flow of merged attention with the map $A = \sum_d v u_d\, e_d e_d^\top$ (paper: white covariance only).
    """
    require_times(times)
    eigenmodes = modes(task)
    start = np.concatenate([[value], key_query])
    if times[-1] == 0.0 or not start.any():
        states = np.tile(start, (times.size, 1))
    else:
        states = integrate(_field(eigenmodes), start, float(times[-1]), times=times).y.T
    return MergedCourse(times, _loss(task, eigenmodes, states), states[:, 0], states[:, 1:])


def half_drop_time(task: RegressionTask, value: float, key_query: Float[np.ndarray, " mode"]) -> float:
    r"""t/τ at which the loss passes $\tfrac12(L_0 + L_D)$, halfway between its first and last level.

    `value` is v(0) and `key_query` u(0), as in `merged_course`. Infinite if the loss does not get there.
    """
    eigenmodes = modes(task)
    start = np.concatenate([[value], key_query])
    size = float(np.linalg.norm(start))
    require_positive("size of the initial weights", size)
    halfway = float(levels(task)[[0, -1]].mean())

    def fallen(_: float, state: np.ndarray) -> float:
        return halfway - float(_loss(task, eigenmodes, state[None])[0])

    if fallen(0.0, start) >= 0:
        return 0.0
    # Far beyond the time wanted: the event ends the integration.
    until = 1e6 * (1 + abs(np.log(size))) / merged_escape_rate(task)
    solution = integrate(_field(eigenmodes), start, until, event=fallen)
    return float(solution.t_events[0][0]) if solution.status == 1 else np.inf


def _field(eigenmodes: Modes):
    driving, curvature = eigenmodes.driving, eigenmodes.curvature

    def field(_: float, state: np.ndarray) -> np.ndarray:
        v, u = state[0], state[1:]
        r = driving - curvature * v * u
        return np.concatenate([[u @ r], v * r])

    return field


def _loss(
    task: RegressionTask, eigenmodes: Modes, states: Float[np.ndarray, "time state"]
) -> Float[np.ndarray, " time"]:
    a = states[:, :1] * states[:, 1:]
    return label_power(task) - a @ (2 * eigenmodes.driving) + a**2 @ eigenmodes.curvature
