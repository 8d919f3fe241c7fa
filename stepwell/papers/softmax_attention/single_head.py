r"""One head against one for each task: the best single head in closed form, and heads trained.

A head has a budget of attention, $\sum_id_is_i \le 1/e$. One for all tasks divides it by water-filling
(`theory.limits.single_head_optimum`) and may leave tasks out.
"""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from stepwell.dynamics import Ensemble, descend
from stepwell.models import SpectralAttention
from stepwell.objectives import Spectral
from stepwell.papers._claim import Claim, slug
from stepwell.papers._completed import completed
from stepwell.papers._settings import changeable
from stepwell.papers._style import BLACK, GREY, PALETTE, new_figure, styled
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._sizes import like_tasks
from ._worst import worst_point

NAME = "softmax/single-head"
TITLE = "A single head divides its attention among the tasks, and costs up to I times as much as a head for each"
CAPTION = (
    "To leading order in d and L. Left: loss of the best single head for I equal tasks over that of a head for each "
    "task, against d/L at signal-to-noise ratio 1 (signal counted in total, φ = 2: an inference); points are two "
    "models trained, one with a single head. As d/L falls the ratio tends to I. Middle: how a single head divides its "
    "attention among unequal tasks: bars, the closed form; points, trained heads, one for each seed. Some tasks get "
    "nothing. Right: scores of the tasks left out do not fall exponentially while training goes on, but as "
    "1/(K t), with K known; time is that of the squared loss, rate times steps."
)

COUNTS = (2, 5, 10)
INSTANCES = {
    "unequal dimensions": ((4, 8, 16), (1.0, 1.0, 1.0), 100),
    "one left out": ((10, 10, 10, 10), (4.0, 2.0, 1.0, 0.05), 100),
    "two left out": ((5, 10, 15, 20), (2.0, 1.0, 0.05, 0.02), 60),
}
"""Dimensions, strengths of a coordinate, context length; the noise has variance 1."""
ROUNDING = 1e-9


class Fading(NamedTuple):
    r"""K of $\dot\omega = -K\omega^2$, and what the task then costs over ω², for each task."""

    rate: Float[np.ndarray, " task"]
    cost: Float[np.ndarray, " task"]


@changeable
@dataclass(frozen=True)
class Settings:
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    points: int = 80
    trained: tuple[tuple[int, int, float, int], ...] = (
        (1, 1000, 0.1, 20_000),
        (3, 100, 0.1, 20_000),
        (50, 50, 0.5, 200_000),
    )
    """Dimension, context, rate and steps for equal tasks: the smaller d/L the sharper the loss, and the faster."""
    rate: float = 0.01
    steps: int = 200_000


FULL = Settings()
QUICK = Settings(seeds=(0, 1), points=40, trained=((3, 100, 0.1, 20_000),), steps=50_000)


PAPER_SETTINGS: dict[str, Any] = {}
"""The paper has no such figure."""


def settings(quick: bool) -> dict[str, Any]:
    chosen = asdict(QUICK if quick else FULL)
    chosen["trained"] = [f"d = {d}, L = {n}, rate {r:g}, {m} steps" for d, n, r, m in chosen["trained"]]
    unequal = [f"{name}: d = {d}, λ = {lam}, L = {n}" for name, (d, lam, n) in INSTANCES.items()]
    return {"equal tasks I": list(COUNTS), "unequal tasks": unequal, "noise σ²": 1, **chosen}


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    data = {"ratio": ratios(np.geomspace(1e-3, 5, chosen.points)), "trained": trained(chosen)}
    for number, name in enumerate(INSTANCES):
        data[f"unequal{number + 1}"] = unequal(name, chosen)
    return data


def ratios(over: np.ndarray) -> xr.Dataset:
    """Loss of the best single head over that of a head for each task."""
    rows = []
    for count in COUNTS:
        tasks = [like_tasks(ratio, count) for ratio in over]
        rows.append(
            [theory.limits.single_head_optimum(t).loss.sum() / theory.limits.flow_limit_loss(t).sum() for t in tasks]
        )
    return xr.Dataset({"ratio": (("tasks", "over"), rows)}, coords={"tasks": list(COUNTS), "over": over})


def trained(chosen: Settings) -> xr.Dataset:
    """Equal tasks, as many as in the last of `COUNTS`: one head trained on all, and heads on a task each."""
    count, rows = COUNTS[-1], []
    for d, context, rate, steps in chosen.trained:
        task = MultiTaskRegression((d,) * count, 1.0, context, noise_variance=1.0, convention="total")
        ends = []
        for heads in (1, count):
            own = np.ones((1, count)) if heads == 1 else np.eye(count)
            models = [_start(task, own, seed) for seed in chosen.seeds]
            ends.append(_train(models, task, rate, steps, 2)["loss"].values[:, -1])
        rows.append((*ends, float(ratios(np.array([d / context]))["ratio"][-1, 0])))
    single, multiple, predicted = (np.array(column) for column in zip(*rows, strict=True))
    return xr.Dataset(
        {
            "single": (("size", "run"), single),
            "multiple": (("size", "run"), multiple),
            "predicted": ("size", predicted),
        },
        coords={"over": ("size", [d / n for d, n, _, _ in chosen.trained]), "run": list(chosen.seeds)},
    )


def unequal(name: str, chosen: Settings) -> xr.Dataset:
    """A single head trained on unequal tasks from each seed's positive weights, and what theory says of its end."""
    dims, strengths, context = INSTANCES[name]
    task = MultiTaskRegression(dims, strengths, context, noise_variance=1.0)
    models = [_start(task, np.ones((1, len(dims))), seed) for seed in chosen.seeds]
    run = _train(models, task, chosen.rate, chosen.steps, 60)
    scale = models[0].score_scale
    omega = (run["key"] * run["query"]).values[:, :, 0] * scale / np.array(dims)
    time = chosen.rate * run["snapshot"].values
    best = theory.limits.single_head_optimum(task)
    faded, out = fading(task, best, scale), best.omega == 0
    left = np.where(out, 1 / (np.where(out, faded.rate, 1.0) * time[-1]), 0.0)
    return xr.Dataset(
        {
            "omega": (("run", "time", "task"), omega),
            "loss": ("run", run["loss"].values[:, -1]),
            "best_omega": ("task", best.omega),
            "best_loss": best.loss.sum(),
            "dim": ("task", np.array(dims)),
            "fading": ("task", np.where(out, faded.rate, np.nan)),
            "left": ("task", left),
            "excess": float(np.sum(faded.cost * left**2)),
        },
        coords={"run": list(chosen.seeds), "time": ("time", time, {"units": "rate × steps (squared loss)"})},
        attrs={"name": name},
    )


def fading(task: MultiTaskRegression, best: theory.limits.SingleHead, scale: float) -> Fading:
    r"""Small weights of a task that a head leaves out, where the head is at its best for the others.

    With $P = \tfrac eL\sum_kS_k\phi_k\mu_k^2$ of the others, the flow (`theory.flow.spectral_velocity`) is
    $\dot\omega_i = 4s\,\omega_i(\lambda_i\mu_i - P\omega_i)$,
    $\dot\mu_i = 4\mu_iS_i(\omega_i - \tfrac{e\phi_i}L\mu_i)$.
    Both fall as 1/t once their logarithms fall alike: $\mu_i = r_i\omega_i$,
    $r_i = (S_i + sP)/(s\lambda_i + e\phi_iS_i/L)$, $\dot\omega_i = -K_i\omega_i^2$, $K_i = 4s(P - \lambda_ir_i)$,
    which is above 0 where the task is left out. They cost
    $d_i\omega_i^2[P - 2\lambda_ir_i + \lambda_i\tfrac{e\phi_i}Lr_i^2]$.
    """
    lam, signals = np.array(task.strengths), task.signals
    spread = np.e * task.noise_factors / task.lengths.longest
    push = float(np.sum(spread * signals * best.mu**2))
    ray = (signals + scale * push) / (scale * lam + spread * signals)
    cost = np.array(task.dims) * (push - 2 * lam * ray + lam * spread * ray**2)
    return Fading(4 * scale * (push - lam * ray), cost)


def _start(task: MultiTaskRegression, own: np.ndarray, seed: int) -> SpectralAttention:
    roots = np.array(task.dims) ** 0.5
    omega, mu = own * np.random.default_rng(seed).uniform(0.1, 0.4, (2, *own.shape))
    return SpectralAttention.balanced(omega / roots, mu * roots, task.dims)


def _train(
    models: list[SpectralAttention], task: MultiTaskRegression, rate: float, steps: int, kept: int
) -> xr.Dataset:
    every = np.unique(np.geomspace(1, steps, kept).astype(int)) if kept > 2 else np.array([0, steps])
    listed = np.unique(np.concatenate([[0], every]))
    run = descend(
        Ensemble.of(models),
        Spectral(task),
        rate=rate,
        steps=steps,
        record=listed,
        snapshots=listed,
        progress=False,
        configuration={"figure": NAME},
    )
    return completed(run)


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    equal, count = data["trained"], COUNTS[-1]
    all_claims = [
        worst_point(
            f"{NAME}/ratio-trained",
            f"{count} equal tasks: loss of a trained single head over that of {count} trained heads, as predicted",
            measured=equal["single"] / equal["multiple"],
            predicted=equal["predicted"],
            tolerance=1e-6 * equal["predicted"],
            basis="training goes on until less than this is left",
            kind="paper",
            source="abstract: single-head against multi-head; sizes: theory.softmax.limits.single_head_optimum",
        ),
    ]
    for flows in _unequal(data):
        name = flows.attrs["name"]
        square = (flows["dim"] * flows["omega"] ** 2).isel(time=-1)
        best = flows["dim"] * flows["best_omega"] ** 2
        leftover = float((flows["dim"] * flows["left"] ** 2).sum())
        all_claims.append(
            worst_point(
                f"{NAME}/{slug(name)}-shares",
                f"{name}: trained heads divide attention by water-filling: d_iω_i² of the task furthest off",
                measured=square,
                predicted=best,
                tolerance=2 * leftover + 1e-6,
                basis="twice what tasks left out still have, Σd_i/(K_i t)²; 1e-6 for training",
                kind="theory",
                source="theory.softmax.limits.single_head_optimum, water-filling",
            )
        )
        all_claims.append(
            Claim.over(
                f"{NAME}/{slug(name)}-budget",
                f"{name}: trained heads have B = Σ d_iω_i² = 1",
                predicted=1.0,
                measured=square.sum("task").values,
                tolerance=2 * leftover + 1e-6,
                basis="twice what tasks left out still have, Σd_i/(K_i t)²; 1e-6 for training",
                kind="theory",
                source="theory.softmax.limits.single_head_optimum, B = 1",
            )
        )
        all_claims.append(
            Claim.over(
                f"{NAME}/{slug(name)}-loss",
                f"{name}: loss of trained heads above the best",
                predicted=0.0,
                measured=(flows["loss"] - flows["best_loss"]).values,
                tolerance=float(2 * flows["excess"] + ROUNDING * flows["best_loss"]),
                basis="twice what tasks left out still cost, by the same law; rounding",
                kind="theory",
                source="theory.softmax.limits.single_head_optimum",
            )
        )
        out = np.flatnonzero(flows["best_omega"] == 0)
        if out.size:
            time, omega, rate = flows["time"].values, flows["omega"].isel(task=out), flows["fading"].isel(task=out)
            half = int(np.searchsorted(time, time[-1] / 2))
            growth = (1 / omega.isel(time=-1) - 1 / omega.isel(time=half)) / (time[-1] - time[half])
            all_claims.append(
                worst_point(
                    f"{NAME}/{slug(name)}-fading",
                    f"{name}: scores left out fade as 1/(K t): growth of 1/ω over the last half of the time, over K",
                    measured=growth / rate,
                    predicted=1.0,
                    tolerance=2 / (rate * omega.isel(time=0) * time[-1]),
                    basis="μ/ω nears its ray as 1/t or faster, from t = 1/(Kω(0)); twice that",
                    kind="theory",
                    source="docstring of fading: tasks left out fade as 1/(K t)",
                )
            )
    return all_claims


def _unequal(data: dict[str, xr.Dataset]) -> list[xr.Dataset]:
    return [dataset for name, dataset in data.items() if name.startswith("unequal")]


def draw(data: dict[str, xr.Dataset]) -> Figure:
    over, equal = data["ratio"], data["trained"]
    with styled():
        figure = new_figure(13.0, 4.4)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.25, 1))
        for count, colour in zip(COUNTS, PALETTE, strict=False):
            left.plot(over["over"], over["ratio"].sel(tasks=count), color=colour, label=f"I = {count}")
            left.axhline(count, color=colour, linestyle=":", linewidth=1.0)
        points = (equal["single"] / equal["multiple"]).mean("run")
        left.plot(equal["over"], points, "o", color=BLACK, markersize=5, label=f"trained, I = {COUNTS[-1]}")
        left.set_xscale("log")
        left.set_xlim(1e-3, 5)
        left.set_ylim(0, 11.5)
        left.set_xlabel("dimension of a task over context, d/L")
        left.set_ylabel("loss: single head / a head for each task")
        left.set_title("(a) The price of a single head")
        left.legend(loc="upper right", bbox_to_anchor=(1.0, 0.84))

        position, ticks, names = 0.0, [], []
        for number, flows in enumerate(_unequal(data)):
            square = (flows["dim"] * flows["omega"] ** 2).isel(time=-1)
            places = position + np.arange(flows.sizes["task"])
            colour = PALETTE[number]
            middle.bar(
                places, flows["dim"] * flows["best_omega"] ** 2, color=colour, alpha=0.45, label=flows.attrs["name"]
            )
            runs = flows.sizes["run"]
            for run in range(runs):
                middle.plot(
                    places + 0.12 * (run - (runs - 1) / 2), square.isel(run=run), "o", color=BLACK, markersize=3.5
                )
            ticks += list(places)
            names += [f"{i + 1}" for i in range(places.size)]
            position = places[-1] + 2
        middle.plot([], [], "o", color=BLACK, markersize=3.5, label="trained, one a seed")
        middle.set_xticks(ticks, names)
        middle.set_ylim(0, 0.95)
        middle.set_xlabel("task")
        middle.set_ylabel("part of attention, $d_i\\omega_i^2$ (adds up to 1)")
        middle.set_title("(b) One head for unequal tasks")
        middle.legend(loc="upper right", ncols=2, fontsize=8.5)

        number = 0
        for flows in _unequal(data):
            for i in np.flatnonzero(flows["best_omega"] == 0):
                colour = PALETTE[1 + number]
                time = flows["time"].values[1:]
                label = f"{flows.attrs['name']}, task {i + 1}"
                for run in range(flows.sizes["run"]):
                    right.plot(time, flows["omega"].values[run, 1:, i], color=colour, linewidth=1.2, label=label)
                    label = None
                late = time > 3 / (float(flows["fading"][i]) * float(flows["omega"][0, 0, i]))
                right.plot(time[late], 1 / (float(flows["fading"][i]) * time[late]), "--", color=BLACK, linewidth=1.0)
                number += 1
        right.plot([], [], "--", color=BLACK, linewidth=1.0, label="1/(K t)")
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xlabel("time, rate × steps")
        right.set_ylabel("score ω of a task left out")
        right.set_title("(c) Tasks left out fade slowly")
        right.legend(loc="lower left")
        left.axhline(1, color=GREY, linewidth=0.8)
    return figure
