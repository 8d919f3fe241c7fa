r"""Which head learns which task, where training ends, what sharing a head costs, and why the limit is a saddle.

Softmax attention itself is trained on sampled sequences, and its surrogate, the spectral loss, from many more initial
weights, all as ensembles. A task that has its winner (`theory.winners`) to itself gets it. Tasks with one winner share
that head, or one of them is driven away.
"""

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.patches import Rectangle

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, PALETTE, VERMILION, new_figure, scientific, styled
from stepwell.figures import Claim, Data, Figure, Known, Origin, Seeds

from ._allocation_runs import IMBALANCES, MARGIN, SPREAD, UNEQUAL_HEADS, Settings, simulate
from ._common import compared, finish, lines, note
from ._eigenvalues import SIGMAS

CAPTION = (
    "Ours: the paper has no such figure. Above, softmax attention itself: its eigenvalues, on sampled sequences. (a) "
    "Three equal tasks and three heads, random small weights: runs end with a head for each task (blue), with two "
    "tasks in one head (red) or all three (green); dashed, the least losses by quadrature. (b) How many tasks get the "
    "head that theory names from the initial weights: where it is named for no other task and leads clearly, where it "
    "leads by less than the error of the rule, and where tasks contend for it; softmax attention and its surrogate. "
    "(c) Three unequal tasks with noise and four heads: every initialization for which theory names a head for each "
    "task converges to the least loss by quadrature; the limit of the surrogate is lower by what is of next order in "
    "1/d. Below, the surrogate: the spectral loss, to leading order in d and L. (d) Random initializations, as in (a). "
    "(e) Two tasks in one head, and a small second head whose ω on one of them is x times that of the first: the rate "
    "at which its μ grows, by theory (line) and in training (dots). Below x = 0.464 it decays and sharing lasts; "
    "triangles are where long runs end. (f) The limit of the flow holds only where values and outputs are balanced, o "
    "= v. With an imbalance, however small, heads without a task become negative, at the rate at which they would have "
    "decayed, and the loss continues to fall, towards the lower bound for three heads."
)


def describe(settings: Settings) -> dict[str, Any]:
    unequal, rate = settings.unequal_task, f"{settings.rate:g}; {settings.rate / 4:g} for unbalanced initializations"
    added = {name: value for name, value in settings.added().items() if name != "rate"}
    return {
        **settings.described(),
        "initial weights": f"logarithms Gaussian around ω = {1.5 * settings.omega:g} and μ = {settings.mu:g}, "
        f"deviation {SPREAD:g}",
        "unequal tasks": f"d = {unequal.dims}, λ = {unequal.strengths}, σ² = {unequal.noise_variance:g}, "
        f"{UNEQUAL_HEADS} heads",
        **{f"{'' if '_' in name else 'surrogate: '}{name.replace('_', ' ')}": value for name, value in added.items()},
        "surrogate: initializations": "equal μ; random μ",
        "surrogate: rate": rate,
        "imbalances": [f"{value:g}" for value in IMBALANCES],
    }


def shared_words(used: int, tasks: int) -> str:
    """How so many heads serve the tasks."""
    words = {tasks - 1: "two tasks in one head", 1: "all tasks in one head", tasks: "a head for each task"}
    return words.get(used, f"{tasks} tasks in {used} heads")


def number_word(count: int) -> str:
    return {1: "one", 2: "two", 3: "three"}.get(count, str(count))


SMALL = 1e-2
"""Below this size a losing μ is free, but for the variance that it and the others like it add."""
LEFT = (0.1, 10.0)
"""The limit has been left when a losing μ has a size between these."""
ALONE = 0.99
"""A head that gives this part of the prediction to a task serves it alone."""
ENDED = 0.9
"""The fraction of runs whose training must have ended; in a few, two heads nearly tie and part late."""
RULE = "theory.softmax.winners, first order in differences of log ω and log μ"
SHARED = Known(
    "the initial weights name one head for two tasks in most runs, and sharing, once reached, is stable (sharing-end); "
    "where they name a head for each task, the claim holds (softmax-unequal-one-head)",
    "two-tasks-in-one-head",
)
CONTENTION = "theory.softmax.winners; that tasks which want one head can only be driven apart was observed first"
SADDLE = "docs/differences.md, the limit of the flow is a saddle"


def claims(data: Data, settings: Settings) -> list[Claim]:
    # Runs by their numbers, from 1 on, which stay where some of them are chosen.
    runs = (data[name] for name in ("equal", "unequal", "random"))
    equal, unequal, drawn = (one.assign_coords(run=np.arange(one.sizes["run"]) + 1) for one in runs)
    of_surrogate = (*_surrogate(drawn), *_sharing(data["sharing"], settings), *_imbalance(data["imbalance"], settings))
    return [*_softmax_equal(equal), *_softmax_unequal(unequal), *of_surrogate]


def _rule(id: str, words: str, runs: xr.Dataset, among: Any = True) -> Claim:
    """That tasks get the head named for them and for no other task, where it leads clearly."""
    decided = (runs["lead"].values > MARGIN) & ~runs["contested"].values & np.reshape(among, (-1, 1))
    return Origin("theory", RULE, explored=True).close(
        id,
        f"{words} is no other task's, and leads by more than second-order terms, gets it: exceptions among "
        f"{int(decided.sum())} tasks",
        unless="" if decided.any() else "no task has a head of its own that leads clearly",
        measured=np.sum((runs["served_by"] != runs["predicted"]).values & decided),
        basis="a count; the rule is of first order in differences of 0.3",
    )


def _contention(id: str, words: str, runs: xr.Dataset) -> Claim:
    fewer = [used < np.unique(p).size for used, p in zip(runs["heads_used"], runs["predicted"], strict=True)]
    return Origin("theory", CONTENTION, explored=True).close(
        id,
        f"{words}: contention for a head never adds to sharing: runs of {runs.sizes['run']} with fewer heads in use "
        "than predicted",
        measured=np.sum(fewer),
        basis="a count",
    )


def _softmax_equal(runs: xr.Dataset) -> Iterator[Claim]:
    yield _rule("softmax-winners", "Softmax attention from random ω and μ: a task whose predicted head", runs)
    yield _contention("softmax-contention", "Softmax attention", runs)
    yield from _one_head("softmax", "Softmax attention from random ω and μ", runs, known=SHARED, required=ENDED)
    for used in runs["used"].values[::-1].tolist():
        chosen = runs.isel(run=np.flatnonzero(runs["heads_used"] == used))
        if chosen.sizes["run"]:
            yield _ended(
                f"softmax-cost-{used}-heads",
                f"Softmax attention, runs that end with {shared_words(used, runs.sizes['task'])}: loss over fresh "
                f"sequences over the least by quadrature, for each such run ({ENDED:g} of them must have ended)",
                chosen,
                float(runs["level"].sel(used=used)),
                required=ENDED,
                source="theory.softmax.exact_loss, least over the weights",
            )


def _one_head(
    name: str, words: str, runs: xr.Dataset, *, known: Known | None = None, required: float = 1.0
) -> Iterator[Claim]:
    """That no head serves two tasks, as the paper says, and that no task is divided among heads."""
    counted = f"{runs['share'].dims[0]}s"
    most = [np.unique(heads, return_counts=True)[1].max() for heads in runs["served_by"].values]
    yield Origin("paper", "abstract: task allocation, each head focuses on a single task", explored=True).at_most(
        f"{name}-one-head",
        f"{words}: each head learns a single task: tasks of the head that learns most, for each {counted[:-1]}",
        predicted=1,
        measured=runs["heads_used"].copy(data=most),
        basis="a count",
        counted=counted,
        known=known,
    )
    ended = "" if required == 1 else f" ({required:g} of them must have ended)"
    yield Origin("theory", "theory.softmax.losing_head_rate: a second head on a task dies", explored=True).at_least(
        f"{name}-undivided",
        f"{words}: no task is divided among heads: one head's part of the prediction, the least of the "
        f"{number_word(runs.sizes['task'])} tasks, for each {counted[:-1]}{ended}",
        predicted=ALONE,
        measured=runs["share"].min("task"),
        basis="a level",
        counted=counted,
        required=required,
    )


def _ended(id: str, statement: str, runs: xr.Dataset, level: float, *, required: float, source: str) -> Claim:
    fitted, tail = 2 * runs.sizes["task"] / runs.attrs["sequences"], runs.get("tail", 0.0)
    left = "; the tail that the spectral flow from the same initialization has left" if "tail" in runs else ""
    return Origin("theory", source, explored=True).close(
        id,
        statement,
        **compared(runs["tested"] / level, 1.0, SIGMAS * runs["tested_error"] / level + fitted + tail, run="run"),
        basis=f"{SIGMAS:g} standard errors, from other sequences; ω and μ of each task, fitted to N "
        f"sequences, lose on others at most 1/N each{left}",
        required=required,
        counted="runs",
    )


def _softmax_unequal(runs: xr.Dataset) -> Iterator[Claim]:
    tasks = runs.sizes["task"]
    words = f"Softmax attention, {runs.sizes['head']} heads on {tasks} unequal tasks with noise"
    yield Origin("theory", RULE, explored=True).close(
        "softmax-unequal-winners",
        f"{words}: where theory names a head of its own "
        "for every task, by more than second-order terms, each gets it: number of such tasks, for each initialization",
        predicted=tasks,
        measured=(runs["served_by"] == runs["predicted"]).sum("task").rename(run="initialization"),
        basis="a count",
        counted="initializations",
    )
    yield from _one_head("softmax-unequal", words, runs.rename(run="initialization"))
    yield _ended(
        "softmax-unequal-end",
        f"{words}, converges to the least loss of a "
        "head for each task by quadrature: loss over fresh sequences over it, for each initialization",
        runs,
        float(runs["level"]),
        required=1.0,
        source="abstract: convergence of gradient flow; level: theory.softmax.exact_optimum",
    )


def _surrogate(trained: xr.Dataset) -> Iterator[Claim]:
    equal = trained["equal_mu"].values
    yield _rule("equal-mu", "Spectral loss, equal μ: a task whose head of largest ω", trained, equal)
    yield _rule("random-mu", "Spectral loss, random ω and μ: a task whose predicted head", trained, ~equal)
    yield _contention("contention", "Spectral loss", trained)
    for used in range(trained.sizes["task"], 0, -1):
        chosen = trained.isel(run=np.flatnonzero(trained["heads_used"] == used))
        if chosen.sizes["run"]:
            yield Origin("theory", "theory.softmax.shared_loss", explored=True).close(
                f"cost-{used}-heads",
                f"Spectral loss, runs that end with {shared_words(used, trained.sizes['task'])}: final loss, for each "
                f"such run ({ENDED:g} of them must have ended)",
                **compared(
                    chosen["loss"].isel(time=-1), chosen["cost"], chosen["tail"] + 1e-8 * chosen["cost"], run="run"
                ),
                basis="scores off task fade as 1/(Kt), by theory; rounding of 10,000 steps",
                required=ENDED,
                counted="runs",
            )


def _sharing(trained: xr.Dataset, settings: Settings) -> Iterator[Claim]:
    # Descent of rate η multiplies a weight that grows as e^{rt} by (1 + ηr/2)² a step: r is low by ηr²/4.
    step = settings.rate / 4
    rate, wanted = trained["rate"].values, trained["predicted_rate"].values
    worst = int(np.argmax(np.abs(rate - wanted) / (step * wanted**2)))
    yield Origin("theory", "theory.softmax.losing_head_rate, a small head beside a shared one").close(
        "sharing-rate",
        "Spectral loss: a small head beside a shared one grows at the rate 4Sω(1-c)(x - e^{x/2-1}): rate at the x "
        "furthest off",
        predicted=wanted[worst],
        measured=rate[worst],
        tolerance=1.1 * step * wanted[worst] ** 2,
        basis="descent in steps: ηr²/4, and a tenth of that",
    )
    revival = Origin("theory", "theory.softmax.revival_threshold, x = e^(x/2 − 1)")
    yield revival.close(
        "sharing-threshold",
        "Spectral loss, two tasks in one head: the second head grows if its ω is above x times that of the first: "
        "threshold x",
        predicted=float(trained["threshold"]),
        measured=np.interp(0.0, rate, trained["x"].values),
        tolerance=np.diff(trained["x"].values)[0] ** 2 / 8,
        basis="a line between the points of the scan: its curvature over slope is below 1",
    )
    yield revival.close(
        "sharing-end",
        "Spectral loss: two tasks in one head split if x is above 0.464 and stay together if it is below: final "
        f"loss, one for each of {trained.sizes['end']} sizes x of the second head",
        predicted=np.where(trained["revives"], trained["split"], trained["shared"]),
        measured=trained["end_loss"].rename(end="x ="),
        tolerance=float(trained["tail"]) * trained["revives"].values + 1e-6,
        basis="scores off task fade as 1/(Kt), by theory; 1e-6 for a head that is still dying",
        counted="sizes",
    )


def _imbalance(trained: xr.Dataset, settings: Settings) -> Iterator[Claim]:
    mu, heads = settings.mu, settings.tasks
    # As in `_sharing`; the rate is a quarter. Steps also shrink δ = o² - v², by ηr²t/4 in ln δ.
    step = settings.rate / 16
    # What a losing μ of size 1 takes off the rate of growth of another: 4Sφ/L.
    variance = 4 * settings.dims[0] / settings.context
    limit, bound = float(trained["limit"]), float(trained["bound"])
    time, loss = trained["time"].values, trained["loss"].values
    fallen = trained["log_mu"].values - np.log(mu)
    alone = "" if heads > 1 else "a single head has no task to lose"
    labels = [f"δ = {delta:.2g}" for delta in trained["delta"].values]
    ended, reached, rows = [], [], []
    for row, delta in enumerate(trained["delta"].values[1:], start=1):
        # s has gone from ln(4μ(0)/δ) to -ln(4μ/δ) when the limit is left.
        turned = [2 * np.log(delta / 4) - np.log(mu * size) for size in (LEFT[0], 1.0, LEFT[1])]
        if turned[-1] > fallen.min():
            ended.append(row)
        predicted = np.arcsinh(2 * mu / delta) + fallen
        free = (delta / 2 * np.sinh(np.abs(predicted).clip(0, 100)) < SMALL) & (time > float(trained["settled"]))
        if free.sum() < 3:  # an imbalance so large that the limit is left before it is reached
            continue
        observed = np.arcsinh(2 * trained["losing_mu"].values[row] / delta)
        rate, wanted = np.polyfit(time[free], np.stack([observed[free], predicted[free]], axis=1), 1)[0]
        longer = 1 + 2 * time[free][-1] / np.ptp(time[free])
        allowed = step * wanted**2 * longer + (heads - 1) * variance * SMALL
        passed = passage_time(time, loss[row], (limit + bound) / 2)
        reached.append(labels[row])
        rows.append((rate, wanted, allowed, np.log(delta), passed, *np.interp(turned, fallen[::-1], time[::-1])))
    rates, wanted, allowed, logs, times, *leave = np.array(rows).reshape(-1, 8).T
    few = "" if times.size > 1 else "a slope needs two imbalances of which the limit is reached"
    slopes = np.zeros(3) if few else np.polyfit(logs, np.array(leave).T, 1)[0]
    # The limit may never be left.
    slope = np.polyfit(logs, times, 1)[0] if not few and np.all(np.isfinite(times)) else np.nan
    yield Origin("theory", "theory.softmax.flow_limit_loss").close(
        "balanced-end",
        "Spectral loss, balanced values and outputs: the loss ends at the flow's limit",
        predicted=limit,
        measured=loss[0, -1],
        tolerance=float(trained["tail"]),
        basis="scores off task fade as 1/(Kt), by theory",
    )
    saddle = Origin("theory", SADDLE)
    yield saddle.close(
        "unbalanced-rate",
        "Spectral loss, unbalanced by δ = o² - v²: the μ of a head that has no task passes through zero, at the "
        "rate at which it decays in the balanced flow: d arsinh(2μ/δ)/dt, one for each δ",
        unless=alone,
        predicted=wanted,
        measured=rates,
        labels=reached,
        tolerance=allowed,
        basis="descent in steps, by which δ also shrinks; variance of the losing heads",
        counted="imbalances",
    )
    yield saddle.close(
        "unbalanced-time",
        "Spectral loss, unbalanced: the loss leaves the flow's limit after μ has fallen to δ and grown back: slope "
        "of that time in ln δ, about -2 over the rate of decay",
        unless=alone or few,
        predicted=slopes[1],
        measured=slope,
        tolerance=np.ptp(slopes) / 2 + 6 * step,
        basis=f"the size of μ that counts, from {LEFT[0]:g} to {LEFT[1]:g}; descent in steps, by which δ shrinks",
    )
    yield saddle.at_most(
        "unbalanced-end",
        "Spectral loss, unbalanced: the loss ends below the middle between the flow's limit and the bound for "
        f"{number_word(heads)} heads: final loss, one for each imbalance",
        unless=alone,
        predicted=(limit + bound) / 2,
        measured=loss[ended, -1],
        labels=[labels[row] for row in ended],
        basis="a level",
        counted="imbalances",
    )
    yield Origin("theory", "theory.softmax.lower_bound").at_least(
        "unbalanced-bound",
        f"Spectral loss, unbalanced: the loss stays above the bound for {number_word(heads)} heads: least loss, "
        "one for each imbalance",
        predicted=bound,
        measured=loss[1:].min(axis=1),
        labels=labels[1:],
        basis="a bound",
        counted="imbalances",
    )


_TIME, _LOSS = "time t = rate × step", "loss, summed over tasks"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    equal, drawn, signal = data["equal"], data["random"], float(data["equal"].attrs["signal"])
    costs = dict(zip(drawn["heads_used"].values.tolist(), drawn["cost"].values.tolist(), strict=True))
    with styled():
        figure = new_figure(15.0, 8.6)
        a, b, c, d, e, f = figure.subplots(2, 3).ravel()
        _courses(a, equal, equal["level"].values, signal, "(a) Softmax attention: random initializations")
        _draw_winners(b, (equal, data["unequal"], drawn))
        _converged(c, data["unequal"])
        _courses(d, drawn, costs.values(), signal, "(d) The surrogate: random initializations")
        _draw_sharing(e, data["sharing"])
        _draw_imbalance(f, data["imbalance"], settings)
    return figure


def _courses(axes: Any, trained: xr.Dataset, levels: Any, signal: float, title: str) -> None:
    time, used, tasks = trained["time"].values, trained["heads_used"].values, trained.sizes["task"]
    for heads, color in zip(range(tasks, 0, -1), cycle((BLUE, VERMILION, GREEN)), strict=False):
        chosen = np.flatnonzero(used == heads)
        axes.plot([], [], color=color, label=f"{shared_words(heads, tasks)}: {chosen.size} of {used.size} runs")
        for run in chosen[:25]:
            axes.plot(time, trained["loss"].values[run], color=color, linewidth=0.7, alpha=0.6)
    for level in levels:
        axes.axhline(level, color=BLACK, linestyle="--", linewidth=0.9)
        note(axes, f"{level:.2f}", (0.0, level), (3, 3), fontsize=9)
    finish(axes, title, _TIME, _LOSS, xlim=(0, min(24, float(time[-1]))), ylim=(0, 1.3 * signal))
    axes.legend(loc="upper right")


def _draw_winners(axes: Any, sets: tuple[xr.Dataset, ...]) -> None:
    """A table: what is named, of whom, and how many tasks got it."""
    columns = ("softmax", "softmax, unequal", "surrogate")
    rows = ("for it alone,\nleads clearly", "for it alone,\nleads by little", "for several\ntasks")
    for place, (runs, name) in enumerate(zip(sets, columns, strict=True)):
        counts = f"{runs.sizes['task']} tasks, {runs.sizes.get('head', runs.sizes['task'])} heads"
        axes.text(place, -0.75, f"{name}\n{counts}", ha="center", va="center", fontsize=9)
        right = (runs["served_by"] == runs["predicted"]).values
        contested, clear = runs["contested"].values, runs["lead"].values > MARGIN
        for row, among in enumerate((~contested & clear, ~contested & ~clear, contested)):
            number, got = int(among.sum()), int((right & among).sum())
            part = got / number if number else 0.0
            axes.add_patch(
                Rectangle((place - 0.46, row - 0.42), 0.92, 0.84, color=BLUE, alpha=0.35 * part, linewidth=0)
            )
            words = f"{got} of {number}\n{part:.0%}" if number else "none"
            axes.text(place, row, words, ha="center", va="center", fontsize=11)
    axes.set_yticks(range(3), rows)
    axes.set(xlim=(-0.5, 2.5), ylim=(2.5, -1.3), xticks=[], ylabel="the head is named")
    axes.tick_params(length=0)
    axes.set_frame_on(False)
    axes.set_title("(b) Tasks learned by the head that theory names")


def _converged(axes: Any, runs: xr.Dataset) -> None:
    label, until = f"softmax attention, {runs.sizes['run']} initializations", float(runs["time"][-1])
    lines(axes, runs["time"], runs["loss"], label, color=BLUE, linewidth=0.9, alpha=0.8)
    mean, label = float(runs["tested"].mean()), "mean at the end, on fresh sequences"
    axes.plot(until, mean, "o", color=BLACK, label=label, clip_on=False)
    level, limit = float(runs["level"]), float(runs["limit"])
    axes.axhline(level, color=BLACK, linestyle="--", linewidth=1.1, label=f"least loss by quadrature, {level:.2f}")
    axes.axhline(limit, color=GRAY, linestyle=":", linewidth=1.4, label=f"limit of the surrogate, {limit:.2f}")
    title = "(c) Softmax attention: 4 heads, 3 unequal noisy tasks"
    finish(axes, title, _TIME, _LOSS, xlim=(0, until), ylim=(0, 36))
    axes.legend(loc="upper right")


def _draw_sharing(axes: Any, trained: xr.Dataset) -> None:
    axes.axhline(0, color=GRAY, linewidth=0.8)
    axes.plot(trained["x"], trained["predicted_rate"], color=BLACK, linewidth=1.3, label="theory")
    axes.plot(trained["x"], trained["rate"], "o", color=BLUE, markersize=5, fillstyle="none", label="trained")
    threshold = float(trained["threshold"])
    axes.axvline(threshold, ymax=0.77, color=GRAY, linestyle=":", linewidth=1.2)
    note(axes, f"x = {threshold:.3f}", (threshold, -0.85), (5, 0))
    split = np.abs(trained["end_loss"].values - float(trained["split"])) < 0.1
    for kind, name, word, style, color in (
        (~split, "shared", "stays shared", "v", VERMILION),
        (split, "split", "splits", "^", GREEN),
    ):
        ends, label = trained["end"].values[kind], f"long run: {word}, loss {float(trained[name]):.2f}"
        axes.plot(ends, np.full(ends.size, -1.25), style, color=color, label=label)
    words = "x, ω of the second head over the first's", "growth rate of the second head's μ"
    title = "(e) The surrogate: two tasks in one head, and a second"
    finish(axes, title, *words, legend="upper left", ylim=(-1.4, 1.9))


def _draw_imbalance(axes: Any, trained: xr.Dataset, settings: Settings) -> None:
    time, dim = trained["time"].values, sum(settings.dims)
    first = min(2.0, float(time[-1]) / 10)
    for row, part in enumerate(trained["part"].values):
        ratio = f"{(1 + part) ** 2:g}" if part > 1e-3 else f"1 + {scientific(2 * part)}"
        label, color = (f"v/o = {ratio}", PALETTE[row - 1]) if part else ("balanced, o = v", BLACK)
        axes.plot(time[1:], trained["loss"].values[row, 1:], color=color, label=label)
    for name, word in (("limit", "limit of the flow"), ("bound", f"bound for {number_word(settings.tasks)} heads")):
        level = float(trained[name])
        axes.axhline(level, color=GRAY, linestyle="--", linewidth=1.0)
        note(axes, f"{word}, {level:.2f}", (1.1 * first, level), (0, -12), fontsize=9)
    limits: dict[str, Any] = {"xlim": (first, float(time[-1])), "ylim": (0.1 * dim, 0.4 * dim)}
    finish(axes, "(f) The surrogate: an imbalance undoes the limit", _TIME, _LOSS, xscale="log", **limits)
    axes.legend(loc="upper right")


FIGURE = Figure(
    title="Heads are allocated by the initial weights; sharing lasts; an imbalance undoes the limit",
    caption=CAPTION,
    settings=Settings(),
    quick=Settings(
        draws=40,
        steps=5_000,
        softmax_runs=8,
        softmax_sequences=320,
        unequal_runs=3,
        unequal_sequences=500,
        softmax_steps=1200,
        softmax_tested=250,
    ),
    described=describe,
    seeds=Seeds(explored="other initializations, not recorded which, for the rule and its margin"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
