r"""What gradient flow conserves, and descent to first order in its rate: balances of value, key and query in each head.

Separate: $v_i^2 - \sum_r\|k_{i,r}\|^2$ and the matrix $K_iK_i^\top - Q_iQ_i^\top$; merged: $v_i^2 - \|U_i\|_F^2$. They
follow from rescalings that leave the loss as it is, so they hold for any data: here those of a finite set of sequences,
with label blocks that are random initially and counted in.

A step of descent, $W \to W - \eta g$, changes $v^2 - \|k\|^2$ by $\eta^2(g_v^2 - \|g_k\|^2)$ exactly, what is of first
order cancels. With $g = -2\dot W$ and a step of time $2\eta$ the drift is $2\eta\int(\dot v^2 - \|\dot k\|^2)\,dt$.

What the solver's error does: let w and w' be the weights of a head by the solver and by the exact flow. Each conserved
quantity is a difference of squares, or of products, so that it differs between them by at most $|w + w'|\,|w - w'|$.
If the exact flow conserves it, that is the most that it drifts.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import matplotlib.figure
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Float

from stepwell.analysis import conserved, conserved_drift
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, VERMILION, new_figure, styled, superscript
from stepwell.dynamics import Ensemble, Record, descend, flow
from stepwell.figures import Claim, Data, Figure, Origin, Seeds, slug
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Moments
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._drawing import lines, only_ticks
from ._runs import along, described, labeled, slope

FINER = 100.0  # by so much is the tolerance of the flow that stands for the exact one below the finest other
SHOWN = 10  # of the save times, every so many are kept and drawn
SNAPSHOTS = 2401  # of a descent: of 161, none fell on a peak of the drift within a drop of the loss at the largest rate
STYLES: dict[str, dict[str, Any]] = {
    "separate, rank 1": {"color": BLUE, "marker": "o", "markersize": 10, "fillstyle": "none"},
    "separate, rank 3": {"color": VERMILION, "marker": "s", "markersize": 5},
    "merged": {"color": GREEN, "marker": "v", "markersize": 6},
}
KINDS = tuple(STYLES)


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    eigenvalues: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    context: int = 31
    heads: int = 3
    init: float = 0.1
    seeds: tuple[int, ...] = (86, 87)  # of the initial weights
    until: float = 300.0  # Flow time: several drops of the loss.
    sequences: int = 2000
    tolerances: tuple[float, ...] = (1e-4, 1e-6, 1e-8, 1e-10)
    rates: tuple[float, ...] = (0.1, 0.05, 0.025, 0.0125)
    points: int = 2001

    @cached_property
    def task(self) -> InContextRegression:
        return InContextRegression(covariance(self.eigenvalues, key=jax.random.key(0)), self.context)


def simulate(settings: Settings) -> Data:
    objective = Moments.of_task(settings.task, settings.sequences, progress=False, key=jax.random.key(1))
    flows, descents = [], []
    for kind in KINDS:
        models = [initial_model(kind, seed, settings) for seed in settings.seeds]
        runs = [run_flows(kind, model, objective, settings) for model in models]
        pairs = zip(models, runs, strict=True)
        descents.append(
            along((run_descent(model, objective, run, settings) for model, run in pairs), seed=settings.seeds)
        )
        flows.append(along(runs, seed=settings.seeds))
    return {"flow": along(flows, kind=KINDS), "descent": along(descents, kind=KINDS)}


def initial_model(kind: str, seed: int, settings: Settings) -> SeparateAttention | MergedAttention:
    options: dict[str, Any] = {"dim": len(settings.eigenvalues), "heads": settings.heads, "scale": settings.init}
    options |= {"label_blocks": "random", "key": jax.random.key(seed)}
    if kind == "merged":
        return MergedAttention.random(**options)
    return SeparateAttention.random(**options, rank=int(kind[-1]))


def drift(run: xr.Dataset) -> Float[np.ndarray, "run time"]:
    """The largest change since initialization of any quantity that the flow conserves."""
    return conserved_drift(run).to_array().max("variable").values


def movement(run: xr.Dataset) -> Float[np.ndarray, "run time"]:
    """The same for the quantities with plus signs in place of minus, which nothing conserves."""
    value = np.sum(run["value"].values ** 2, axis=(-2, -1))
    if "key_query" in run:
        parts = [value + np.sum(run["key_query"].values ** 2, axis=(-2, -1))]
    else:
        keys, queries = (w @ np.swapaxes(w, -1, -2) for w in (run["key"].values, run["query"].values))
        parts = [value + np.trace(keys, axis1=-2, axis2=-1), keys + queries]
    changes = [np.abs(part - part[:, :1]) for part in parts]
    return np.max([change.reshape(*value.shape[:2], -1).max(axis=-1) for change in changes], axis=0)


def run_flows(
    kind: str, model: SeparateAttention | MergedAttention, objective: Moments, settings: Settings
) -> xr.Dataset:
    """Gradient flow at each tolerance: how much the conserved quantities drift, at most by the error of the weights
    (`allowed`), and how much the weights change. The error is the distance from the flow at a finer tolerance.

    `predicted`: the drift of descent over its rate. `loss`: that of the finer flow, at all times.
    """
    times = np.linspace(0.0, settings.until, settings.points)
    runs = []
    for tolerance in (*settings.tolerances, min(settings.tolerances) / FINER):
        options: dict[str, Any] = {"rtol": tolerance, "atol": tolerance * settings.init, "progress": False}
        runs.append(
            flow(model, objective, solver="lsoda", until=settings.until, record=Record(points=times), **options)
        )
    *coarse, exact = runs
    few = slice(None, None, SHOWN)
    return xr.Dataset(
        {
            "drift": (("tolerance", "time"), [drift(run)[0, few] for run in coarse]),
            "allowed": ("tolerance", [allowed_drift(run, exact) for run in coarse]),
            "moved": ("time", movement(exact)[0, few]),
            "predicted": descent_drift(exact),
            "delay": delay(kind, settings),
            "loss": ("instant", exact["loss"].values[0]),
        },
        {
            "tolerance": list(settings.tolerances),
            "time": ("time", times[few], {"units": TIME_UNIT}),
            "instant": ("instant", times, {"units": TIME_UNIT}),
        },
    )


def allowed_drift(run: xr.Dataset, exact: xr.Dataset) -> float:
    """The largest |w + w'| |w − w'| of any head at any time."""
    one, other = (_of_heads(each) for each in (run, exact))
    return float((np.linalg.norm(one + other, axis=-1) * np.linalg.norm(one - other, axis=-1)).max())


def _of_heads(run: xr.Dataset) -> Float[np.ndarray, "time head weight"]:
    parts = [run[name].values[0] for name in ("value", "key", "query", "key_query") if name in run]
    return np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=-1)


def descent_drift(run: xr.Dataset) -> float:
    r"""The largest drift of descent along a flow, over its rate: $2\,|\int(\dot v^2 - \dots)\,dt|$, to first order."""
    times = run["time"].values
    moving = {name: run[name] for name in ("value", "key", "query", "key_query") if name in run}
    velocities = {name: (w.dims, np.gradient(w.values, times, axis=1)) for name, w in moving.items()}
    squares = conserved(run.assign(velocities)).isel(run=0)
    return max(float(np.abs(2 * squares[name].cumulative_integrate("time")).max()) for name in squares)


def delay(kind: str, settings: Settings) -> float:
    r"""How late descent is after all drops, over its step of time $2\eta$, in units of the fastest growth: the next
    order.

    Descent follows a modified flow, $\dot W = f - \eta f'f$ (backward error analysis). Of growth $\dot v = \rho v^2$
    from w to $v_\infty$ this makes a delay of $2\eta\ln(v_\infty/w)$, of exponential growth half of that, at every
    drop. In the end a head grows at the rate $\rho v_\infty$, with merged attention at $\|\Lambda^2\|$.
    """
    task = settings.task
    ends = theory.modes(task).ends
    if kind == "merged":
        rate, end, drops = theory.merged_escape_rate(task), float(np.linalg.norm(ends)) ** 0.5, 1
    else:
        end, drops = float(ends.max()) ** (1 / 3), task.dim
        rate = float(theory.escape_rates(task)[0] * theory.aligned_end(task, 0))
    return rate * drops * max(np.log(end / settings.init), 1.0)


def run_descent(
    model: SeparateAttention | MergedAttention, objective: Moments, along_flow: xr.Dataset, settings: Settings
) -> xr.Dataset:
    """Descent over the same time at each rate, all rates as one program: the largest drift, and the largest distance of
    the loss from that of the flow, over the whole fall."""
    rates = np.array(settings.rates)
    steps = np.round(settings.until / (2 * rates)).astype(int)
    options: dict[str, Any] = {"record": Record(every=1, snapshots=SNAPSHOTS), "progress": False}
    run = descend(Ensemble.of([model] * rates.size), objective, rate=rates, steps=int(steps[-1]), **options)
    within = run["snapshot"].values <= steps[:, None]
    times, losses = along_flow["instant"].values, along_flow["loss"].values
    clocks = np.multiply.outer(2 * rates, run["step"].values)
    curves = [scipy.interpolate.CubicSpline(*each)(times) for each in zip(clocks, run["loss"].values, strict=True)]
    return xr.Dataset(
        {
            "drift": ("rate", np.where(within, drift(run), 0.0).max(axis=1)),
            "apart": ("rate", abs(np.array(curves) - losses).max(axis=1) / np.ptp(losses)),
        },
        {"rate": rates},
    )


def claims(data: Data, settings: Settings) -> list[Claim]:
    flows, descent = data["flow"], data["descent"]
    largest = flows["drift"].max("time")
    ratio = descent["drift"] / (flows["predicted"] * descent["rate"])
    order = 2 * flows["delay"] * descent["rate"]
    origins = (
        Origin("paper", "Appendix E.8", explored=True),
        Origin("theory", "stepwell.theory.linear.separate_conserved", explored=True),
        Origin("theory", "stepwell.theory.linear.merged_conserved", explored=True),
    )
    step = "a step changes v² − ‖k‖² by η²(g_v² − ‖g_k‖²)"
    return [
        *(
            origin.at_most(
                f"drift-{slug(kind)}",
                f"{kind}: what is conserved drifts along the flow by no more than the error of the solver's weights "
                "makes it: largest drift, over the largest |w + w′||w − w′|, w and w′ the weights of a head at a "
                f"tolerance and at one {FINER:g} times below the finest",
                predicted=1.0,
                measured=(largest / flows["allowed"]).sel(kind=kind, drop=True).transpose("seed", "tolerance"),
                tolerance=np.tile(min(settings.tolerances) / FINER / flows["tolerance"].values, len(settings.seeds)),
                basis="a difference of squares changes by no more; error of the finer flow",
                counted="runs",
            )
            for kind, origin in zip(KINDS, origins, strict=True)
        ),
        Origin("paper", "Section 2.5", explored=True).close(
            "curve-by-rate",
            "The loss curve of descent tends to that of the flow, in proportion to the rate η: exponent of the largest "
            "distance of the two, for each kind of model and seed",
            **_by_rate(descent["apart"], order),
        ),
        Origin("theory", step).close(
            "by-rate",
            "Under descent the drift over a given time goes as the rate η: exponent fitted, for each kind of model and "
            "seed",
            **_by_rate(descent["drift"], order),
        ),
        Origin("theory", step, explored=True).close(
            "descent-drift",
            "Under descent the drift is 2η∫(v̇² − Σ‖k̇‖²)dt and its like along the flow: largest drift over the "
            "predicted, one ratio for each kind of model, seed and rate",
            predicted=1.0,
            measured=ratio.transpose("kind", "seed", "rate"),
            tolerance=order.transpose("kind", "seed", "rate").values.ravel(),
            basis="next order: how late descent is after all drops, in units of the fastest growth",
            counted="runs of descent",
        ),
        Origin("check", "squares of the weights at the minimum are between 1 and 10").at_least(
            "moves",
            "The runs move: change of the same squares with plus signs, for each kind of model and seed",
            predicted=1.0,
            measured=flows["moved"].max("time"),
            basis="conservation along runs that do not move would say nothing",
            counted="runs",
        ),
    ]


def _by_rate(sizes: xr.DataArray, order: xr.DataArray) -> dict[str, Any]:
    """That they go as the first power of the rate, for each kind of model and seed."""
    rates = np.log(sizes["rate"].values)
    rows = np.log(sizes.transpose("kind", "seed", "rate").values)
    several = rates.size > 1
    slopes = [[slope(rates, row) for row in of_kind] for of_kind in rows]
    tolerance = order.max("rate").transpose("kind", "seed").values.ravel() / np.ptp(rates) if several else 0.0
    return {
        "predicted": 1.0,
        "measured": labeled(slopes, kind=sizes["kind"].values, seed=sizes["seed"].values) if several else [],
        "tolerance": tolerance,
        "basis": "next order: how late descent is after all drops, in units of the fastest growth, over that of ln η",
        "counted": "runs",
    }


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    flows, descent = data["flow"], data["descent"]
    tolerance, rates = flows["tolerance"].values, descent["rate"].values
    with styled():
        figure = new_figure(11.5, 7.6)
        (course, by_tolerance), (by_rate, curves) = figure.subplots(2, 2)
        for kind, style in STYLES.items():
            mine, under, color = flows.sel(kind=kind), descent.sel(kind=kind), style["color"]
            first = mine.isel(seed=0)
            time = first["time"].values[1:]
            course.semilogy(time, np.maximum(first["drift"][-1, 1:], 1e-17), color=color, linewidth=1.4)
            course.semilogy(time, first["moved"][1:], ":", color=color, linewidth=1.6)
            points: Any = {**style, "linestyle": "none"}
            lines(by_tolerance, tolerance, mine["drift"].max("time").values, label=kind, **points)
            lines(by_tolerance, tolerance, mine["allowed"].values, color=color, linewidth=1.0)
            lines(by_rate, rates, under["drift"].values, label=kind, **points)
            lines(by_rate, rates, mine["predicted"].values[:, None] * rates, color=color, linewidth=1.2)
            lines(curves, rates, under["apart"].values, label=kind, **points)
        course.plot([], [], ":", color=GRAY, label="squares with plus signs")
        course.plot([], [], color=GRAY, linewidth=1.4, label="conserved quantities")
        course.set(xlabel="training time $t/\\tau$", ylabel="largest change since initialization", ylim=(None, 1e3))
        course.legend(loc="upper right", ncols=2, fontsize=8)
        course.set_title(f"(a) Along the flow, tolerance 10{superscript(round(np.log10(tolerance[-1])))}")
        by_tolerance.plot([], [], color=GRAY, linewidth=1.0, label="at most, by the error of weights")
        by_tolerance.set(xlabel="relative tolerance of the solver", ylabel="largest drift over the run")
        by_tolerance.set(xscale="log", yscale="log", title="(b) Flow: the solver's error alone")
        by_tolerance.legend(loc="lower right")
        by_rate.plot([], [], color=GRAY, linewidth=1.2, label="predicted")
        by_rate.set(ylabel="largest drift over the same time", title="(c) Descent conserves to first order in the rate")
        farthest = float(descent["apart"].isel(rate=0).max()) / rates[0]
        curves.plot(rates, farthest * rates, "--", color=BLACK, linewidth=1.1, label="slope 1")
        curves.set(ylabel="largest distance of losses / fall", title="(d) Its loss curve tends to that of the flow")
        for axes in (by_rate, curves):
            axes.set(xscale="log", yscale="log", xlabel="rate $\\eta$ of descent")
            only_ticks(axes, rates)
            axes.legend(loc="lower right")
    return figure


FIGURE = Figure(
    title="Gradient flow conserves the balance of value, key and query in each head, and is the limit of descent",
    caption=(
        "In each head, gradient flow conserves v² − Σ‖k‖² and the matrix KKᵀ − QQᵀ (separate keys and queries, of any "
        "rank), or v² − ‖U‖² (merged); the paper has this for rank one. (a) Along a run at the finest tolerance: with "
        "plus signs in place of minus the same squares change by orders of magnitude (dotted), what is conserved by "
        "the solver's error alone (solid); each is the largest change over the heads. (b) The largest drift over a run "
        "(points) against the tolerance of the solver, and what the error of the weights can make of it at most "
        "(lines): it is the solver's error and nothing else. (c) Gradient descent at rate η conserves them to first "
        "order only: the largest drift over the same time (points), and our prediction from the flow, 2η times the "
        "integral of the same differences of squared velocities (lines). (d) The loss curve of descent tends to that "
        "of the flow: the largest distance of the two over the run, which is in proportion to the rate."
    ),
    source="Section 2.5 and Appendix E.8",
    settings=Settings(),
    quick=Settings(seeds=(86,), sequences=500, tolerances=(1e-4, 1e-10), rates=(0.1, 0.025), points=1001),
    described=partial(described, initial="Gaussian, label blocks too"),
    seeds=Seeds(explored="2 to 7; 80 to 85 were seen", fixed="on the exploratory seeds"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
