r"""Runs of the three types of network whose effective width grows, and what is predicted of their distances.

Linear units depend on each other, ReLU units are proportional, and quadratic units are zero, but for some of them.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
import xarray as xr
from jaxtyping import Float

from stepwell.analysis import manifold_distance
from stepwell.dynamics import Ensemble, Record, flow
from stepwell.models import AbstractModel, ActivationUnits, PolynomialUnits
from stepwell.objectives import AbstractObjective, FeatureMoments, Sampled
from stepwell.tasks import FeatureBatch, GaussianTeacher
from stepwell.theory.units import riccati_course

TYPES = ("linear", "ReLU", "quadratic")
STRENGTHS = {"linear": (1.0, 0.5, 0.25), "ReLU": (1.0, 0.5), "quadratic": (0.5, 0.3, 0.15)}
"""Singular values of linear networks, growth rates of ReLU units on one of two inputs, strengths of squares."""
PLACES = 1600
RTOL = 1e-9
_SETTLED = 10.0
"""Over the smallest rate: ReLU units are on their rays."""
_LARGE = 0.5
"""Of a test unit: it is next."""


def objective(kind: str) -> AbstractObjective:
    s = np.array(STRENGTHS[kind])
    if kind == "ReLU":
        # Orthogonal inputs with labels of opposite signs: a unit grows on one of them, at the rate y|x|/2.
        return Sampled(FeatureBatch(jnp.diag(2 * s), jnp.array([[1.0], [-1.0]])), reduce="sum")
    quadratic = kind == "quadratic"
    task = GaussianTeacher(s, np.ones(s.size), degree=1 + quadratic, separate=not quadratic)
    return FeatureMoments(task.moments(1 + quadratic))


def model(kind: str, units: int, scale: float, seed: int) -> AbstractModel:
    size, key = len(STRENGTHS[kind]), jax.random.key(seed)
    if kind == "ReLU":
        return ActivationUnits.random(dim=size, units=units, nonlinearity="relu", scale=scale, key=key)
    if kind == "linear":
        return PolynomialUnits.random(dim=size, units=units, outputs=size, scale=scale, key=key)
    return PolynomialUnits.random(dim=size, units=units, degree=2, scale=scale, key=key)


def levels(kind: str) -> Float[np.ndarray, " level"]:
    """The loss at each plateau, and at the end; of quadratic units from what is left out of the target."""
    s = np.array(STRENGTHS[kind])
    left = [s[learned:] for learned in range(s.size + 1)]
    if kind == "quadratic":
        return np.array([2 * np.sum(r**2) + 2 * r.sum() ** 2 / (2 + s.size - r.size) for r in left])
    return np.array([float(r.size) / 2 if kind == "ReLU" else np.sum(r**2) for r in left])


def train(kind: str, models: Sequence[AbstractModel], until: float) -> xr.Dataset:
    loss = objective(kind)

    def speed(model: Any) -> Any:
        parts = jax.tree.leaves(jax.grad(lambda each: loss(each))(model))
        return jnp.sqrt(sum(jnp.sum(part**2) for part in parts))

    record = Record(points=PLACES, spacing="steps", observe={"speed": speed})
    return flow(Ensemble.of(list(models)), loss, until=until, rtol=RTOL, record=record, progress=False)


def distances(run: xr.Dataset, kind: str) -> xr.DataArray:
    """To the manifolds of width 0, 1, …, as many as there are drops."""
    widths = range(len(levels(kind)))
    made = [manifold_distance(run, width) for width in widths]
    return xr.concat(made, "width").assign_coords(width=list(widths))


def predicted_distances(
    kind: str, initial: AbstractModel, times: Float[np.ndarray, " time"]
) -> Float[np.ndarray, "width time"]:
    """The same in theory, from the initial weights: of units that are in use, or will be, and no others."""
    outer, inner = np.asarray(initial.weights()["outer"])[..., 0], np.asarray(initial.weights()["inner"])
    return {"linear": _linear, "ReLU": _rays, "quadratic": _quadratic}[kind](outer, inner, times)


def _linear(outer: np.ndarray, inner: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Balanced weights with a map of singular values σ have the singular values √2σ."""
    sizes = np.linalg.svd(riccati_course(np.diag(STRENGTHS["linear"]), outer, inner, times).maps, compute_uv=False)
    return np.array([np.sqrt(2 * np.sum(sizes[:, width:], axis=1)) for width in range(sizes.shape[1] + 1)])


def _rays(outer: np.ndarray, inner: np.ndarray, times: np.ndarray) -> np.ndarray:
    r"""Units with v > 0 come to be on the first ray, those with v < 0 on the second, if active there.

    In the field of zero $\dot v = \sum_m d_m \max(p_m, 0)$ with $d = (s_1, -s_2)$, and $\dot p_m = v d_m$ where
    $p_m > 0$. From then on a ray is a logistic mode, of $|M|^2 = \sum_i (|v_i| + p_i)^2/4$, that learns $1/2s$.
    """
    s = np.array(STRENGTHS["ReLU"])
    d, units = s * [1, -1], len(outer)

    def velocity(_, state: np.ndarray) -> np.ndarray:
        v, p = state[:units], state[units:].reshape(units, 2)
        on = np.maximum(p, 0.0)
        return np.concatenate([on @ d, (v[:, None] * d * (p > 0)).ravel()])

    start, early = np.concatenate([outer[:, 0], inner.ravel()]), _SETTLED / s[-1]
    solved: Any = scipy.integrate.solve_ivp(velocity, (0.0, early), start, rtol=RTOL, atol=1e-6 * np.abs(start).max())
    v, p = solved.y[:units, -1], solved.y[units:, -1].reshape(units, 2)
    grown = np.where((v[:, None] * d > 0) & (p > 0), (np.abs(v[:, None]) + p) / 2, 0.0)
    first = np.sum(grown**2, axis=0) * np.exp(-2 * s * early)
    learned = 1 / (2 * s) / (1 + np.exp(-2 * s * times[:, None]) / (2 * s * first))
    return np.array([np.sqrt(2 * np.sum(learned[:, width:], axis=1)) for width in range(3)])


def _quadratic(outer: np.ndarray, inner: np.ndarray, times: np.ndarray) -> np.ndarray:
    r"""Units in use follow each other exactly, and the others follow them as if they were not there.

    $\dot v = u^\top Ru$ and $\dot u = 2vRu$ in the error R of those in use, of which there are one more than the width:
    one after another, the other that is first to be large.
    """
    moments = GaussianTeacher(np.array(STRENGTHS["quadratic"]), np.ones(3), degree=2).moments(2)
    start = np.concatenate([outer, inner], axis=1)
    used: list[int] = []
    made = []
    for _ in range(4):
        rest = np.setdiff1d(np.arange(len(start)), used)

        def velocity(_, state: np.ndarray, used=tuple(used)) -> np.ndarray:
            v, u = state.reshape(start.shape)[:, :1], state.reshape(start.shape)[:, 1:]
            known = list(used)
            learned = np.einsum("i,ij,ik->jk", v[known, 0], u[known], u[known]).ravel()
            error = (moments.cross[0] - moments.gram @ learned).reshape(3, 3)
            pushed = u @ error
            return np.concatenate([np.sum(pushed * u, axis=1, keepdims=True), 2 * v * pushed], axis=1).ravel()

        def next_one(_, state: np.ndarray, rest=rest) -> float:
            return float(np.linalg.norm(state.reshape(start.shape)[rest], axis=1).max(initial=0.0)) - _LARGE

        next_one.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
        options: dict[str, Any] = {"method": "LSODA", "rtol": 1e-8, "atol": 1e-12, "events": next_one}
        solved: Any = scipy.integrate.solve_ivp(velocity, (0.0, times[-1]), start.ravel(), t_eval=times, **options)
        sizes = np.linalg.norm(solved.y.T.reshape(-1, *start.shape), axis=2)
        far = np.sqrt(np.sum(np.sort(sizes, axis=1)[:, : sizes.shape[1] - max(len(used) - 1, 0)] ** 2, axis=1))
        made.append(np.concatenate([far, np.full(times.size - far.size, np.nan)]))
        if not solved.t_events[0].size:
            break
        last = solved.y_events[0][0].reshape(start.shape)
        used.append(int(rest[np.linalg.norm(last[rest], axis=1).argmax()]))
    made = made[1:] + [np.full(times.size, np.nan)] * (5 - len(made))
    return np.array(made)
