r"""Which head learns which task, where training ends, what sharing a head costs, and why the limit is a saddle.

Softmax attention itself is trained on sampled sequences, and its surrogate, the spectral loss, from many more initial
weights, all as ensembles. A task that has its winner (`theory.winners`) to itself gets it. Tasks with one winner share
that head, or one of them is driven away.
"""

from itertools import cycle
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, PALETTE, VERMILION, new_figure, scientific, styled
from stepwell.figures import Claim, Data, Figure

from ._allocation_runs import IMBALANCES, MARGIN, SPREAD, UNEQUAL_HEADS, Settings, simulate
from ._claims import close, over
from ._drawing import lines
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
    itself, unequal = settings.added(), settings.unequal_task
    surrogate = {name: itself.pop(name) for name in ("rate", "starts", "steps", "seed")}
    rate = surrogate.pop("rate")
    return {
        **settings.described(),
        "initial weights": f"logarithms Gaussian around ω = {1.5 * settings.omega:g} and μ = {settings.mu:g}, "
        f"deviation {SPREAD:g}",
        "unequal tasks": f"d = {unequal.dims}, λ = {unequal.strengths}, σ² = {unequal.noise_variance:g}, "
        f"{UNEQUAL_HEADS} heads",
        **{
            f"softmax attention: {name.removeprefix('softmax_').replace('_', ' ')}": value
            for name, value in itself.items()
        },
        "surrogate: initializations": "equal μ; random μ",
        "surrogate: rate": f"{rate:g}; {rate / 4:g} for unbalanced initializations",
        **{f"surrogate: {name}": value for name, value in surrogate.items()},
        "imbalances": [f"{value:g}" for value in IMBALANCES],
    }


def shared_words(used: int, tasks: int) -> str:
    """How so many heads serve the tasks."""
    if used == tasks:
        return "a head for each task"
    if used == 1:
        return "all tasks in one head"
    return "two tasks in one head" if used == tasks - 1 else f"{tasks} tasks in {used} heads"


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
SADDLE = "docs/differences.md, the limit of the flow is a saddle"


def claims(data: Data, settings: Settings) -> list[Claim]:
    return [
        *_softmax_equal(data["equal"]),
        *_softmax_unequal(data["unequal"]),
        *_winners(data["starts"]),
        *_costs(data["starts"]),
        *_sharing(data["sharing"], settings),
        *_imbalance(data["imbalance"], settings),
    ]


def _rule(id: str, words: str, runs: xr.Dataset, among: Any = True) -> Claim:
    """That tasks get the head named for them and for no other task, where it leads clearly."""
    decided = (runs["lead"].values > MARGIN) & ~runs["contested"].values & np.reshape(among, (-1, 1))
    return close(
        id,
        f"{words} is no other task's, and leads by more than second-order terms, gets it: exceptions among "
        f"{int(decided.sum())} tasks",
        unless="" if decided.any() else "no task has a head of its own that leads clearly",
        predicted=0,
        measured=np.sum((runs["served_by"] != runs["predicted"]).values & decided),
        exact="a count; the rule is of first order in differences of 0.3",
        theory=RULE,
        explored=True,
    )


def _contention(id: str, words: str, runs: xr.Dataset) -> Claim:
    fewer = [used < np.unique(p).size for used, p in zip(runs["heads_used"], runs["predicted"], strict=True)]
    return close(
        id,
        f"{words}: contention for a head never adds to sharing: runs of {runs.sizes['run']} with fewer heads in use "
        "than predicted",
        predicted=0,
        measured=np.sum(fewer),
        exact="a count",
        theory="theory.softmax.winners; that tasks which want one head can only be driven apart was observed first",
        explored=True,
    )


def _softmax_equal(runs: xr.Dataset) -> list[Claim]:
    tasks = runs.sizes["task"]
    return [
        _rule("softmax-winners", "Softmax attention from random ω and μ: a task whose predicted head", runs),
        _contention("softmax-contention", "Softmax attention", runs),
        over(
            "softmax-one-head",
            "Softmax attention from random ω and μ: each task is learned by one head: that head's part of the "
            f"prediction, the least of the {number_word(tasks)} tasks, for each run ({ENDED:g} of the runs must have "
            "ended)",
            predicted=ALONE,
            measured=runs["share"].min("task").values,
            exact="a level",
            relation=">=",
            required=ENDED,
            counted="runs",
            paper="abstract: task allocation, each head focuses on solving a single task",
            explored=True,
        ),
        *[
            _ended(
                f"softmax-cost-{used}-heads",
                f"Softmax attention, runs that end with {shared_words(used, tasks)}: loss over fresh sequences over "
                f"the least by quadrature, for each such run ({ENDED:g} of them must have ended)",
                runs.isel(run=np.flatnonzero(runs["heads_used"] == used)),
                float(runs["level"].sel(used=used)),
                required=ENDED,
                source="theory.softmax.exact_loss, least over the weights",
            )
            for used in runs["used"].values[::-1].tolist()
            if np.any(runs["heads_used"] == used)
        ],
    ]


def _ended(id: str, statement: str, runs: xr.Dataset, level: float, *, required: float, source: str) -> Claim:
    parameters = 2 * runs.sizes["task"]
    tail = runs["tail"].values if "tail" in runs else 0.0
    return over(
        id,
        statement,
        predicted=1.0,
        measured=runs["tested"].values / level,
        tolerance=SIGMAS * runs["tested_error"].values / level + parameters / runs.attrs["sequences"] + tail,
        basis=f"{SIGMAS:g} standard errors, from other sequences; ω and μ of each task, fitted to N "
        "sequences, lose on others at most 1/N each"
        + ("; the tail that the spectral flow from the same initialization has left" if "tail" in runs else ""),
        required=required,
        counted="runs",
        theory=source,
        explored=True,
    )


def _softmax_unequal(runs: xr.Dataset) -> list[Claim]:
    tasks, heads = runs.sizes["task"], runs.sizes["head"]
    return [
        over(
            "softmax-unequal-winners",
            f"Softmax attention, {heads} heads on {tasks} unequal tasks with noise: where theory names a head of its "
            "own for every task, by more than second-order terms, each gets it: number of such tasks, for each "
            "initialization",
            predicted=tasks,
            measured=(runs["served_by"] == runs["predicted"]).sum("task").values,
            exact="a count",
            counted="initializations",
            theory=RULE,
            explored=True,
        ),
        over(
            "softmax-unequal-one-head",
            f"Softmax attention, {heads} heads on {tasks} unequal tasks with noise: each task is learned by one head, "
            "and the head without a task gives nothing: part of the prediction, the least of the tasks, for each "
            "initialization",
            predicted=ALONE,
            measured=runs["share"].min("task").values,
            exact="a level",
            relation=">=",
            counted="initializations",
            paper="abstract: convergence of gradient flow, task allocation",
            explored=True,
        ),
        _ended(
            "softmax-unequal-end",
            f"Softmax attention, {heads} heads on {tasks} unequal tasks with noise, converges to the least loss of a "
            "head for each task by quadrature: loss over fresh sequences over it, for each initialization",
            runs,
            float(runs["level"]),
            required=1.0,
            source="abstract: convergence of gradient flow; level: theory.softmax.exact_optimum",
        ),
    ]


def _winners(trained: xr.Dataset) -> list[Claim]:
    equal = trained["equal_mu"].values
    return [
        _rule("equal-mu", "Spectral loss, equal μ: a task whose head of largest ω", trained, equal),
        _rule("random-mu", "Spectral loss, random ω and μ: a task whose predicted head", trained, ~equal),
        _contention("contention", "Spectral loss", trained),
    ]


def _costs(trained: xr.Dataset) -> list[Claim]:
    claims, tasks = [], trained.sizes["task"]
    for used in range(tasks, 0, -1):
        chosen = trained.isel(run=np.flatnonzero(trained["heads_used"] == used))
        if chosen.sizes["run"]:
            claims.append(
                over(
                    f"cost-{used}-heads",
                    f"Spectral loss, runs that end with {shared_words(used, tasks)}: final loss, for each such run "
                    f"({ENDED:g} of them must have ended)",
                    predicted=chosen["cost"].values,
                    measured=chosen["loss"].values[:, -1],
                    tolerance=(chosen["tail"] + 1e-8 * chosen["cost"]).values,
                    basis="scores off task fade as 1/(Kt), by theory; rounding of 10,000 steps",
                    required=ENDED,
                    counted="runs",
                    theory="theory.softmax.shared_loss",
                    explored=True,
                )
            )
    return claims


def _step(rate: float) -> float:
    """Descent of rate η multiplies a weight that grows as e^{rt} by (1 + ηr/2)² a step: r is low by this times r²."""
    return rate / 4


def _sharing(trained: xr.Dataset, settings: Settings) -> list[Claim]:
    step = _step(settings.rate)
    rate, wanted = trained["rate"].values, trained["predicted_rate"].values
    worst = int(np.argmax(np.abs(rate - wanted) / (step * wanted**2)))
    root = float(np.interp(0.0, rate, trained["x"].values))
    spacing = float(np.diff(trained["x"].values)[0])
    limit = np.where(trained["revives"], trained["split"], trained["shared"])
    return [
        close(
            "sharing-rate",
            "Spectral loss: a small head beside a shared one grows at the rate 4Sω(1-c)(x - e^{x/2-1}): rate at the x "
            "furthest off",
            predicted=wanted[worst],
            measured=rate[worst],
            tolerance=1.1 * step * wanted[worst] ** 2,
            basis="descent in steps: ηr²/4, and a tenth of that",
            theory="theory.softmax.losing_head_rate, a small head beside a shared one",
        ),
        close(
            "sharing-threshold",
            "Spectral loss, two tasks in one head: the second head grows if its ω is above x times that of the first: "
            "threshold x",
            predicted=float(trained["threshold"]),
            measured=root,
            tolerance=spacing**2 / 8,
            basis="a line between the points of the scan: its curvature over slope is below 1",
            theory="theory.softmax.revival_threshold, x = e^(x/2 − 1)",
        ),
        over(
            "sharing-end",
            "Spectral loss: two tasks in one head split if x is above 0.464 and stay together if it is below: final "
            f"loss, one for each of {trained.sizes['end']} sizes x of the second head",
            predicted=limit,
            measured=trained["end_loss"].values,
            tolerance=float(trained["tail"]) * trained["revives"].values + 1e-6,
            basis="scores off task fade as 1/(Kt), by theory; 1e-6 for a head that is still dying",
            counted="sizes",
            theory="theory.softmax.revival_threshold, x = e^(x/2 − 1)",
        ),
    ]


def _imbalance(trained: xr.Dataset, settings: Settings) -> list[Claim]:
    mu, heads = settings.mu, settings.tasks
    # The rate is a quarter. Steps also shrink δ = o² - v², by ηr²t/4 in ln δ.
    step = _step(settings.rate / 4)
    # What a losing μ of size 1 takes off the rate of growth of another: 4Sφ/L.
    variance = 4 * settings.dims[0] / settings.context
    limit, bound = float(trained["limit"]), float(trained["bound"])
    time, loss = trained["time"].values, trained["loss"].values
    fallen = trained["log_mu"].values - np.log(mu)
    alone = "" if heads > 1 else "a single head has no task to lose"
    rates, wanted, allowed, left, leave, ended = [], [], [], [], [], []
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
        rates.append(np.polyfit(time[free], observed[free], 1)[0])
        wanted.append(np.polyfit(time[free], predicted[free], 1)[0])
        longer = 1 + 2 * time[free][-1] / np.ptp(time[free])
        allowed.append(step * wanted[-1] ** 2 * longer + (heads - 1) * variance * SMALL)
        left.append((np.log(delta), passage_time(time, loss[row], (limit + bound) / 2)))
        leave.append(np.interp(turned, fallen[::-1], time[::-1]))
    logs, times = np.array(left).reshape(-1, 2).T
    few = "" if times.size > 1 else "a slope needs two imbalances of which the limit is reached"
    slopes = np.zeros(3) if few else np.polyfit(logs, np.array(leave), 1)[0]
    # The limit may never be left.
    slope = np.polyfit(logs, times, 1)[0] if not few and np.all(np.isfinite(times)) else np.nan
    return [
        close(
            "balanced-end",
            "Spectral loss, balanced values and outputs: the loss ends at the flow's limit",
            predicted=limit,
            measured=loss[0, -1],
            tolerance=float(trained["tail"]),
            basis="scores off task fade as 1/(Kt), by theory",
            theory="theory.softmax.flow_limit_loss",
        ),
        over(
            "unbalanced-rate",
            "Spectral loss, unbalanced by δ = o² - v²: the μ of a head that has no task passes through zero, at the "
            "rate at which it decays in the balanced flow: d arsinh(2μ/δ)/dt, one for each δ",
            unless=alone,
            predicted=wanted,
            measured=rates,
            tolerance=allowed,
            basis="descent in steps, by which δ also shrinks; variance of the losing heads",
            counted="imbalances",
            theory=SADDLE,
        ),
        close(
            "unbalanced-time",
            "Spectral loss, unbalanced: the loss leaves the flow's limit after μ has fallen to δ and grown back: slope "
            "of that time in ln δ, about -2 over the rate of decay",
            unless=alone or few,
            predicted=slopes[1],
            measured=slope,
            tolerance=np.ptp(slopes) / 2 + 6 * step,
            basis=f"the size of μ that counts, from {LEFT[0]:g} to {LEFT[1]:g}; descent in steps, by which δ shrinks",
            theory=SADDLE,
        ),
        over(
            "unbalanced-end",
            "Spectral loss, unbalanced: the loss ends below the middle between the flow's limit and the bound for "
            f"{number_word(heads)} heads: final loss, one for each imbalance",
            unless=alone,
            predicted=(limit + bound) / 2,
            measured=loss[ended, -1],
            exact="a level",
            counted="imbalances",
            theory=SADDLE,
            relation="<=",
        ),
        over(
            "unbalanced-bound",
            f"Spectral loss, unbalanced: the loss stays above the bound for {number_word(heads)} heads: least loss, "
            "one for each imbalance",
            predicted=bound,
            measured=loss[1:].min(axis=1),
            exact="a bound",
            counted="imbalances",
            theory="theory.softmax.lower_bound",
            relation=">=",
        ),
    ]


_TIME = "time t = rate × step"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(15.0, 8.6)
        panels = figure.subplots(2, 3)
        equal, starts, signal = data["equal"], data["starts"], float(data["equal"].attrs["signal"])
        levels = {int(used): float(level) for used, level in zip(equal["used"], equal["level"], strict=True)}
        _courses(panels[0, 0], equal, levels, signal, "(a) Softmax attention: random initializations")
        _draw_winners(panels[0, 1], (equal, data["unequal"], starts))
        _converged(panels[0, 2], data["unequal"])
        costs = dict(zip(starts["heads_used"].values.tolist(), starts["cost"].values.tolist(), strict=True))
        _courses(panels[1, 0], starts, costs, signal, "(d) The surrogate: random initializations")
        _draw_sharing(panels[1, 1], data["sharing"])
        _draw_imbalance(panels[1, 2], data["imbalance"], settings)
    return figure


def _courses(axes: Any, trained: xr.Dataset, levels: dict[int, float], signal: float, title: str) -> None:
    time, used, tasks = trained["time"].values, trained["heads_used"].values, trained.sizes["task"]
    for heads, color in zip(range(tasks, 0, -1), cycle((BLUE, VERMILION, GREEN)), strict=False):
        chosen = np.flatnonzero(used == heads)
        axes.plot([], [], color=color, label=f"{shared_words(heads, tasks)}: {chosen.size} of {used.size} runs")
        for run in chosen[:25]:
            axes.plot(time, trained["loss"].values[run], color=color, linewidth=0.7, alpha=0.6)
    for level in levels.values():
        axes.axhline(level, color=BLACK, linestyle="--", linewidth=0.9)
        axes.annotate(f"{level:.2f}", (0.0, level), xytext=(3, 3), textcoords="offset points", fontsize=9)
    axes.set(xlim=(0, min(24, float(time[-1]))), ylim=(0, 1.3 * signal), xlabel=_TIME, ylabel="loss, summed over tasks")
    axes.set_title(title)
    axes.legend(loc="upper right")


def _draw_winners(axes: Any, sets: tuple[xr.Dataset, ...]) -> None:
    colors = (BLUE, PALETTE[5], PALETTE[1])
    words = ("named for it alone, leads clearly", "named for it alone, leads by little", "named for several tasks")
    for place, runs in enumerate(sets):
        right = (runs["served_by"] == runs["predicted"]).values
        contested, clear = runs["contested"].values, runs["lead"].values > MARGIN
        for step, among in enumerate((~contested & clear, ~contested & ~clear, contested)):
            number, got = int(among.sum()), int((right & among).sum())
            if number == 0:
                continue
            spot = 3.6 * place + step
            axes.bar(spot, got / number, width=0.85, color=colors[step])
            axes.annotate(
                f"{got}\nof {number}",
                (spot, got / number),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8.5,
            )
    for color, word in zip(colors, words, strict=True):
        axes.bar([0], [0], color=color, label=word)
    named = [f"softmax\n{runs.sizes['head']} heads" for runs in sets[:2]]
    axes.set_xticks([1, 3.6, 8.2], [*named, "surrogate"])
    axes.set_ylim(0, 1.62)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_ylabel("tasks learned by the head that theory names")
    axes.set_title("(b) The initial weights decide, but for contention")
    axes.legend(loc="upper left", title="the head is", fontsize=8.5, title_fontsize=8.5)


def _converged(axes: Any, runs: xr.Dataset) -> None:
    lines(
        axes,
        runs["time"],
        runs["loss"],
        f"softmax attention, {runs.sizes['run']} initializations",
        color=BLUE,
        linewidth=0.9,
        alpha=0.8,
    )
    mean = float(runs["tested"].mean())
    axes.plot(
        float(runs["time"][-1]), mean, "o", color=BLACK, label="mean at the end, on fresh sequences", clip_on=False
    )
    level, limit = float(runs["level"]), float(runs["limit"])
    axes.axhline(level, color=BLACK, linestyle="--", linewidth=1.1, label=f"least loss by quadrature, {level:.2f}")
    axes.axhline(limit, color=GRAY, linestyle=":", linewidth=1.4, label=f"limit of the surrogate, {limit:.2f}")
    axes.set(xlim=(0, float(runs["time"][-1])), ylim=(0, 36), xlabel=_TIME, ylabel="loss, summed over tasks")
    axes.set_title("(c) Softmax attention: 4 heads, 3 unequal noisy tasks")
    axes.legend(loc="upper right")


def _draw_sharing(axes: Any, trained: xr.Dataset) -> None:
    axes.axhline(0, color=GRAY, linewidth=0.8)
    axes.plot(trained["x"], trained["predicted_rate"], color=BLACK, linewidth=1.3, label="theory")
    axes.plot(trained["x"], trained["rate"], "o", color=BLUE, markersize=5, fillstyle="none", label="trained")
    threshold = float(trained["threshold"])
    axes.axvline(threshold, ymax=0.77, color=GRAY, linestyle=":", linewidth=1.2)
    axes.annotate(f"x = {threshold:.3f}", (threshold, -0.85), xytext=(5, 0), textcoords="offset points")
    split = np.abs(trained["end_loss"].values - float(trained["split"])) < 0.1
    for kind, marker, color in ((~split, "v", VERMILION), (split, "^", GREEN)):
        level = float(trained["split"] if marker == "^" else trained["shared"])
        word = "splits" if marker == "^" else "stays shared"
        ends = trained["end"].values[kind]
        axes.plot(ends, np.full(ends.size, -1.25), marker, color=color, label=f"long run: {word}, loss {level:.2f}")
    axes.set(ylim=(-1.4, 1.9), xlabel="x, ω of the second head over the first's")
    axes.set_ylabel("growth rate of the second head's μ")
    axes.set_title("(e) The surrogate: two tasks in one head, and a second")
    axes.legend(loc="upper left", fontsize=8.5)


def _draw_imbalance(axes: Any, trained: xr.Dataset, settings: Settings) -> None:
    time = trained["time"].values
    first = min(2.0, float(time[-1]) / 10)
    for row, part in enumerate(trained["part"].values):
        label = (
            "balanced, o = v"
            if part == 0
            else f"v/o = {(1 + part) ** 2:g}"
            if part > 1e-3
            else f"v/o = 1 + {scientific(2 * part)}"
        )
        color = BLACK if part == 0 else PALETTE[row - 1]
        axes.plot(time[1:], trained["loss"].values[row, 1:], color=color, label=label)
    for level, word in (
        (float(trained["limit"]), "limit of the flow"),
        (float(trained["bound"]), f"bound for {number_word(settings.tasks)} heads"),
    ):
        axes.axhline(level, color=GRAY, linestyle="--", linewidth=1.0)
        below: dict[str, Any] = {"xytext": (0, -12), "textcoords": "offset points", "fontsize": 9}
        axes.annotate(f"{word}, {level:.2f}", (1.1 * first, level), **below)
    axes.set(xscale="log", xlim=(first, float(time[-1])), ylim=(0.1 * sum(settings.dims), 0.4 * sum(settings.dims)))
    axes.set(xlabel=_TIME, ylabel="loss, summed over tasks", title="(f) The surrogate: an imbalance undoes the limit")
    axes.legend(loc="upper right")


FIGURE = Figure(
    title="Heads are allocated by the initial weights; sharing lasts; an imbalance undoes the limit",
    caption=CAPTION,
    settings=Settings(),
    quick=Settings(
        starts=40,
        steps=5_000,
        softmax_starts=8,
        softmax_sequences=320,
        unequal_starts=3,
        unequal_sequences=500,
        softmax_steps=1200,
        softmax_tested=250,
    ),
    described=describe,
    simulate=simulate,
    claims=claims,
    draw=draw,
)
