r"""Fig 6: the scale of the initial weights, from rich (a wait, then drops) to lazy (an exponential decay).

Heads are independent, as in the paper, or come in pairs with the same keys and queries and opposite values, so that
every run starts from the map zero, whatever its scale. That makes the difference at large scales w. The map is a
product of $n = 2$ (merged) or 3 (separate) weights. From zero it has to move by a number of order one, for which
weights of size w move by the part $w^{-n}$ of themselves: training is lazy. Of independent heads the map starts at
$w^n$ and has to move by as much, for which weights move by a part of themselves that does not depend on w: at a fixed
number of heads they are never lazy.

**Linearized training.** While weights hardly move, the map A moves by
$\tau\,\mathrm{vec}\dot A = K\,\mathrm{vec}(M\Lambda - CA\Lambda)$ with a
constant tangent kernel $K = JJ^\top$, $J = \partial\,\mathrm{vec}A/\partial W$. The excess of the loss over its minimum
is then a sum of exponentials. Written out from the weights; nothing of the models' code enters.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import matplotlib
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, VERMILION, new_figure, styled
from stepwell.figures import Claim, Data, Figure, Origin
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._runs import described, flow_at, slope, spread_times

CAPTION = (
    "Gradient flow on infinitely many sequences from initial weights of standard deviation w (color), in the "
    "paper's convention. (a, b) Independent heads, as in the paper: merged attention waits, then drops once; "
    "separate attention waits at every level. Larger weights wait less; the largest start with a large loss. (c) The "
    "time until a tenth of the first fall. Small weights: ln(1/w)/‖Λ²‖ merged, 1/w separate (dashed: slope "
    "predicted, height fitted). Large ones, in pairs: training linearized at initialization, w⁻² and w⁻⁴ (dotted, no "
    "free height). (d, e) Ours: heads in pairs of opposite value, so that every run starts with the loss 1. Black, "
    "dashed: training linearized at initialization, for w of 3 and more. (f) Ours: how far weights move from beginning "
    "to end, over their initial size. In pairs of large weights the part is w⁻² (merged) and w⁻³ (separate): lazy. "
    "Independent heads move by as much at any w: never lazy."
)


SPECTRUM = (0.4, 0.3, 0.2, 0.1)
KINDS = ("merged", "separate")
HEADS = {"merged": 8, "separate": 12}
RICH = {"merged": (1e-6, 1e-5, 1e-4, 1e-3), "separate": (1e-4, 3e-4, 1e-3, 3e-3)}
BETWEEN = (0.01, 0.1, 0.3, 1.0)
LARGE = {"merged": (3.0, 6.0, 12.0), "separate": (3.0, 4.0, 6.0)}
FACTORS = {"merged": MergedAttention.factors, "separate": SeparateAttention.factors}
POWER = {"merged": -2, "separate": -4}
"""The kernel is of second order in merged weights, of fourth in separate ones; lazy times go as one over it."""
LAZY_RTOL = 1e-8
"""Of the solver, for large weights, which make a small map by cancellation."""
SETTLED = 8.0
"""Lazy runs last so many of the slowest times of linearized training: e⁻¹⁶ of the loss is left."""


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    context: int = 31
    seeds: tuple[int, ...] = (100, 101, 102)
    every_scale: bool = True
    """Or only the first and last of the rich and of the large ones, and 0.3."""

    def scales(self, kind: str, *, pairs: bool) -> list[float]:
        rich = () if pairs else RICH[kind]
        if self.every_scale:
            return [*rich, *BETWEEN, *LARGE[kind]]
        return [*rich[:1], *rich[-1:], 0.3, LARGE[kind][0], LARGE[kind][-1]]

    @cached_property
    def task(self) -> InContextRegression:
        return InContextRegression(covariance(SPECTRUM), self.context)


def describe(settings: Settings) -> dict[str, Any]:
    return described(
        settings,
        eigenvalues=SPECTRUM,
        heads=[f"{kind}: {HEADS[kind]}, independent; as many in pairs of opposite value" for kind in KINDS],
        initial=[f"{kind}: {settings.scales(kind, pairs=False)}" for kind in KINDS],
        data="infinitely many sequences",
    )


def simulate(settings: Settings) -> Data:
    return {
        **{kind: sweep(kind, settings) for kind in KINDS},
        **{f"{kind}_pairs": sweep(kind, settings, pairs=True) for kind in KINDS},
    }


def initial_model(kind: str, scale: float, seed: int, *, pairs: bool) -> MergedAttention | SeparateAttention:
    """Random heads; in pairs, the second half is a copy of the first with opposite values."""
    model_class = MergedAttention if kind == "merged" else SeparateAttention
    model = model_class.random(dim=len(SPECTRUM), heads=HEADS[kind], scale=scale, key=jax.random.key(seed))
    if not pairs:
        return model
    half = HEADS[kind] // 2
    weights = {name: np.asarray(weight)[:half] for name, weight in model.weights().items()}
    return model.with_weights(
        {name: np.concatenate([part, -part if name == "value" else part]) for name, part in weights.items()}
    )


class Run(NamedTuple):
    """A run: its losses, and how far its weights moved, over their initial size."""

    times: Float[np.ndarray, " time"]
    loss: Float[np.ndarray, " time"]
    moved: float


def run(model: MergedAttention | SeparateAttention, task: InContextRegression, until: float, *, rtol: float) -> Run:
    """Gradient flow on infinitely many sequences."""
    times = spread_times(until)
    trajectory = flow_at(model, Population(task), times, rtol=rtol)
    weights = [trajectory[name].values[0].reshape(times.size, -1) for name in model.weights()]
    states = np.concatenate(weights, axis=1)
    moved = np.linalg.norm(states[-1] - states[0]) / np.linalg.norm(states[0])
    return Run(times, trajectory["loss"].values[0], float(moved))


def sweep(
    kind: str, settings: Settings, *, pairs: bool = False, theory_task: InContextRegression | None = None
) -> xr.Dataset:
    """`wait` and `moved` of every seed and scale, `loss` of the first seed, and of pairs what the kernel predicts.

    Between rich and large, only the first seed is run. Predictions are for `theory_task`.
    """
    scales, task = settings.scales(kind, pairs=pairs), settings.task
    high, low = first_fall(kind, task)
    a_tenth = high - 0.1 * (high - low)
    theory_task = task if theory_task is None else theory_task
    end = theory.levels(theory_task)[-1]
    names = ("wait", "moved", "change", "difference", "half", "lazy_wait", "rate", "predicted_rate")
    table = {name: np.full((len(settings.seeds), len(scales)), np.nan) for name in names}
    curves: dict[str, list[np.ndarray]] = {"time": [], "loss": [], "linearized": []}
    for row, seed in enumerate(settings.seeds):
        for column, scale in enumerate(scales):
            if row > 0 and scale in BETWEEN:
                continue
            model, large = initial_model(kind, scale, seed, pairs=pairs), scale in LARGE[kind]
            expected = linearized(theory_task, _weights(model))
            lazy = pairs and large
            whole = row == 0 or large
            until = SETTLED / expected.rates.min() if lazy else _patience(kind, task, min(scale, 1.0), whole=whole)
            made = run(model, task, until, rtol=LAZY_RTOL if large else 1e-7)
            predicted = end + expected.excess(made.times)
            measures = {"wait": passage_time(made.times, made.loss, a_tenth), "moved": made.moved}
            if lazy:
                measures |= {
                    "change": expected.change,
                    "difference": np.abs(made.loss - predicted).max(),
                    "half": passage_time(made.times, made.loss, _down(task, 0.5)),
                    "lazy_wait": passage_time(made.times, predicted, a_tenth),
                    "rate": _rate(task, made.times, made.loss),
                    "predicted_rate": _rate(task, made.times, predicted),
                }
            for name, value in measures.items():
                table[name][row, column] = value
            if row == 0:
                for name, values in zip(curves, (made.times, made.loss, predicted), strict=True):
                    curves[name].append(values)
    runs = xr.Dataset(
        {
            **{name: (("seed", "scale"), values) for name, values in table.items()},
            **{name: (("scale", "point"), np.array(values)) for name, values in curves.items()},
        },
        {"seed": list(settings.seeds), "scale": list(scales)},
    )
    for name in ("wait", "half", "time", "lazy_wait"):
        runs[name].attrs["units"] = TIME_UNIT
    return runs


def first_fall(kind: str, task: InContextRegression) -> tuple[float, float]:
    """From the first level to the next, which for merged attention is the last."""
    levels = theory.levels(task)
    return float(levels[0]), float(levels[-1 if kind == "merged" else 1])


def _patience(kind: str, task: InContextRegression, scale: float, *, whole: bool) -> float:
    """Several waits of the paper's laws; for the `whole` run to its end, as many as the last component needs."""
    logarithm = 4 + np.log(1 / scale)
    if kind == "merged":
        return (6 if whole else 1.5) * logarithm / theory.merged_escape_rate(task)
    rates = theory.escape_rates(task)
    return (3 / (rates[-1] * scale) + 4 * logarithm / rates[-1]) if whole else 2 / (rates[0] * scale)


def _weights(model: MergedAttention | SeparateAttention) -> list[np.ndarray]:
    """(v, U) or (v, k, q)."""
    dim = len(SPECTRUM)
    values = np.asarray(model.value[:, 0, dim])
    if isinstance(model, MergedAttention):
        return [values, np.asarray(model.key_query[:, :dim])]
    return [values, np.asarray(model.key[:, 0, :dim]), np.asarray(model.query[:, 0])]


def _down(task: InContextRegression, part: float) -> float:
    """The loss with this part of the whole fall made."""
    levels = theory.levels(task)
    return float(levels[0] - part * (levels[0] - levels[-1]))


def _rate(task: InContextRegression, times: np.ndarray, loss: np.ndarray) -> float:
    """Of the decay of the excess from a half to a hundredth, as one exponential."""
    half, end = (passage_time(times, loss, _down(task, part)) for part in (0.5, 0.99))
    return float(np.log(50) / (end - half))


def among(runs: xr.Dataset, scales: tuple[float, ...]) -> xr.Dataset:
    """Of these scales, those that were run."""
    return runs.sel(scale=[scale for scale in runs["scale"].values if scale in scales])


def _slopes(logs: Float[np.ndarray, " scale"], rows: Float[np.ndarray, "seed scale"]) -> Float[np.ndarray, " seed"]:
    """Of each row; nan if a run did not get there."""
    return np.array([slope(logs, row) if np.isfinite(row).all() else np.nan for row in rows])


def claims(data: Data, settings: Settings) -> list[Claim]:
    task = settings.task
    all_claims = [_merged_claim(data["merged"], task), _separate_claim(data["separate"], task)]
    for kind in KINDS:
        all_claims += _lazy_claims(kind, among(data[f"{kind}_pairs"], LARGE[kind]))
        all_claims += _movement_claims(kind, data, task)
    return all_claims


def _merged_claim(runs: xr.Dataset, task: InContextRegression) -> Claim:
    rich = among(runs, RICH["merged"])
    logs = np.log(1 / rich["scale"].values)
    dim = len(SPECTRUM)
    size = rich["scale"].values[-1] * (HEADS["merged"] * (dim**2 + 1)) ** 0.5
    grown = float(np.linalg.norm(theory.modes(task).ends)) ** 0.5
    return Claim.over(
        "rich-merged",
        "Rich, merged, independent heads: the wait grows as ln(1/w)/‖Λ²‖: slope times ‖Λ²‖",
        predicted=1.0,
        measured=_slopes(logs, rich["wait"].values) * theory.merged_escape_rate(task),
        tolerance=size / grown / (logs[0] - logs[-1]) + 1e-4,
        basis="initial over grown weights, at the largest scale fitted; solver",
        kind="paper",
        source="Section 3.3, time of escape",
    )


def _separate_claim(runs: xr.Dataset, task: InContextRegression) -> Claim:
    rich = among(runs, RICH["separate"])
    logs = np.log(rich["scale"].values)
    size = rich["scale"].values[-1] * (2 * len(SPECTRUM) + 1) ** 0.5
    return Claim.over(
        "rich-separate",
        "Rich, separate, independent heads: the wait goes as a power of the initial weights: exponent",
        predicted=-1.0,
        measured=_slopes(logs, np.log(rich["wait"].values)),
        tolerance=size / theory.aligned_end(task, 0),
        basis="initial over grown weights of a head, at the largest scale fitted",
        kind="paper",
        source="Equation 21, where v is small",
    )


def _lazy_claims(kind: str, lazy: xr.Dataset) -> list[Claim]:
    """Of heads in pairs with large weights."""
    scales = lazy["scale"].values
    logs, many = np.log(scales), len(scales)
    solver = LAZY_RTOL * HEADS[kind] * len(SPECTRUM) * scales ** FACTORS[kind]
    allowed = (lazy["change"].values + solver).ravel()
    kernel: Origin = {"kind": "theory", "source": "papers/linear/fig06_init_scale.py"}
    words = "change of the tangent kernel along the linearized path"
    return [
        Claim.over(
            f"lazy-{kind}-power",
            f"Lazy, {kind}, in pairs: the time of half the fall goes as a power of the initial weights: exponent",
            predicted=POWER[kind],
            measured=_slopes(logs, np.log(lazy["half"].values)),
            tolerance=lazy["change"].isel(scale=0).values / (logs[-1] - logs[0]),
            basis=f"{words}, at the smallest scale fitted",
            **kernel,
        ),
        Claim.over(
            f"lazy-{kind}-rate",
            f"Lazy, {kind}, in pairs: rate of decay over that of training linearized at initialization, one ratio for "
            f"each of {many} scales and each seed",
            predicted=1.0,
            measured=(lazy["rate"] / lazy["predicted_rate"]).values.ravel(),
            tolerance=allowed,
            basis=f"{words}; digits lost by the solver",
            counted="runs",
            **kernel,
        ),
        Claim.over(
            f"lazy-{kind}-curve",
            f"Lazy, {kind}, in pairs: the whole loss curve is that of linearized training: largest difference, one for "
            f"each of {many} scales and each seed",
            predicted=0.0,
            measured=lazy["difference"].values.ravel(),
            tolerance=allowed,
            basis=f"{words}; digits lost by the solver",
            relation="<=",
            counted="runs",
            **kernel,
        ),
    ]


def _movement_claims(kind: str, data: Data, task: InContextRegression) -> list[Claim]:
    r"""What part of themselves weights move by, against w: the power -n in pairs, and none if heads are independent.

    The next order is the map to be learned over the initial one: of order $|A^*|/(\sqrt H w^n)$ for independent
    heads.
    """
    independent, pairs = (among(data[name], LARGE[kind]) for name in (kind, f"{kind}_pairs"))
    logs = np.log(pairs["scale"].values)
    range_of_logs = logs[-1] - logs[0]
    goal = float(np.linalg.norm(theory.modes(task).ends))
    map_size = HEADS[kind] ** 0.5 * len(SPECTRUM) * np.exp(FACTORS[kind] * logs[0])
    movement: Origin = {"kind": "theory", "source": "docstring of papers/linear/fig06_init_scale.py"}
    return [
        Claim.over(
            f"moved-{kind}-pairs",
            f"{kind.capitalize()}, in pairs: weights move by a part of themselves that goes as a power of their "
            "initial scale: exponent",
            predicted=-FACTORS[kind],
            measured=_slopes(logs, np.log(pairs["moved"].values)),
            tolerance=pairs["change"].isel(scale=0).values / range_of_logs,
            basis="change of the tangent kernel, at the smallest scale fitted",
            **movement,
        ),
        Claim.over(
            f"moved-{kind}-independent",
            f"{kind.capitalize()}, independent heads: weights move by the same part of themselves at any large scale: "
            "exponent",
            predicted=0.0,
            measured=_slopes(logs, np.log(independent["moved"].values)),
            tolerance=goal / map_size / range_of_logs,
            basis="map to be learned over the initial one, at the smallest scale fitted",
            **movement,
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    return draw_sweeps(data, LARGE, theory.levels(settings.task), theory.merged_escape_rate(settings.task))


class Lazy(NamedTuple):
    r"""The excess of the loss is $\sum_j p_j e^{-2\kappa_j t/\tau}$, $p_j$ in `parts` and $\kappa_j$ in `rates`.

    `change` is the largest relative change of K in any direction, if the weights went where the linearized path ends.
    """

    parts: Float[np.ndarray, " mode"]
    rates: Float[np.ndarray, " mode"]
    change: float

    def excess(self, times: Float[np.ndarray, " time"]) -> Float[np.ndarray, " time"]:
        return np.exp(-2 * np.outer(times, self.rates)) @ self.parts


def merged_jacobian(weights: list[np.ndarray]) -> Float[np.ndarray, "map weights"]:
    r"""$dA = \sum_h dv_h U_h + v_h dU_h$, from $v_h$ and $U_h$."""
    v, u = weights
    dim = u.shape[1] ** 2
    by_u = v[:, None, None] * np.eye(dim)
    return np.concatenate([u.reshape(len(v), dim).T, np.concatenate(list(by_u), axis=1)], axis=1)


def separate_jacobian(weights: list[np.ndarray]) -> Float[np.ndarray, "map weights"]:
    r"""$dA = \sum_h dv_h k_h q_h^\top + v_h\, dk_h q_h^\top + v_h k_h dq_h^\top$, rank one."""
    v, k, q = weights
    dim = k.shape[1]
    by_v = np.einsum("ha,hb->abh", k, q).reshape(dim**2, -1)
    by_k = np.einsum("h,ac,hb->abhc", v, np.eye(dim), q).reshape(dim**2, -1)
    by_q = np.einsum("h,ha,bc->abhc", v, k, np.eye(dim)).reshape(dim**2, -1)
    return np.concatenate([by_v, by_k, by_q], axis=1)


def linearized(task: InContextRegression, weights: list[np.ndarray]) -> Lazy:
    """From weights (v, U) or (v, k, q) whose map is zero."""
    jacobian = merged_jacobian if len(weights) == 2 else separate_jacobian
    j = jacobian(weights)
    kernel = j @ j.T
    # L - L_min = vec(δ)ᵀ Q vec(δ) with δ = A - A*, Q = C ⊗ Λ in the order of rows and columns.
    lam, vectors = np.linalg.eigh(np.kron(theory.second_moment(task), task.covariance))
    root = (vectors * np.sqrt(lam)) @ vectors.T
    rates, modes = np.linalg.eigh(root @ kernel @ root)
    goal = theory.minimizer(task).ravel()
    parts = (modes.T @ root @ goal) ** 2
    moved = _shifted(weights, j.T @ np.linalg.solve(kernel, goal))
    j = jacobian(moved)
    half = np.linalg.inv(np.linalg.cholesky(kernel))
    change = np.abs(np.linalg.eigvalsh(half @ (j @ j.T) @ half.T) - 1).max()
    return Lazy(parts, rates, float(change))


def _shifted(weights: list[np.ndarray], by: Float[np.ndarray, " weights"]) -> list[np.ndarray]:
    parts = np.split(by, np.cumsum([weight.size for weight in weights])[:-1])
    return [weight + part.reshape(weight.shape) for weight, part in zip(weights, parts, strict=True)]


COLORS = {"merged": BLUE, "separate": VERMILION}
SHADES = matplotlib.colormaps["plasma"].resampled(256)
NORM = LogNorm(1e-6, 60.0)
"""The lightest shades are left out: they are hard to see on white."""
HIGHEST = {"independent": 1.6, "pairs": 1.08}
"""Losses above are not shown."""


def draw_sweeps(
    data: Data, large: dict[str, tuple[float, ...]], levels: np.ndarray, rate: float
) -> matplotlib.figure.Figure:
    """`levels` are the task's, `rate` the merged escape rate."""
    with styled():
        figure = new_figure(13.2, 7.6)
        (merged, separate, waits), (merged_pairs, separate_pairs, moved) = figure.subplots(2, 3)
        panels = (
            (merged, "merged", levels[[0, -1]], "(a) Merged, independent heads"),
            (separate, "separate", levels, "(b) Separate, independent heads"),
            (merged_pairs, "merged_pairs", levels[[0, -1]], "(d) Merged, heads in pairs of opposite value"),
            (separate_pairs, "separate_pairs", levels, "(e) Separate, heads in pairs of opposite value"),
        )
        for axes, name, shown, title in panels:
            _curves(axes, data[name], shown, large[name.removesuffix("_pairs")] if "pairs" in name else ())
            axes.set_title(title)
        bar = figure.colorbar(
            ScalarMappable(NORM, SHADES),
            ax=[merged, separate, merged_pairs, separate_pairs],
            location="bottom",
            shrink=0.6,
            aspect=45,
            label="standard deviation w of the initial weights",
        )
        bar.set_ticks([10.0**power for power in range(-6, 2)])
        bar.minorticks_off()
        bar.ax.set_xlim(1e-6, 12.0)
        for kind in COLORS:
            _waits(waits, kind, data[kind], data[f"{kind}_pairs"], large[kind][-1], rate)
            _movements(moved, kind, data[kind], data[f"{kind}_pairs"])
        waits.set(xscale="log", yscale="log", xlabel="w", ylabel="time to a tenth of the first fall, $t/\\tau$")
        waits.set_title("(c) Length of the first plateau")
        waits.legend(loc="lower left", fontsize=8)
        moved.set(xscale="log", yscale="log", xlabel="w", ylabel="distance moved / initial size of weights")
        moved.set_title("(f) How far weights move")
        moved.legend(loc="lower left", fontsize=8)
    return figure


def _curves(axes: Axes, runs: xr.Dataset, levels: np.ndarray, linear: tuple[float, ...]) -> None:
    """`linear` are the scales for which the linearized course is drawn."""
    for level in levels:
        axes.axhline(level, color="#B0B0B0", linestyle="--", linewidth=0.8, zorder=0)
    for scale in runs["scale"].values:
        one = runs.sel(scale=scale)
        axes.plot(one["time"].values[1:], one["loss"].values[1:], color=SHADES(NORM(scale)), linewidth=1.7)
        if scale in linear:
            label = "linearized at initialization" if scale == linear[0] else None
            axes.plot(one["time"][1:], one["linearized"][1:], "--", color=BLACK, linewidth=0.9, label=label)
    if linear:
        axes.legend(loc="lower left", fontsize=8)
    axes.set_xscale("log")
    axes.set_ylim(0, HIGHEST["pairs" if linear else "independent"])
    axes.set_xlabel("training time $t/\\tau$")
    axes.set_ylabel("loss (mean squared error)")


def _waits(axes: Axes, kind: str, runs: xr.Dataset, pairs: xr.Dataset, largest: float, rate: float) -> None:
    color = COLORS[kind]
    from_one = np.abs(runs["loss"].isel(point=0).values - 1) < 0.02
    shown = runs.sel(scale=runs["scale"][from_one])
    for seed in range(runs.sizes["seed"]):
        labels = (f"{kind}, independent", f"{kind}, in pairs") if seed == 0 else (None, None)
        axes.plot(shown["scale"], shown["wait"].isel(seed=seed), "o", color=color, markersize=4, label=labels[0])
        style: dict[str, Any] = {"color": color, "markersize": 6, "markerfacecolor": "none", "label": labels[1]}
        axes.plot(pairs["scale"], pairs["wait"].isel(seed=seed), "s", **style)
    # Through the smallest scale, with the slope that theory gives.
    low, small = float(runs["wait"][0, 0]), float(runs["scale"][0])
    reach = np.geomspace(small, 0.3, 60)
    if kind == "merged":
        law, words = low - np.log(reach / small) / rate, "$-\\ln(w)/\\|\\Lambda^2\\|$ + constant"
    else:
        law, words = low * small / reach, "$\\propto 1/w$"
    axes.plot(reach[law > 0.3], law[law > 0.3], "--", color=color, linewidth=1.3, label=words)
    linear, power = float(pairs["lazy_wait"].sel(scale=largest)[0]), -2 if kind == "merged" else -4
    reach = np.geomspace(0.3, largest, 30)
    words = "tangent kernel, $\\propto w^{" + str(power) + "}$"
    axes.plot(reach, linear * (reach / largest) ** power, ":", color=color, linewidth=1.6, label=words)


def _movements(axes: Axes, kind: str, runs: xr.Dataset, pairs: xr.Dataset) -> None:
    color = COLORS[kind]
    shown = runs.sel(scale=runs["scale"] >= 0.3)
    for seed in range(runs.sizes["seed"]):
        labels = (f"{kind}, independent", f"{kind}, in pairs") if seed == 0 else (None, None)
        axes.plot(shown["scale"], shown["moved"].isel(seed=seed), "o", color=color, markersize=4, label=labels[0])
        style: dict[str, Any] = {"color": color, "markersize": 6, "markerfacecolor": "none", "label": labels[1]}
        axes.plot(pairs["scale"], pairs["moved"].isel(seed=seed), "s", **style)
    last, reach = float(pairs["moved"][0, -1]), np.geomspace(0.5, float(pairs["scale"][-1]), 20)
    words = "$\\propto w^{-" + str(FACTORS[kind]) + "}$"
    axes.plot(reach, last * (reach / reach[-1]) ** -FACTORS[kind], ":", color=color, linewidth=1.6, label=words)


FIGURE = Figure(
    title="Small initial weights wait and drop, large ones decay at once, if their map starts at zero",
    caption=CAPTION,
    source="Fig 6",
    settings=Settings(),
    quick=Settings(seeds=(100,), every_scale=False),
    described=describe,
    paper_settings={"heads H": "independent", "initial weights": "several scales"},
    simulate=simulate,
    claims=claims,
    draw=draw,
)
