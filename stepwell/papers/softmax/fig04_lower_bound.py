r"""Fig 4: a lower bound on the loss of H heads, against the Bayes risk.

With μ at its best the spectral loss is $\sum_iS_i/(1+Ls_i/\phi_i)$ and the heads share out $\sum_id_is_i \le T^*$
(`theory.lower_bound`). The bound is compared with searches over all weights, of the spectral loss of small
models, which it is for, and of softmax attention itself over sampled sequences (`ReducedSampled`), which the spectral
loss is to leading order in 1/d and 1/L.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

import jax
import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis.style import BLACK, GRAY, PALETTE, VERMILION, styled
from stepwell.figures import Claim, Data, Figure, Origin
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._common import by_size, compared, finish, labeled, note, only_ticks, over, stacked, two_rows, worst
from ._eigenvalues import (
    FLATTEST,
    RCOND,
    SIGMAS,
    equal_tasks,
    least_signed,
    least_softmax,
    like_tasks,
    linear_loss,
    softmax_losses,
    trained_together,
)

CAPTION = (
    "Loss of a task divided by its signal, for tasks of dimension d and signal-to-noise ratio 1 (φ = 2). (a) Closed "
    "forms for 10 equal tasks, to leading order in d and the context length L: the lower bound for H heads, the limit "
    "of gradient flow, and the risk of the best algorithm of all. Below, ours. (b) The least spectral loss that a "
    "search over weights of either sign finds for small models, and for ten tasks, against the bound. (c) Softmax "
    "attention itself, without approximation, over sampled sequences: the least loss of H heads on two tasks, from "
    "random weights of either sign, over the bound for the spectral loss. It falls to the bound as d and L grow, and "
    "with H = 3 and more it is linear attention on centered labels (dashed), the debiased gradient descent with "
    "zero-sum readouts of arXiv 2503.12734. (d) Softmax attention trained by gradient descent from positive weights, "
    "eleven heads on ten tasks, over the bound for eleven heads and more: a factor below e to leading order in 1/d "
    "(dashed), and at d = 20 what quadrature has (crosses), which may be above e. (e) The loss formula for heads that "
    "interact: H heads at equal angles on H − 1 tasks, formula (lines) and softmax attention over sampled sequences "
    "(points), for two sizes with the same d/L; dashed, the bound. Inferred, since the paper's text could not be "
    "consulted: signal counted in total and not per coordinate, φ = 2, and the constant of the bound, which here is "
    "the sharp one found by search and not proved; the weaker constant min(H, I) is proved."
)

TASKS = 10
MOST = TASKS + 2
"""Heads of the searches are at most this many."""
ROUNDING = 4 * MOST * np.finfo(float).eps / RCOND
"""Of a searched loss, relatively: large readouts of either sign cancel, up to one over the search's condition."""
PAIR = 2
"""Tasks of softmax attention in (c)."""
FLATNESS = (0.1, 0.3, 1.0)
"""Values of $a = |\\omega^h|^2$ of heads at equal angles; of the last the formula is not claimed."""
COSINES = (0.0, 0.5)
"""Of the angles between any two heads, besides the largest, whose cosine is -1/(H - 1)."""


@dataclass(frozen=True)
class Settings:
    """`sizes` are dimension and context of softmax attention; losses are over 16 times as many fresh sequences."""

    bound_heads: tuple[int, ...] = (1, 2, 3, 5, 10, 11)
    """Those of the closed forms; `heads` are those of softmax attention."""
    seeds: tuple[int, ...] = (20, 21, 22)
    searches: int = 2
    points: int = 80
    sizes: tuple[tuple[int, int], ...] = ((20, 100), (40, 200))
    heads: tuple[int, ...] = (1, 2, 3, 4)
    softmax_seeds: tuple[int, ...] = (30, 31)
    sequences: int = 2000
    positive: tuple[tuple[int, int], ...] = ((20, 1000), (20, 200), (20, 20))
    steps: int = 400
    tested: int = 128
    rate: float = 0.5
    angles: tuple[int, ...] = (2, 3, 4)
    angle_sizes: tuple[tuple[int, int], ...] = ((20, 100), (80, 400))
    angle_sequences: int = 500
    angle_seed: int = 50


def describe(settings: Settings) -> dict[str, Any]:
    chosen = asdict(settings)
    for name in ("sizes", "positive", "angle_sizes"):
        chosen[name] = [f"d = {d}, L = {n}" for d, n in chosen[name]]
    return {
        "tasks I": TASKS,
        "signal and noise of a task": "S = 1 in total, σ² = 1 (inferred: φ = 2)",
        "heads H": chosen.pop("bound_heads"),
        "searched": f"1 to 3 tasks, 1 to 5 heads, equal and unequal tasks; {TASKS} equal tasks, the heads H and {MOST}",
        "trained": f"{TASKS + 1} heads on {TASKS} tasks together",
        **chosen,
    }


def simulate(settings: Settings) -> Data:
    return {
        "curves": curves(np.geomspace(0.01, 5, settings.points), settings.bound_heads),
        "searched": searched(settings),
        "softmax": softmax_minima(settings),
        "positive": positive(settings),
        "angles": equal_angles(settings),
        "cosines": other_angles(settings),
    }


def curves(ratios: np.ndarray, heads: tuple[int, ...]) -> xr.Dataset:
    """Losses of one of the tasks over its signal, to leading order; `many` is the bound for I + 1 heads and more."""
    tasks = [like_tasks(ratio, TASKS) for ratio in ratios]
    *bound, many = ([theory.lower_bound(task, each)[0] for task in tasks] for each in (*heads, TASKS + 1))
    bayes, flow = ([risk(task)[0] for task in tasks] for risk in (theory.bayes_risk, theory.flow_limit_loss))
    return xr.Dataset(
        over("heads ratio", bound=bound) | over("ratio", many=many, bayes=bayes, flow=flow),
        coords={"heads": list(heads), "ratio": ("ratio", ratios, {"long_name": "dimension of a task over context"})},
        attrs={"tasks": TASKS},
    )


def small_tasks() -> dict[str, MultiTaskRegression]:
    """One to three equal tasks, and unequal ones; and ten equal ones."""
    kinds = {"equal": ((10, 10, 10), (1.0, 1.0, 1.0), 5.0), "unequal": ((6, 10, 14), (2.0, 1.0, 0.5), 2.0)}
    few = {
        f"{count} {kind}": MultiTaskRegression(dims[:count], strengths[:count], 50, noise_variance=noise)
        for count in (1, 2, 3)
        for kind, (dims, strengths, noise) in kinds.items()
    }
    return few | {f"{TASKS} equal": MultiTaskRegression((10,) * TASKS, 1.0, 50, noise_variance=5.0)}


def searched(settings: Settings) -> xr.Dataset:
    """The least loss of a search from each seed for every small model, and the bounds."""
    rows = {}
    for name, task in small_tasks().items():
        count = len(task.dims)
        enough = {count + 1, count + 2}
        for heads in sorted({*settings.bound_heads, *enough} if count == TASKS else {*range(1, count + 1), *enough}):
            drawn = (np.random.default_rng([seed, heads, count]) for seed in settings.seeds)
            minima = [least_signed(task, heads, settings.searches, rng=rng).mean for rng in drawn]
            bound, proved = (theory.lower_bound(task, heads, provable=proved).sum() for proved in (False, True))
            rows[f"{name} tasks, H = {heads}"] = over("run", loss=minima) | over(
                "", bound=bound, proved=proved, tasks=count, heads=heads, signal=task.signals.sum()
            )
    return stacked(rows.values(), case=rows).assign_coords(run=list(settings.seeds))


def pair(dim: int, context: int, tasks: int = PAIR) -> MultiTaskRegression:
    return equal_tasks(tasks, dim, context)


def softmax_minima(settings: Settings) -> xr.Dataset:
    """The least loss of softmax attention found for each size, number of heads and seed, over fresh sequences."""
    shape = (len(settings.sizes), len(settings.heads), len(settings.softmax_seeds))
    loss, error = np.empty((2, *shape))
    bound, linear = np.empty(shape[:2]), np.empty(shape[0])
    for row, (dim, context) in enumerate(settings.sizes):
        task = pair(dim, context)
        linear[row] = linear_loss(task)
        for place, seed in enumerate(settings.softmax_seeds):
            key, rng = jax.random.key(seed), np.random.default_rng([seed, dim])
            for column, heads in enumerate(settings.heads):
                best = least_softmax(task, heads, settings.sequences, key=key, rng=rng)
                other = jax.random.fold_in(key, 1)
                fresh = softmax_losses(task, best.omega[None], best.mu[None], settings.sequences, key=other)
                loss[row, column, place], error[row, column, place] = np.ravel(fresh)
                bound[row, column] = theory.lower_bound(task, heads).sum()
    return xr.Dataset(
        over("size heads run", loss=loss, error=error) | over("size heads", bound=bound) | over("size", linear=linear),
        by_size(settings.sizes) | {"heads": list(settings.heads), "run": list(settings.softmax_seeds)},
        {"sequences": settings.sequences},
    )


def positive(settings: Settings) -> xr.Dataset:
    """Softmax attention by gradient descent, one head more than tasks, from positive balanced weights
    (`trained_together`).

    Descent keeps k = q and o = v to the last bit, and so the signs; a solver of the flow does not (`sign_pairs`).
    """
    rows, heads = [], TASKS + 1
    how: dict[str, Any] = {"rate": settings.rate, "steps": settings.steps, "tested": settings.tested}
    for dim, context in settings.positive:
        bound = theory.lower_bound(pair(dim, context, TASKS), heads).sum()
        rows.append(trained_together(TASKS, heads, dim, context, **how) | over("", bound=bound, dim=dim))
    ratio = [dim / context for dim, context in settings.positive]
    return stacked(rows, ratio=ratio).set_coords("dim")


def equal_angles(settings: Settings) -> xr.Dataset:
    """Heads at equal angles on one task fewer: the spectral loss, and that of softmax attention over sequences.

    The readout is the best for the spectral loss. `curve` is that loss from the sum T of the shares, which
    `theory.equiangular_budget` gives in closed form: of a task of signal 1 it is 1/(1 + LT/(φdI)). `bound` is that of a
    task, alike for any number of heads on one task fewer.
    """
    shape = (len(settings.angles), len(settings.angle_sizes), len(FLATNESS))
    loss, error, formula = np.empty((3, *shape))
    for i, heads in enumerate(settings.angles):
        for j, (dim, context) in enumerate(settings.angle_sizes):
            task = pair(dim, context, heads - 1)
            omega = np.array(FLATNESS)[:, None, None] ** 0.5 * dim**-0.5 * directions(heads)
            mu = np.array([theory.profile_loss(task, each).mu for each in omega])
            key = jax.random.fold_in(jax.random.key(settings.angle_seed), heads)
            loss[i, j], error[i, j] = softmax_losses(task, omega, mu, settings.angle_sequences, key=key)
            formula[i, j] = [theory.spectral_loss(task, *each).sum() for each in zip(omega, mu, strict=True)]
    fine, (dim, context) = np.geomspace(0.07, 1.4, 60), settings.angle_sizes[0]
    shares = [[theory.equiangular_budget(h, a, -a / (h - 1)) / (h - 1) for a in fine] for h in settings.angles]
    curve = 1 / (1 + context / (2 * dim) * np.array(shares))
    return xr.Dataset(
        over("heads size flatness", loss=loss, error=error, formula=formula)
        | over("heads fine", curve=curve)
        | over("", bound=theory.lower_bound(pair(dim, context, 1), 2)[0]),
        by_size(settings.angle_sizes) | {"heads": list(settings.angles), "flatness": list(FLATNESS), "fine": fine},
    )


def other_angles(settings: Settings) -> xr.Dataset:
    """Heads at any equal angle on as many tasks, the most and at the first size: softmax attention over the bound.

    The readout is the best for the spectral loss.
    """
    (dim, context), heads = settings.angle_sizes[0], max(settings.angles)
    task, cosines = pair(dim, context, heads), np.round((-1 / (heads - 1), *COSINES), 3)
    sizes = (np.array(FLATNESS)[:, None, None] / dim) ** 0.5
    omega = np.concatenate([sizes * at_cosine(heads, cosine) for cosine in cosines])
    mu = np.array([theory.profile_loss(task, each).mu for each in omega])
    key = jax.random.fold_in(jax.random.key(settings.angle_seed), 1)
    losses = np.reshape(softmax_losses(task, omega, mu, settings.angle_sequences, key=key), (2, cosines.size, -1))
    loss, error = losses / theory.lower_bound(task, heads).sum()
    return xr.Dataset(
        over("cosine flatness", loss=loss, error=error),
        {"cosine": cosines, "flatness": list(FLATNESS)},
        {"heads": heads},
    )


def at_cosine(heads: int, cosine: float) -> np.ndarray:
    """Unit vectors, every two with this cosine: the root of the matrix of their products."""
    sizes, axes = np.linalg.eigh((1 - cosine) * np.eye(heads) + cosine)
    return axes * sizes.clip(0) ** 0.5 @ axes.T


def directions(heads: int) -> np.ndarray:
    """Unit vectors of one coordinate fewer than heads, every two at the same angle: the corners of a simplex."""
    axes, sizes, _ = np.linalg.svd(np.eye(heads) - 1 / heads)
    corners = axes[:, :-1] * sizes[:-1]
    return corners / np.linalg.norm(corners, axis=1, keepdims=True)


def claims(data: Data, settings: Settings) -> list[Claim]:
    return [
        *_searched(data["searched"]),
        *_softmax(data["softmax"], data["positive"]),
        *_angles(data["angles"], data["cosines"]),
    ]


def _searched(minima: xr.Dataset) -> Iterator[Claim]:
    excess = minima["loss"] / minima["bound"] - 1
    slack = FLATTEST**2 * minima["heads"] + ROUNDING
    highest = (excess / slack).argmax("case")
    spare = (minima["heads"] - minima["tasks"]).values
    enough, more = (minima["loss"].isel(case=spare == extra).drop_vars("case") for extra in (1, 2))
    change = abs(more / enough - 1)
    allowed = FLATTEST**2 * (minima["tasks"][spare == 1].drop_vars("case") + 1) + ROUNDING
    largest = (change / allowed).fillna(np.inf).argmax("case")
    shortfall = f"Σ|ω^h|² in the search is at least {FLATTEST:g}²·H, and shares fall short by at most that; rounding"
    source = "theory.softmax.lower_bound; the paper's Fig 4 has such a bound, its constant is not known"
    yield Origin("theory", source).at_least(
        "none-below",
        "Spectral loss: no weights of either sign that a search finds are below the bound: least of (searched "
        "loss)/(bound) − 1",
        **compared(excess.min("case", skipna=False), 0.0, ROUNDING),
        basis="rounding, where large weights of either sign cancel, over the condition allowed",
    )
    yield Origin("theory", "theory.softmax.attention_budget").at_most(
        "sharp",
        "Spectral loss: the bound is sharp: greatest of (searched loss)/(bound) − 1",
        **compared(excess.isel(case=highest), tolerance=slack.isel(case=highest)),
        basis=shortfall,
    )
    yield Origin("theory", "theory.softmax.attention_budget").close(
        "enough-heads",
        "Spectral loss: heads beyond I + 1 do not help: greatest relative difference of the least losses for I + 1 "
        "and I + 2",
        **compared(change.isel(case=largest), tolerance=allowed.isel(case=largest)),
        basis=shortfall,
    )


def _softmax(minima: xr.Dataset, trained: xr.Dataset) -> Iterator[Claim]:
    above, error = minima["loss"] / minima["bound"], minima["error"] / minima["bound"]
    excess, noise = (above - 1).mean("run"), (error**2).mean("run") ** 0.5 / minima.sizes["run"] ** 0.5
    dims, several = minima["dim"].values, excess["heads"] > 1
    many = minima.sel(heads=minima["heads"] > PAIR)
    fitted = 2 * PAIR * many["heads"] / many.attrs["sequences"]
    yield Origin("theory", "theory.softmax.lower_bound, to leading order").at_least(
        "softmax-none-below",
        "Softmax attention: the least loss found from weights of either sign is not below the bound: loss/bound "
        "− 1, for each size, number of heads and seed",
        **compared(above - 1, 0.0, SIGMAS * error),
        basis=f"{SIGMAS:g} standard errors, from other sequences",
        counted="minima",
    )
    yield Origin("theory", "theory.softmax.lower_bound, to leading order").close(
        "softmax-sharp",
        f"The loss of softmax attention falls to the bound as 1/d as d and L grow: (least loss)/bound − 1 at d = "
        f"{dims[-1]}, from that at {dims[0]}, for each number of heads from 2 on",
        **_fall(excess.isel(heads=several), noise.isel(heads=several)),
        counted="numbers of heads",
    )
    yield Origin("theory", "theory.softmax.linear_attention_loss; debiased gradient descent in arXiv 2503.12734").close(
        "softmax-linear",
        "Softmax attention with more heads than tasks is at its best linear attention on centered labels: least loss "
        "over that of linear attention with L − 1 pairs, at the size and number of heads furthest off, for each seed",
        **worst(many["loss"] / many["linear"], 1.0, SIGMAS * many["error"] / many["linear"] + fitted),
        unless="" if many.sizes["heads"] else "there are not more heads than tasks",
        basis=f"{SIGMAS:g} standard errors; weights fitted to N sequences lose on others at most 1/N each",
    )
    words = (
        f"Softmax attention trained from positive weights (one run for each d/L), {TASKS + 1} heads on {TASKS} tasks"
    )
    ratio, sampling = trained["loss"] / trained["bound"], SIGMAS * trained["error"] / trained["bound"]
    best = trained["best"] / trained["bound"]
    yield Origin("paper", "abstract (optimal up to a constant factor); the factor is e by flow_limit_loss").at_most(
        "trained",
        f"{words}, ends within a constant factor of the bound for any number of heads, which is e to leading order in "
        "1/d, and e(1 + 2/d) with the next: ratio, over fresh sequences, for each d/L",
        **compared(ratio, np.e * (1 + 2 / trained["dim"]), sampling),
        basis=f"{SIGMAS:g} standard errors; 2/d is the spread of |q|²",
        counted="ratios d/L",
    )
    yield Origin("theory", "theory.softmax.exact_optimum").close(
        "trained-best",
        f"{words}, ends at the least loss of a head for each task by quadrature: ratio to the bound, for each d/L",
        **compared(ratio, best, sampling + best * trained["left"]),
        basis=f"{SIGMAS:g} standard errors; two weights of a task fitted to N sequences, 2/N; the tail of the flow",
        counted="ratios d/L",
    )


def _fall(away: xr.DataArray, error: xr.DataArray) -> dict[str, Any]:
    """What a claim compares of what falls as 1/d: at the last `size`, from the first, and as it is there."""
    (first, _), (before, after) = ([each.isel(size=k).values.ravel() for k in (0, -1)] for each in (away, error))
    dims = away["dim"].values
    part = dims[0] / dims[-1]
    return {
        "unless": "a fall with d needs two dimensions" if part == 1 else "",
        "predicted": part * first,
        "measured": labeled(away.isel(size=-1)),
        "tolerance": SIGMAS * np.hypot(part * before, after) + np.abs(part * first) / dims[0],
        "basis": f"{SIGMAS:g} standard errors, from other sequences; next order in 1/d, at the smaller d",
    }


def _angles(runs: xr.Dataset, others: xr.Dataset) -> Iterator[Claim]:
    flat = runs.sel(flatness=list(FLATNESS[:-1]))
    dims = flat["dim"].values
    yield Origin("theory", "theory.softmax.spectral_loss").close(
        "interacting",
        "The loss formula with several interacting heads is that of softmax attention over sampled sequences as d "
        f"and L grow, but for 1/d: their relative difference at d = {dims[-1]}, from that at {dims[0]}, for heads "
        f"at equal angles, H = {', '.join(str(h) for h in flat['heads'].values)} and |ω|² = "
        f"{', '.join(f'{a:g}' for a in flat['flatness'].values)}",
        **_fall(flat["loss"] / flat["formula"] - 1, flat["error"] / flat["formula"]),
        counted="weights",
    )
    source = "theory.softmax.lower_bound; the paper bounds equiangular weights, with a constant that is not known"
    yield Origin("theory", source, explored=True).at_least(
        "equal-angles",
        f"Softmax attention with {others.attrs['heads']} heads at equal angles on as many tasks is not below the "
        "bound: loss/bound − 1 over sampled sequences, for each cosine between heads and |ω|²",
        **compared(others["loss"] - 1, 0.0, SIGMAS * others["error"], cosine="cosine"),
        basis=f"{SIGMAS:g} standard errors",
        counted="weights",
    )


_SHADES = (*PALETTE[:5], BLACK)


def draw(data: Data, settings: object) -> matplotlib.figure.Figure:
    with styled():
        figure, (a, b, c, d, e) = two_rows(12.6, 8.2, (1.5, 1), (1, 1, 1))
        _bounds(a, data["curves"])
        _search(b, data["searched"])
        _draw_softmax(c, data["softmax"])
        _factor(d, data["curves"], data["positive"])
        _draw_angles(e, data["angles"])
    return figure


def _bounds(axes: Any, curve: xr.Dataset) -> None:
    tasks = curve.attrs["tasks"]
    for heads, color in zip(curve["heads"].values, cycle(_SHADES), strict=False):
        label = f"H = {heads}" if heads <= tasks else f"H ≥ {heads}"
        axes.plot(curve["ratio"], curve["bound"].sel(heads=heads), color=color, label=label)
    axes.plot(curve["ratio"], curve["flow"], "--", color=BLACK, linewidth=1.4, label="limit of the flow")
    axes.plot(curve["ratio"], curve["bayes"], ":", color=GRAY, linewidth=2.4, label="Bayes risk")
    axes.set(xscale="log", yscale="log", xlim=(0.01, 5), title=f"(a) Lower bound for H heads, I = {tasks} tasks")
    axes.set(xlabel="dimension of a task over context, d/L", ylabel="loss of a task / its signal")
    axes.legend(loc="lower right", ncols=2)


def _search(axes: Any, minima: xr.Dataset) -> None:
    bound, loss = minima["bound"] / minima["signal"], minima["loss"] / minima["signal"]
    axes.plot([0.08, 1], [0.08, 1], color=GRAY, linewidth=1.0, label="search = bound")
    few = minima["tasks"].values < TASKS
    style: dict[str, Any] = {"linestyle": "none", "fillstyle": "none"}
    for heads in range(1, int(minima["heads"].values[few].max()) + 1):
        chosen = np.flatnonzero(few & (minima["heads"].values == heads))
        runs = np.broadcast_to(bound.values[chosen, None], loss.values[chosen].shape)
        size = 12 - 1.6 * heads
        label = f"H = {heads}, I = 1, 2, 3"
        axes.plot(
            runs.ravel(),
            loss.values[chosen].ravel(),
            "o",
            label=label,
            color=_SHADES[heads - 1],
            markersize=size,
            **style,
        )
    runs = np.broadcast_to(bound.values[~few, None], loss.values[~few].shape)
    label = f"H = 1 to {MOST}, I = {TASKS}"
    axes.plot(runs.ravel(), loss.values[~few].ravel(), "x", label=label, color=BLACK, markersize=7, **style)
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
        axis.set_ticks([0.1, 0.2, 0.5, 1.0])
    finish(axes, "(b) Search over signed weights", "bound / signal", "least spectral loss / signal")
    axes.legend(loc="upper left", fontsize=8.5)


def _draw_softmax(axes: Any, minima: xr.Dataset) -> None:
    above, error = minima["loss"] / minima["bound"], minima["error"] / minima["bound"]
    heads, count = minima["heads"].values, minima.sizes["run"]
    axes.axhline(1, color=GRAY, linewidth=1.0)
    styles = cycle(((VERMILION, "o"), (PALETTE[0], "s"), (PALETTE[2], "D")))
    for size, (color, marker) in zip(range(minima.sizes["size"]), styles, strict=False):
        one = minima.isel(size=size)
        label = f"d = {int(one['dim'])}, L = {int(one['context'])}"
        mean, spread = above.isel(size=size).mean("run"), 2 * error.isel(size=size).max("run") / count**0.5
        axes.errorbar(heads, mean, spread, fmt=marker, color=color, markersize=5, capsize=3, label=label)
        many = heads > 2
        axes.plot(heads[many], (one["linear"] / one["bound"])[many], "--", color=color, linewidth=1.0)
    axes.plot([], [], "--", color=GRAY, linewidth=1.0, label="linear attention, L − 1 pairs")
    note(axes, "bound", (heads[0], 1.0), (-8, -12), color="#555555", fontsize=9)
    axes.set_ylim(0.994, 1 + 1.75 * max(0.01, float(above.max()) - 1))
    axes.set_xticks(heads)
    axes.set(xlim=(heads[0] - 0.4, heads[-1] + 0.4))
    finish(axes, "(c) Softmax attention itself", "heads H, on two tasks", "least loss / bound", legend="upper left")


def _factor(axes: Any, curve: xr.Dataset, trained: xr.Dataset) -> None:
    many, label = curve["many"], f"softmax, trained, d = {int(trained['dim'][0])}"
    axes.axhline(np.e, color=GRAY, linestyle="--", linewidth=1.0)
    note(axes, "e", (4.2, np.e), (0, 3), color="#555555")
    axes.axhline(1, color=GRAY, linewidth=1.0)
    axes.plot(curve["ratio"], curve["flow"] / many, "--", color=BLACK, linewidth=1.4, label="limit of the flow")
    axes.plot(trained["ratio"], trained["loss"] / trained["bound"], "o", color=VERMILION, markersize=6, label=label)
    axes.plot(trained["ratio"], trained["best"] / trained["bound"], "x", color=BLACK, label="by quadrature, same d")
    axes.plot(curve["ratio"], curve["bayes"] / many, ":", color=GRAY, linewidth=2.4, label="Bayes risk")
    axes.set(
        xscale="log",
        xlim=(0.008, 6),
        ylim=(0, 4.6),
        title=f"(d) {TASKS + 1} heads trained on {TASKS} tasks: a factor e",
    )
    axes.set(xlabel="dimension of a task over context, d/L", ylabel="loss / bound for H ≥ I + 1")
    axes.legend(loc="upper right", fontsize=8.5)


def _draw_angles(axes: Any, runs: xr.Dataset) -> None:
    fills, tasks = ["none", *["full"] * (runs.sizes["size"] - 1)], runs["heads"] - 1
    loss, error = runs["loss"] / tasks, 2 * runs["error"] / tasks
    for heads, color in zip(runs["heads"].values, cycle((VERMILION, *PALETTE[2:4])), strict=False):
        curve = runs["curve"].sel(heads=heads)
        axes.plot(runs["fine"], curve, color=color, linewidth=1.4, label=f"H = {heads}, formula")
        for size, fill in enumerate(fills):
            one, spread = (each.sel(heads=heads).isel(size=size) for each in (loss, error))
            style: dict[str, Any] = {"fmt": "o", "color": color, "markersize": 5, "capsize": 3, "fillstyle": fill}
            axes.errorbar(runs["flatness"], one, spread, **style)
    axes.axhline(float(runs["bound"]), linestyle="--", color=GRAY, linewidth=1.0, zorder=0, label="bound")
    for size, fill in enumerate(fills):
        label = f"softmax, sampled: d = {int(runs['dim'][size])}, L = {int(runs['context'][size])}"
        axes.plot([], [], "o", color=GRAY, markersize=5, fillstyle=fill, label=label)
    axes.set_xscale("log")
    only_ticks(axes, runs["flatness"].values)
    low, high = float(min(loss.min(), runs["bound"].min())), float(max(loss.max(), runs["curve"].max()))
    axes.set(ylim=(low - 0.1 * (high - low), high + 0.35 * (high - low)), title="(e) Interacting heads at equal angles")
    axes.set(xlabel="size of a head's scores, |ω|²", ylabel="loss of a task / its signal")
    axes.legend(loc="upper left", fontsize=8.5)


FIGURE = Figure(
    title="No weights of H heads go below the bound, which I + 1 heads exhaust",
    caption=CAPTION,
    source="Fig 4",
    settings=Settings(),
    quick=Settings(
        seeds=(20,),
        points=40,
        sizes=((10, 50), (20, 100)),
        heads=(2, 3),
        softmax_seeds=(30,),
        sequences=1000,
        positive=((20, 200),),
        steps=400,
        tested=64,
        angles=(2, 3),
        angle_sizes=((10, 50), (20, 100)),
        angle_sequences=1500,
    ),
    described=describe,
    paper_settings={"tasks I": TASKS},
    simulate=simulate,
    claims=claims,
    draw=draw,
)
