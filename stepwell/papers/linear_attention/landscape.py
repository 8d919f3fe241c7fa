r"""The landscape of rank-one attention: its $2^D$ fixed points, and how the loss curves at each.

Weights at a fixed point are balanced and aligned, spare heads zero. Theory gives the Hessian in closed form; JAX
differentiates the loss of the model twice, and its Hessian decides the claims.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.flatten_util import ravel_pytree
from matplotlib.figure import Figure

from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.papers._claim import Claim
from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, VERMILION, new_figure, styled
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory

from ._described import described

NAME = "linear/landscape"
EIGENVALUES = (0.4, 0.3, 0.2, 0.1)
CONTEXT = 31
HEADS = 4
STEPS = np.geomspace(1e-2, 0.5, 40)
"""How far the loss is followed away from a fixed point."""
NEAR = 0.1
"""At this distance the way down is compared with its leading order."""

RECORDED_EIGENVALUES = (0.5, 0.3, 0.2)
RECORDED_CONTEXT = 20
RECORDED = {
    (): (0, None),
    (0,): (0, None),
    (0, 1): (0, None),
    (1,): (1, -0.169),
    (2,): (2, -0.303),
    (0, 2): (1, -0.0586),
    (1, 2): (2, -0.303),
}
"""D = 3, three heads: negative directions of each saddle, and the lowest eigenvalue to three digits."""

TITLE = "The 2^D fixed points: the saddles on the path have no way down to second order"
CAPTION = (
    "Fixed points of linear attention with separate keys and queries of rank one, one for each set of principal "
    "components that is learned (in braces). (a) Loss against the number of negative directions of the Hessian. Small "
    "initial weights lead along the path ∅ → {1} → {1,2} → …, marked by the line. Its saddles have no negative "
    "direction: they are left at third order only, and so are left slowly. Every other saddle is strict. (b) How far "
    "the loss falls at a distance s from a saddle: on the path, along a spare head with v = s, k = q = s e and e the "
    "next eigenvector, as s³ (dashed, 2λ²s³); elsewhere, along the lowest eigenvector of the Hessian, as s²."
)


def settings(quick: bool) -> dict[str, Any]:
    return {
        **described(dim=len(EIGENVALUES), context=CONTEXT, heads=HEADS, rank=1, eigenvalues=EIGENVALUES),
        "recorded case": f"eigenvalues {RECORDED_EIGENVALUES}, N = {RECORDED_CONTEXT}, three heads",
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    task = InContextRegression(covariance(EIGENVALUES, key=jax.random.key(0)), CONTEXT)
    small = InContextRegression(covariance(RECORDED_EIGENVALUES, key=jax.random.key(1)), RECORDED_CONTEXT)
    return {"points": survey(task, HEADS), "recorded": survey(small, len(RECORDED_EIGENVALUES))}


def survey(
    task: InContextRegression, heads: int, *, theory_task: InContextRegression | None = None, sign: float = 1.0
) -> xr.Dataset:
    """Every fixed point, by theory for the task `theory_task` and by JAX for `task`; `sign` multiplies the values."""
    theory_task = task if theory_task is None else theory_task
    dim = task.dim
    objective = Population(task)
    start, build = ravel_pytree((jnp.zeros(heads), jnp.zeros((heads, 1, dim)), jnp.zeros((heads, 1, dim))))

    def loss(flat):
        values, keys, queries = build(flat)
        value = jnp.zeros((heads, 1, dim + 1)).at[:, 0, dim].set(values)
        key = jnp.zeros((heads, 1, dim + 1)).at[:, :, :dim].set(keys)
        return objective(SeparateAttention(value, key, queries))

    measure = jax.jit(lambda w: (*jax.value_and_grad(loss)(w), jax.hessian(loss)(w)))
    along = jax.jit(jax.vmap(loss))
    directions = theory.modes(theory_task).directions
    rows = []
    for point in theory.fixed_points(theory_task):
        values, keys, queries = theory.aligned_weights(theory_task, point.learned, heads=heads)
        flat = np.concatenate([sign * values, keys.ravel(), queries.ravel()])
        value, slope, hessian = (np.asarray(part) for part in measure(jnp.asarray(flat)))
        expected = theory.fixed_point_landscape(theory_task, point.learned, heads=heads)
        predicted = theory.separate_hessian(theory_task, values, keys, queries)
        eigenvalues, vectors = np.linalg.eigh(hessian)
        size = len(point.learned)
        on_path, last = point.learned == tuple(range(size)), size == dim
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
                "learned": "{" + ",".join(str(d + 1) for d in point.learned) + "}" if size else "∅",
                "subset": [float(d in point.learned) for d in range(dim)],
                "on_path": on_path,
                "predicted_loss": point.loss,
                "loss": float(value),
                "gradient": float(np.abs(slope).max()),
                "predicted_negative": expected.negative,
                "negative": int(np.sum(eigenvalues < -expected.tolerance)),
                "kind": expected.kind,
                "lowest": eigenvalues[0],
                "predicted_lowest": expected.eigenvalues[0],
                "hessian_difference": float(np.abs(hessian - predicted).max()),
                "hessian_size": float(np.abs(predicted).max()),
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
    return surveyed.assign_attrs(weights=int(start.size))


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    points, recorded = data["points"], data["recorded"]
    rounding = 10 * points.attrs["weights"] * np.finfo(float).eps
    on_path = points["on_path"].values.astype(bool)
    last = points["subset"].values.all(axis=1)
    saddles, others = on_path & ~last, ~on_path
    negative = points["negative"].values
    counts, digits = _against_the_record(recorded)
    drive, end = points["drive"].values, points["end"].values
    fall = points["fall_near"].values[saddles] / (2 * drive * NEAR**3)
    return [
        Claim.at_most(
            f"{NAME}/hessian",
            f"The Hessian of the theory is that of JAX at all {points.sizes['point']} fixed points: largest difference "
            "of an entry, over the largest entry",
            measured=(points["hessian_difference"] / points["hessian_size"].max()).max(),
            tolerance=rounding,
            basis="rounding",
        ),
        Claim.at_most(
            f"{NAME}/gradient",
            "All points are fixed points of the model: largest entry of the gradient",
            measured=points["gradient"].max(),
            tolerance=rounding,
            basis="rounding",
        ),
        Claim.at_most(
            f"{NAME}/loss",
            "The loss of the model at the fixed point that has learned the set S is L(S): largest difference",
            measured=abs(points["loss"] - points["predicted_loss"]).max(),
            tolerance=rounding,
            basis="rounding",
        ),
        Claim.at_most(
            f"{NAME}/path",
            f"The {saddles.sum()} saddles on the path have no negative direction: the most that one has",
            measured=negative[saddles].max(),
            basis="a count",
        ),
        Claim.at_least(
            f"{NAME}/strict",
            f"Each of the {others.sum()} fixed points off the path is a strict saddle: the fewest negative directions",
            predicted=1,
            measured=negative[others].min(),
            basis="a count",
        ),
        Claim.close(
            f"{NAME}/one-minimum",
            "There is one minimum, with everything learned: number of fixed points with no negative direction, "
            "other than those M_0, …, M_{D-1} of the path",
            predicted=1,
            measured=np.sum((negative == 0) & ~saddles),
            tolerance=0,
            basis="a count",
        ),
        Claim.over(
            f"{NAME}/third-order",
            f"The saddles on the path are left at third order: fall of the loss along a spare head, s = {NEAR:g}, over "
            "2λ²s³, is 1 − cs³/2λ, one ratio for each saddle",
            predicted=1 - NEAR**3 / (2 * end),
            measured=fall,
            tolerance=rounding / (2 * drive * NEAR**3),
            basis="rounding of the loss",
        ),
        Claim.at_most(
            f"{NAME}/recorded-counts",
            "D = 3: every saddle has the recorded number of negative directions: largest difference",
            measured=counts,
            basis="a count",
        ),
        Claim.at_most(
            f"{NAME}/recorded-digits",
            "D = 3: lowest eigenvalues of the strict saddles are −.169, −.303, −.0586, −.303: largest difference, in "
            "units of the last digit",
            measured=digits,
            tolerance=0.5,
            basis="they were recorded to three digits",
        ),
    ]


def _against_the_record(surveyed: xr.Dataset) -> tuple[int, float]:
    """(largest difference of a count, largest difference of an eigenvalue in units of its last recorded digit)."""
    counts, digits = 0, 0.0
    for row, subset in enumerate(surveyed["subset"].values):
        learned = tuple(np.flatnonzero(subset).tolist())
        if learned not in RECORDED:
            continue
        negative, lowest = RECORDED[learned]
        counts = max(counts, abs(int(surveyed["negative"][row]) - negative))
        if lowest is not None:
            unit = 10.0 ** (np.floor(np.log10(-lowest)) - 2)
            digits = max(digits, abs(float(surveyed["lowest"][row]) - lowest) / unit)
    return counts, digits


def draw(data: dict[str, xr.Dataset]) -> Figure:
    points = data["points"]
    negative, loss, kind = (points[name].values for name in ("negative", "loss", "kind"))
    on_path = points["on_path"].values.astype(bool)
    styles = {
        "higher-order saddle": (BLUE, "o", "higher-order saddle: no negative direction"),
        "strict saddle": (VERMILION, "s", "strict saddle"),
        "minimum": (GREEN, "*", "minimum"),
    }
    with styled():
        figure = new_figure(9.6, 4.6)
        map_axes, fall_axes = figure.subplots(1, 2, width_ratios=(3, 2))
        map_axes.plot(negative[on_path], loss[on_path], color=BLUE, linewidth=1.6, zorder=1)
        for name, (colour, marker, label) in styles.items():
            here = kind == name
            size = 130 if marker == "*" else 42
            map_axes.scatter(negative[here], loss[here], s=size, color=colour, marker=marker, label=label, zorder=2)
        for row, name in enumerate(points["learned"].values):
            # Of two points at nearly one place, the later is named on the left.
            close = np.any((negative[:row] == negative[row]) & (abs(loss[:row] - loss[row]) < 0.02))
            place: Any = {"textcoords": "offset points", "fontsize": 8.5, "va": "center"}
            place |= {"xytext": (-8, 0), "ha": "right"} if close else {"xytext": (8, 0)}
            map_axes.annotate(str(name), (negative[row], loss[row]), **place)
        map_axes.set_xlim(-0.4, negative.max() + 0.9)
        map_axes.set_xticks(range(int(negative.max()) + 1))
        map_axes.set_ylim(0, 1.08 * loss.max())
        map_axes.set_xlabel("negative directions of the Hessian")
        map_axes.set_ylabel("loss")
        map_axes.set_title("(a) All fixed points, and the path that is taken")
        map_axes.legend(loc="lower right")

        last = points["subset"].values.all(axis=1)
        distance = points["distance"].values
        for number, row in enumerate(np.flatnonzero(on_path & ~last)):
            label = "on the path, along a spare head" if number == 0 else None
            fall_axes.plot(distance, points["fall"][row], color=BLUE, label=label)
            label = "2λ²s³" if number == 0 else None
            theory_fall = 2 * float(points["drive"][number]) * distance**3
            fall_axes.plot(distance, theory_fall, "--", color=BLACK, linewidth=1.0, label=label)
            fall_axes.annotate(
                str(points["learned"].values[row]),
                (distance[0], theory_fall[0]),
                xytext=(-3, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                fontsize=8.5,
                color=GREY,
            )
        for number, row in enumerate(np.flatnonzero(~on_path)):
            label = "off the path, along the lowest eigenvector" if number == 0 else None
            fall_axes.plot(distance, points["fall"][row], color=VERMILION, linewidth=0.9, label=label)
        fall_axes.set_xscale("log")
        fall_axes.set_yscale("log")
        fall_axes.set_xlim(distance[0] / 2.2, distance[-1])
        fall_axes.set_ylim(2e-10, 1)
        fall_axes.set_xlabel("distance s from the saddle")
        fall_axes.set_ylabel("fall of the loss")
        fall_axes.set_title("(b) Ways down: s³ and s²")
        fall_axes.legend(loc="lower right", fontsize=8)
    return figure
