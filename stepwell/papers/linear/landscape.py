r"""The landscape: two fixed points of merged attention, $2^D$ of separate, and how the loss curves at each.

At a fixed point that the paper names, weights are balanced and aligned, spare heads zero. Theory says what kind of
point it is; JAX differentiates the loss of the model twice, by quadrature over its predictions, and its Hessian
decides the claims. A search from random places, which does not know where they are, shows that there are no others.

Each search minimizes $|\nabla L|^2$ by the Levenberg–Marquardt method: saddles attract it as minima do. A
search has converged where no entry of the gradient is above `GRADIENT` and no weight above `WEIGHT`. Others end in a
minimum of $|\nabla L|^2$ that is no critical point, or are still on their way.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from matplotlib.axes import Axes

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, VERMILION, new_figure, styled
from stepwell.figures import Claim, Data, Figure, Known, Origin, Seeds
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory

from ._drawing import lines, note
from ._quadrature import quadrature_loss
from ._runs import along, described, labeled, name_level

LARGEST = 3  # largest dimension D of a search
GRADIENT = 1e-12
WEIGHT = 100.0
SPREADS = (1.0, 2.0, 3.0)
"""Standard deviations of unaligned places, a third each; weights at the minimum are between 1 and 2."""
APART = 1e-3  # maps whose predictions differ by less, root mean square, are one; weights below it count as zero

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
    """Initial places, and which are aligned: of four, three are Gaussian, one for each of `SPREADS`, and one has every
    key and query along one of the eigenvectors `directions` (merged: every U diagonal in them)."""
    dim, heads, rank = len(searched.eigenvalues), searched.heads, searched.rank
    rng = np.random.default_rng(seed)
    size, _ = model_of_weights(searched.kind, dim, heads, rank)
    kinds = np.arange(count) % 4
    places = rng.normal(size=(count, size)) * np.array([*SPREADS, SPREADS[1]])[kinds][:, None]
    aligned = kinds == 3
    here = aligned.sum()
    if searched.kind == "merged":
        sizes = SPREADS[1] * rng.normal(size=(here, heads, dim))
        others = np.einsum("nhd,id,jd->nhij", sizes, directions, directions)
    else:
        along = directions.T[rng.integers(dim, size=(here, heads, rank))]
        others = np.stack([SPREADS[1] * rng.normal(size=(here, heads, rank, 1)) * along for _ in range(2)], axis=1)
    places[aligned, heads:] = others.reshape(here, size - heads)
    return places, aligned


def search(
    task: InContextRegression,
    searched: Searched,
    *,
    searches: int,
    steps: int,
    seed: int,
    theory_task: InContextRegression | None = None,
) -> xr.Dataset:
    """Where each search ends; the maps are compared with those predicted for `theory_task`.

    - `gradient`: the largest entry of the gradient; `converged`; `loss`.
    - `distance`: root mean square difference of predictions from those of the nearest predicted fixed point, which
      has learned the set `nearest`, by number.
    - `map`: that of the end, scaled so that the distance of two is the root mean square difference of predictions.
    - `group`: converged searches that end with one map have one number, from 0; others have -1.
    - `off_span`: the largest part of a key or query outside the span of the learned eigenvectors, in heads with v ≠ 0
      (condition (C2) of the paper).
    - `elsewhere`: whether the weights, though critical, are not among those that the paper lists for that map, in
      equation (9a) or condition (C3); nan if the point cannot tell: no head has v = 0, or less than two components are
      left to learn. For a higher rank, nan always.
    - `tolerance`: how far the map of a converged search can be from a fixed point (`distance_bound`).
    """
    theory_task = task if theory_task is None else theory_task
    dim = task.dim
    _, build = model_of_weights(searched.kind, dim, searched.heads, searched.rank)
    directions = theory.modes(task).directions
    places, aligned = random_places(searched, directions, searches, seed)
    weights, gradient = minimize_gradient(lambda w: Population(task)(build(w)), places, steps)
    ends = jax.vmap(build)(jnp.asarray(weights))
    maps = np.asarray(eqx.filter_vmap(lambda model: model.effective_map()[0, 0])(ends))
    converged = (gradient <= GRADIENT) & (np.abs(weights).max(axis=1) <= WEIGHT)

    points = list(theory.fixed_points(theory_task))
    points = [points[0], points[-1]] if searched.kind == "merged" else points
    # Scaled so, the Frobenius distance of maps is the root mean square difference of predictions.
    left, right = np.linalg.cholesky(theory.moments(task).second).T, np.linalg.cholesky(task.covariance)
    scaled, named = left @ maps @ right, left @ np.array([point.effective_map for point in points]) @ right
    distances = np.linalg.norm(scaled[:, None] - named, axis=(2, 3))
    nearest = distances.argmin(axis=1)
    learned = np.array([[d in point.learned for d in range(dim)] for point in points])
    off_span, elsewhere = _weight_space(searched, weights, directions, learned[nearest])
    columns = {
        "aligned": aligned,
        "gradient": gradient,
        "converged": converged,
        "loss": [theory.loss_at(task, each) for each in maps],
        "distance": distances.min(axis=1),
        "nearest": nearest,
        "group": _groups(scaled, converged),
        "off_span": off_span,
        "elsewhere": elsewhere,
    }
    padded = np.pad(scaled, ((0, 0), (0, LARGEST - dim), (0, LARGEST - dim)))
    return xr.Dataset(
        {
            **{name: ("search", values) for name, values in columns.items()},
            "map": (("search", "row", "column"), padded),
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
    """With as many entries as separate attention has fixed points at D = `LARGEST`."""
    return np.array(values + [rest] * (2**LARGEST - len(values)))


def minimize_gradient(
    loss: Callable[[Float[Array, " weight"]], Float[Array, ""]], places: Float[np.ndarray, "search weight"], steps: int
) -> tuple[Float[np.ndarray, "search weight"], Float[np.ndarray, " search"]]:
    r"""Minimize $|\nabla L|^2$ from each place: the ends, and the largest entry of the gradient there.

    A step solves $(H^2 + \mu|g|)\,\delta = -Hg$, with g the gradient and H the Hessian. It is taken if $|g|$ falls, and
    µ is divided by 4, else µ is multiplied by 8. With a damping of the order of |g| the method converges quadratically
    to critical points that are not isolated, where H is singular.
    """
    differentiate = jax.jit(jax.vmap(lambda w: (jax.grad(loss)(w), jax.hessian(loss)(w))))
    weights = np.array(places)
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
    r"""How far the map of a converged search can be from a fixed point, as `theory.prediction_distance` has it.

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
    gains, second = theory.components(task).gains, theory.moments(task).second
    pairs, dim = searched.heads * (searched.rank if searched.kind == "separate" else 1), task.dim
    condition = np.linalg.cond(second) ** 0.5
    if searched.kind == "merged":
        product = pairs * dim**2 * WEIGHT * GRADIENT / 2 * condition * np.linalg.cond(task.covariance) ** 0.5
        return float(2 * product / gains.sum() ** 0.5)
    residual = pairs * dim * WEIGHT * GRADIENT / 2 * condition
    return float(residual * (4 * gains[0] ** 0.5 / -np.diff(gains).max() + 2 * (dim / gains[-1]) ** 0.5))


def _groups(scaled: np.ndarray, converged: np.ndarray) -> np.ndarray:
    group = np.full(len(scaled), -1)
    for place in np.flatnonzero(converged):
        if group[place] < 0:
            near = np.linalg.norm(scaled - scaled[place], axis=(1, 2)) < APART
            group[near & converged & (group < 0)] = group.max() + 1
    return group


def _weight_space(
    searched: Searched, weights: np.ndarray, directions: np.ndarray, learned: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
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


STEPS = np.geomspace(1e-2, 0.5, 40)  # how far the loss is followed away from a fixed point
NEAR = 0.1  # at this distance the way down is compared with its leading order

TWO, THREE = (0.6, 0.4), (0.5, 0.3, 0.2)  # eigenvalues of the covariances of the search


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    eigenvalues: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    context: int = 31
    heads: int = 4
    search_context: int = 20
    seed: int = 7001  # of the random places
    searched: tuple[Searched, ...] = (
        Searched("merged", TWO, 2),
        Searched("merged", THREE, 3),
        Searched("separate", TWO, 3),
        Searched("separate", THREE, 4),
        Searched("separate", TWO, 2, 2),
        Searched("separate", THREE, 2, 2),
    )
    searches: int = 240
    steps: int = 100
    drawn: tuple[int, ...] = (7001, 7002, 7003)  # seeds of random weights that meet conditions


def describe(settings: Settings) -> dict[str, Any]:
    shown = described(settings, dim=len(settings.eigenvalues), rank=1)
    return {
        **shown,
        "searched": [f"{each.name}, {each.heads} heads" for each in settings.searched],
        "search: eigenvalues": [str(TWO), str(THREE)],
        "search: initial weights": f"standard deviation {SPREADS}, a quarter each; a quarter along eigenvectors",
    }


def simulate(settings: Settings) -> Data:
    task = InContextRegression(covariance(settings.eigenvalues, key=jax.random.key(0)), settings.context)
    return {
        "points": survey(task, settings.heads),
        "merged": survey_merged(task, settings.heads, settings.drawn),
        "conditions": meet_conditions(task, settings.drawn),
        "search": search_all(settings),
    }


def search_task(searched: Searched, context: int) -> InContextRegression:
    return InContextRegression(covariance(searched.eigenvalues, key=jax.random.key(1)), context)


def search_all(settings: Settings, *, theory_context: int | None = None) -> xr.Dataset:
    """The search for each model, over (model, search); predictions are those for another context if one is given."""
    context, options = (
        settings.search_context,
        {name: getattr(settings, name) for name in ("searches", "steps", "seed")},
    )
    searches = [
        search(search_task(each, context), each, theory_task=search_task(each, theory_context or context), **options)
        for each in settings.searched
    ]
    together = along(searches, model=(each.name for each in settings.searched))
    return together.assign(family=("model", [each.family for each in settings.searched]))


def survey(
    task: InContextRegression, heads: int, *, theory_task: InContextRegression | None = None, sign: float = 1.0
) -> xr.Dataset:
    """Every fixed point that so many heads can have, by theory for the task `theory_task` and by JAX for `task`; `sign`
    multiplies the values."""
    theory_task = task if theory_task is None else theory_task
    dim = task.dim
    weights, build = model_of_weights("separate", dim, heads)

    def loss(flat):
        return quadrature_loss(task, build(flat))

    measure = jax.jit(lambda w: (*jax.value_and_grad(loss)(w), jax.hessian(loss)(w)))
    along = jax.jit(jax.vmap(loss))
    directions = theory.modes(theory_task).directions
    rows = []
    for point in theory.fixed_points(theory_task):
        size = len(point.learned)
        if size > heads:
            continue
        values, keys, queries = theory.aligned_weights(theory_task, point.learned, heads=heads)
        flat = np.concatenate([sign * values, keys.ravel(), queries.ravel()])
        value, slope, hessian = (np.asarray(part) for part in measure(jnp.asarray(flat)))
        expected = theory.fixed_point_landscape(theory_task, point.learned, heads=heads)
        eigenvalues, vectors = np.linalg.eigh(hessian)
        on_path, last = point.learned == tuple(range(size)), size == min(dim, heads)
        if on_path and not last:
            # A spare head along the next eigenvector: v = s, k = q = s e.
            way = np.zeros_like(flat)
            way[size] = 1.0
            for block in (heads, heads + heads * dim):
                way[block + size * dim : block + (size + 1) * dim] = directions[:, size]
        else:
            way = vectors[:, 0]
        steps = np.append(STEPS, NEAR)
        falls = float(value) - np.asarray(along(jnp.asarray(flat + np.outer(steps, way))))
        row = {
            "learned": set_name(point.learned),
            "subset": ("component", [float(d in point.learned) for d in range(dim)]),
            "on_path": on_path,
            "last": last,
            "predicted_loss": point.loss,
            "loss": float(value),
            "gradient": float(np.abs(slope).max()),
            "predicted_negative": expected.negative,
            "negative": int(np.sum(eigenvalues < -expected.tolerance)),
            "kind": expected.kind,
            "fall": ("distance", falls[:-1]),
            "fall_near": falls[-1],
        }
        rows.append(xr.Dataset(row, {"distance": STEPS}))
    # τ dv/dt = λ²v² - λc v⁵ ends at v³ = λ/c.
    drive, end = theory.escape_rates(theory_task), theory.modes(theory_task).ends
    surveyed = xr.concat(rows, dim="point").assign(drive=("component", drive), end=("component", end))
    return surveyed.assign_attrs(weights=weights)


def survey_merged(
    task: InContextRegression, heads: int, seeds: tuple[int, ...], *, theory_task: InContextRegression | None = None
) -> xr.Dataset:
    """Merged attention at zero, and at random weights whose map is that of the minimum: `gradient`, the largest entry;
    `lowest`, `negative` and `positive`, of the eigenvalues of the Hessian; rounding of these, `rounding`."""
    end, dim = theory.minimizer(theory_task or task), task.dim
    size, build = model_of_weights("merged", dim, heads)
    measure = jax.jit(
        lambda w: (
            jax.grad(lambda x: quadrature_loss(task, build(x)))(w),
            jax.hessian(lambda x: quadrature_loss(task, build(x)))(w),
        )
    )
    rows = []
    for seed in (None, *seeds):
        flat = np.zeros(size)
        if seed is not None:
            rng = np.random.default_rng(seed)
            values, others = rng.normal(size=heads), rng.normal(size=(heads, dim, dim))
            share = values / (values @ values)
            others += share[:, None, None] * (end - np.einsum("h,hij->ij", values, others))
            flat = np.concatenate([values, others.ravel()])
        slope, hessian = (np.asarray(part) for part in measure(jnp.asarray(flat)))
        eigenvalues = np.linalg.eigvalsh(hessian)
        rounding = _nodes(dim) * np.finfo(float).eps * (1 + np.abs(flat).max()) ** 4
        rows.append(
            {
                "point": "zero" if seed is None else f"minimum, seed {seed}",
                "gradient": np.abs(slope).max(),
                "negative": np.sum(eigenvalues < -rounding),
                "positive": np.sum(eigenvalues > rounding),
                "rounding": rounding,
            }
        )
    surveyed = xr.Dataset({name: ("point", [row[name] for row in rows]) for name in rows[0]})
    return surveyed.set_coords("point").assign_attrs(dim=dim)


def _nodes(dim: int) -> int:
    """Numbers that the quadrature adds up."""
    return (2 * (dim + 1) ** 2 + 1) * (dim + 1) * dim


def meet_conditions(
    task: InContextRegression, seeds: tuple[int, ...], *, beyond: bool = False, theory_task: Any = None
) -> xr.Dataset:
    """The gradient at random weights that meet (C1) to (C3), for every set S; `beyond` them, if asked for.

    Heads with v ≠ 0 have keys and queries in the span of S, turned at random, and their sum is the map of S. Of as many
    heads with v = 0 every other has its key there and any query, the rest the reverse.
    """
    dim = task.dim
    size, build = model_of_weights("separate", dim, 2 * dim)
    gradient = jax.jit(jax.grad(lambda w: quadrature_loss(task, build(w))))
    directions, points = theory.modes(task).directions, list(theory.fixed_points(theory_task or task))
    largest, rounding = np.empty((2, len(points), len(seeds)))
    for (row, point), (column, seed) in itertools.product(enumerate(points), enumerate(seeds)):
        rng, count = np.random.default_rng(seed), len(point.learned)
        span = directions[:, list(point.learned)]
        values, keys, queries = np.zeros(2 * dim), *np.zeros((2, 2 * dim, dim))
        turned = span @ np.linalg.qr(rng.normal(size=(count, count)))[0] if count else span
        values[:count] = rng.uniform(0.5, 2.0, count) * rng.choice([-1, 1], count)
        keys[:count], queries[:count] = turned.T, (turned.T @ point.effective_map) / values[:count, None]
        within, free = rng.normal(size=(dim, count)) @ span.T, rng.normal(size=(dim, dim))
        within = rng.normal(size=(dim, dim)) if beyond else within
        keys[dim:], queries[dim:] = np.where(np.arange(dim)[:, None] % 2, (within, free), (free, within))
        flat = np.concatenate([values, keys.ravel(), queries.ravel()])
        largest[row, column] = np.abs(np.asarray(gradient(jnp.asarray(flat)))).max()
        rounding[row, column] = _nodes(dim) * np.finfo(float).eps * (1 + np.abs(flat).max()) ** 2
    dims = ("learned", "seed")
    names = [set_name(point.learned) for point in points]
    return xr.Dataset(
        {"gradient": (dims, largest), "rounding": (dims, rounding)}, {"learned": names, "seed": list(seeds)}
    )


def claims(data: Data, settings: Settings) -> list[Claim]:
    return [
        *_curvature_claims(data["points"]),
        *_merged_claims(data["merged"]),
        _condition_claim(data["conditions"]),
        *_search_claims(data["search"]),
    ]


def _merged_claims(merged: xr.Dataset) -> list[Claim]:
    dim, ends, sides = merged.attrs["dim"], merged.isel(point=slice(1, None)), ("negative", "positive")
    at_zero, both = merged.isel(point=0), xr.concat([ends[side] for side in sides], dim="eigenvalues")
    count = "a count; eigenvalues within rounding of zero do not count"
    return [
        Origin("paper", "Section 3.2, equation (9)").at_most(
            "merged-points",
            "Merged attention does not move at zero, nor at weights with the map of equation (9b), otherwise random: "
            "largest entry of the gradient",
            measured=merged["gradient"],
            tolerance=merged["rounding"].values,
            basis="rounding, once for each number of the quadrature",
            counted="points",
        ),
        Origin("paper", "Section 3.2").at_least(
            "merged-unstable",
            "M_0 is an unstable fixed point of merged attention: negative directions of the Hessian at zero",
            predicted=1,
            measured=at_zero["negative"],
            basis=count,
        ),
        Origin("paper", "Section 3.2").close(
            "merged-stable",
            "M_* is a stable fixed point of merged attention: at weights with its map the Hessian has no negative "
            "direction, and as many positive ones as the map has entries, so that the loss rises with every change of "
            "the map",
            predicted=np.repeat([0, dim**2], ends.sizes["point"]),
            measured=both.assign_coords(eigenvalues=list(sides)).transpose("eigenvalues", "point"),
            basis=count,
            counted="numbers of directions",
        ),
    ]


def _condition_claim(conditions: xr.Dataset) -> Claim:
    return Origin("paper", "Section 4.2, conditions (C1)–(C3)").at_most(
        "conditions",
        "Weights that meet (C1) to (C3), otherwise random, are fixed points of separate attention: largest entry of "
        "the gradient, for each set of learned components and each seed",
        measured=conditions["gradient"],
        tolerance=conditions["rounding"].values.ravel(),
        basis="rounding, once for each number of the quadrature",
        counted="points",
    )


def _curvature_claims(points: xr.Dataset) -> list[Claim]:
    rounding = 10 * points.attrs["weights"] * np.finfo(float).eps
    on_path = points["on_path"].values.astype(bool)
    saddles, others = on_path & ~points["last"].values.astype(bool), ~on_path
    negative, sets = points["negative"].values, np.array([f"S = {learned}" for learned in points["learned"].values])
    drive, end = (points[name].values[: saddles.sum()] for name in ("drive", "end"))
    fall = points["fall_near"].values[saddles] / (2 * drive * NEAR**3)
    ours = Origin("theory", "stepwell.theory.linear.fixed_point_landscape")
    exact: Any = {"labels": sets, "tolerance": rounding, "basis": "rounding", "counted": "fixed points"}
    count = "a count; eigenvalues within rounding of zero do not count"
    return [
        Origin("paper", "Section 4.2, equations (16)–(18), with the weights of (20)").close(
            "gradient",
            "The 2^D points that the paper names are fixed points of the model: largest entry of the gradient, one for "
            "each set of learned components",
            measured=points["gradient"],
            **exact,
        ),
        Origin("paper", "Section 4.3, equation (19), for any set S").close(
            "loss",
            "The loss of the model at the fixed point that has learned the set S is tr Λ − Σ_{d∈S} λ_d/(1 + (1 + "
            "tr Λ/λ_d)/N): difference, one for each S",
            predicted=points["predicted_loss"].values,
            measured=points["loss"],
            **exact,
        ),
        ours.close(
            "path",
            "The saddles M_0, …, M_{D−1} on the path have no negative direction: negative eigenvalues of the Hessian "
            "at each",
            measured=negative[saddles],
            labels=sets[saddles],
            basis=count,
            counted="saddles",
        ),
        ours.at_least(
            "strict",
            "Each fixed point off the path is a strict saddle: negative eigenvalues of the Hessian at each",
            predicted=1,
            measured=negative[others],
            labels=sets[others],
            basis=count,
            counted="fixed points",
        ),
        ours.close(
            "one-minimum",
            "There is one minimum, with everything learned: number of fixed points with no negative direction, "
            "other than those M_0, …, M_{D-1} of the path",
            predicted=1,
            measured=int(np.sum((negative == 0) & ~saddles)),
            basis="a count",
        ),
        Origin("theory", "equation (21) is the flow of L = L(M_m) − 2λ²v³ + λcv⁶").close(
            "third-order",
            f"The saddles on the path are left at third order: fall of the loss along a spare head, s = {NEAR:g}, over "
            "2λ²s³, is 1 − cs³/2λ, one ratio for each saddle",
            predicted=1 - NEAR**3 / (2 * end),
            measured=fall,
            labels=sets[saddles],
            tolerance=rounding / (2 * drive * NEAR**3),
            basis="rounding of the loss",
            counted="saddles",
        ),
    ]


def _search_claims(search: xr.Dataset) -> list[Claim]:
    sources = {
        "merged": ("Merged attention", "two", "Section 3.2, equation (9)"),
        "rank-one": ("Separate attention, rank one", "2^D", "Section 4.2, equations (16)–(18), Appendix E.3"),
        "low-rank": ("Separate attention, rank two", "2^D", "Section 5, Appendix F.3"),
    }
    all_claims, searches = [], range(1, search.sizes["search"] + 1)
    for family, (words, number, source) in sources.items():
        mine = search.sel(model=search["family"] == family)
        at, models = mine["converged"].values, mine["model"].values
        bound = np.broadcast_to(mine["tolerance"].values[:, None], at.shape)
        searched = Origin("paper", source, explored=True)
        all_claims += [
            searched.close(
                f"{family}-no-others",
                f"{words}: a search from random places, a quarter of them along eigenvectors, finds none but the "
                f"{number} fixed points in function space: distance of each critical point found ({at.sum()} of "
                f"{at.size} searches converged) from the nearest predicted, as root mean square difference of "
                "predictions",
                measured=labeled(mine["distance"], at, model=models, search=searches),
                tolerance=bound[at],
                basis=f"what a gradient below {GRADIENT:g} and weights below {WEIGHT:g} leave open",
                counted="critical points",
            ),
            searched.close(
                f"{family}-all",
                f"{words}: the search finds all of the {number}: number of different maps, for each dimension D",
                predicted=mine["predicted_count"].values,
                measured=labeled([np.unique(row[row >= 0]).size for row in mine["group"].values], model=models),
                basis=f"a count; maps that differ by less than {APART:g} are one",
                counted="dimensions",
            ),
        ]
    merged, one = (search.sel(model=search["family"] == family) for family in ("merged", "rank-one"))
    at = one["converged"].values
    merged_more, separate_more = (
        labeled(family["elsewhere"].where(family["converged"]).sum("search"), model=family["model"].values)
        for family in (merged, one)
    )
    tells = np.isfinite(one["elsewhere"].values) & at
    unlisted = Origin("theory", "docs/differences.md: fixed points that the paper does not list", explored=True)
    return [
        *all_claims,
        _contained_claim(search),
        Origin("paper", "Section 4.2, condition (C3)", explored=True).fraction(
            "c3",
            "At the critical points found, a head with v = 0 has its key or its query in the span of the learned "
            "eigenvectors (C3): fraction of the points where such a head could have neither",
            holds=labeled(one["elsewhere"].values == 0, tells, model=one["model"].values, search=searches),
            basis=f"weights below {APART:g} count as zero",
            counted="critical points",
            known=Known(
                "(C3) is sufficient; what is necessary is Σ_{d∉S} λ_d²(e_d·k)(e_d·q) = 0, and the points found meet "
                "that (more-idle-heads)",
                "fixed-points-that-the-paper-does-not-list",
            ),
        ),
        Origin("paper", "Section 4.2, condition (C2)", explored=True).close(
            "c2",
            "At the critical points found, heads with v ≠ 0 have key and query in the span of the learned eigenvectors "
            "(C2): largest part outside it",
            measured=labeled(one["off_span"], at, model=one["model"].values, search=searches),
            tolerance=np.broadcast_to((GRADIENT / (APART * one["least_rate"].values))[:, None], at.shape)[at],
            basis=f"gradient over |v|λ_D², for |v| above {APART:g}",
            counted="critical points",
        ),
        unlisted.at_least(
            "more-zeros",
            "Merged attention has more fixed points with the map zero than w₂ = 0, W₁ = 0: it is enough that w₂ = 0 "
            "and W₁E[y_q z] = 0: critical points found with the map zero and W₁ ≠ 0, for each dimension D",
            predicted=1,
            measured=merged_more,
            basis="a count",
            counted="dimensions",
        ),
        unlisted.at_least(
            "more-idle-heads",
            "Separate attention has more fixed points than (C3) lists: a head with v = 0 needs no more than "
            "Σ_{d∉S} λ_d²(e_d·k)(e_d·q) = 0: critical points found at which neither key nor query of such a head is in "
            "the span of the learned eigenvectors, for each dimension D",
            predicted=1,
            measured=separate_more,
            basis="a count",
            counted="dimensions",
        ),
    ]


def _contained_claim(search: xr.Dataset) -> Claim:
    """Of each critical point of merged attention, the nearest that separate attention was found to have."""
    dims = np.array([name.rpartition(" ")[2] for name in search["model"].values])
    kept: list[xr.DataArray] = []
    allowed: list[float] = []
    for dim in np.unique(dims):
        merged, separate = (
            search.isel(model=np.flatnonzero((dims == dim) & (search["family"].values == family))[0])
            for family in ("merged", "rank-one")
        )
        ours, others = (each["map"].values[each["converged"].values] for each in (merged, separate))
        apart = np.linalg.norm(ours[:, None] - others, axis=(2, 3)).min(axis=1, initial=np.inf)
        places = np.flatnonzero(merged["converged"].values)
        kept.append(labeled(apart, dimension=[dim], search=places + 1) if places.size else xr.DataArray([]))
        allowed += [float(merged["tolerance"] + separate["tolerance"])] * places.size
    distances = np.concatenate([each.values for each in kept])
    labels = [label for each in kept for label in each["place"].values.tolist()] if distances.size else []
    return Origin("paper", "Section 4.2", explored=True).close(
        "merged-contained",
        "The fixed points of merged attention are among those of separate attention: distance of each critical point "
        "found of one from the nearest found of the other, as root mean square difference of predictions",
        measured=distances,
        labels=[f"D = {dim}, search {place}" for dim, place in labels],
        tolerance=allowed,
        basis="what the gradients of the two searches leave open",
        counted="critical points",
    )


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    points, search = data["points"], data["search"]
    with styled():
        figure = new_figure(10.4, 8.6)
        panels = figure.subplots(2, 2, height_ratios=(1, 1))
        _draw_points(panels[0, 0], points)
        _draw_falls(panels[0, 1], points)
        for axes, letter, family in ((panels[1, 0], "c", "merged"), (panels[1, 1], "d", "rank-one")):
            _draw_search(axes, letter, search.sel(model=search["family"] == family).isel(model=-1))
    return figure


def _draw_points(axes: Axes, points: xr.Dataset) -> None:
    negative, loss, kind = (points[name].values for name in ("negative", "loss", "kind"))
    on_path = points["on_path"].values.astype(bool)
    styles = {
        "higher-order saddle": (BLUE, "o", "higher-order saddle: no negative direction"),
        "strict saddle": (VERMILION, "s", "strict saddle"),
        "minimum": (GREEN, "*", "minimum"),
    }
    axes.plot(negative[on_path], loss[on_path], color=BLUE, linewidth=1.6, zorder=1)
    for name, (color, marker, label) in styles.items():
        here, size = kind == name, 130 if marker == "*" else 42
        axes.scatter(negative[here], loss[here], s=size, color=color, marker=marker, label=label, zorder=2)
    for row, name in enumerate(points["learned"].values):
        # Of two points at nearly one place, the later is named on the left.
        close = np.any((negative[:row] == negative[row]) & (abs(loss[:row] - loss[row]) < 0.02))
        offset, side = ((-8, 0), "right") if close else ((8, 0), "left")
        note(axes, str(name), (negative[row], loss[row]), offset, ha=side, va="center", fontsize=8.5)
    axes.set(xlim=(-0.4, negative.max() + 0.9), xticks=range(int(negative.max()) + 1))
    axes.set(ylim=(0, 1.08 * loss.max()), xlabel="negative directions of the Hessian", ylabel="loss")
    sizes = points.sizes
    axes.set_title(f"(a) All {sizes['point']} fixed points, D = {sizes['component']}, and the path of training")
    axes.legend(loc="lower right", fontsize=8)


def _draw_falls(axes: Axes, points: xr.Dataset) -> None:
    on_path, last = (points[name].values.astype(bool) for name in ("on_path", "last"))
    distance = points["distance"].values
    falls, style = points["fall"].values, {"color": VERMILION, "linewidth": 0.9}
    lines(axes, distance, falls[~on_path], label="off the path, along the lowest eigenvector", **style)
    saddles = np.flatnonzero(on_path & ~last)
    lines(axes, distance, falls[saddles], color=BLUE, label="on the path, along a spare head")
    expected = 2 * points["drive"].values[: saddles.size, None] * distance**3
    lines(axes, distance, expected, "--", color=BLACK, linewidth=1.0, label="2λ²s³")
    for name, course in zip(points["learned"].values[saddles], expected, strict=True):
        note(axes, str(name), (distance[0], course[0]), (-3, 0), ha="right", va="center", fontsize=8.5)
    axes.set(xscale="log", yscale="log", xlim=(distance[0] / 2.2, distance[-1]), ylim=(8e-9, 0.2))
    axes.set_xlabel("distance s from the saddle")
    axes.set(ylabel="fall of the loss", title="(b) Ways down: s³ on the path, s² elsewhere")
    axes.legend(loc="upper left", fontsize=8)


def _draw_search(axes: Axes, letter: str, one: xr.Dataset) -> None:
    levels, names = one["predicted_loss"].values, one["learned"].values
    for level, name in zip(levels, names, strict=True):
        if np.isfinite(level):
            axes.axhline(level, color=GRAY, linewidth=0.8, zorder=0)
            # Names of levels that nearly coincide are moved apart.
            apart = [np.sign(level - other) for other in levels if 0 < abs(level - other) < 0.05]
            name_level(axes, str(name), level, (5, 4 * sum(apart)))
    gradient, loss, aligned = np.maximum(one["gradient"], 1e-17), one["loss"], one["aligned"].values.astype(bool)
    style: Any = {"fillstyle": "none", "markersize": 4.5, "markeredgewidth": 0.9}
    axes.plot(gradient[~aligned], loss[~aligned], "o", color=BLUE, label="from Gaussian weights", **style)
    axes.plot(gradient[aligned], loss[aligned], "^", color=VERMILION, label="from aligned weights", **style)
    axes.axvline(GRADIENT, ymax=0.87, color=BLACK, linestyle=":", linewidth=1.2)
    axes.set(xscale="log", xlim=(5e-18, 1), ylim=(0, 1.22))
    axes.set(xlabel="largest entry of the gradient at the end of the search", ylabel="loss there")
    converged = f"{int(one['converged'].sum())} of {one.sizes['search']} converge"
    axes.set_title(f"({letter}) Search: {one['model'].values} ({converged})")
    axes.legend(loc="upper center", ncols=2, fontsize=8)


FULL = Settings()
FIGURE = Figure(
    title="The fixed points: two of merged attention, 2^D of separate, and which of them are strict saddles",
    caption=(
        "(a) Fixed points of linear attention with separate keys and queries of rank one, one for each set of "
        "principal components that is learned (in braces): loss against the number of negative directions of the "
        "Hessian. Small initial weights lead along the path ∅ → {1} → {1,2} → …, marked by the line. Its saddles have "
        "no negative direction: they are left at third order only, and so are left slowly. Every other saddle is "
        "strict (this distinction is ours). (b) How far the loss falls at a distance s from a saddle: on the path, "
        "along a spare head with v = s, k = q = s e and e the next eigenvector, as s³ (dashed, 2λ²s³); elsewhere, "
        "along the lowest eigenvector of the Hessian, as s². (c), (d) A search for fixed points (ours) that knows "
        "nothing of those predicted: from each of many random places the size of the gradient is minimized. Where it "
        "vanishes (left of the dotted line) the loss is one of those that the paper predicts (gray lines): two for "
        "merged attention, 2^D for separate. Elsewhere the search is caught where the gradient is small but not zero."
    ),
    source="Sections 3.2, 4.2 and 5",
    settings=FULL,
    quick=Settings(searched=tuple(each for each in FULL.searched if each.eigenvalues == TWO), searches=120, steps=80),
    described=describe,
    seeds=Seeds(explored="0 and 1, of the search; of the rest not recorded"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
