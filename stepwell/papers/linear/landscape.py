r"""The landscape: two fixed points of merged attention, $2^D$ of separate, and how the loss curves at each.

At a fixed point that the paper names, weights are balanced and aligned, spare heads zero. Theory says what kind of
point it is; JAX differentiates the loss of the model twice, and its Hessian decides the claims. A search from random
places shows that there are no others.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, VERMILION, new_figure, styled
from stepwell.figures import Claim, Data, Figure
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory

from ._critical_points import APART, GRADIENT, SPREADS, WEIGHT, Searched, model_of_weights, search, set_name
from ._runs import described

STEPS = np.geomspace(1e-2, 0.5, 40)
"""How far the loss is followed away from a fixed point."""
NEAR = 0.1
"""At this distance the way down is compared with its leading order."""

TWO, THREE = (0.6, 0.4), (0.5, 0.3, 0.2)
"""Eigenvalues of the covariances of the search."""

CAPTION = (
    "(a) Fixed points of linear attention with separate keys and queries of rank one, one for each set of principal "
    "components that is learned (in braces): loss against the number of negative directions of the Hessian. Small "
    "initial weights lead along the path ∅ → {1} → {1,2} → …, marked by the line. Its saddles have no negative "
    "direction: they are left at third order only, and so are left slowly. Every other saddle is strict (this "
    "distinction is ours). (b) How far the loss falls at a distance s from a saddle: on the path, along a spare head "
    "with v = s, k = q = s e and e the next eigenvector, as s³ (dashed, 2λ²s³); elsewhere, along the lowest "
    "eigenvector of the Hessian, as s². (c), (d) A search for fixed points (ours) that knows nothing of those "
    "predicted: from each of many random places the size of the gradient is minimized. Where it vanishes (left of the "
    "dotted line) the loss is one of those that the paper predicts (gray lines): two for merged attention, 2^D for "
    "separate. Elsewhere the search is caught where the gradient is small but not zero."
)


@dataclass(frozen=True)
class Settings:
    """What can be changed. Of the search, method and settings were chosen on seeds 0 and 1."""

    eigenvalues: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    context: int = 31
    heads: int = 4
    search_context: int = 20
    seed: int = 7001
    """Of the random places."""
    searched: tuple[Searched, ...] = (
        Searched("merged", TWO, 2),
        Searched("merged", THREE, 3),
        Searched("separate", TWO, 3),
        Searched("separate", THREE, 4),
        Searched("separate", TWO, 2, 2),
        Searched("separate", THREE, 2, 2),
    )
    starts: int = 240
    steps: int = 100


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
    return {"points": survey(task, settings.heads), "search": search_all(settings)}


def search_task(searched: Searched, context: int) -> InContextRegression:
    return InContextRegression(covariance(searched.eigenvalues, key=jax.random.key(1)), context)


def search_all(settings: Settings, *, theory_context: int | None = None) -> xr.Dataset:
    """The search for each model, over (model, start); predictions are those for another context if one is given."""
    searches = [
        search(
            search_task(each, settings.search_context),
            each,
            starts=settings.starts,
            steps=settings.steps,
            seed=settings.seed,
            theory_task=search_task(each, theory_context or settings.search_context),
        )
        for each in settings.searched
    ]
    together = xr.concat(searches, dim="model").assign_coords(model=[each.name for each in settings.searched])
    together["family"] = ("model", [each.family for each in settings.searched])
    return together


def survey(
    task: InContextRegression, heads: int, *, theory_task: InContextRegression | None = None, sign: float = 1.0
) -> xr.Dataset:
    """Every fixed point that so many heads can have, by theory for the task `theory_task` and by JAX for `task`; `sign`
    multiplies the values."""
    theory_task = task if theory_task is None else theory_task
    dim = task.dim
    objective = Population(task)
    weights, build = model_of_weights("separate", dim, heads)

    def loss(flat):
        return objective(build(flat))

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
        rows.append(
            {
                "learned": set_name(point.learned),
                "subset": [float(d in point.learned) for d in range(dim)],
                "on_path": on_path,
                "last": last,
                "predicted_loss": point.loss,
                "loss": float(value),
                "gradient": float(np.abs(slope).max()),
                "predicted_negative": expected.negative,
                "negative": int(np.sum(eigenvalues < -expected.tolerance)),
                "kind": expected.kind,
                "fall": falls[:-1],
                "fall_near": falls[-1],
            }
        )
    columns: dict[str, Any] = {name: ("point", np.array([row[name] for row in rows])) for name in rows[0]}
    columns["subset"] = (("point", "component"), np.array([row["subset"] for row in rows]))
    columns["fall"] = (("point", "distance"), np.array([row["fall"] for row in rows]))
    spectrum = theory.modes(theory_task)
    surveyed = xr.Dataset(columns, {"distance": STEPS})
    surveyed["drive"] = ("component", theory.escape_rates(theory_task))
    # τ dv/dt = λ²v² - λc v⁵ ends at v³ = λ/c.
    surveyed["end"] = ("component", spectrum.ends)
    return surveyed.assign_attrs(weights=weights)


def claims(data: Data, settings: Settings) -> list[Claim]:
    return _curvature_claims(data["points"]) + _search_claims(data["search"])


def _curvature_claims(points: xr.Dataset) -> list[Claim]:
    rounding = 10 * points.attrs["weights"] * np.finfo(float).eps
    on_path = points["on_path"].values.astype(bool)
    saddles, others = on_path & ~points["last"].values.astype(bool), ~on_path
    negative = points["negative"].values
    drive, end = (points[name].values[: saddles.sum()] for name in ("drive", "end"))
    fall = points["fall_near"].values[saddles] / (2 * drive * NEAR**3)
    ours: Any = {"kind": "theory", "source": "stepwell.theory.linear.fixed_point_landscape"}
    return [
        Claim.over(
            "gradient",
            "The 2^D points that the paper names are fixed points of the model: largest entry of the gradient, one for "
            "each set of learned components",
            predicted=0.0,
            measured=points["gradient"].values,
            tolerance=rounding,
            basis="rounding",
            counted="fixed points",
            kind="paper",
            source="Section 4.2, equations (16)–(18), with the weights of (20)",
        ),
        Claim.over(
            "loss",
            "The loss of the model at the fixed point that has learned the set S is tr Λ − Σ_{d∈S} λ_d/(1 + (1 + "
            "tr Λ/λ_d)/N): difference, one for each S",
            predicted=points["predicted_loss"].values,
            measured=points["loss"].values,
            tolerance=rounding,
            basis="rounding",
            counted="fixed points",
            kind="paper",
            source="Section 4.3, equation (19), for any set S",
        ),
        Claim.over(
            "path",
            "The saddles M_0, …, M_{D−1} on the path have no negative direction: negative eigenvalues of the Hessian "
            "at each",
            predicted=0,
            measured=negative[saddles],
            tolerance=0,
            basis="a count; eigenvalues within rounding of zero do not count",
            counted="saddles",
            **ours,
        ),
        Claim.over(
            "strict",
            "Each fixed point off the path is a strict saddle: negative eigenvalues of the Hessian at each",
            predicted=1,
            measured=negative[others],
            tolerance=0,
            basis="a count; eigenvalues within rounding of zero do not count",
            relation=">=",
            counted="fixed points",
            **ours,
        ),
        Claim.close(
            "one-minimum",
            "There is one minimum, with everything learned: number of fixed points with no negative direction, "
            "other than those M_0, …, M_{D-1} of the path",
            predicted=1,
            measured=np.sum((negative == 0) & ~saddles),
            tolerance=0,
            basis="a count",
            **ours,
        ),
        Claim.over(
            "third-order",
            f"The saddles on the path are left at third order: fall of the loss along a spare head, s = {NEAR:g}, over "
            "2λ²s³, is 1 − cs³/2λ, one ratio for each saddle",
            predicted=1 - NEAR**3 / (2 * end),
            measured=fall,
            tolerance=rounding / (2 * drive * NEAR**3),
            basis="rounding of the loss",
            counted="saddles",
            kind="theory",
            source="equation (21) is the flow of L = L(M_m) − 2λ²v³ + λcv⁶",
        ),
    ]


def _search_claims(search: xr.Dataset) -> list[Claim]:
    sources = {
        "merged": ("merged attention", "two", "Section 3.2, equation (9)"),
        "rank-one": ("separate attention, rank one", "2^D", "Section 4.2, equations (16)–(18), Appendix E.3"),
        "low-rank": ("separate attention, rank two", "2^D", "Section 5, Appendix F.3"),
    }
    all_claims = []
    for family, (words, number, source) in sources.items():
        mine = search.sel(model=search["family"] == family)
        at = mine["converged"].values
        bound = np.broadcast_to(mine["tolerance"].values[:, None], at.shape)
        searched: Any = {"kind": "paper", "source": source, "explored": True}
        all_claims += [
            Claim.over(
                f"{family}-no-others",
                f"{words[0].upper()}{words[1:]}: a search from random places finds none but the {number} fixed points "
                f"in function space: distance of each critical point found ({at.sum()} of {at.size} searches "
                "converged) from the nearest predicted, as root mean square difference of predictions",
                predicted=0.0,
                measured=mine["distance"].values[at],
                tolerance=bound[at],
                basis=f"what a gradient below {GRADIENT:g} and weights below {WEIGHT:g} leave open",
                counted="critical points",
                **searched,
            ),
            Claim.over(
                f"{family}-all",
                f"{words[0].upper()}{words[1:]}: the search finds all of the {number}: number of different maps, for "
                "each dimension D",
                predicted=mine["predicted_count"].values,
                measured=[np.unique(row[row >= 0]).size for row in mine["group"].values],
                tolerance=0,
                basis=f"a count; maps that differ by less than {APART:g} are one",
                counted="dimensions",
                **searched,
            ),
        ]
    merged, one = (search.sel(model=search["family"] == family) for family in ("merged", "rank-one"))
    at = one["converged"].values
    some: dict[str, Any] = {
        "tolerance": 0,
        "basis": "a count",
        "relation": ">=",
        "counted": "dimensions",
        "kind": "theory",
        "source": "docs/differences.md: fixed points that the paper does not list",
        "explored": True,
    }
    return [
        *all_claims,
        Claim.over(
            "c2",
            "At the critical points found, heads with v ≠ 0 have key and query in the span of the learned eigenvectors "
            "(C2): largest part outside it",
            predicted=0.0,
            measured=one["off_span"].values[at],
            tolerance=np.broadcast_to((GRADIENT / (APART * one["least_rate"].values))[:, None], at.shape)[at],
            basis=f"gradient over |v|λ_D², for |v| above {APART:g}",
            counted="critical points",
            kind="paper",
            source="Section 4.2, condition (C2)",
            explored=True,
        ),
        Claim.over(
            "more-zeros",
            "Merged attention has more fixed points with the map zero than w₂ = 0, W₁ = 0: it is enough that w₂ = 0 "
            "and W₁E[y_q z] = 0: critical points found with the map zero and W₁ ≠ 0, for each dimension D",
            predicted=1,
            measured=np.nansum(merged["elsewhere"].where(merged["converged"]).values, axis=1),
            **some,
        ),
        Claim.over(
            "more-idle-heads",
            "Separate attention has more fixed points than (C3) lists: a head with v = 0 needs no more than "
            "Σ_{d∉S} λ_d²(e_d·k)(e_d·q) = 0: critical points found at which neither key nor query of such a head is in "
            "the span of the learned eigenvectors, for each dimension D",
            predicted=1,
            measured=np.nansum(one["elsewhere"].where(one["converged"]).values, axis=1),
            **some,
        ),
    ]


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
        here = kind == name
        size = 130 if marker == "*" else 42
        axes.scatter(negative[here], loss[here], s=size, color=color, marker=marker, label=label, zorder=2)
    for row, name in enumerate(points["learned"].values):
        # Of two points at nearly one place, the later is named on the left.
        close = np.any((negative[:row] == negative[row]) & (abs(loss[:row] - loss[row]) < 0.02))
        place: Any = {"textcoords": "offset points", "fontsize": 8.5, "va": "center"}
        place |= {"xytext": (-8, 0), "ha": "right"} if close else {"xytext": (8, 0)}
        axes.annotate(str(name), (negative[row], loss[row]), **place)
    axes.set_xlim(-0.4, negative.max() + 0.9)
    axes.set_xticks(range(int(negative.max()) + 1))
    axes.set_ylim(0, 1.08 * loss.max())
    axes.set(xlabel="negative directions of the Hessian", ylabel="loss")
    axes.set_title(
        f"(a) All {points.sizes['point']} fixed points, D = {points.sizes['component']}, and the path of training"
    )
    axes.legend(loc="lower right", fontsize=8)


def _draw_falls(axes: Axes, points: xr.Dataset) -> None:
    on_path, last = (points[name].values.astype(bool) for name in ("on_path", "last"))
    distance = points["distance"].values
    for number, row in enumerate(np.flatnonzero(~on_path)):
        label = "off the path, along the lowest eigenvector" if number == 0 else None
        axes.loglog(distance, points["fall"][row], color=VERMILION, linewidth=0.9, label=label)
    for number, row in enumerate(np.flatnonzero(on_path & ~last)):
        label = "on the path, along a spare head" if number == 0 else None
        axes.loglog(distance, points["fall"][row], color=BLUE, label=label)
        label = "2λ²s³" if number == 0 else None
        expected = 2 * float(points["drive"][number]) * distance**3
        axes.loglog(distance, expected, "--", color=BLACK, linewidth=1.0, label=label)
        place: Any = {"xytext": (-3, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
        axes.annotate(str(points["learned"].values[row]), (distance[0], expected[0]), fontsize=8.5, **place)
    axes.set_xlim(distance[0] / 2.2, distance[-1])
    axes.set_ylim(8e-9, 0.2)
    axes.set(xlabel="distance s from the saddle", ylabel="fall of the loss")
    axes.set_title("(b) Ways down: s³ on the path, s² elsewhere")
    axes.legend(loc="upper left", fontsize=8)


def _draw_search(axes: Axes, letter: str, one: xr.Dataset) -> None:
    """Every start: where its gradient ended, and its loss."""
    levels, names = one["predicted_loss"].values, one["learned"].values
    for level, name in zip(levels, names, strict=True):
        if np.isfinite(level):
            axes.axhline(level, color=GRAY, linewidth=0.8, zorder=0)
            # Names of levels that nearly coincide are moved apart.
            apart = [np.sign(level - other) for other in levels if 0 < abs(level - other) < 0.05]
            place: Any = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
            axes.annotate(str(name), (1.0, level), xytext=(5, 4 * sum(apart)), fontsize=8.5, **place)
    gradient, loss, aligned = np.maximum(one["gradient"], 1e-17), one["loss"], one["aligned"].values.astype(bool)
    style: Any = {"linestyle": "none", "fillstyle": "none", "markersize": 4.5, "markeredgewidth": 0.9}
    axes.plot(gradient[~aligned], loss[~aligned], "o", color=BLUE, label="from Gaussian weights", **style)
    axes.plot(gradient[aligned], loss[aligned], "^", color=VERMILION, label="from aligned weights", **style)
    axes.axvline(GRADIENT, ymax=0.87, color=BLACK, linestyle=":", linewidth=1.2)
    axes.set_xscale("log")
    axes.set_xlim(5e-18, 1)
    axes.set_ylim(0, 1.22)
    axes.set(xlabel="largest entry of the gradient at the end of the search", ylabel="loss there")
    converged = int(one["converged"].sum())
    model = str(one["model"].values)
    axes.set_title(f"({letter}) Search: {model} ({converged} of {one.sizes['start']} converge)")
    axes.legend(loc="upper center", ncols=2, fontsize=8)


FULL = Settings()
FIGURE = Figure(
    title="The fixed points: two of merged attention, 2^D of separate, and which of them are strict saddles",
    caption=CAPTION,
    source="Sections 3.2, 4.2 and 5",
    settings=FULL,
    quick=Settings(searched=tuple(each for each in FULL.searched if each.eigenvalues == TWO), starts=120, steps=80),
    described=describe,
    simulate=simulate,
    claims=claims,
    draw=draw,
)
