r"""Fig 1: attention with merged key and query is a two-layer network on cubic features, and its loss drops once.

The finite data sets are those of the published command: attention is not divided by N, the rate is 0.001. Where a run
is compared with the theory, time and weights are converted to the paper's convention, in which runs at
infinitely many sequences are made too. No loss that was trained enters what the theory expects.

On white inputs, $\Lambda = I$, eq. 10 has
$\sigma(t) = e^{2\sqrt D t/\tau}/[(1 + (1 + D)/N)(e^{2\sqrt D t/\tau} - 1) + \sqrt D/w_{init}^2]$ in $\hat y =
\sigma(t)\,\beta^\top x_q$. It is for heads that are aligned initially; of random ones the part that grows is
aligned, and $w_{init} = \|\mu\|$ is its size (`theory.linear.merged_initial`). What does not grow enters σ, the mean of
the diagonal of the map, by its square.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.analysis import passage_time, staircase
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, PALETTE, SKY, VERMILION, new_figure, scientific, styled
from stepwell.dynamics import Record, descend, flow_time, renormalized, time_factor
from stepwell.experiments import Experiment, Keys
from stepwell.figures import Claim, Data, Figure, Origin
from stepwell.models import CubicMLP, MergedAttention
from stepwell.objectives import Population, Sampled
from stepwell.tasks import InContextRegression, published_covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from . import _runs
from ._drawing import lines, note
from ._onset import PART, Growth, measured_onsets, off_by, onset_claim
from ._published import as_dataset, curve_claim, from_dataset, points_outside, published
from ._quadrature import losses_at

DIM = 4
STANDARD_ERRORS = 3.0  # deviations due to sampling may be so many standard errors
ROUNDING = 1e-10  # two routes to one number in float64, after thousands of steps
WHITE_SOLVER = 1e-8
"""Error of the flow that eq. 10 is compared with: its relative tolerance, 1e-10, at each of up to a hundred steps."""


@dataclass(frozen=True)
class Settings:
    """What can be changed. Seeds 0 to 23 were used while the figure was made; those here judge it."""

    context: int = 31
    heads: int = 8
    init: float = 1e-6  # standard deviation of the initial weights in the published convention (no 1/N)
    steps: int = 6000
    rate: float = 1e-3
    sequences: int = 5000
    population_time: float = 1000.0
    """Flow time of the run at infinitely many sequences: long enough for the slowest direction to come to rest (see
    `predict`)."""
    seeds: tuple[int, ...] = tuple(range(100, 124))
    record: int = 10
    held_runs: int = 3  # of so many seeds a run with label blocks held at zero is made as well
    population_runs: int = 3
    """For so many seeds there is a run at infinitely many sequences too: there the seed sets nothing but the
    initialization."""
    white_sizes: tuple[float, ...] = (1e-2, 1e-3, 1e-4)
    """Standard deviations of the initial weights, with 1/N, in the comparison with eq. 10."""
    white_runs: int = 8

    @property
    def experiment(self) -> Experiment:
        """What the command of the published README trains: `python train.py --model attnM --head 8 --init 1e-6`."""
        return Experiment(
            task={"dim": DIM, "context": self.context, "centered": True, "whitened": True},
            model={"kind": "merged", "heads": self.heads, "scale": self.init, "normalization": "none"},
            objective={"kind": "moments", "sequences": self.sequences},
            training={"kind": "descent", "rate": self.rate, "steps": self.steps},
        )


_INDEPENDENT = 20_000  # sequences from which the sampling error is estimated; no run is trained on them


def predict(runs: Sequence[_runs.Run], settings: Settings) -> xr.Dataset:
    r"""The D+1 equations from the initial weights, for infinitely many sequences, with what they leave out.

    - `leftover`: near zero only one direction g of $\sum_h v_h U_h$ grows. The others stay as they are, and add
      $A_\perp = v_\infty \sum_h \hat\mu_h U_{h\perp}$ to the map in the end, $\hat\mu$ the unit vector over the
      growing heads. The loss changes by $2\langle A_\perp, M\Lambda - CA\Lambda\rangle$, at most
      $2\|A_\perp\|\|M\Lambda\|$, since the second factor shrinks as the map grows.
    - `rest`: the fall still to come at the end. Near the minimum
      $\dot a = -(v^2 + uu^\top)\,\mathrm{diag}(\lambda_d c_d)\,\delta a$, so the loss decays at least as fast as
      $e^{-2 v^2 \min(\lambda_d c_d) t}$, with $v^2 = \|a\|$.
    """
    tasks, begun = zip(*(_theory_start(run, settings) for run in runs), strict=True)
    drop_times = [theory.half_drop_time(task, *start) for task, start in zip(tasks, begun, strict=True)]
    # Fine around the drops, where halfway is read off.
    near = [np.arange(-1.0, 1.0, 0.01) + t for t in drop_times]
    times = np.unique(np.concatenate([np.linspace(0.0, settings.population_time, 4001), *near]).round(6))
    times = times[times >= 0]
    rows = []
    for task, run, (value, key_query), drop in zip(tasks, runs, begun, drop_times, strict=True):
        loss = theory.merged_course(task, times, value, key_query).loss
        levels, modes, rate = theory.levels(task), theory.modes(task), theory.merged_escape_rate(task)
        end = float(np.linalg.norm(modes.ends))
        slowest = 2 * end * float(modes.curvature.min())
        fall = float(levels[0] - levels[-1])
        rows.append(
            {
                "loss": ("time", loss),
                "first_level": levels[0],
                "last_level": levels[-1],
                "drop_time": drop,
                "escape_rate": rate,
                "slope_at_drop": float(np.interp(drop, times, -np.gradient(loss, times))),
                "leftover": 2 * end**0.5 * _unspent(task, run.model, settings.context) * rate,
                "rest": fall * np.exp(-slowest * (times[-1] - drop)),
                "slowest_rate": slowest,
            }
        )
    predictions = xr.concat([xr.Dataset(row, {"time": times}) for row in rows], dim="run")
    predictions["time"].attrs["units"] = TIME_UNIT
    return predictions


def onsets(runs: Sequence[_runs.Run], settings: Settings, *, held: bool = False) -> xr.Dataset:
    """When each run's fall begins, by the modes of its own sequences and its initial weights; see `_onset`.

    `infinite_drop`: t/τ of half the drop for infinitely many sequences, by the D+1 equations.
    """
    modes = [Growth.of(run.objective, held=held) for run in runs]
    starts = [_theory_start(run, settings) for run in runs]
    rows = {
        "step": [growth.onset(run.model, settings.rate) for growth, run in zip(modes, runs, strict=True)],
        "uncertainty": [growth.uncertainty(settings.rate) for growth in modes],
        "fall": [growth.fall for growth in modes],
        "infinite_drop": [theory.half_drop_time(task, *start) for task, start in starts],
    }
    return xr.Dataset({name: ("run", np.array(row)) for name, row in rows.items()})


def loss_error(settings: Settings) -> float:
    """Standard error of a mean square over P sequences at the predicted map, from others than any run is trained on."""
    # Losses do not depend on the directions of the eigenvectors.
    covariance = published_covariance(DIM, key=jax.random.key(0))
    task = InContextRegression(covariance, settings.context, centered=True, whitened=True)
    (losses,) = _runs.squared_errors(task, [theory.minimizer(task)], _INDEPENDENT, key=jax.random.key(1))
    return float(losses.std(ddof=1) / settings.sequences**0.5)


def _theory_start(run: _runs.Run, settings: Settings) -> tuple[InContextRegression, Any]:
    """The task without the centering and whitening of each context, and `theory.merged_initial` of the initial
    weights."""
    task = InContextRegression(run.task.covariance, settings.context)
    return task, theory.merged_initial(task, *_runs.weights_of(renormalized(run.model, "1/N", length=settings.context)))


def _unspent(task: InContextRegression, model: MergedAttention, context: int) -> float:
    r"""$\|\sum_h \hat\mu_h U_{h\perp}\|$, see `predict`."""
    values, key_queries = _runs.weights_of(renormalized(model, "1/N", length=context))
    driving = theory.moments(task).cross @ task.covariance
    unit = driving / np.linalg.norm(driving)
    along = np.einsum("hab,ab->h", key_queries, unit)
    growing = (values + along) / 2
    across = key_queries - along[:, None, None] * unit
    return float(np.linalg.norm(np.einsum("h,hab->ab", growing / np.linalg.norm(growing), across)))


_AFTER = 4.0  # A run ends so long after its predicted half drop, in units of τ: twenty e-foldings of the approach.
_POINTS = 301


def white_runs(settings: Settings) -> xr.Dataset:
    """σ(t) by gradient flow on infinitely many sequences and by eq. 10, from random weights of several sizes.

    `neglected` is the sum of the squares of all initial weights, relative to $\\sigma(\\infty)\\sqrt D$, the square of
    the weights in the end.
    """
    context = settings.context
    task = InContextRegression(np.eye(DIM), context)
    end, seeds = 1 / (1 + (1 + DIM) / context), settings.seeds[: settings.white_runs]
    rows = []
    for size in settings.white_sizes:
        options: Any = {"dim": DIM, "heads": settings.heads, "scale": size}
        models = [MergedAttention.random(**options, key=jax.random.key(seed)) for seed in seeds]
        starts = [theory.merged_initial(task, *_runs.weights_of(model))[0] for model in models]
        times = np.linspace(0.0, max(theory.white_half_drop_time(task, w) for w in starts) + _AFTER, _POINTS)
        run = _runs.flow_at(models, Population(task), times, rtol=1e-10, atol=1e-11 * size)
        value, key_query = run["value"].values[..., 0, DIM], run["key_query"].values[..., :DIM, :]
        measured = np.einsum("rth,rthaa->rt", value, key_query) / DIM
        squares = [sum(float(np.sum(np.square(w))) for w in model.weights().values()) for model in models]
        rows.append(
            xr.Dataset(
                {
                    "clock": ("time", times, {"units": TIME_UNIT}),
                    "measured": (("run", "time"), measured),
                    "predicted": (("run", "time"), np.stack([equation_ten(times, w, context) for w in starts])),
                    "neglected": ("run", np.array(squares) / (end * DIM**0.5)),
                },
                {"run": list(seeds)},
            )
        )
    return _runs.along(rows, size=settings.white_sizes).assign(end=end)


def equation_ten(times: Float[np.ndarray, " time"], initial_weight: float, context: int) -> Float[np.ndarray, " time"]:
    """σ(t) as the paper has it."""
    grown = np.exp(2 * DIM**0.5 * times)
    return grown / ((1 + (1 + DIM) / context) * (grown - 1) + DIM**0.5 / initial_weight**2)


def describe(settings: Settings) -> dict[str, Any]:
    return _runs.described_command(settings, settings.experiment, eigenvalues=(0.4, 0.3, 0.2, 0.1))


def simulate(settings: Settings) -> Data:
    runs = _runs.runs_of(settings.experiment, settings.seeds)
    few, fewer = slice(settings.held_runs), slice(settings.population_runs)
    predicted = predict(runs[fewer], settings)
    return {
        "training": train(runs, settings),
        "held": train(runs[few], settings, held=True),
        "mlp": train_network(runs[0], settings),
        "population": flow_on_population(runs[fewer], predicted["time"].values, settings),
        "theory": predicted.assign(loss_error=loss_error(settings)),
        "onset": onsets(runs, settings),
        "held_onset": onsets(runs[few], settings, held=True),
        "white": white_runs(settings),
        "published": as_dataset(published("fig1_attnM")),
    }


def train(runs: Sequence[_runs.Run], settings: Settings, *, held: bool = False) -> xr.Dataset:
    """Descent of attention by the moments of all its features; `held` takes the gradient off the label blocks."""
    rule = {"optimizer": _runs.held_descent(runs[0].model, settings.rate)} if held else {}
    return _in_paper_time(
        _runs.train_together(runs, record=Record(every=settings.record, snapshots=2), **rule), settings
    )


def train_network(run: _runs.Run, settings: Settings) -> xr.Dataset:
    """Descent of the network by automatic differentiation through the feature vector of every sequence."""
    batch = run.task.sample(settings.sequences, key=Keys(run.experiment.seed).train)
    network, objective = CubicMLP.from_merged(run.model), Sampled(batch.cubic_features("none"))
    options: Any = {"rate": settings.rate, "steps": settings.steps, "progress": False}
    return _in_paper_time(
        descend(network, objective, record=Record(every=settings.record, snapshots=2), **options), settings
    )


def flow_on_population(runs: Sequence[_runs.Run], times: Float[np.ndarray, " time"], settings: Settings) -> xr.Dataset:
    """Gradient flow on infinitely many sequences: losses, and the last by quadrature, `end`."""
    losses = []
    for run in runs:
        model = renormalized(run.model, "1/N", length=settings.context)
        # Tighter than the deviation to be resolved, which is of the order of the initial weights. For a few runs of
        # merged attention LSODA is faster than to compile an ensemble's program.
        trajectory = _runs.flow_at(
            model, Population(run.task), times, solver="lsoda", rtol=1e-8, atol=1e-8 * settings.init
        )
        end = losses_at(run.task, trajectory, model, np.array([[-1]]))[:, 0]
        losses.append(trajectory[["loss"]].assign(end=("run", end)))
    return _runs.along(losses, run=(run.experiment.seed for run in runs))


def claims(data: Data, settings: Settings) -> list[Claim]:
    training, held, mlp, population = (data[key] for key in ("training", "held", "mlp", "population"))
    predicted, white, curve = data["theory"], data["white"], from_dataset(data["published"], "fig1_attnM")
    # Halfway between the theory's levels, as the prediction has it.
    halfway = ((predicted["first_level"] + predicted["last_level"]) / 2).values
    population_drops = [
        passage_time(population["time"].values, loss, level)
        for loss, level in zip(population["loss"].values, halfway, strict=True)
    ]
    counts = points_outside(training["step"].values.astype(float), training["loss"].values, curve)
    after = training["time"].values[-1] - data["onset"]["infinite_drop"].values
    # A run that begins past the half of the drop has no time of it.
    waiting = predicted["drop_time"].values > 0
    deviation = abs(white["measured"] - white["predicted"]).max("time") / white["end"]
    return [
        curve_claim("published", "The published loss curve lies", "Fig 1", counts, len(curve)),
        Origin("paper", "Fig 1, ATTN_M(X) = MLP(z)").at_most(
            "one-curve",
            "ATTN_M with label blocks held at zero (by the moments of all its features) and MLP(z) (by differentiation "
            "through every sequence) have one loss curve: largest difference",
            measured=abs(held["loss"].values[0] - mlp["loss"].values[0]).max(),
            tolerance=ROUNDING,
            basis="rounding",
        ),
        Origin("paper", "Fig 1").close(
            "one-drop",
            "The loss of ATTN_M drops once: number of drops",
            predicted=1,
            measured=_runs.labeled(
                [len(staircase(training["time"].values, loss).drops) for loss in training["loss"].values],
                after > 0,
                seed=training["run"].values,
            ),
            basis="a count; a plateau is 4 times slower than the falls beside it",
        ),
        Origin("paper", "Fig 1, the dashed level").close(
            "population-end",
            "At infinitely many sequences, the final loss is L(M_D)",
            predicted=predicted["last_level"].values,
            measured=_runs.labeled(population["end"], seed=population["run"].values),
            tolerance=predicted["rest"].values + 1e-12,
            basis="the fall still to come, at the slowest rate; rounding",
        ),
        _training_end_claim(training["loss"].values[:, -1], predicted, after, settings),
        Origin("theory", "theory.linear.merged_course").at_most(
            "course",
            "At infinitely many sequences, the whole loss curve is that of the D + 1 equations from the initial "
            "weights: largest difference",
            measured=_runs.labeled(
                abs(population["loss"].values - predicted["loss"].values).max(axis=1), seed=population["run"].values
            ),
            tolerance=predicted["leftover"].values,
            basis="initial weights in directions that do not grow",
        ),
        Origin("theory", "theory.linear.half_drop_time").close(
            "population-time",
            "At infinitely many sequences, the time t/τ of half the drop is that of the D + 1 equations",
            predicted=predicted["drop_time"].values[waiting],
            measured=_runs.labeled(population_drops, waiting, seed=population["run"].values),
            tolerance=(predicted["leftover"] / predicted["slope_at_drop"]).values[waiting],
            basis="initial weights in directions that do not grow, over the slope of the loss at half the drop",
        ),
        _onset_claim("time", "as published", training, data["onset"]),
        _onset_claim("time-held", "label blocks held at zero", held, data["held_onset"]),
        Origin("paper", "eq. 10").at_most(
            "white-course",
            "On white inputs, infinitely many sequences, σ(t) from random weights is that of eq. 10, with the growing "
            "part of the initial weights as w_init: largest difference relative to its end, for each seed and each of "
            "the sizes " + ", ".join(f"{size:g}" for size in white["size"].values),
            measured=deviation.rename(run="seed"),
            tolerance=white["neglected"].values.ravel() + WHITE_SOLVER,
            basis="squares of all initial weights over that of the weights in the end; error of the solver",
            counted="runs",
        ),
    ]


_FEATURES = DIM * (DIM + 1) * (DIM + 2) // 2  # numbers that linear attention can fit


def _training_end_claim(
    ends: Float[np.ndarray, " seed"], predicted: xr.Dataset, after: Float[np.ndarray, " seed"], settings: Settings
) -> Claim:
    """`after` is the time that each run goes on after half its drop."""
    first, level, slowest = (float(predicted[name][0]) for name in ("first_level", "last_level", "slowest_rate"))
    # By the end of a run the slowest direction has so much of the whole fall still before it, at the most.
    to_come = (first - level) * np.exp(-slowest * np.maximum(after, 0.0))
    return Origin("paper", "Fig 1, the dashed level").close(
        "training-end",
        f"On P sequences, the final training loss is L(M_D): mean over {ends.size} seeds",
        unless="a run ends before half of its drop" if after.min() <= 0 else "",
        predicted=level,
        measured=ends.mean(),
        tolerance=STANDARD_ERRORS * float(predicted["loss_error"]) / ends.size**0.5
        + level * _FEATURES / settings.sequences
        + to_come.mean(),
        basis="3 standard errors of the mean, from other sequences; P⁻¹ of the loss for each feature fitted; the "
        "fall still to come",
    )


def _onset_claim(identifier: str, words: str, run: xr.Dataset, expected: xr.Dataset) -> Claim:
    statement = (
        f"On P sequences, {words}, the loss has made {PART:.0%} of the fall of the leading mode when linear growth in "
        "the modes of these sequences, from the initial weights, says so: measured over predicted step"
    )
    return onset_claim(identifier, statement, run, expected, counted="seeds")


def _in_paper_time(trajectory: xr.Dataset, settings: Settings) -> xr.Dataset:
    factor = time_factor("none", "1/N", length=settings.context, factors=2)
    time = flow_time(trajectory["step"], settings.rate) * factor
    return trajectory.assign_coords(time=time.assign_attrs(units=f"{TIME_UNIT}, attention divided by N"))


_QUIET = "#555555"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(10.8, 7.6)
        rows: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1.0))
        _draw_losses(rows[0].subplots(), data)
        onset, apart, white = rows[1].subplots(1, 3, width_ratios=(1, 1.15, 1.15))
        _draw_onsets(onset, data)
        _draw_differences(apart, data)
        _draw_white(white, data["white"])
    return figure


def _draw_losses(axes: Any, data: Data) -> None:
    training, mlp, predicted = data["training"], data["mlp"], data["theory"]
    curve = from_dataset(data["published"], "fig1_attnM")
    label = f"ATTN_M, {training.sizes['run']} seeds of ours"
    lines(axes, training["step"], training["loss"].values, color=SKY, linewidth=0.8, label=label, zorder=1)
    axes.plot(training["step"], training["loss"][0], color=BLUE, linewidth=1.6, label="ATTN_M, the first of them")
    few, label = mlp.isel(step=slice(None, None, 12)), "MLP(z), data and initialization of the first"
    axes.plot(few["step"], few["loss"][0], "o", color=BLUE, markerfacecolor="white", markersize=4.2, label=label)
    axes.plot(*curve.T, "--", color=VERMILION, linewidth=2.0, label="the paper's curve (ATTN_M and MLP(z))")
    last, end = float(predicted["last_level"][0]), float(training["step"][-1])
    axes.axhline(last, color=GRAY, linestyle=":", linewidth=1.4, zorder=0)
    words = f"predicted final loss $L(M_D)$ = {last:.3f}"
    note(axes, words, (end, last), (-4, 7), ha="right", color=_QUIET, fontsize=9)
    axes.set(xlim=(0, end), ylim=(0, 1.15), xlabel="training step", ylabel="training loss (mean squared error)")
    axes.set_title("(a) As published: one curve, one drop")
    axes.legend(loc="upper right")


def _draw_onsets(axes: Any, data: Data) -> None:
    training, expected = data["training"], data["onset"]
    losses, drop = training["loss"].values, expected["infinite_drop"]
    halfway = [passage_time(training["time"].values, loss, (loss[0] + loss[-1]) / 2) for loss in losses]
    own = measured_onsets(training, expected) / expected["step"].values
    ratios = ((halfway / drop.where(drop > 0).values, GRAY, "o"), (own, VERMILION, "D"))
    for place, (ratio, color, marker) in enumerate(ratios):
        spread = np.linspace(-0.28, 0.28, ratio.size)
        axes.plot(place + spread, ratio, marker, color=color, markersize=3.6, linestyle="none")
    axes.axhline(1.0, color=BLACK, linewidth=0.8, zorder=0)
    note(axes, off_by(own).replace(" at", "\nat"), (1, 1), (0, 14), ha="center", fontsize=8.5, color=VERMILION)
    axes.set_xticks([0, 1], ["half of the\ndrop, $P \\to \\infty$", "its beginning,\nfrom own data"])
    axes.set(xlim=(-0.5, 1.5), ylim=(0.85, 1.15), ylabel="measured over predicted time")
    axes.set_title("(b) When the loss falls")


def _draw_differences(axes: Any, data: Data) -> None:
    training, held, predicted = data["training"], data["held"], data["theory"]
    end = float(training["time"][-1])
    infinite = data["population"]["loss"][0] - predicted["loss"][0]
    curves = (
        (training["time"], training["loss"][0] - held["loss"][0], GREEN, "label blocks free, from held"),
        (predicted["time"], infinite, BLACK, "$P \\to \\infty$, from $D + 1$ equations"),
        (held["time"], held["loss"][0] - data["mlp"]["loss"][0], BLUE, "label blocks held, from MLP(z)"),
    )
    after = 1.25 * float(predicted["drop_time"][0])
    place: Any = {"ha": "right", "fontsize": 8.5}
    for times, difference, color, label in curves:
        # A difference of exactly zero is drawn at the smallest step of float64.
        sizes = np.maximum(np.abs(np.asarray(difference)), np.finfo(float).eps / 2)
        axes.semilogy(times, sizes, color=color, linewidth=1.3)
        later = sizes[np.asarray(times) > after]
        height = (later if later.size else sizes).max()
        note(axes, label, (end, height), (0, 5), color=color, **place)
    axes.axhline(ROUNDING, color=GRAY, linestyle=":", linewidth=1.4)
    note(axes, "tolerance of held blocks", (end, ROUNDING), (0, -11), color=_QUIET, **place)
    axes.set(ylim=(3e-17, 3e1), yticks=[1e-15, 1e-10, 1e-5, 1e0], xlim=(0, end), ylabel="difference of two losses")
    axes.set(xlabel="training time $t/\\tau$", title="(c) How far apart curves are, first seed")


def _draw_white(axes: Any, white: xr.Dataset) -> None:
    for place, size in enumerate(white["size"].values):
        one = white.sel(size=size)
        color = PALETTE[place % len(PALETTE)]
        style: Any = {"color": color, "linewidth": 2.2, "alpha": 0.5, "label": f"weights of size {scientific(size)}"}
        lines(axes, one["clock"], one["measured"].values[:3], **style)
        known = "eq. 10" if place == white.sizes["size"] - 1 else None
        lines(axes, one["clock"], one["predicted"].values[:3], ":", color=BLACK, linewidth=1.2, label=known)
    axes.axhline(float(white["end"]), color=GRAY, linewidth=0.8, zorder=0)
    axes.set(xlim=(0, float(white["clock"].max())), ylim=(0, 1.55 * float(white["end"])), yticks=[0, 0.25, 0.5, 0.75])
    axes.set(xlabel="training time $t/\\tau$", ylabel="coefficient $\\sigma(t)$ of the prediction")
    axes.set(title="(d) White inputs: the paper's eq. 10")
    axes.legend(loc="upper left", fontsize=8.5)


FIGURE = Figure(
    title="Merged attention is a two-layer network on cubic features, and its loss drops once",
    caption=(
        "Linear attention with merged key and query (ATTN_M) and a two-layer linear network on the cubic features "
        "vec(β x_qᵀ) (MLP(z)), trained by full-batch gradient descent at the published settings. (a) Training loss "
        "against steps, as in the paper: our seeds, each with its own data and initial weights; of one of them the "
        "network, on the same data from the same weights; and the paper's curve, read off its picture. The panels "
        "below are ours. (b) When the loss falls, measured over predicted, for every seed of (a): half of the drop, "
        "predicted by D + 1 equations for infinitely many sequences, which is off by the sampling error of the growth "
        "rate; and its beginning, one per cent of it, predicted from the moments of the run's own sequences. (c) How "
        "far apart the curves of one seed are. Label blocks are the weights that let inputs pass for labels and labels "
        "for inputs; they are zero initially. Held there, attention is the network, to rounding. Left free, as "
        "published, they pick up the sampling error of the data, and the drop comes a little sooner. (d) White inputs, "
        "infinitely many sequences: the coefficient σ(t) of the prediction σ β·x_q by gradient flow from random "
        "weights, and the paper's eq. 10."
    ),
    source="Fig 1",
    settings=Settings(),
    quick=Settings(seeds=tuple(range(100, 120)), held_runs=1, population_runs=1, white_runs=3),
    described=describe,
    paper_settings=_runs.published_settings(describe(Settings()), seeds="one, of PyTorch"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
