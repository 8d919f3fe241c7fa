r"""What gradient flow conserves: balances of value, key and query in each head.

Separate: $v_i^2 - \sum_r\|k_{i,r}\|^2$ and the matrix $K_iK_i^\top - Q_iQ_i^\top$; merged: $v_i^2 - \|U_i\|_F^2$. They
follow from rescalings that leave the loss as it is, so they hold for any data: here those of a finite set of sequences,
with label blocks that are random initially and counted in.

A step of descent, $W \to W - \eta g$, changes $v^2 - \|k\|^2$ by $\eta^2(g_v^2 - \|g_k\|^2)$ exactly, what is of first
order cancels. With $g = -2\dot W$ and a step of time $2\eta$ the drift is $2\eta\int(\dot v^2 - \|\dot k\|^2)\,dt$.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import matplotlib.figure
import numpy as np
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

from ._drawing import only_ticks
from ._runs import along, described, labeled, slope

DRIFT = 100.0  # What is conserved may drift by so many tolerances of the solver. On seeds 2 to 7 it does by 0.7 to 28.
SHOWN = 10  # of the save times, every so many are kept and drawn
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
    seed: int = 81  # of the initial weights
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
    runs = {"flow": run_flows, "descent": run_descent}
    return {name: along((run(kind, objective, settings) for kind in KINDS), kind=KINDS) for name, run in runs.items()}


def initial_model(kind: str, settings: Settings) -> SeparateAttention | MergedAttention:
    options: dict[str, Any] = {"dim": len(settings.eigenvalues), "heads": settings.heads, "scale": settings.init}
    options |= {"label_blocks": "random", "key": jax.random.key(settings.seed)}
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


def run_flows(kind: str, objective: Moments, settings: Settings) -> xr.Dataset:
    """Gradient flow at each tolerance: how much the conserved quantities drift, and how much the weights change.

    `predicted`: the drift of descent over its rate.
    """
    times = np.linspace(0.0, settings.until, settings.points)
    drifts, run = [], xr.Dataset()
    for tolerance in settings.tolerances:
        finest = tolerance == settings.tolerances[-1]
        options: dict[str, Any] = {"rtol": tolerance, "atol": tolerance * settings.init, "progress": False}
        options["record"] = Record(points=times if finest else times[::SHOWN])
        run = flow(initial_model(kind, settings), objective, solver="lsoda", until=settings.until, **options)
        drifts.append(drift(run)[0, :: SHOWN if finest else 1])
    return xr.Dataset(
        {
            "drift": (("tolerance", "time"), np.array(drifts)),
            "moved": ("time", movement(run)[0, ::SHOWN]),
            "predicted": descent_drift(run),
            "fastest": fastest_rate(kind, settings.task),
        },
        {"tolerance": list(settings.tolerances), "time": ("time", times[::SHOWN], {"units": TIME_UNIT})},
    )


def descent_drift(run: xr.Dataset) -> float:
    r"""The largest drift of descent along a flow, over its rate: $2\,|\int(\dot v^2 - \dots)\,dt|$, to first order."""
    times = run["time"].values
    moving = {name: run[name] for name in ("value", "key", "query", "key_query") if name in run}
    velocities = {name: (w.dims, np.gradient(w.values, times, axis=1)) for name, w in moving.items()}
    squares = conserved(run.assign(velocities)).isel(run=0)
    return max(float(np.abs(2 * squares[name].cumulative_integrate("time")).max()) for name in squares)


def fastest_rate(kind: str, task: InContextRegression) -> float:
    """Of the growth of weights at infinitely many sequences: ‖Λ²‖ of merged attention, λ_1²v of a separate head in the
    end."""
    if kind == "merged":
        return theory.merged_escape_rate(task)
    return float(theory.escape_rates(task)[0] * theory.aligned_end(task, 0))


def run_descent(kind: str, objective: Moments, settings: Settings) -> xr.Dataset:
    """Descent over the same time at each rate, all rates as one program: the largest drift."""
    rates = np.array(settings.rates)
    steps = np.round(settings.until / (2 * rates)).astype(int)
    options: dict[str, Any] = {"record": Record(every=max(int(steps[-1]) // 160, 1), snapshots=161), "progress": False}
    models = Ensemble.of([initial_model(kind, settings)] * rates.size)
    run = descend(models, objective, rate=rates, steps=int(steps[-1]), **options)
    within = run["snapshot"].values <= steps[:, None]
    return xr.Dataset({"drift": ("rate", np.where(within, drift(run), 0.0).max(axis=1))}, {"rate": rates})


def claims(data: Data, settings: Settings) -> list[Claim]:
    flows, descent = data["flow"], data["descent"]
    largest = flows["drift"].max("time")
    tolerance, rates = flows["tolerance"].values, descent["rate"].values
    slopes = [slope(np.log(rates), np.log(row)) for row in descent["drift"].values if rates.size > 1]
    ratio = descent["drift"] / (flows["predicted"] * descent["rate"])
    # A step of time 2η against the fastest growth is the next order.
    order = 2 * np.multiply.outer(flows["fastest"].values, rates)
    origins = (
        Origin("paper", "Appendix E.8", explored=True),
        Origin("theory", "stepwell.theory.linear.separate_conserved", explored=True),
        Origin("theory", "stepwell.theory.linear.merged_conserved", explored=True),
    )
    step = "a step changes v² − ‖k‖² by η²(g_v² − ‖g_k‖²)"
    return [
        *(
            origin.close(
                f"drift-{slug(kind)}",
                f"{kind}: what is conserved drifts along the flow by no more than the solver's error, and falls with "
                f"it: largest drift, for each tolerance from {tolerance[0]:g} to {tolerance[-1]:g}",
                measured=largest.sel(kind=kind),
                tolerance=DRIFT * tolerance,
                basis=f"{DRIFT:g} times the tolerance, four times the largest of six other seeds",
                counted="tolerances",
            )
            for kind, origin in zip(KINDS, origins, strict=True)
        ),
        Origin("theory", step).close(
            "by-rate",
            "Under descent the drift over a given time goes as the rate η: exponent fitted, one for each kind of model",
            predicted=1.0,
            measured=labeled(slopes, kind=descent["kind"].values) if slopes else [],
            tolerance=order.max(axis=1) / np.ptp(np.log(rates)) if slopes else 0.0,
            basis="next order: a step of time 2η against the fastest growth, over the range of ln η",
            counted="kinds of model",
        ),
        Origin("theory", step, explored=True).close(
            "descent-drift",
            "Under descent the drift is 2η∫(v̇² − Σ‖k̇‖²)dt and its like along the flow: largest drift over the "
            "predicted, one ratio for each kind of model and rate",
            predicted=1.0,
            measured=ratio.transpose("kind", "rate"),
            tolerance=order.ravel(),
            basis="next order: a step of time 2η against the fastest growth",
            counted="runs of descent",
        ),
        Origin("check", "squares of the weights at the minimum are between 1 and 10").at_least(
            "moves",
            "The runs move: change of the same squares with plus signs, one for each kind of model",
            predicted=1.0,
            measured=flows["moved"].max("time"),
            basis="conservation along runs that do not move would say nothing",
            counted="kinds of model",
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    flows, descent = data["flow"], data["descent"]
    tolerance, rates = flows["tolerance"].values, descent["rate"].values
    with styled():
        figure = new_figure(11.5, 4.2)
        course, by_tolerance, by_rate = figure.subplots(1, 3)
        for kind, style in STYLES.items():
            mine, color = flows.sel(kind=kind), style["color"]
            time = mine["time"].values[1:]
            course.semilogy(time, np.maximum(mine["drift"][-1, 1:], 1e-17), color=color, linewidth=1.4)
            course.semilogy(time, mine["moved"][1:], ":", color=color, linewidth=1.6)
            by_tolerance.loglog(tolerance, mine["drift"].max("time"), label=kind, **style)
            by_rate.loglog(rates, descent["drift"].sel(kind=kind), linestyle="none", label=kind, **style)
            by_rate.loglog(rates, float(mine["predicted"]) * rates, color=color, linewidth=1.2)
        course.plot([], [], ":", color=GRAY, label="squares with plus signs")
        course.plot([], [], color=GRAY, linewidth=1.4, label="conserved quantities")
        course.set(xlabel="training time $t/\\tau$", ylabel="largest change since initialization", ylim=(None, 1e3))
        course.legend(loc="upper right", ncols=1, fontsize=8)
        course.set_title(f"(a) Along the flow, tolerance 10{superscript(round(np.log10(tolerance[-1])))}")
        first = 2 * float(flows["drift"].max("time").isel(tolerance=0).max()) / tolerance[0]
        by_tolerance.plot(tolerance, first * tolerance, "--", color=BLACK, linewidth=1.1, label="slope 1")
        by_tolerance.set(xlabel="relative tolerance of the solver", ylabel="largest drift over the run")
        by_tolerance.set_title("(b) Flow: the solver's error alone")
        by_tolerance.legend(loc="lower right")
        by_rate.plot([], [], color=GRAY, linewidth=1.2, label="predicted")
        by_rate.set(xlabel="rate $\\eta$ of descent", ylabel="largest drift over the same time")
        only_ticks(by_rate, rates)
        by_rate.set_title("(c) Descent: first order in the rate")
        by_rate.legend(loc="lower right")
    return figure


FIGURE = Figure(
    title="Gradient flow conserves the balance of value, key and query in each head",
    caption=(
        "In each head, gradient flow conserves v² − Σ‖k‖² and the matrix KKᵀ − QQᵀ (separate keys and queries, of any "
        "rank), or v² − ‖U‖² (merged); the paper has this for rank one. (a) Along a run at the finest tolerance: with "
        "plus signs in place of minus the same squares change by orders of magnitude (dotted), what is conserved by "
        "the solver's error alone (solid); each is the largest change over the heads. (b) The largest drift over a run "
        "against the tolerance of the solver: it is the solver's error and nothing else. (c) Gradient descent at rate "
        "η conserves them to first order only: the largest drift over the same time (points), and our prediction from "
        "the flow, 2η times the integral of the same differences of squared velocities (lines)."
    ),
    source="Appendix E.8",
    settings=Settings(),
    quick=Settings(sequences=500, tolerances=(1e-4, 1e-10), rates=(0.1, 0.025), points=1001),
    described=partial(described, initial="Gaussian, label blocks too"),
    seeds=Seeds(explored="2 to 7; 80 was seen", fixed="the largest drift allowed, on 2 to 7; the others: not recorded"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
