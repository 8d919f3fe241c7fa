r"""Fig 1: three heads emerge, one for each task, and weights stay decomposable.

The same initial weights are trained in three ways: whole matrices by gradient descent on fresh sequences, eigenvalues
alone by gradient descent on the exact loss over fixed samples (`ReducedSampled`), and the flow of the spectral loss.
The first two are softmax attention itself, and differ by the noise of batches only, which is followed over batch
sizes; the third stands for it at large d and L.

Of noise: descent at a small rate η on batches of B sequences settles at weights with covariance Σ about a minimum with
Hessian H, $H\Sigma + \Sigma H = \tfrac\eta B C$, where C is the covariance of the gradient of a sequence. So the loss
is above its least by $\tfrac12\mathrm{tr}\,H\Sigma = \eta\,\mathrm{tr}\,C/4B$. Finite steps make it more: each
direction, of curvature h, counts 1/(1 - ηh/2) times.
"""

from collections.abc import Iterator
from typing import Any

import matplotlib.figure
import numpy as np
import scipy
import xarray as xr

from stepwell.analysis import head_task_allocation
from stepwell.analysis.style import BLACK, GRAY, ORANGE, PALETTE, SKY, styled
from stepwell.figures import Claim, Data, Figure, Origin, Seeds

from ._common import CHANCE, DEVIATIONS, against_batches, compared, finish, note, slope, two_rows
from ._eigenvalues import Estimate
from ._fig01_runs import OTHERS, TAIL, Settings, inclination, late_part, own_entries, simulate
from ._whole_matrices import FirstSetting

CAPTION = (
    "Three regressions in one sequence, three softmax heads, trained from small decomposable weights. (a) Eigenvalues "
    "ω of the scores and (b) eigenvalues μ of the readout, for each head and task. Colors: softmax attention, whole "
    "matrices by gradient descent on fresh sequences, in random bases. Dashed: softmax attention again, descent of the "
    "eigenvalues alone on the exact loss, without noise. Dotted: its surrogate, the flow of the spectral loss, which "
    "is that of theory. (c) The loss, with the three phases that a probe detects in it, and the bracket that theory "
    "predicts for the time of the fall. (d) A gradient is off the decomposable structure by noise only, which falls as "
    "one over the root of the number of sequences; so are trained weights (Fig 2 measures that). (e) ω of each head "
    "and task at the end of training; in brackets, that of the exact loss at twice the time. (f), ours: what ω, μ and "
    "the loss of whole matrices differ by from training on the exact loss, beside one over the batch; of ω the runs "
    "are too few to tell one over the batch from one over its root. Inferred of the paper, whose text could not be "
    "consulted: time is that of the plain squared loss. Its code draws 10,000 sequences a step."
)
PAPER_SETTINGS: dict[str, Any] = {
    "tasks, heads": "3, 3",
    "dimensions of the tasks": [10, 10, 10],
    "context length L": 100,
    "strength λ, noise σ": "1 in each coordinate (published code), 0",
    "width of a head d_e": 30,
    "scores divided by": "√(d_x + d_y) (published code)",
    "initial weights": "heads diagonal (published code), size not known",
    "sequences a step": "10,000 fresh ones (published code)",
}


def describe(settings: Settings) -> dict[str, Any]:
    added = settings.added()
    counts = [f"{seeds} runs of {batch}" for batch, seeds in added.pop("runs")]
    others = OTHERS if len(counts) > 1 else 0
    return {**settings.described(), "sequences a step": counts, "further runs, for the scatter": others, **added}


QUIET = 256
"""Sequences in a batch from which on the noise of whole matrices is small beside what is claimed of their curves."""


WARM = 0.1
"""The part of the fall of the loss until which the warm-up lasts: as the probe of the three phases has it."""
MOST = 0.5


def claims(data: Data, settings: Settings) -> list[Claim]:
    runs = data["descent"]
    data = {**data, "descent": runs.assign_coords(run=settings.seed + runs["run"])}
    noise = _without_noise(data) if np.unique(runs["batch"]).size >= 3 else []
    return [*_structure(data["gradient"]), *_emergence(data, settings), *_limits(data, settings), *noise]


def _unequal(settings: FirstSetting) -> str:
    """Why claims for tasks of one dimension cannot be judged, if there are several."""
    return "tasks have different dimensions" if len(set(settings.dims)) > 1 else ""


def _structure(gradient: xr.Dataset) -> Iterator[Claim]:
    logs = np.log(gradient["sequences"].values)
    norms, others = (np.log(gradient[name].values) for name in ("off", "other_off"))
    fits = [slope(logs, *each) for each in zip(norms, others, strict=True) if np.unique(logs).size > 1]
    off = gradient["slope"] - gradient["reduced"]
    symmetry = Origin("theory", "symmetry of the task: docstring of fig02_blocks")
    yield symmetry.close(
        "gradient-noise",
        "A gradient is off the decomposable structure by the noise of its batch only: exponent of its norm in the "
        "number of sequences, one for each of the matrices W and U",
        predicted=-0.5,
        measured=[fit.value for fit in fits],
        labels=[f"matrix {name}" for name in gradient["matrix"].values],
        tolerance=[fit.allowed for fit in fits],
        basis="Student's interval for the scatter of other batches, as rare as three standard errors",
        counted="matrices",
    )
    yield symmetry.close(
        "gradient-population",
        "At infinitely many sequences the gradient keeps weights decomposable: its squared norm off the structure "
        "over that on it, one ratio for each of the matrices W and U",
        unless="" if gradient.sizes["group"] else "there is a single batch",
        **compared(gradient["square"] / gradient["on"] ** 2, 0.0, 3 * gradient["error"] / gradient["on"] ** 2),
        basis="three standard errors of the products of gradients of different batches, from other batches",
        counted="matrices",
    )
    yield Origin("check", "objectives.Sampled of whole matrices against objectives.ReducedSampled").close(
        "gradient-eigenvalues",
        "On the structure the gradient of whole matrices is that of the eigenvalues alone on the exact loss: "
        "difference of each derivative by ω and μ, in standard errors",
        **compared(off / np.hypot(gradient["slope_error"], gradient["reduced_error"]), 0.0, DEVIATIONS),
        basis=f"{DEVIATIONS:g} standard errors, over other whole and other reduced sequences",
        counted="derivatives",
    )


def _emergence(data: Data, settings: Settings) -> Iterator[Claim]:
    runs, predictions, scaled = data["descent"], data["theory"], data["emergence"]
    quiet = runs.isel(run=np.flatnonzero(runs["batch"] >= QUIET))
    early, late = scaled["bracket"].transpose("end", "scale").values
    width, alone = float(predictions["width"]), "" if settings.tasks > 1 else "there is a single head"
    last = runs.isel(time=-1)
    allocated = head_task_allocation(last["omega"].values, last["mu"].values)
    right = (allocated.head == predictions["winner"].values).sum(axis=1) * allocated.one_to_one
    scales, times = scaled["scale"].values, scaled["time"].values
    half = float(data["population"]["half"].mean())
    unknown = "" if np.isfinite(half) else "training on the exact loss ends before half the fall"
    # What the spectral loss neglects, relatively: the spread of |q|², and of the normalizer.
    finite = 2 / settings.dims[0] + np.e**2 / settings.context
    unequal = _unequal(settings)
    short = "training ends before tasks emerge" if runs["time"][-1] <= predictions["bracket"][0] else ""
    yield Origin("paper", "abstract (task allocation) and Fig 1").close(
        "one-head-a-task",
        "Whole matrices: every task is learned by the head that theory names from the initial weights, and no two "
        "tasks by the same head: number of such tasks, for each run",
        unless=short,
        counted="runs",
        **compared(runs["batch"].copy(data=right), settings.tasks),
        basis="a count",
    )
    yield from _inclinations(data, settings, short)
    detected = np.isfinite(quiet["phase"].isel(edge=0))
    exact = [f"exact loss, set {number + 1}" for number in range(data["population"].sizes["set"])]
    yield Origin("paper", "abstract (three phases) and Fig 1", explored=True).fraction(
        "three-phases",
        "Softmax attention: the loss waits, falls once and settles: fraction of the runs in which three phases are "
        f"detected, of whole matrices on batches of {QUIET} sequences and more and of eigenvalues on the exact loss",
        unless=short or unknown,
        holds=[*detected.values, *data["population"]["phases"].values],
        labels=[
            f"seed {run}, batch {batch}"
            for run, batch in zip(*(detected[n].values for n in ("run", "batch")), strict=True)
        ]
        + exact,
        counted="runs",
        basis="a count; the first and last tenth of the fall are 4 times slower than any between",
    )
    if "others" in data:
        # A step of size η delays growth by η/2 for each e-folding, of which there are ln(1/ω√d) from the first weights.
        steps = (
            (settings.rate + settings.population_rate)
            / 2
            * np.log(settings.dims[0] ** -0.5 / np.diag(settings.initial_weights()[0]).min())
        )
        others = data["others"]["half"].values
        single = others.std(ddof=1) * scipy.stats.t.ppf(1 - CHANCE / 2, others.size - 1)
        yield Origin("theory", "objectives.ReducedSampled, the exact loss without noise").close(
            "emergence-whole",
            "Whole matrices emerge when eigenvalues alone do on the exact loss: time of half the fall, for each run",
            unless=short or unknown,
            counted="runs",
            **compared(runs["half"], half, steps + single * (runs["batch"].min() / runs["batch"]) ** 0.5),
            basis="Student's interval for the scatter of other runs, as one over the root of the batch; finite steps",
        )
    yield Origin("theory", "theory.softmax.spectral_loss, leading order in 1/d and 1/L").close(
        "emergence-exact",
        "Softmax attention without noise emerges when the flow of the spectral loss does: time of half the fall",
        unless=unknown or unequal,
        predicted=times[0],
        measured=half,
        tolerance=width * finite + times[0] / settings.context,
        basis="the drop, whose shape finite sizes change by 2/d + e²/L of its width; the warm-up, by 1/L",
    )
    growing = Origin("theory", "theory.softmax.emergence_bracket")
    yield growing.close(
        "emergence-exponent",
        "Spectral flow: the emergence time is proportional to one over the size of the initial weights: exponent "
        "between the two smallest",
        unless=unequal,
        predicted=-1.0,
        measured=np.log(times[-1] / times[-2]) / np.log(scales[-1] / scales[-2]),
        tolerance=width / times[-2] / np.log(scales[-2] / scales[-1]),
        basis="the width of the drop over the shorter of the times",
    )
    yield growing.close(
        "emergence-brackets",
        "Spectral flow: emergence times lie in the predicted brackets, between those with one effective head (0) "
        f"and with H (1), which reach {float(((late - early) / (late + early)).max()):.0%} to both sides of their "
        f"middles: place in the bracket, for each of {scales.size} sizes of the initial weights",
        unless=alone or unequal,
        predicted=0.5,
        measured=[] if alone else (times - early) / (late - early),
        labels=[f"initialization scale {scale:g}" for scale in scales],
        tolerance=0.5,
        basis="the bracket itself",
        counted="sizes",
    )


def _inclinations(data: Data, settings: FirstSetting, short: str) -> Iterator[Claim]:
    """Of the heads towards their tasks, in the warm-up: until a tenth of the fall of the loss is done."""
    calm, runs = data["population"], data["descent"]
    fallen = (calm["loss"].mean("set") - float(calm["loss"].isel(time=0).mean())) / (
        float(data["theory"]["best_loss"]) - float(calm["loss"].isel(time=0).mean())
    )
    ended = bool((fallen >= WARM).any())
    tenth = float(calm["time"][int(np.argmax(fallen.values >= WARM))])
    alone = "" if settings.tasks > 1 else "there is a single head"
    warming = inclination(calm.sel(time=slice(0, tenth)))
    first, last = float(warming.isel(time=0).min()), [warming.isel(time=-1)]
    last.append(inclination(runs.sel(time=tenth, method="nearest")).rename(run="set"))
    built = [((each - first) / (1 - first)).transpose("set", "head") for each in last]
    names = [f"exact loss, set {k + 1}" for k in range(calm.sizes["set"])]
    names += [f"seed {run}, batch {batch}" for run, batch in zip(runs["run"].values, runs["batch"].values, strict=True)]
    said = Origin("paper", "abstract (heads build up their inclination towards tasks in the warm-up)", explored=True)
    unless = alone or short or ("" if ended else "training on the exact loss ends in the warm-up")
    yield said.at_least(
        "inclination",
        "Softmax attention: most of the inclination of a head to its task, the part of Σωμ that is on it, is built up "
        f"in the warm-up, until {WARM:.0%} of the fall of the loss is done: part of the rise to 1 that is, for each "
        "run and head",
        predicted=MOST,
        unless=unless,
        measured=np.concatenate(built).ravel() if not unless else [],
        labels=[f"{name}, head {head + 1}" for name in names for head in range(settings.tasks)],
        basis="most is more than half",
        counted="heads",
    )
    yield said.at_least(
        "inclination-gradual",
        "Softmax attention on the exact loss: the inclination of a head builds up gradually: it rises at every step of "
        "the warm-up: least rise, for each set of samples and head",
        predicted=0.0,
        unless=unless,
        measured=(warming.diff("time").min("time")).transpose("set", "head") if not unless else [],
        basis="a sign",
        counted="heads",
    )


def _limits(data: Data, settings: FirstSetting) -> Iterator[Claim]:
    predictions, population, spectral = data["theory"], data["population"], data["spectral"]
    end, root, unequal = population.isel(time=-1), settings.dims[0] ** 0.5, _unequal(settings)
    emerged = float(predictions["bracket"][1])
    early = "training on the exact loss ends before tasks have emerged" if end["time"] <= emerged else ""
    then = spectral.sel(time=float(end["time"]))
    tail, others = float(then["loss"] - spectral["loss"][-1]), _square(_off(then), settings)
    for name, unit, word in (("omega", root, "ω√d"), ("mu", 1.0, "μ")):
        values = own_entries(end[name]).ravel() * unit
        scatter, best = (float(each) * unit for each in (data["scatter"][name], predictions[f"best_{name}"].mean()))
        yield Origin("theory", "theory.softmax.exact_optimum").close(
            f"end-{name}",
            f"Softmax attention without noise: {word} of the heads in use ends where quadrature has the least "
            "loss, mean over tasks and sets of samples",
            unless=early or unequal,
            predicted=best,
            measured=values.mean(),
            tolerance=DEVIATIONS * scatter / values.size**0.5 + best * others,
            basis=f"{DEVIATIONS:g} standard errors, the scatter from sequences of their own; the square of what is "
            "off task, by the flow of the spectral loss",
        )
    yield Origin("theory", "theory.softmax.exact_optimum").close(
        "end-loss",
        "Softmax attention without noise ends at the least loss by quadrature, mean over sets of samples",
        unless=early,
        predicted=float(predictions["best_loss"]),
        measured=float(end["loss"].mean()),
        tolerance=DEVIATIONS * float(np.sqrt((end["error"] ** 2).sum())) / end.sizes["set"] + tail,
        basis=f"{DEVIATIONS:g} standard errors of the sampled loss, from other sequences; its tail, as in the flow "
        "of the spectral loss",
    )
    before, final = (spectral.sel(time=time) for time in TAIL)
    alone = "" if settings.tasks > 1 else "there is a single task: nothing is off task"
    late = f"tasks emerge after t = {TAIL[0]:g}" if emerged >= TAIL[0] else ""
    slow = float(np.exp(-predictions["slow"] * (TAIL[1] - emerged)))
    rate = float(predictions["fading"])
    # At most: 1/ω has grown at its rate since the emergence.
    sooner, later = (0.0 if late else _square(1 / (rate * (time - emerged)), settings) for time in TAIL)
    for name, unit, word in (("omega", root, "ω√d = 1"), ("mu", 1.0, "μ = √d/(1+ρ)")):
        yield Origin("theory", "theory.softmax.flow_limit").close(
            f"limit-{name}",
            f"The flow of the spectral loss ends at {word}, for each head in use",
            unless=alone or late or unequal,
            predicted=float(predictions[name][0]) * unit,
            measured=own_entries(final[name]) * unit,
            labels=[f"head {head + 1}" for head in range(settings.tasks)],
            tolerance=float(predictions[name][0]) * unit * (slow + later),
            basis="the slow mode; the square of what is off task",
            counted="heads",
        )
    first, last = _off(before), _off(final)
    nothing = alone or late or unequal
    cost = np.e / settings.context * predictions["mu"][0] ** 2 * sum(settings.dims) * _square(last, settings)
    yield Origin("theory", "theory.softmax.off_task_fading").close(
        "fading",
        "Spectral flow: what is off task fades as one over time: d(1/ω)/dt",
        unless=nothing,
        predicted=rate,
        measured=np.nan if alone else (1 / last - 1 / first) / (TAIL[1] - TAIL[0]),
        tolerance=rate * sooner,
        basis="next order: the square of what is off task",
    )
    yield Origin("theory", "theory.softmax.spectral_loss to second order in ω off task").close(
        "tail",
        "Spectral flow: the loss is above its limit by what scores off task cost, which fall as one over time and "
        "not exponentially: excess over (eφμ²/L)Σ S Σ dω²",
        unless=nothing,
        predicted=1.0,
        measured=np.nan if alone else (final["loss"] - predictions["loss"]) / cost,
        tolerance=sooner,
        basis="next order: the square of what is off task",
    )


def _off(course: xr.Dataset) -> float:
    """ω of the first head off task, if there is another task."""
    return float(course["omega"][0, 1]) if course.sizes["task"] > 1 else 0.0


def _square(off: float, settings: FirstSetting) -> float:
    """What a head has in its scores off task, squared, given ω there."""
    return (settings.tasks - 1) * settings.dims[0] * off**2


def _without_noise(data: Data) -> Iterator[Claim]:
    """Runs of whole matrices approach those of the exact loss as batches grow."""
    runs, population, others = data["descent"], data["population"], data["others"]
    late = late_part(population, runs.attrs["late"])
    reached = np.isfinite(runs["late_loss"]).all() and np.isfinite(late["loss"]).all()
    why = "" if reached else "training ends before the drop is over"
    batches, rate = runs["batch"].values, float(np.diff(runs["time"].values[:2])[0])
    cost = rate * float(data["noise"]["total"]) / 4 / batches
    share = cost.max() / float(data["theory"]["best_loss"])
    calm_error = float(np.sqrt((population["error"] ** 2).sum())) / population.sizes["set"]
    calm, exact = Estimate(float(late["loss"].mean()), calm_error), own_entries(late["mu"]).mean(axis=1)
    settled = Estimate(float(exact.mean()), float(data["scatter"]["mu"]) / exact.size**0.5)
    # Of a single value at the smallest batch.
    mu_error, loss_error = float(others["late_mu"].std(ddof=1)), float((others["late_loss_error"] ** 2).mean() ** 0.5)
    rows = (("mu", "μ of the heads in use", settled, mu_error), ("loss", "the loss", calm, loss_error))
    law = Origin("theory", "stationary noise of descent at rate η: docstring of fig01_emergence.py", explored=True)
    for name, word, reference, single in rows:
        away = runs[f"late_{name}"] - reference.mean
        expected = Estimate(float(others[f"late_{name}"].mean()) - reference.mean, single)
        measured, allowed = _power(away, expected, reference.error, share)
        yield law.close(
            f"batch-{name}",
            f"Whole matrices: {word} differs from that of the exact loss as one over the batch, and not over its root: "
            f"exponent, batches of {', '.join(str(each) for each in np.unique(batches))}",
            unless=why,
            predicted=-1.0,
            measured=measured,
            tolerance=allowed,
            basis=f"{DEVIATIONS:g} standard errors, the scatter from other runs; next order: what noise costs, "
            "over the loss",
        )
    excess, error = (runs["late_loss"] - calm.mean) / cost, loss_error * (batches.min() / batches) ** 0.5
    allowed, noisy = DEVIATIONS * np.hypot(error, calm.error) / cost, batches <= QUIET
    yield law.at_least(
        "noise-cost",
        "Whole matrices: noise raises the loss by at least η tr C/4B, C the covariance of the gradient of a "
        f"sequence, measured apart: excess over it, for each run on batches of {QUIET} sequences and fewer (with "
        "more it is within its error)",
        unless=why,
        **compared(excess[noisy], 1.0, excess.copy(data=allowed)[noisy]),
        basis=f"{DEVIATIONS:g} standard errors of both losses, from other runs and sequences; finite steps raise "
        "it further",
    )


def _power(away: xr.DataArray, expected: Estimate, error: float, share: float) -> tuple[float, float]:
    """The exponent of what falls with the batch, by weighted least squares, and by how much it may be off -1.

    `expected` is what other runs have at the smallest batch, with the error of a single value; `error` is that of what
    is subtracted from all, and `share` the next order, relatively, at the smallest batch.
    """
    batches = np.unique(away["batch"]).astype(float)
    grouped = [away.values[away["batch"].values == batch] for batch in batches]
    counts, means = (np.array([of(each) for each in grouped]) for of in (np.size, np.mean))
    fall = batches[0] / batches
    size = expected.mean * fall
    relative = expected.error * np.sqrt(fall / counts) / np.abs(size)
    weights = 1 / (relative**2 + (error / size) ** 2)
    x = np.log(batches) - weights @ np.log(batches) / weights.sum()
    lever = weights * x / (weights @ x**2)
    with np.errstate(invalid="ignore", divide="ignore"):  # not a number where the sign changes
        exponent = lever @ np.log(means / expected.mean)
    chance = np.hypot(np.linalg.norm(lever * relative), error * (lever / size).sum())
    return float(exponent), float(DEVIATIONS * chance + abs(share * lever @ fall))


_TIME = "time t = rate × step"
_NAMES = ("$W_X$", "$W_Y$", "$U_X$", "$U_Y$")
_CALM = (("population", "--", "exact loss"), ("spectral", ":", "spectral flow"))


def draw(data: Data, settings: FirstSetting) -> matplotlib.figure.Figure:
    runs, root = data["descent"], settings.dims[0] ** 0.5
    shown = runs.isel(run=int(np.argmax(runs["batch"].values)))
    with styled():
        figure, (a, b, c, d, e, f) = two_rows(12.0, 7.6, (1, 1, 1), (1.3, 0.9, 1))
        _course(a, data, shown, "omega", root, "1", (1, 4))
        finish(a, "(a) Scores: ω√d of each head and task", _TIME, "ω√d", ylim=(-0.04, 1.12))
        a.legend(loc="center left", bbox_to_anchor=(0.0, 0.6), fontsize=8.5)
        _course(b, data, shown, "mu", 1.0, "√d/(1+ρ)", (1, -13))
        finish(b, "(b) Readout: μ of each head and task", _TIME, "μ")
        _loss(c, data, shown, sum(settings.dims))
        _departures(d, data)
        _converged(e, shown, data["population"].isel(time=-1).mean("set"), root)
        _approach(f, data)
    return figure


def _calm(data: Data, until: float) -> Iterator[tuple[xr.Dataset, str, str]]:
    """Courses without noise up to a time, in the mean over sets of samples, with dashes and labels."""
    for key, dashes, label in (("population", "--", "exact loss"), ("spectral", ":", "spectral flow")):
        course = data[key].mean("set") if "set" in data[key].dims else data[key]
        yield course.sel(time=course["time"] <= until), dashes, label


def _course(
    axes: Any, data: Data, shown: xr.Dataset, name: str, unit: float, limit: str, offset: tuple[float, float]
) -> None:
    time, tasks = shown["time"].values, shown.sizes["task"]
    for head, task in np.ndindex(tasks, tasks):
        own = head == task
        # Heads coincide but for noise: each later one is drawn thinner, over the others.
        line = (
            {"color": PALETTE[head % len(PALETTE)], "linewidth": max(1.0, 4.6 - 1.7 * head)}
            if own
            else {"color": GRAY, "linewidth": 0.8}
        )
        label = f"head {head + 1} on task {task + 1}" if own else None
        axes.plot(time, unit * shown[name].values[:, head, task], label=label, **line)
    axes.plot([], [], color=GRAY, linewidth=0.8, label="heads on other tasks")
    for course, dashes, label in _calm(data, time[-1]):
        own, other = (unit * course[name].values[:, 0, task] for task in (0, min(1, tasks - 1)))
        axes.plot(course["time"], own, dashes, color=BLACK, linewidth=1.3, label=label)
        axes.plot(course["time"], other, dashes, color=BLACK, linewidth=1.0)
    level = float(data["theory"][name][0]) * unit
    axes.axhline(level, color=ORANGE, linewidth=1.0, zorder=0)
    note(axes, limit, (0.0, level), offset, color="#8a5f00", fontsize=9)
    axes.set_xlim(0, time[-1])


def _loss(axes: Any, data: Data, shown: xr.Dataset, signal: float) -> None:
    time, (first, last) = shown["time"].values, shown["phase"].values
    edges = (0.0, first, last, float(time[-1]))
    if np.isfinite(first):
        axes.axvspan(first, last, color=SKY, alpha=0.25, linewidth=0)
        for word, left, right in zip(("warm-up", "emergence", "convergence"), edges[:-1], edges[1:], strict=True):
            axes.text((left + right) / 2, 1.18 * signal, word, ha="center", fontsize=9)
    axes.plot(time, shown["loss"], color=PALETTE[0], linewidth=0.8, label=f"batches of {int(shown['batch'])}")
    for course, dashes, label in _calm(data, time[-1]):
        axes.plot(course["time"], course["loss"], dashes, color=BLACK, linewidth=1.4, label=label)
    bracket = data["theory"]["bracket"].values
    axes.plot(bracket, [signal / 15] * 2, "|-", color=ORANGE, markersize=9, label="predicted bracket")
    title, words = "(c) The loss, and its three phases", "loss, summed over tasks"
    finish(axes, title, _TIME, words, ylim=(0, 1.25 * signal), xlim=(0, time[-1]))
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 0.14), fontsize=8.5)


def _departures(axes: Any, data: Data) -> None:
    gradient, runs, hollow = data["gradient"], data["descent"], {"fillstyle": "none"}
    for matrix, marker in (("W", "o"), ("U", "s")):
        one = gradient.sel(matrix=matrix)
        label = f"gradient in {matrix}"
        axes.plot(one["sequences"], one["off"] / one["on"], marker, label=label, color=BLACK, markersize=4, **hollow)
    for column, (name, marker) in enumerate(zip(("W_X", "W_Y", "U_X", "U_Y"), "v<>^", strict=True)):
        on = runs.sizes["task"] ** 0.5 * (float(data["theory"]["mu"][0]) if column > 1 else 1.0)
        off, style = runs["late_off"].values[:, column] / on, {"color": PALETTE[column], "markersize": 6, **hollow}
        axes.plot(runs["batch"], off, marker, label=f"trained ${name}$", **style)
    ends = np.array([runs["batch"].min(), max(*runs["batch"].values, *gradient["sequences"].values, 0)], dtype=float)
    for height, label in ((0.03, None), (6.0, "one over the root")):
        axes.plot(ends, height * (ends / ends[0]) ** -0.5, "--", color=GRAY, linewidth=1.0, label=label)
    words = ("(d) Decomposable up to noise", "sequences in a batch", "off the structure / on it")
    finish(axes, *words, xscale="log", yscale="log")
    axes.xaxis.set_minor_formatter("")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8.5)


def _converged(axes: Any, shown: xr.Dataset, calm: xr.Dataset, root: float) -> None:
    tasks = shown.sizes["task"]
    values, later = (root * each for each in (shown["omega"].values[-1], calm["omega"].values))
    axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="equal")
    for head, task in np.ndindex(tasks, tasks):
        style = {"ha": "center", "va": "center", "color": "white" if abs(values[head, task]) > 0.6 else BLACK}
        axes.text(task, head - 0.12, f"{values[head, task]:.2f}", **style)
        axes.text(task, head + 0.2, f"({later[head, task]:.2f})", fontsize=8, **style)
    numbers = [str(task + 1) for task in range(tasks)]
    axes.set_xticks(range(tasks), numbers)
    axes.set_yticks(range(tasks), numbers)
    axes.tick_params(length=0)
    axes.set_frame_on(False)
    finish(axes, f"(e) ω√d at t = {float(shown['time'][-1]):g} (and {float(calm['time']):g})", "task", "head")


def _approach(axes: Any, data: Data) -> None:
    runs = data["descent"]
    late = late_part(data["population"], runs.attrs["late"])
    axes.set(ylabel="relative difference", title="(f) Whole matrices as batches grow")
    if not np.isfinite(late["loss"] + runs["late_loss"]).any():
        axes.text(0.5, 0.5, "training ends before the drop is over", ha="center", transform=axes.transAxes)
        return
    calm = {"ω": own_entries(late["omega"]), "μ": own_entries(late["mu"]), "loss": late["loss"].values}
    ends = {"ω": runs["late_omega"].mean("task"), "μ": runs["late_mu"].mean("task"), "loss": runs["late_loss"]}
    away = {word: abs(ends[word].values / calm[word].mean() - 1) for word in calm}
    against_batches(axes, runs["batch"].values, away)


FIGURE = Figure(
    title="Three heads wait, emerge together and converge, each to a task of its own",
    caption=CAPTION,
    source="Fig 1",
    settings=Settings(),
    quick=Settings(runs=((64, 1),), rate=0.02, steps=500, sets=2, sequences=640, blocks=16, block_size=128),
    described=describe,
    paper_settings=PAPER_SETTINGS,
    seeds=Seeds(explored="others, not recorded which", fixed="on the exploratory seeds"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
