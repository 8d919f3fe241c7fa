r"""Fig 1: attention with merged key and query is a two-layer network on cubic features, and its loss drops once.

The finite data sets are those of the published command: attention is not divided by N, the rate is 0.001. Where a run
is compared with the theory, time and weights are converted to the paper's convention, in which the population is run
too.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from stepwell.analysis import passage_time, staircase
from stepwell.dynamics import Record, descend, flow, flow_time, time_factor
from stepwell.experiments import command_of, keys_of
from stepwell.figures import Claim, Data, Figure, Origin
from stepwell.models import CubicMLP, MergedAttention
from stepwell.objectives import Population, Sampled
from stepwell.trajectory import TIME_UNIT

from ._described import described
from ._fig01_drawing import draw
from ._fig01_expectations import in_paper_weights, loss_error, onsets, predict
from ._fig01_settings import DIM, ROUNDING, STANDARD_ERRORS, WHITE_SOLVER, Settings
from ._fig01_white import white_runs
from ._onset import PART, onset_claim
from ._published import as_dataset, curve_claim, from_dataset, points_outside, published
from ._runs import Run, runs_of, train_together

CAPTION = (
    "Linear attention with merged key and query (ATTN_M) and a two-layer linear network on the cubic features "
    "vec(β x_qᵀ) (MLP(z)), trained by full-batch gradient descent at the published settings. (a) Training loss "
    "against steps, as in the paper: our seeds, each with its own data and initial weights; of one of them the "
    "network, on the same data from the same weights; and the paper's curve, read off its picture. The panels below "
    "are ours. (b) When the loss falls, measured over predicted, for every seed of (a): half of the drop, predicted by "
    "D + 1 equations for infinitely many sequences, which is off by the sampling error of the growth rate; and its "
    "beginning, one per cent of it, predicted from the moments of the run's own sequences. (c) How far apart the "
    "curves of one seed are. Label blocks are the weights that let inputs pass for labels and labels for inputs; they "
    "start at zero. Held there, attention is the network, to rounding. Left free, as published, they pick up the "
    "sampling error of the data, and the drop comes a little sooner. (d) White inputs, infinitely many sequences: the "
    "coefficient σ(t) of the prediction σ β·x_q by gradient flow from random weights, and the paper's eq. 10."
)


def _shared(settings: Settings) -> dict[str, Any]:
    """What the paper says too."""
    sizes = {"dim": DIM, "context": settings.context, "heads": settings.heads}
    return {
        **described(**sizes, eigenvalues=(0.4, 0.3, 0.2, 0.1)),
        "initial weights": f"Gaussian, standard deviation {settings.init:g} without 1/N, label blocks zero",
        "sequences": settings.sequences,
        "rate": settings.rate,
        "steps": settings.steps,
    }


def describe(settings: Settings) -> dict[str, Any]:
    names = ("record", "held_runs", "population_runs", "white_sizes", "white_runs")
    command = " ".join(command_of(settings.experiment))
    chosen = {name: getattr(settings, name) for name in names}
    return {**_shared(settings), "seeds": settings.seeds, "command": command, **chosen}


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
    mask, _ = ravel_pytree(moving)
    return optax.chain(optax.stateless(_masked_by(mask)), optax.sgd(rate))


def _masked_by(mask: Array):
    def masked(gradient: Any, _: Any) -> Any:
        return gradient * mask

    return masked


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
        options: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-8 * settings.init, "progress": False}
        trajectory = flow(
            model, Population(run.task), solver="lsoda", until=float(times[-1]), record=Record(points=times), **options
        )
        losses.append(trajectory[["loss"]])
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
    # A start that is past the half of the drop has no time of it.
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
            measured=[_drops(training["time"].values, loss) for loss in training["loss"].values[after > 0]],
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
            "part of the start as w_init: largest difference relative to its end, for each seed and each of the sizes "
            + ", ".join(f"{size:g}" for size in white["size"].values),
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


def _drops(time: Float[np.ndarray, " step"], loss: Float[np.ndarray, " step"]) -> int:
    return len(staircase(time, loss).drops)


FIGURE = Figure(
    title="Merged attention is a two-layer network on cubic features, and its loss drops once",
    caption=CAPTION,
    source="Fig 1",
    settings=Settings(),
    quick=Settings(seeds=tuple(range(100, 120)), held_runs=1, population_runs=1, white_runs=3),
    described=describe,
    paper_settings={**_shared(Settings()), "seeds": "one, of PyTorch"},
    simulate=simulate,
    claims=claims,
    draw=draw,
)
