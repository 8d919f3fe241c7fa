r"""Critical points of the population loss, searched for from random places without knowing where they are.

Each start minimizes $|\nabla L|^2$ by the Levenberg–Marquardt method: saddles attract it as minima do. A start has
converged where no entry of the gradient is above `GRADIENT` and no weight above `WEIGHT`. Others end in a minimum of
$|\nabla L|^2$ that is no critical point, or are still on their way.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

LARGEST = 3
"""Largest dimension D of a search."""
GRADIENT = 1e-12
WEIGHT = 100.0
SPREADS = (1.0, 2.0, 3.0)
"""Standard deviations of unaligned starts, a third each; weights at the minimum are between 1 and 2."""
APART = 1e-3
"""Maps whose predictions differ by less, root mean square, are one; weights below it count as zero."""

Build = Callable[[Float[Array, " weight"]], MergedAttention | SeparateAttention]


class Searched(NamedTuple):
    """A model whose critical points are searched for; `rank` is that of separate keys and queries."""

    kind: Literal["merged", "separate"]
    eigenvalues: tuple[float, ...]
    heads: int
    rank: int = 1

    @property
    def name(self) -> str:
        words = "merged" if self.kind == "merged" else f"separate, rank {self.rank}"
        return f"{words}, D = {len(self.eigenvalues)}"

    @property
    def family(self) -> Literal["merged", "rank-one", "low-rank"]:
        return "merged" if self.kind == "merged" else "rank-one" if self.rank == 1 else "low-rank"


def model_of_weights(kind: str, dim: int, heads: int, rank: int = 1) -> tuple[int, Build]:
    """How many weights a model without label blocks has, and the model made of them: values, then keys, then queries
    (merged: values, then U)."""
    values, pairs = jnp.zeros(heads), jnp.zeros((heads, rank, dim))
    parts = (values, jnp.zeros((heads, dim, dim))) if kind == "merged" else (values, pairs, pairs)
    flat, split = ravel_pytree(parts)

    def build(weights):
        own, *others = split(weights)
        value = jnp.zeros((heads, 1, dim + 1)).at[:, 0, dim].set(own)
        if kind == "merged":
            return MergedAttention(value, jnp.zeros((heads, dim + 1, dim)).at[:, :dim].set(others[0]))
        return SeparateAttention(value, jnp.zeros((heads, rank, dim + 1)).at[:, :, :dim].set(others[0]), others[1])

    return flat.size, build


def random_places(searched: Searched, directions: np.ndarray, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts, and which of them are aligned: of four, three are Gaussian, one for each of `SPREADS`, and one has every
    key and query along one of the eigenvectors `directions` (merged: every U diagonal in them)."""
    dim, heads, rank = len(searched.eigenvalues), searched.heads, searched.rank
    rng = np.random.default_rng(seed)
    size, _ = model_of_weights(searched.kind, dim, heads, rank)
    kinds = np.arange(count) % 4
    starts = rng.normal(size=(count, size)) * np.array([*SPREADS, SPREADS[1]])[kinds][:, None]
    aligned = kinds == 3
    here = aligned.sum()
    if searched.kind == "merged":
        sizes = SPREADS[1] * rng.normal(size=(here, heads, dim))
        others = [np.einsum("nhd,id,jd->nhij", sizes, directions, directions)]
    else:
        along = directions.T[rng.integers(dim, size=(here, heads, rank))]
        others = [SPREADS[1] * rng.normal(size=(here, heads, rank, 1)) * along for _ in range(2)]
    starts[aligned, heads:] = np.concatenate(
        [part.reshape(here, np.prod(part.shape[1:], dtype=int)) for part in others], axis=1
    )
    return starts, aligned


def search(
    task: InContextRegression,
    searched: Searched,
    *,
    starts: int,
    steps: int,
    seed: int,
    theory_task: InContextRegression | None = None,
) -> xr.Dataset:
    """Where each start ends; the maps are compared with those predicted for `theory_task`.

    - `gradient`: the largest entry of the gradient; `converged`; `loss`.
    - `distance`: root mean square difference of predictions from those of the nearest predicted fixed point, which
      has learned the set `nearest`, by number.
    - `group`: converged starts that end with one map have one number, from 0; others have -1.
    - `off_span`: the largest part of a key or query outside the span of the learned eigenvectors, in heads with v ≠ 0
      (condition (C2) of the paper).
    - `elsewhere`: whether the weights, though critical, are not among those that the paper lists for that map, in
      equation (9a) or condition (C3); nan if the point cannot tell: no head has v = 0, or less than two components are
      left to learn. For a higher rank, nan always.
    - `tolerance`: how far the map of a converged start can be from a fixed point (`distance_bound`).
    """
    theory_task = task if theory_task is None else theory_task
    dim = task.dim
    _, build = model_of_weights(searched.kind, dim, searched.heads, searched.rank)
    directions = theory.modes(task).directions
    places, aligned = random_places(searched, directions, starts, seed)
    weights, gradient = minimize_gradient(lambda w: Population(task)(build(w)), places, steps)
    ends = jax.vmap(build)(jnp.asarray(weights))
    maps = np.asarray(eqx.filter_vmap(lambda model: model.effective_map()[0, 0])(ends))
    converged = (gradient <= GRADIENT) & (np.abs(weights).max(axis=1) <= WEIGHT)

    points = list(theory.fixed_points(theory_task))
    points = [points[0], points[-1]] if searched.kind == "merged" else points
    scaled = _in_the_metric(task, maps)
    distances = np.linalg.norm(
        scaled[:, None] - _in_the_metric(task, np.array([p.effective_map for p in points])), axis=(2, 3)
    )
    nearest = distances.argmin(axis=1)
    learned = np.array([[d in point.learned for d in range(dim)] for point in points])
    off_span, elsewhere = _weight_space(searched, weights, directions, learned[nearest])
    return xr.Dataset(
        {
            "aligned": ("start", aligned),
            "gradient": ("start", gradient),
            "converged": ("start", converged),
            "loss": ("start", [theory.loss_at(task, each) for each in maps]),
            "distance": ("start", distances.min(axis=1)),
            "nearest": ("start", nearest),
            "group": ("start", _groups(scaled, converged)),
            "off_span": ("start", off_span),
            "elsewhere": ("start", elsewhere),
            "tolerance": distance_bound(task, searched),
            "predicted_count": len(points),
            "least_rate": theory.escape_rates(task)[-1],
            "predicted_loss": ("point", _padded([point.loss for point in points], np.nan)),
            "learned": ("point", _padded([set_name(point.learned) for point in points], "")),
        }
    )


def set_name(learned: tuple[int, ...]) -> str:
    """Components from 0, as a set of numbers from 1."""
    return "{" + ",".join(str(d + 1) for d in learned) + "}" if learned else "∅"


def _padded(values: list, rest: Any) -> np.ndarray:
    """With as many entries as separate attention has fixed points at D = `LARGEST`: all models fit one data set."""
    return np.array(values + [rest] * (2**LARGEST - len(values)))


def minimize_gradient(
    loss: Callable[[Float[Array, " weight"]], Float[Array, ""]], starts: Float[np.ndarray, "start weight"], steps: int
) -> tuple[Float[np.ndarray, "start weight"], Float[np.ndarray, " start"]]:
    r"""Minimize $|\nabla L|^2$ from each start: the ends, and the largest entry of the gradient there.

    A step solves $(H^2 + \mu|g|)\,\delta = -Hg$, with g the gradient and H the Hessian. It is taken if $|g|$ falls, and
    µ is divided by 4, else µ is multiplied by 8. With a damping of the order of |g| the method converges quadratically
    to critical points that are not isolated, where H is singular.
    """
    differentiate = jax.jit(jax.vmap(lambda w: (jax.grad(loss)(w), jax.hessian(loss)(w))))
    weights = np.array(starts)
    gradient, hessian = (np.array(part) for part in differentiate(weights))
    damping, identity = np.ones(len(weights)), np.eye(weights.shape[1])
    for _ in range(steps):
        active = np.flatnonzero(np.abs(gradient).max(axis=1) > GRADIENT)
        size = np.linalg.norm(gradient[active], axis=1)
        square = hessian[active] @ hessian[active]
        # Beside the damping there is rounding: H² may be singular to the last digit.
        added = damping[active] * size + 1e-15 * np.trace(square, axis1=1, axis2=2)
        damped = square + added[:, None, None] * identity
        tried = weights.copy()
        tried[active] -= np.linalg.solve(damped, hessian[active] @ gradient[active, :, None])[..., 0]
        new_gradient, new_hessian = (np.asarray(part) for part in differentiate(tried))
        better = np.linalg.norm(new_gradient[active], axis=1) < size
        damping[active] *= np.where(better, 0.25, 8.0)
        moved = active[better]
        weights[moved], gradient[moved], hessian[moved] = tried[moved], new_gradient[moved], new_hessian[moved]
    return weights, np.abs(gradient).max(axis=1)


def distance_bound(task: InContextRegression, searched: Searched) -> float:
    r"""How far the map of a start that has converged can be from a fixed point, as `theory.prediction_distance` has it.

    With $\epsilon$ = `GRADIENT`, W = `WEIGHT`, $B = C^{1/2}A\Lambda^{1/2}$, T that of the minimum, n pairs of key and
    query (merged: heads), and $\kappa$ a condition number:

    - Separate: $\|v\,Gq\|$ and $\|v\,G^\top k\|$ are at most $\tfrac12\sqrt D\epsilon$, so that $(T-B)B^\top$ and
      $(T-B)^\top B$ are at most $r = \tfrac12 nDW\epsilon\sqrt{\kappa(C)}$. T is symmetric with eigenvalues
      $\sqrt{\gamma_d}$, and $T^2B - BT^2$ is at most $4r\|T\|$: in its basis, B is diagonal up to $4r\|T\|$ over the
      least difference of two γ, and each entry of its diagonal is 0 or $\sqrt{\gamma_d}$ up to
      $2r/\sqrt{\gamma_D}$.
    - Merged: $|v_h||G_{ij}| \le \epsilon/2$ bounds the product of the two distances, $\|B\|$ and $\|T - B\|$, by
      $p = \tfrac12 n D^2 W\epsilon\sqrt{\kappa(C)\kappa(\Lambda)}$; their sum is at least $\|T\|$, so that the lesser
      is at most $2p/\|T\|$.
    """
    gains, second = theory.component_gains(task), theory.second_moment(task)
    pairs, dim = searched.heads * (searched.rank if searched.kind == "separate" else 1), task.dim
    condition = np.linalg.cond(second) ** 0.5
    if searched.kind == "merged":
        product = pairs * dim**2 * WEIGHT * GRADIENT / 2 * condition * np.linalg.cond(task.covariance) ** 0.5
        return float(2 * product / gains.sum() ** 0.5)
    residual = pairs * dim * WEIGHT * GRADIENT / 2 * condition
    return float(residual * (4 * gains[0] ** 0.5 / -np.diff(gains).max() + 2 * (dim / gains[-1]) ** 0.5))


def _in_the_metric(task: InContextRegression, maps: Float[np.ndarray, "start dim dim"]):
    """Maps scaled so that the Frobenius distance is the root mean square difference of predictions."""
    return np.linalg.cholesky(theory.second_moment(task)).T @ maps @ np.linalg.cholesky(task.covariance)


def _groups(scaled: np.ndarray, converged: np.ndarray) -> np.ndarray:
    group = np.full(len(scaled), -1)
    firsts: list[np.ndarray] = []
    for place in np.flatnonzero(converged):
        near = [k for k, first in enumerate(firsts) if np.linalg.norm(scaled[place] - first) < APART]
        if not near:
            firsts.append(scaled[place])
        group[place] = near[0] if near else len(firsts) - 1
    return group


def _weight_space(
    searched: Searched, weights: np.ndarray, directions: np.ndarray, learned: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`off_span` and `elsewhere` of `search`."""
    count, heads, dim = len(weights), searched.heads, directions.shape[0]
    values, others = np.abs(weights[:, :heads]), weights[:, heads:]
    idle = values < APART
    if searched.kind == "merged":
        at_zero = ~learned.any(axis=1)
        return np.zeros(count), np.where(at_zero, np.abs(others).max(axis=1) > APART, np.nan)
    parts = others.reshape(count, 2, heads, searched.rank, dim) @ directions
    off = np.abs(parts * ~learned[:, None, None, None]).max(axis=-1)
    in_use = np.where(idle[:, None, :, None], 0.0, off).max(axis=(1, 2, 3))
    both = (off > APART).all(axis=1).any(axis=-1) & idle
    tells = idle.any(axis=1) & ((~learned).sum(axis=1) >= 2) & (searched.rank == 1)
    return in_use, np.where(tells, both.any(axis=1), np.nan)
