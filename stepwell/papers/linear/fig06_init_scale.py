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

from ._drawing import lines
from ._runs import described, flow_at, labeled, slope, spread_times, weights_of

SPECTRUM = (0.4, 0.3, 0.2, 0.1)
KINDS = ("merged", "separate")
HEADS = {"merged": 8, "separate": 12}
RICH = {"merged": (1e-6, 1e-5, 1e-4, 1e-3), "separate": (1e-4, 3e-4, 1e-3, 3e-3)}
BETWEEN = (0.01, 0.1, 0.3, 1.0)
LARGE = {"merged": (3.0, 6.0, 12.0), "separate": (3.0, 4.0, 6.0)}
FACTORS = {"merged": MergedAttention.factors, "separate": SeparateAttention.factors}
POWER = {"merged": -2, "separate": -4}
"""The kernel is of second order in merged weights, of fourth in separate ones; lazy times go as one over it."""
LAZY_RTOL = 1e-8  # of the solver, for large weights, which make a small map by cancellation
SETTLED = 8.0  # Lazy runs last so many of the slowest times of linearized training: e⁻¹⁶ of the loss is left.


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    context: int = 31
    seeds: tuple[int, ...] = (100, 101, 102)
    every_scale: bool = True  # or only the first and last of the rich and of the large ones, and 0.3

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


def run(
    model: MergedAttention | SeparateAttention, task: InContextRegression, until: float, *, rtol: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Gradient flow on infinitely many sequences: times, losses, and how far weights move, over their initial size."""
    times = spread_times(until)
    trajectory = flow_at(model, Population(task), times, rtol=rtol)
    first, last = (np.concatenate([trajectory[w].values[0, i].ravel() for w in model.weights()]) for i in (0, -1))
    return times, trajectory["loss"].values[0], float(np.linalg.norm(last - first) / np.linalg.norm(first))


def sweep(
    kind: str, settings: Settings, *, pairs: bool = False, theory_task: InContextRegression | None = None
) -> xr.Dataset:
    """`wait` and `moved` of every seed and scale, `loss` of the first seed, and of pairs what the kernel predicts for
    `theory_task`. Between rich and large, only the first seed is run."""
    scales, task = settings.scales(kind, pairs=pairs), settings.task
    theory_task = task if theory_task is None else theory_task
    # The first fall is to the next level, which for merged attention is the last.
    a_tenth, half = _down(task, 0.1, -1 if kind == "merged" else 1), _down(task, 0.5)
    end = theory.levels(theory_task)[-1]
    names = ("wait", "moved", "change", "difference", "half", "lazy_wait", "rate", "predicted_rate")
    table = np.full((len(names), len(settings.seeds), len(scales)), np.nan)
    curves = []
    for row, seed in enumerate(settings.seeds):
        for column, scale in enumerate(scales):
            if row > 0 and scale in BETWEEN:
                continue
            model, large = initial_model(kind, scale, seed, pairs=pairs), scale in LARGE[kind]
            expected = linearized(theory_task, weights_of(model))
            lazy, whole = pairs and large, row == 0 or large
            until = SETTLED / expected.rates.min() if lazy else _patience(kind, task, min(scale, 1.0), whole=whole)
            times, loss, moved = run(model, task, until, rtol=LAZY_RTOL if large else 1e-7)
            predicted = end + expected.excess(times)
            table[:2, row, column] = passage_time(times, loss, a_tenth), moved
            if lazy:
                table[2:4, row, column] = expected.change, np.abs(loss - predicted).max()
                table[4:6, row, column] = passage_time(times, loss, half), passage_time(times, predicted, a_tenth)
                table[6:, row, column] = [_rate(task, times, each) for each in (loss, predicted)]
            if row == 0:
                curves.append((times, loss, predicted))
    columns = {name: (("seed", "scale"), each) for name, each in zip(names, table, strict=True)}
    courses = zip(("time", "loss", "linearized"), np.swapaxes(curves, 0, 1), strict=True)
    columns |= {name: (("scale", "point"), each) for name, each in courses}
    runs = xr.Dataset(columns, {"seed": list(settings.seeds), "scale": list(scales)})
    for name in ("wait", "half", "time", "lazy_wait"):
        runs[name].attrs["units"] = TIME_UNIT
    return runs


def _patience(kind: str, task: InContextRegression, scale: float, *, whole: bool) -> float:
    """Several waits of the paper's laws; for the `whole` run to its end, as many as the last component needs."""
    logarithm = 4 + np.log(1 / scale)
    if kind == "merged":
        return (6 if whole else 1.5) * logarithm / theory.merged_escape_rate(task)
    rates = theory.escape_rates(task)
    return (3 / (rates[-1] * scale) + 4 * logarithm / rates[-1]) if whole else 2 / (rates[0] * scale)


def _down(task: InContextRegression, part: float, to: int = -1) -> float:
    """The loss with this part of the fall to a level made."""
    levels = theory.levels(task)
    return float(levels[0] - part * (levels[0] - levels[to]))


def _rate(task: InContextRegression, times: np.ndarray, loss: np.ndarray) -> float:
    """Of the decay of the excess from a half to a hundredth, as one exponential."""
    half, end = (passage_time(times, loss, _down(task, part)) for part in (0.5, 0.99))
    return float(np.log(50) / (end - half))


def among(runs: xr.Dataset, scales: tuple[float, ...]) -> xr.Dataset:
    """Of these scales, those that were run."""
    return runs.sel(scale=[scale for scale in runs["scale"].values if scale in scales])


def _slopes(logs: Float[np.ndarray, " scale"], rows: Float[np.ndarray, "seed scale"], runs: xr.Dataset) -> xr.DataArray:
    return labeled([slope(logs, row) for row in rows], seed=runs["seed"].values)


def claims(data: Data, settings: Settings) -> list[Claim]:
    merged, separate = (among(data[kind], RICH[kind]) for kind in KINDS)
    all_claims = _rich_claims(merged, separate, settings.task)
    for kind in KINDS:
        all_claims += _lazy_claims(kind, among(data[f"{kind}_pairs"], LARGE[kind]))
        all_claims += _movement_claims(kind, data, settings.task)
    return all_claims


def _rich_claims(merged: xr.Dataset, separate: xr.Dataset, task: InContextRegression) -> list[Claim]:
    dim, logs = len(SPECTRUM), np.log(1 / merged["scale"].values)
    sizes = merged["scale"].values[-1] * (HEADS["merged"] * (dim**2 + 1)) ** 0.5, (2 * dim + 1) ** 0.5
    grown = float(np.linalg.norm(theory.modes(task).ends)) ** 0.5
    return [
        Origin("paper", "Section 3.3, time of escape").close(
            "rich-merged",
            "Rich, merged, independent heads: the wait grows as ln(1/w)/‖Λ²‖: slope times ‖Λ²‖",
            predicted=1.0,
            measured=_slopes(logs, merged["wait"].values, merged) * theory.merged_escape_rate(task),
            tolerance=sizes[0] / grown / (logs[0] - logs[-1]) + 1e-4,
            basis="initial over grown weights, at the largest scale fitted; solver",
        ),
        Origin("paper", "Equation 21, where v is small").close(
            "rich-separate",
            "Rich, separate, independent heads: the wait goes as a power of the initial weights: exponent",
            predicted=-1.0,
            measured=_slopes(np.log(separate["scale"].values), np.log(separate["wait"].values), separate),
            tolerance=separate["scale"].values[-1] * sizes[1] / theory.aligned_end(task, 0),
            basis="initial over grown weights of a head, at the largest scale fitted",
        ),
    ]


def _lazy_claims(kind: str, lazy: xr.Dataset) -> list[Claim]:
    scales = lazy["scale"].values
    logs, many = np.log(scales), len(scales)
    solver = LAZY_RTOL * HEADS[kind] * len(SPECTRUM) * scales ** FACTORS[kind]
    kernel = Origin("theory", "papers/linear/fig06_init_scale.py")
    words = "change of the tangent kernel along the linearized path"
    how: Any = {"basis": f"{words}; digits lost by the solver", "counted": "runs"}
    how["tolerance"] = (lazy["change"].values + solver).ravel()
    return [
        kernel.close(
            f"lazy-{kind}-power",
            f"Lazy, {kind}, in pairs: the time of half the fall goes as a power of the initial weights: exponent",
            predicted=POWER[kind],
            measured=_slopes(logs, np.log(lazy["half"].values), lazy),
            tolerance=lazy["change"].isel(scale=0).values / (logs[-1] - logs[0]),
            basis=f"{words}, at the smallest scale fitted",
        ),
        kernel.close(
            f"lazy-{kind}-rate",
            f"Lazy, {kind}, in pairs: rate of decay over that of training linearized at initialization, one ratio for "
            f"each of {many} scales and each seed",
            predicted=1.0,
            measured=lazy["rate"] / lazy["predicted_rate"],
            **how,
        ),
        kernel.at_most(
            f"lazy-{kind}-curve",
            f"Lazy, {kind}, in pairs: the whole loss curve is that of linearized training: largest difference, one for "
            f"each of {many} scales and each seed",
            measured=lazy["difference"],
            **how,
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
    movement = Origin("theory", "docstring of papers/linear/fig06_init_scale.py")
    return [
        movement.close(
            f"moved-{kind}-pairs",
            f"{kind.capitalize()}, in pairs: weights move by a part of themselves that goes as a power of their "
            "initial scale: exponent",
            predicted=-FACTORS[kind],
            measured=_slopes(logs, np.log(pairs["moved"].values), pairs),
            tolerance=pairs["change"].isel(scale=0).values / range_of_logs,
            basis="change of the tangent kernel, at the smallest scale fitted",
        ),
        movement.close(
            f"moved-{kind}-independent",
            f"{kind.capitalize()}, independent heads: weights move by the same part of themselves at any large scale: "
            "exponent",
            measured=_slopes(logs, np.log(independent["moved"].values), independent),
            tolerance=goal / map_size / range_of_logs,
            basis="map to be learned over the initial one, at the smallest scale fitted",
        ),
    ]


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
    v, k, q = weights[0], weights[1][:, 0], weights[2][:, 0]
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
    lam, vectors = np.linalg.eigh(np.kron(theory.moments(task).second, task.covariance))
    root = (vectors * np.sqrt(lam)) @ vectors.T
    rates, modes = np.linalg.eigh(root @ kernel @ root)
    goal = theory.minimizer(task).ravel()
    parts = (modes.T @ root @ goal) ** 2
    parts_moved = np.split(j.T @ np.linalg.solve(kernel, goal), np.cumsum([weight.size for weight in weights])[:-1])
    j = jacobian([weight + by.reshape(weight.shape) for weight, by in zip(weights, parts_moved, strict=True)])
    half = np.linalg.inv(np.linalg.cholesky(kernel))
    change = np.abs(np.linalg.eigvalsh(half @ (j @ j.T) @ half.T) - 1).max()
    return Lazy(parts, rates, float(change))


COLORS = {"merged": BLUE, "separate": VERMILION}
SHADES = matplotlib.colormaps["plasma"].resampled(256)
NORM = LogNorm(1e-6, 60.0)  # The lightest shades are left out: they are hard to see on white.
HIGHEST = {"independent": 1.6, "pairs": 1.08}  # losses above are not shown


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    levels, rate = theory.levels(settings.task), theory.merged_escape_rate(settings.task)
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
            _curves(axes, data[name], shown, LARGE[name.removesuffix("_pairs")] if "pairs" in name else ())
            axes.set_title(title)
        place: Any = {"ax": [panel[0] for panel in panels], "location": "bottom", "shrink": 0.6, "aspect": 45}
        place["label"] = "standard deviation w of the initial weights"
        bar = figure.colorbar(ScalarMappable(NORM, SHADES), **place)
        bar.set_ticks([10.0**power for power in range(-6, 2)])
        bar.minorticks_off()
        bar.ax.set_xlim(1e-6, 12.0)
        for kind in COLORS:
            _waits(waits, kind, data[kind], data[f"{kind}_pairs"], rate)
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
    axes.set(xscale="log", ylim=(0, HIGHEST["pairs" if linear else "independent"]), xlabel="training time $t/\\tau$")
    axes.set_ylabel("loss (mean squared error)")


def _points(axes: Axes, kind: str, shown: xr.DataArray, pairs: xr.DataArray) -> None:
    style: Any = {"color": COLORS[kind], "linestyle": "none"}
    lines(axes, shown["scale"], shown.values, marker="o", markersize=4, label=f"{kind}, independent", **style)
    style |= {"markersize": 6, "markerfacecolor": "none"}
    lines(axes, pairs["scale"], pairs.values, marker="s", label=f"{kind}, in pairs", **style)


def _waits(axes: Axes, kind: str, runs: xr.Dataset, pairs: xr.Dataset, rate: float) -> None:
    color, largest = COLORS[kind], LARGE[kind][-1]
    from_one = np.abs(runs["loss"].isel(point=0).values - 1) < 0.02
    _points(axes, kind, runs["wait"].sel(scale=runs["scale"][from_one]), pairs["wait"])
    # Through the smallest scale, with the slope that theory gives.
    low, small = float(runs["wait"][0, 0]), float(runs["scale"][0])
    reach = np.geomspace(small, 0.3, 60)
    if kind == "merged":
        law, words = low - np.log(reach / small) / rate, "$-\\ln(w)/\\|\\Lambda^2\\|$ + constant"
    else:
        law, words = low * small / reach, "$\\propto 1/w$"
    axes.plot(reach[law > 0.3], law[law > 0.3], "--", color=color, linewidth=1.3, label=words)
    linear, power = float(pairs["lazy_wait"].sel(scale=largest)[0]), POWER[kind]
    reach = np.geomspace(0.3, largest, 30)
    words = "tangent kernel, $\\propto w^{" + str(power) + "}$"
    axes.plot(reach, linear * (reach / largest) ** power, ":", color=color, linewidth=1.6, label=words)


def _movements(axes: Axes, kind: str, runs: xr.Dataset, pairs: xr.Dataset) -> None:
    _points(axes, kind, runs["moved"].sel(scale=runs["scale"] >= 0.3), pairs["moved"])
    last, reach = float(pairs["moved"][0, -1]), np.geomspace(0.5, float(pairs["scale"][-1]), 20)
    words = "$\\propto w^{-" + str(FACTORS[kind]) + "}$"
    axes.plot(reach, last * (reach / reach[-1]) ** -FACTORS[kind], ":", color=COLORS[kind], linewidth=1.6, label=words)


FIGURE = Figure(
    title="Small initial weights wait and drop, large ones decay at once, if their map starts at zero",
    caption=(
        "Gradient flow on infinitely many sequences from initial weights of standard deviation w (color), in the "
        "paper's convention. (a, b) Independent heads, as in the paper: merged attention waits, then drops once; "
        "separate attention waits at every level. Larger weights wait less; the largest start with a large loss. (c) "
        "The time until a tenth of the first fall. Small weights: ln(1/w)/‖Λ²‖ merged, 1/w separate (dashed: slope "
        "predicted, height fitted). Large ones, in pairs: training linearized at initialization, w⁻² and w⁻⁴ (dotted, "
        "no free height). (d, e) Ours: heads in pairs of opposite value, so that every run starts with the loss 1. "
        "Black, dashed: training linearized at initialization, for w of 3 and more. (f) Ours: how far weights move "
        "from beginning to end, over their initial size. In pairs of large weights the part is w⁻² (merged) and w⁻³ "
        "(separate): lazy. Independent heads move by as much at any w: never lazy."
    ),
    source="Fig 6",
    settings=Settings(),
    quick=Settings(seeds=(100,), every_scale=False),
    described=describe,
    paper_settings={"heads H": "independent", "initial weights": "several scales"},
    simulate=simulate,
    claims=claims,
    draw=draw,
)
