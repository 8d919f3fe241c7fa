"""The least spectral loss over all weights, by brute force: many starts, and no theory of where the least is."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from stepwell.figures import one_blas_thread
from stepwell.tasks import MultiTaskRegression

FLATTEST = 1e-2
r"""The smallest root mean square of $|\omega^h|$ searched: with signed weights the least is at 0, where μ → ∞."""
_SHARPEST = 3.0
RCOND = 1e-9
"""Combinations of heads that are this near to nothing are left out: μ there would be so large that rounding shows."""


class Minimum(NamedTuple):
    """Weights, the loss there, summed over tasks, and its rounding error where large μ of either sign cancel."""

    loss: float
    rounding: float
    omega: Float[np.ndarray, "head task"]
    mu: Float[np.ndarray, "head task"]


def loss_and_slope(
    task: MultiTaskRegression, omega: Float[np.ndarray, "head task"], mu: Float[np.ndarray, "head task"]
) -> tuple[float, Float[np.ndarray, "2 head task"]]:
    r"""The spectral loss (see `stepwell.objectives.Spectral`) summed over tasks, and its derivatives in ω and μ."""
    dims, signals, length = np.array(task.dims), task.signals, task.context.longest
    powers = (signals + task.noise_variance) / length
    overlaps = np.exp((omega * dims) @ omega.T)
    missing = 1 - np.sum(mu * omega, axis=0)
    spread = overlaps @ mu
    loss = np.sum(signals * missing**2 + powers * np.sum(mu * spread, axis=0))
    together = (mu * powers) @ mu.T * overlaps
    slopes = (2 * (together @ omega * dims - signals * missing * mu), 2 * (powers * spread - signals * missing * omega))
    return float(loss), np.stack(slopes)


def least_signed(task: MultiTaskRegression, heads: int, starts: int, *, rng: np.random.Generator) -> Minimum:
    """Of weights of either sign: the best μ is known for each ω, and ω is searched, its size and its shape apart."""
    shape = (heads, len(task.dims))

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        omega, unit, length = _scaled(task, point, shape)
        loss, (slope, _) = loss_and_slope(task, omega, best_readout(task, omega))
        inner = float(np.sum(slope * unit))
        shape_slope = np.exp(point[0]) / length * (slope - inner * unit * np.array(task.dims) / heads)
        return loss, np.concatenate([[np.exp(point[0]) * inner], shape_slope.ravel()])

    bounds = [(np.log(FLATTEST), np.log(_SHARPEST))] + [(None, None)] * (shape[0] * shape[1])
    first = [np.concatenate([[rng.uniform(-1.5, 0.0)], rng.standard_normal(shape).ravel()]) for _ in range(starts)]
    best = _best(value, first, bounds)
    omega = _scaled(task, best, shape)[0]
    return _minimum(task, omega, best_readout(task, omega))


def least_positive(task: MultiTaskRegression, heads: int, starts: int, *, rng: np.random.Generator) -> Minimum:
    """Of weights that are not negative, which is all that the flow reaches from positive ones."""
    shape = (2, heads, len(task.dims))
    typical = np.array([np.mean(task.dims) ** -0.5, np.mean(task.dims) ** 0.5])[:, None, None]

    def value(point: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slopes = loss_and_slope(task, *(point.reshape(shape) * typical))
        return loss, (slopes * typical).ravel()

    first = [rng.uniform(0.0, 0.5, shape).ravel() for _ in range(starts)]
    omega, mu = _best(value, first, [(0.0, None)] * int(np.prod(shape))).reshape(shape) * typical
    return _minimum(task, omega, mu)


def best_readout(task: MultiTaskRegression, omega: Float[np.ndarray, "head task"]) -> Float[np.ndarray, "head task"]:
    r"""μ of least spectral loss: $E^{-1}\omega_i/(s_i + \phi_i/L)$, $s_i = \omega_i^\top E^{-1}\omega_i$, $E = e^G$."""
    overlaps = np.exp((omega * np.array(task.dims)) @ omega.T)
    solved = np.linalg.lstsq(overlaps, omega, rcond=RCOND)[0]
    return solved / (np.sum(omega * solved, axis=0) + task.noise_factors / task.context.longest)


def _minimum(task: MultiTaskRegression, omega: np.ndarray, mu: np.ndarray) -> Minimum:
    added = np.abs(mu) * (np.exp((omega * np.array(task.dims)) @ omega.T) @ np.abs(mu))
    powers = (task.signals + task.noise_variance) / task.context.longest
    rounding = 4 * omega.shape[0] * np.finfo(float).eps * float(task.signals.sum() + np.sum(powers * added))
    return Minimum(loss_and_slope(task, omega, mu)[0], rounding, omega, mu)


def _scaled(task: MultiTaskRegression, point: np.ndarray, shape: tuple[int, int]):
    r"""ω whose root mean square of $|\omega^h|$ is the exponential of the first number; also its shape alone."""
    free = point[1:].reshape(shape)
    length = float(np.sqrt(np.sum(np.array(task.dims) * free**2) / shape[0]))
    return np.exp(point[0]) * free / length, free / length, length


def _best(value, starts: list[np.ndarray], bounds: list) -> np.ndarray:
    options = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-14, "gtol": 1e-10}
    with one_blas_thread():  # systems of a few heads: threads would only wait for each other
        minima = [minimize(value, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options) for x in starts]
    return min(minima, key=lambda one: one.fun).x
