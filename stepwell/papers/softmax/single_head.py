r"""One head for several unequal tasks: what the best is in closed form, and what softmax attention learns.

A head has a budget of attention, $\sum_id_is_i \le 1/e$. One for all tasks divides it by water-filling
(`theory.single_head_optimum`) and may leave tasks out. That is to leading order in d and L; softmax attention
itself is trained on its exact loss.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled
from stepwell.dynamics import Record, flow
from stepwell.figures import Claim, Data, Figure, InvalidInput, Origin, Seeds, slug
from stepwell.objectives import Exact, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._common import compared, finish, lines, over, sparser_steps, stacked, worst
from ._eigenvalues import descent, eigenvalues, uniform_head

CAPTION = (
    "Ours: the paper has no such figure (its comparison of one head with several, for equal tasks, is in Fig 5). Three "
    "sets of unequal tasks. Bars, the closed form to leading order in d and L; symbols, softmax attention itself, "
    "trained on its exact loss, for tasks of two sizes: it nears the closed form as 1/d. (a) The price of a single "
    "head: its loss over that of a head for each task. (b) The parts in which a single head divides its attention, "
    "which is 1 in sum by the closed form. Some tasks get nothing. (c) The surrogate, the spectral loss, trained: "
    "scores of the tasks left out do not fall exponentially while training goes on, but as 1/(K t), with K known; time "
    "is that of the squared loss, rate times steps."
)

INSTANCES = {
    "unequal dimensions": ((4, 8, 16), (4.0, 8.0, 16.0), 100),
    "one left out": ((10, 10, 10, 10), (40.0, 20.0, 10.0, 0.5), 100),
    "two left out": ((5, 10, 15, 20), (10.0, 10.0, 0.75, 0.4), 60),
}
"""Dimensions, signals in total, context length; the noise has variance 1. Larger tasks have m times the dimensions and
m times the context: to leading order they are alike."""
ROUNDING = 1e-9
REACH = 10.0
"""Of the table of the exact loss: heads have scores of a variance of about 1."""
UNTIL = 4000.0
"""The flow of softmax attention ends then, times the root of m/4: what is left is below 1e-6 of the loss."""


class Fading(NamedTuple):
    r"""K of $\dot\omega = -K\omega^2$, and what the task then costs over ω², for each task."""

    rate: Float[np.ndarray, " task"]
    cost: Float[np.ndarray, " task"]


@dataclass(frozen=True)
class Settings:
    """`sizes` are values of m for softmax attention; the rest is of the surrogate, at m = 1."""

    seeds: tuple[int, ...] = (110, 111, 112)
    sizes: tuple[int, ...] = (4, 8)
    instances: tuple[str, ...] = tuple(INSTANCES)
    rate: float = 0.01
    steps: int = 100_000

    def __post_init__(self) -> None:
        unknown = [name for name in self.instances if name not in INSTANCES]
        if unknown:
            raise InvalidInput(f"instances has {unknown[0]!r}; it must be of {', '.join(INSTANCES)}")


def describe(settings: Settings) -> dict[str, Any]:
    unequal = [f"{name}: d = {d}, S = {signals}, L = {n}" for name, (d, signals, n) in INSTANCES.items()]
    return {
        "unequal tasks": unequal,
        "noise σ²": 1,
        "surrogate: seeds": settings.seeds,
        "surrogate: rate": settings.rate,
        "surrogate: steps": settings.steps,
        "softmax attention: seed": settings.seeds[0],
        "softmax attention: factor m of d and L": settings.sizes,
        "softmax attention: instances": settings.instances,
    }


def simulate(settings: Settings) -> Data:
    data = {f"softmax{number + 1}": softmax_head(name, settings) for number, name in enumerate(settings.instances)}
    return data | {f"unequal{number + 1}": unequal(name, settings) for number, name in enumerate(INSTANCES)}


def the_task(name: str, size: int = 1) -> MultiTaskRegression:
    dims, signals, context = INSTANCES[name]
    larger = tuple(size * d for d in dims)
    return MultiTaskRegression(larger, signals, size * context, noise_variance=1.0, convention="total")


def softmax_head(name: str, settings: Settings) -> xr.Dataset:
    """A single head of softmax attention by the flow of its exact loss, from positive weights, for each size.

    `several` is the least loss of a head for each task, by quadrature. `growth` is that of 1/ω over the last half of
    the time, for tasks that the closed form leaves out.
    """
    rows, tasks = [], [the_task(name, size) for size in settings.sizes]
    for size, task in zip(settings.sizes, tasks, strict=True):
        model = uniform_head(task, settings.seeds[0], score_scale=1.0)
        until = UNTIL * (size / 4) ** 0.5
        run = flow(model, Exact(task, reach=REACH), until=until, record=Record(points=3), progress=False)
        omega = eigenvalues(run, model)[0][0, :, 0]
        best = theory.single_head_optimum(task)
        # Trajectories count time at half the speed.
        growth = (1 / omega[2] - 1 / omega[1]) / (until / 4)
        law = np.where(best.omega == 0, fading(task, best, 1.0).rate, np.nan)
        rows.append(
            over("", loss=run["loss"].values[0, -1], several=theory.exact_optimum(task).loss.sum())
            | over("", next_order=2 / min(task.dims) + np.e**2 / task.context.longest)
            | over("task", square=np.array(task.dims) * omega[-1] ** 2, faded=growth / law)
        )
    task = the_task(name)
    best, several = theory.single_head_optimum(task), theory.flow_limit_loss(task).sum()
    added = over("", best_loss=best.loss.sum(), best_several=several)
    added |= over("task", best_square=np.array(task.dims) * best.omega**2)
    return stacked(rows, size=settings.sizes).assign(added).assign_attrs(name=name)


def unequal(name: str, settings: Settings) -> xr.Dataset:
    """A single head trained on unequal tasks from each seed's positive weights, and what theory says of its end."""
    task = the_task(name)
    dims = task.dims
    models = [uniform_head(task, seed) for seed in settings.seeds]
    steps = sparser_steps(settings.steps, 60)
    options: dict[str, Any] = {"rate": settings.rate, "steps": settings.steps, "points": steps, "snapshots": steps}
    run, scale = descent(models, Spectral(task), **options), models[0].score_scale
    best = theory.single_head_optimum(task)
    faded, out = fading(task, best, scale), best.omega == 0
    left = np.where(out, 1 / (np.where(out, faded.rate, 1.0) * run.time[-1]), 0.0)
    return xr.Dataset(
        over("run time task", omega=run.omega[:, :, 0])
        | over("run", loss=run.loss[:, -1])
        | over("task", best_omega=best.omega, dim=np.array(dims), fading=np.where(out, faded.rate, np.nan), left=left)
        | over("", best_loss=best.loss.sum(), excess=float(np.sum(faded.cost * left**2))),
        coords={"run": list(settings.seeds), "time": ("time", run.time, {"units": "rate × steps (squared loss)"})},
        attrs={"name": name},
    )


def fading(task: MultiTaskRegression, best: theory.SingleHead, scale: float) -> Fading:
    r"""Small weights of a task that a head leaves out, where the head is at its best for the others.

    With $P = \tfrac eL\sum_kS_k\phi_k\mu_k^2$ of the others, the flow (`theory.spectral_velocity`) is
    $\dot\omega_i = 4s\,\omega_i(\lambda_i\mu_i - P\omega_i)$,
    $\dot\mu_i = 4\mu_iS_i(\omega_i - \tfrac{e\phi_i}L\mu_i)$.
    Both fall as 1/t once their logarithms fall alike: $\mu_i = r_i\omega_i$,
    $r_i = (S_i + sP)/(s\lambda_i + e\phi_iS_i/L)$, $\dot\omega_i = -K_i\omega_i^2$, $K_i = 4s(P - \lambda_ir_i)$,
    which is above 0 where the task is left out. They cost
    $d_i\omega_i^2[P - 2\lambda_ir_i + \lambda_i\tfrac{e\phi_i}Lr_i^2]$.
    """
    lam, signals = np.array(task.strengths), task.signals
    spread = np.e * task.noise_factors / task.context.longest
    push = float(np.sum(spread * signals * best.mu**2))
    ray = (signals + scale * push) / (scale * lam + spread * signals)
    cost = np.array(task.dims) * (push - 2 * lam * ray + lam * spread * ray**2)
    return Fading(4 * scale * (push - lam * ray), cost)


def claims(data: Data, settings: Settings) -> list[Claim]:
    makers = (("softmax", _softmax), ("unequal", _surrogate))
    return [claim for kind, claims_of in makers for one in _named(data, kind) for claim in claims_of(one)]


def _softmax(runs: xr.Dataset) -> Iterator[Claim]:
    name, factors = runs.attrs["name"], " to ".join(str(size) for size in runs["size"].values)
    next_order = runs["next_order"]
    optimum, parts = "theory.softmax.single_head_optimum", runs["square"] / runs["square"].sum("task")
    excess = runs["loss"] / runs["best_loss"] - 1
    price = (runs["loss"] / runs["several"]) / (runs["best_loss"] / runs["best_several"])
    few = "" if np.unique(runs["size"]).size > 1 else "an exponent needs two sizes"
    basis = "next order, the spread of |q|² 2/d and self-normalization e²/L"
    size = {"size": "m ="}
    yield Origin("theory", optimum, explored=True).close(
        f"{slug(name)}-softmax-loss",
        f"Softmax attention, {name}: the loss of a single head falls to that of water-filling, as d and L grow "
        f"{factors}-fold: exponent in 1/d of the relative difference",
        unless=few,
        predicted=1.0,
        measured=np.nan if few else _exponent(excess, runs["size"].values),
        tolerance=next_order[0],
        basis=f"{basis}, at the smaller size",
    )
    yield Origin(
        "theory", f"abstract: single-head against multi-head; {optimum}, flow_limit_loss", explored=True
    ).close(
        f"{slug(name)}-softmax-price",
        f"Softmax attention, {name}: the loss of a single head over that of a head for each task is the closed form to "
        "next order: ratio over it, for each size",
        **compared(price, 1.0, next_order, **size),
        basis=f"{basis}, by which both losses are above theirs",
        counted="sizes",
    )
    yield Origin("theory", optimum, explored=True).at_most(
        f"{slug(name)}-softmax-shares",
        f"Softmax attention, {name}: a single head divides its attention, the parts of Σ d_iω_i², by water-filling to "
        "next order: sum of the differences, for each size",
        **compared(abs(parts - runs["best_square"]).sum("task"), next_order, **size),
        basis=f"{basis}, of each part",
        counted="sizes",
    )
    out = np.flatnonzero(runs["best_square"] == 0)
    if out.size:
        yield Origin("theory", "docstring of fading: tasks left out fade as 1/(K t)", explored=True).close(
            f"{slug(name)}-softmax-fading",
            f"Softmax attention, {name}: scores that water-filling leaves out fade as 1/(K t), K to leading order: "
            "growth of 1/ω over the last half of the time, over K, for each such task and size",
            predicted=1.0,
            measured=runs["faded"].isel(task=out).rename(size="m ="),
            tolerance=np.repeat(2 * runs["next_order"].values, out.size),
            basis=f"{basis}, in each of two quantities",
            counted="tasks and sizes",
        )


def _exponent(away: xr.DataArray, sizes: np.ndarray) -> float:
    """The power of 1/m with which a positive difference falls from the first size to the last."""
    first, last = float(away[0]), float(away[-1])
    return float(np.log(first / last) / np.log(sizes[-1] / sizes[0])) if min(first, last) > 0 else np.nan


def _surrogate(flows: xr.Dataset) -> Iterator[Claim]:
    name = flows.attrs["name"]
    square = (flows["dim"] * flows["omega"] ** 2).isel(time=-1)
    leftover = float((flows["dim"] * flows["left"] ** 2).sum())
    yield Origin("theory", "theory.softmax.single_head_optimum, water-filling").close(
        f"{slug(name)}-shares",
        f"Spectral loss, {name}: trained heads divide attention by water-filling: d_iω_i² of the task furthest off",
        **worst(square, flows["dim"] * flows["best_omega"] ** 2, 2 * leftover + 1e-6),
        basis="twice what tasks left out still have, Σd_i/(K_i t)²; 1e-6 for training",
    )
    yield Origin("theory", "theory.softmax.single_head_optimum").close(
        f"{slug(name)}-loss",
        f"Spectral loss, {name}: loss of trained heads above the best",
        **compared(
            flows["loss"] - flows["best_loss"], tolerance=float(2 * flows["excess"] + ROUNDING * flows["best_loss"])
        ),
        basis="twice what tasks left out still cost, by the same law; rounding",
    )
    out = np.flatnonzero(flows["best_omega"] == 0)
    if out.size:
        time, omega, rate = flows["time"].values, flows["omega"].isel(task=out), flows["fading"].isel(task=out)
        half = int(np.searchsorted(time, time[-1] / 2))
        growth = (1 / omega.isel(time=-1) - 1 / omega.isel(time=half)) / (time[-1] - time[half])
        yield Origin("theory", "docstring of fading: tasks left out fade as 1/(K t)").close(
            f"{slug(name)}-fading",
            f"Spectral loss, {name}: scores left out fade as 1/(K t): growth of 1/ω over the last half of the "
            "time, over K",
            **worst(growth / rate, 1.0, 2 / (rate * omega.isel(time=0) * time[-1])),
            basis="μ/ω nears its ray as 1/t or faster, from t = 1/(Kω(0)), ω(0) the initial value; twice that",
        )


def _named(data: Data, kind: str) -> list[xr.Dataset]:
    """Data sets of a kind, their tasks numbered from 1 on."""
    chosen = [dataset for name, dataset in data.items() if name.startswith(kind)]
    return [dataset.assign_coords(task=np.arange(dataset.sizes["task"]) + 1) for dataset in chosen]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    runs, flows = _named(data, "softmax"), _named(data, "unequal")
    with styled():
        figure = new_figure(13.6, 4.6)
        left, middle, right = figure.subplots(1, 3, width_ratios=(0.9, 1.35, 1))
        _prices(left, runs)
        _shares(middle, runs)
        _fading(right, flows)
    return figure


_MARKERS = ("o", "D", "s", "^", "v")


def _prices(axes: Any, runs: list[xr.Dataset]) -> None:
    for place, one in enumerate(runs):
        price = float(one["best_loss"] / one["best_several"])
        axes.bar(place, price, width=0.6, color=PALETTE[place], alpha=0.45)
        for number, size in enumerate(one["size"].values):
            label = f"softmax attention, d, L × {size}" if place == 0 else None
            spot = place + 0.22 * (number - 0.5)
            measured = float((one["loss"] / one["several"])[number])
            axes.plot(spot, measured, _MARKERS[number % len(_MARKERS)], color=BLACK, markersize=5, label=label)
    axes.axhline(1, color=GRAY, linewidth=0.8)
    axes.bar([0], [0], color=GRAY, alpha=0.45, label="closed form")
    axes.set_xticks(range(len(runs)), [one.attrs["name"].replace(" ", "\n", 1) for one in runs])
    axes.set(xlim=(-0.6, len(runs) - 0.4), ylim=(0, 2.75), ylabel="loss: single head / a head for each task")
    axes.set_title("(a) The price of a single head")
    axes.legend(loc="upper right", fontsize=8.5)


def _shares(axes: Any, runs: list[xr.Dataset]) -> None:
    position, ticks, names = 0.0, [], []
    for number, one in enumerate(runs):
        places = position + np.arange(one.sizes["task"])
        axes.bar(places, one["best_square"], color=PALETTE[number], alpha=0.45, label=one.attrs["name"])
        for k in range(one.sizes["size"]):
            marker = _MARKERS[k % len(_MARKERS)]
            part = one["square"][k] / one["square"][k].sum()
            axes.plot(places + 0.3 * (k - 0.5), part, marker, color=BLACK, markersize=4.5)
        ticks += list(places)
        names += [f"{i + 1}" for i in range(places.size)]
        position = places[-1] + 2
    axes.set_xticks(ticks, names)
    axes.set(ylim=(0, 0.95))
    finish(axes, "(b) One head for unequal tasks", "task", "part of attention, $d_i\\omega_i^2$ over its sum")
    axes.legend(loc="upper right", ncols=3, fontsize=8.5)


def _fading(axes: Any, several: list[xr.Dataset]) -> None:
    number = 0
    for flows in several:
        for i in np.flatnonzero(flows["best_omega"] == 0):
            time, omega, rate = flows["time"].values[1:], flows["omega"].values[:, :, i], float(flows["fading"][i])
            label = f"{flows.attrs['name']}, task {i + 1}"
            lines(axes, time, omega[:, 1:], label, color=PALETTE[1 + number], linewidth=1.2)
            late = time > 3 / (rate * omega[0, 0])
            axes.plot(time[late], 1 / (rate * time[late]), "--", color=BLACK, linewidth=1.0)
            number += 1
    axes.plot([], [], "--", color=BLACK, linewidth=1.0, label="1/(K t)")
    axes.set(xscale="log", yscale="log")
    finish(axes, "(c) The surrogate: tasks left out fade slowly", "time, rate × steps", "score ω of a task left out")
    axes.legend(loc="lower left")


FIGURE = Figure(
    title="A single head divides its attention among unequal tasks, and leaves some out",
    caption=CAPTION,
    settings=Settings(),
    quick=Settings(seeds=(110,), instances=("one left out",), steps=50_000),
    described=describe,
    seeds=Seeds(explored="the same: the end does not depend on the seed"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
