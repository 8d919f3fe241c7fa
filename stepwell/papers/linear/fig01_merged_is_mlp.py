"""Fig 1: attention with merged key and query is a two-layer network on cubic features, and its loss drops once.

The finite data sets are those of the published command: attention is not divided by N, the rate is 0.001. Where a run
is compared with the theory, time and weights are converted to the paper's convention, in which runs at
infinitely many sequences are made too.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import optax
import xarray as xr
from jaxtyping import Float

from stepwell.analysis import passage_time, staircase
from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, PALETTE, SKY, VERMILION, new_figure, scientific, styled
from stepwell.dynamics import Record, descend, flow_time, time_factor
from stepwell.experiments import command_of, keys_of
from stepwell.figures import Claim, Data, Figure, Origin
from stepwell.models import CubicMLP, MergedAttention
from stepwell.objectives import Population, Sampled
from stepwell.trajectory import TIME_UNIT

from ._fig01_theory import (
    DIM,
    ROUNDING,
    STANDARD_ERRORS,
    WHITE_SOLVER,
    Settings,
    in_paper_weights,
    loss_error,
    onsets,
    predict,
    white_runs,
)
from ._onset import PART, measured_onsets, off_by, onset_claim
from ._published import as_dataset, curve_claim, from_dataset, points_outside, published
from ._runs import Run, described, flow_at, masked_descent, published_settings, runs_of, train_together

CAPTION = (
    "Linear attention with merged key and query (ATTN_M) and a two-layer linear network on the cubic features "
    "vec(β x_qᵀ) (MLP(z)), trained by full-batch gradient descent at the published settings. (a) Training loss "
    "against steps, as in the paper: our seeds, each with its own data and initial weights; of one of them the "
    "network, on the same data from the same weights; and the paper's curve, read off its picture. The panels below "
    "are ours. (b) When the loss falls, measured over predicted, for every seed of (a): half of the drop, predicted by "
    "D + 1 equations for infinitely many sequences, which is off by the sampling error of the growth rate; and its "
    "beginning, one per cent of it, predicted from the moments of the run's own sequences. (c) How far apart the "
    "curves of one seed are. Label blocks are the weights that let inputs pass for labels and labels for inputs; they "
    "are zero initially. Held there, attention is the network, to rounding. Left free, as published, they pick up the "
    "sampling error of the data, and the drop comes a little sooner. (d) White inputs, infinitely many sequences: the "
    "coefficient σ(t) of the prediction σ β·x_q by gradient flow from random weights, and the paper's eq. 10."
)


def describe(settings: Settings) -> dict[str, Any]:
    initial = f"Gaussian, standard deviation {settings.init:g} without 1/N, label blocks zero"
    command = " ".join(command_of(settings.experiment))
    return described(settings, dim=DIM, eigenvalues=(0.4, 0.3, 0.2, 0.1), initial=initial, command=command)


def simulate(settings: Settings) -> Data:
    runs = runs_of(settings.experiment, settings.seeds)
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


def train(runs: Sequence[Run], settings: Settings, *, held: bool = False) -> xr.Dataset:
    """Descent of attention by the moments of all its features; `held` takes the gradient off the label blocks."""
    rule = {"optimizer": _held_descent(_merged(runs[0]), settings.rate)} if held else {}
    return _in_paper_time(train_together(runs, record=Record(every=settings.record, snapshots=2), **rule), settings)


def _held_descent(model: MergedAttention, rate: float) -> optax.GradientTransformation:
    moving = model.with_weights(
        {
            "value": jnp.zeros_like(model.value).at[:, :, DIM:].set(1.0),
            "key_query": jnp.zeros_like(model.key_query).at[:, :DIM].set(1.0),
        }
    )
    return masked_descent(moving, rate)


def _merged(run: Run) -> MergedAttention:
    assert isinstance(run.model, MergedAttention)
    return run.model


def train_network(run: Run, settings: Settings) -> xr.Dataset:
    """Descent of the network by automatic differentiation through the feature vector of every sequence."""
    batch = run.task.sample(settings.sequences, key=keys_of(run.experiment.seed).train)
    trajectory = descend(
        CubicMLP.from_merged(_merged(run)),
        Sampled(batch.cubic_features("none")),
        rate=settings.rate,
        steps=settings.steps,
        record=Record(every=settings.record, snapshots=2),
        progress=False,
    )
    return _in_paper_time(trajectory, settings)


def flow_on_population(runs: Sequence[Run], times: Float[np.ndarray, " time"], settings: Settings) -> xr.Dataset:
    """Gradient flow on infinitely many sequences, in the paper's convention. Losses only.

    By LSODA: for a few runs of merged attention that is faster than to compile an ensemble's program.
    """
    losses = []
    for run in runs:
        model = in_paper_weights(_merged(run), settings.context)
        # Tighter than the deviation to be resolved, which is of the order of the initial weights.
        options: dict[str, Any] = {"solver": "lsoda", "rtol": 1e-8, "atol": 1e-8 * settings.init}
        losses.append(flow_at(model, Population(run.task), times, **options)[["loss"]])
    return xr.concat(losses, dim="run", combine_attrs="drop_conflicts").assign_coords(run=np.arange(len(runs)))


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
        Claim.at_most(
            "one-curve",
            "ATTN_M with label blocks held at zero (by the moments of all its features) and MLP(z) (by differentiation "
            "through every sequence) have one loss curve: largest difference",
            measured=abs(held["loss"].values[0] - mlp["loss"].values[0]).max(),
            tolerance=ROUNDING,
            basis="rounding",
            kind="paper",
            source="Fig 1, ATTN_M(X) = MLP(z)",
        ),
        Claim.over(
            "one-drop",
            "The loss of ATTN_M drops once: number of drops",
            predicted=1,
            measured=[
                len(staircase(training["time"].values, loss).drops) for loss in training["loss"].values[after > 0]
            ],
            tolerance=0,
            basis="a count; a plateau is 4 times slower than the falls beside it",
            kind="paper",
            source="Fig 1",
        ),
        Claim.over(
            "population-end",
            "At infinitely many sequences, the final loss is L(M_D)",
            predicted=predicted["last_level"].values,
            measured=population["loss"].values[:, -1],
            tolerance=predicted["rest"].values + 1e-12,
            basis="the fall still to come, at the slowest rate; rounding",
            kind="paper",
            source="Fig 1, the dashed level",
        ),
        _training_end_claim(training["loss"].values[:, -1], predicted, after, settings),
        Claim.over(
            "course",
            "At infinitely many sequences, the whole loss curve is that of the D + 1 equations from the initial "
            "weights: largest difference",
            predicted=0.0,
            measured=abs(population["loss"].values - predicted["loss"].values).max(axis=1),
            tolerance=predicted["leftover"].values,
            basis="initial weights in directions that do not grow",
            relation="<=",
            kind="theory",
            source="theory.linear.merged_course",
        ),
        Claim.over(
            "population-time",
            "At infinitely many sequences, the time t/τ of half the drop is that of the D + 1 equations",
            predicted=predicted["drop_time"].values[waiting],
            measured=np.array(population_drops)[waiting],
            tolerance=(predicted["leftover"] / predicted["slope_at_drop"]).values[waiting],
            basis="initial weights in directions that do not grow, over the slope of the loss at half the drop",
            kind="theory",
            source="theory.linear.half_drop_time",
        ),
        _onset_claim("time", "as published", training, data["onset"]),
        _onset_claim("time-held", "label blocks held at zero", held, data["held_onset"]),
        Claim.over(
            "white-course",
            "On white inputs, infinitely many sequences, σ(t) from random weights is that of eq. 10, with the growing "
            "part of the initial weights as w_init: largest difference relative to its end, for each seed and each of "
            "the sizes " + ", ".join(f"{size:g}" for size in white["size"].values),
            predicted=0.0,
            measured=deviation.values.ravel(),
            tolerance=white["neglected"].values.ravel() + WHITE_SOLVER,
            basis="squares of all initial weights over that of the weights in the end; error of the solver",
            relation="<=",
            counted="runs",
            kind="paper",
            source="eq. 10",
        ),
    ]


_FEATURES = DIM * (DIM + 1) * (DIM + 2) // 2
"""Numbers that linear attention can fit."""


def _training_end_claim(
    ends: Float[np.ndarray, " seed"], predicted: xr.Dataset, after: Float[np.ndarray, " seed"], settings: Settings
) -> Claim:
    """`after` is the time that each run goes on after half its drop."""
    first, level, slowest = (float(predicted[name][0]) for name in ("first_level", "last_level", "slowest_rate"))
    statement = f"On P sequences, the final training loss is L(M_D): mean over {ends.size} seeds"
    origin: Origin = {"kind": "paper", "source": "Fig 1, the dashed level"}
    if after.min() <= 0:
        why = "a run ends before half of its drop"
        return Claim.cannot_be_judged("training-end", statement, why=why, **origin)
    # By the end of a run the slowest direction has so much of the whole fall still before it, at the most.
    to_come = (first - level) * np.exp(-slowest * after)
    return Claim.close(
        "training-end",
        statement,
        predicted=level,
        measured=ends.mean(),
        tolerance=STANDARD_ERRORS * float(predicted["loss_error"]) / ends.size**0.5
        + level * _FEATURES / settings.sequences
        + to_come.mean(),
        basis="3 standard errors of the mean, from other sequences; P⁻¹ of the loss for each feature fitted; the "
        "fall still to come",
        **origin,
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
    seeds = training.sizes["run"]
    for run in range(seeds):
        label = f"ATTN_M, {seeds} seeds of ours" if run == 0 else None
        axes.plot(training["step"], training["loss"][run], color=SKY, linewidth=0.8, label=label, zorder=1)
    axes.plot(training["step"], training["loss"][0], color=BLUE, linewidth=1.6, label="ATTN_M, the first of them")
    few = mlp.isel(step=slice(None, None, 12))
    label = "MLP(z), data and initialization of the first"
    axes.plot(few["step"], few["loss"][0], "o", color=BLUE, markerfacecolor="white", markersize=4.2, label=label)
    axes.plot(
        curve[:, 0], curve[:, 1], "--", color=VERMILION, linewidth=2.0, label="the paper's curve (ATTN_M and MLP(z))"
    )
    last = float(predicted["last_level"][0])
    axes.axhline(last, color=GRAY, linestyle=":", linewidth=1.4, zorder=0)
    end = float(training["step"][-1])
    axes.annotate(f"predicted final loss $L(M_D)$ = {last:.3f}", (end, last), xytext=(-4, 7), ha="right",
                  textcoords="offset points", color=_QUIET, fontsize=9)  # fmt: skip
    axes.set(xlim=(0, end), ylim=(0, 1.15), xlabel="training step", ylabel="training loss (mean squared error)")
    axes.set_title("(a) As published: one curve, one drop")
    axes.legend(loc="upper right")


def _draw_onsets(axes: Any, data: Data) -> None:
    """Of each seed, measured over predicted step: a drop by the D + 1 equations, an onset by the data's own modes."""
    training, expected = data["training"], data["onset"]
    losses = training["loss"].values
    halfway = [passage_time(training["time"].values, loss, (loss[0] + loss[-1]) / 2) for loss in losses]
    own = measured_onsets(training, expected) / expected["step"].values
    for place, (ratio, color, marker) in enumerate(
        (
            (halfway / expected["infinite_drop"].where(expected["infinite_drop"] > 0).values, GRAY, "o"),
            (own, VERMILION, "D"),
        )
    ):
        spread = np.linspace(-0.28, 0.28, ratio.size)
        axes.plot(place + spread, ratio, marker, color=color, markersize=3.6, linestyle="none")
    axes.axhline(1.0, color=BLACK, linewidth=0.8, zorder=0)
    how = {"xytext": (0, 14), "textcoords": "offset points", "ha": "center", "fontsize": 8.5, "color": VERMILION}
    axes.annotate(off_by(own).replace(" at", "\nat"), (1, 1), **how)
    axes.set_xticks([0, 1], ["half of the\ndrop, $P \\to \\infty$", "its beginning,\nfrom own data"])
    axes.set(xlim=(-0.5, 1.5), ylim=(0.85, 1.15), ylabel="measured over predicted time")
    axes.set_title("(b) When the loss falls")


def _draw_differences(axes: Any, data: Data) -> None:
    training, held, mlp, population, predicted = (
        data[key] for key in ("training", "held", "mlp", "population", "theory")
    )
    end = float(training["time"][-1])
    curves = (
        (training["time"], training["loss"][0] - held["loss"][0], GREEN, "label blocks free, from held"),
        (
            predicted["time"],
            population["loss"][0] - predicted["loss"][0],
            BLACK,
            "$P \\to \\infty$, from $D + 1$ equations",
        ),
        (held["time"], held["loss"][0] - mlp["loss"][0], BLUE, "label blocks held, from MLP(z)"),
    )
    after = 1.25 * float(predicted["drop_time"][0])
    for times, difference, color, label in curves:
        # A difference of exactly zero is drawn at the smallest step of float64.
        sizes = np.maximum(np.abs(np.asarray(difference)), np.finfo(float).eps / 2)
        axes.semilogy(times, sizes, color=color, linewidth=1.3)
        later = sizes[np.asarray(times) > after]
        height = (later if later.size else sizes).max()
        axes.annotate(label, (end, height), xytext=(0, 5), ha="right", color=color,
                      textcoords="offset points", fontsize=8.5)  # fmt: skip
    axes.axhline(ROUNDING, color=GRAY, linestyle=":", linewidth=1.4)
    axes.annotate("tolerance of held blocks", (end, ROUNDING), xytext=(0, -11), ha="right", color=_QUIET,
                  textcoords="offset points", fontsize=8.5)  # fmt: skip
    axes.set_ylim(3e-17, 3e1)
    axes.set_yticks([1e-15, 1e-10, 1e-5, 1e0])
    axes.set(xlim=(0, end), ylabel="difference of two losses", xlabel="training time $t/\\tau$")
    axes.set_title("(c) How far apart curves are, first seed")


def _draw_white(axes: Any, white: xr.Dataset) -> None:
    for place, size in enumerate(white["size"].values):
        one = white.sel(size=size)
        color = PALETTE[place % len(PALETTE)]
        for run in range(min(one.sizes["run"], 3)):
            label = f"weights of size {scientific(size)}" if run == 0 else None
            axes.plot(one["clock"], one["measured"][run], color=color, linewidth=2.2, alpha=0.5, label=label)
            known = "eq. 10" if place == white.sizes["size"] - 1 and run == 0 else None
            axes.plot(one["clock"], one["predicted"][run], ":", color=BLACK, linewidth=1.2, label=known)
    axes.axhline(float(white["end"]), color=GRAY, linewidth=0.8, zorder=0)
    axes.set(xlim=(0, float(white["clock"].max())), ylim=(0, 1.55 * float(white["end"])))
    axes.set_yticks([0, 0.25, 0.5, 0.75])
    axes.set(xlabel="training time $t/\\tau$", ylabel="coefficient $\\sigma(t)$ of the prediction")
    axes.set_title("(d) White inputs: the paper's eq. 10")
    axes.legend(loc="upper left", fontsize=8.5)


FIGURE = Figure(
    title="Merged attention is a two-layer network on cubic features, and its loss drops once",
    caption=CAPTION,
    source="Fig 1",
    settings=Settings(),
    quick=Settings(seeds=tuple(range(100, 120)), held_runs=1, population_runs=1, white_runs=3),
    described=describe,
    paper_settings=published_settings(describe(Settings()), seeds="one, of PyTorch"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
