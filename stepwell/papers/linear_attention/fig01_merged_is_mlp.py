r"""Fig 1: attention with merged key and query is a two-layer network on cubic features, and its loss drops once.

The finite data sets are trained as the published script trains them: attention is not divided by N, the rate is 0.001.
Time and weights are then converted to the paper's convention, in which the theory is written and the population is run.
"""

from dataclasses import asdict
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from stepwell.dynamics import Ensemble, descend, flow, flow_time, time_factor
from stepwell.models import CubicMLP, MergedAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.papers._claim import Claim
from stepwell.papers._completed import completed
from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, VERMILION, new_figure, styled
from stepwell.probes import passage_time, staircase
from stepwell.tasks import InContextRegression, published_covariance
from stepwell.trajectory import TIME_UNIT, model_at

from ._described import described
from ._fig01_expectations import in_paper_weights, predict, sampling_errors
from ._fig01_settings import (
    CONTEXT,
    DIM,
    HEADS,
    INIT,
    NAME,
    PUBLISHED,
    QUICK,
    ROUNDING,
    STANDARD_ERRORS,
    Settings,
    Start,
)

TITLE = "Merged attention is a two-layer network on cubic features, and its loss drops once"
CAPTION = (
    "Linear attention with merged key and query (ATTN_M) and a two-layer linear network on the cubic features "
    "vec(β x_qᵀ) (MLP(z)), trained by full-batch gradient descent on the same sequences from the same weights. "
    "Above, the training loss against the paper's time. The prediction is D + 1 scalar equations, started from "
    "the same initial weights, for infinitely many sequences. Below, how far apart the curves are. Label blocks "
    "are the weights that let inputs pass for labels and labels for inputs; they start at zero. Held there, "
    "attention is the network, to rounding. Left free, they pick up the sampling error of the data, and the drop "
    "comes a little sooner."
)


def settings(quick: bool) -> dict[str, Any]:
    spectrum = np.arange(DIM, 0, -1) / np.arange(1, DIM + 1).sum()
    return {
        **described(dim=DIM, context=CONTEXT, heads=HEADS, eigenvalues=spectrum.tolist()),
        "initial weights": f"Gaussian, standard deviation {INIT:g} without 1/N, label blocks zero",
        **asdict(QUICK if quick else PUBLISHED),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else PUBLISHED
    starts = prepare(chosen)
    predicted = predict(starts)
    return {
        "attention_held": train_attention(starts, chosen, held=True),
        "attention_free": train_attention(starts, chosen, held=False),
        "mlp": train_network(starts[0], chosen),
        "population": flow_on_population(starts[: chosen.population_runs], predicted["time"].values),
        "theory": predicted,
        "sampling": sampling_errors(starts, chosen),
    }


def prepare(chosen: Settings, *, label_blocks: str = "zero") -> list[Start]:
    """Covariance, sequences and initial weights, from three keys for each seed."""
    starts = []
    for seed in chosen.seeds:
        task_key, data_key, weight_key = jax.random.split(jax.random.key(seed), 3)
        covariance = published_covariance(DIM, key=task_key)
        task = InContextRegression(covariance, CONTEXT, centred=True, whitened=True)
        model = MergedAttention.random(
            dim=DIM,
            heads=HEADS,
            scale=INIT,
            label_blocks=label_blocks,  # pyright: ignore[reportArgumentType]
            normalisation="none",
            key=weight_key,
        )
        starts.append(Start(task, task.sample(chosen.sequences, key=data_key), model))
    return starts


def train_attention(starts: list[Start], chosen: Settings, *, held: bool) -> xr.Dataset:
    """Descent of attention by the moments of all its features; `held` takes the gradient off the label blocks.

    Of the first run, `token_loss` is the loss at the recorded weights with every token passed through the model.
    """
    models = Ensemble.of([start.model for start in starts])
    objectives = Ensemble.of([Moments.of_batch(start.batch, normalisation="none") for start in starts])
    rule: dict[str, Any] = {"optimiser": _held_descent(starts[0].model, chosen.rate)} if held else {"rate": chosen.rate}
    trajectory = descend(
        models,
        objectives,
        steps=chosen.steps,
        record=chosen.record,
        snapshots=11,
        progress=False,
        configuration={"figure": NAME, "label blocks": "held at zero" if held else "free", **asdict(chosen)},
        **rule,
    )
    trajectory = _in_paper_time(completed(trajectory), chosen.rate)
    by_tokens = eqx.filter_jit(Sampled(starts[0].batch))
    places = range(trajectory.sizes["snapshot"])
    losses = [float(by_tokens(model_at(trajectory, starts[0].model, index=place))) for place in places]
    return trajectory.assign(token_loss=("snapshot", np.array(losses)))


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


def train_network(start: Start, chosen: Settings) -> xr.Dataset:
    """Descent of the network by automatic differentiation through the feature vector of every sequence."""
    trajectory = descend(
        CubicMLP.from_merged(start.model),
        Sampled(start.batch.cubic_features("none")),
        rate=chosen.rate,
        steps=chosen.steps,
        record=chosen.record,
        snapshots=11,
        progress=False,
        configuration={"figure": NAME, **asdict(chosen)},
    )
    return _in_paper_time(completed(trajectory), chosen.rate)


def flow_on_population(starts: list[Start], times: Float[np.ndarray, " time"]) -> xr.Dataset:
    """Gradient flow on infinitely many sequences, in the paper's convention. Losses only.

    By LSODA: for a few runs of merged attention that is faster than to compile an ensemble's program.
    """
    runs = []
    for start in starts:
        model = in_paper_weights(start.model)
        # Tighter than the deviation to be resolved, which is of the order of the initial weights.
        options: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-8 * INIT, "progress": False}
        trajectory = flow(model, Population(start.task), solver="lsoda", until=float(times[-1]), save=times, **options)
        runs.append(completed(trajectory)[["loss"]])
    return xr.concat(runs, dim="run", combine_attrs="drop_conflicts").assign_coords(run=np.arange(len(runs)))


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    held, free, mlp = data["attention_held"], data["attention_free"], data["mlp"]
    population, predicted, sampling = data["population"], data["theory"], data["sampling"]
    runs = range(held.sizes["run"])
    alike = predicted.isel(run=slice(population.sizes["run"]))
    # Halfway between the theory's levels, as the prediction has it.
    halfway = ((alike["first_level"] + alike["last_level"]) / 2).values
    population_drops = [
        passage_time(population["time"].values, loss, level)
        for loss, level in zip(population["loss"].values, halfway, strict=True)
    ]
    # Predicted over measured: this is linear in the growth rate, whose error is known.
    ratio = predicted["drop_time"].values / _drop_times(held)
    euler = float(predicted["escape_rate"][0] * sampling["time_step"]) / 2
    # An error of the growth rate counts for the whole wait, one of the start along it for one e-folding.
    by_rate = STANDARD_ERRORS * sampling["rate_error"].values
    by_rate = by_rate * (1 + 1 / (predicted["escape_rate"] * predicted["drop_time"]).values)
    blocks = predicted["slope"] * sampling["blocks_shift"]
    fitted = predicted["last_level"] * DIM**2 / sampling["sequences"]
    overfit = predicted["last_level"] * sampling["features_beyond"] / sampling["sequences"]
    return [
        Claim.at_most(
            f"{NAME}/one-curve",
            "ATTN_M with label blocks held at zero (by the moments of all its features) and MLP(z) (by differentiation "
            "through every sequence) have one loss curve: largest difference",
            measured=abs(held["loss"].values[0] - mlp["loss"].values[0]).max(),
            tolerance=ROUNDING,
            basis="rounding",
        ),
        Claim.at_most(
            f"{NAME}/by-tokens",
            "The recorded losses of ATTN_M, label blocks free, are those of passing every token through the model: "
            "largest difference",
            measured=abs(free["token_loss"] - free["loss"].sel(step=free["snapshot"].values).values[0]).max(),
            tolerance=ROUNDING,
            basis="rounding",
        ),
        Claim.over(
            f"{NAME}/free-blocks",
            "With label blocks free, the curves of ATTN_M and MLP(z) differ by no more than the sampling error lets "
            "the blocks grow: largest difference",
            predicted=0.0,
            measured=abs(free["loss"].values - held["loss"].values).max(axis=1),
            tolerance=(blocks + overfit).values,
            basis="sooner drop, to second order in the data's O(1/√P) coupling; then L/P a further feature",
            relation="<=",
        ),
        Claim.over(
            f"{NAME}/one-drop",
            "The loss of ATTN_M drops once: number of drops",
            predicted=1,
            measured=[_steps(free, i) for i in runs],
            tolerance=0,
            basis="a count; a plateau is 4 times slower than the falls beside it",
        ),
        Claim.over(
            f"{NAME}/population-end",
            "On the population, the final loss is L(M_D)",
            predicted=alike["last_level"].values,
            measured=population["loss"].values[:, -1],
            tolerance=alike["rest"].values + 1e-12,
            basis="the fall still to come, at the slowest rate; rounding",
        ),
        Claim.over(
            f"{NAME}/training-end",
            "On P sequences, the final training loss is L(M_D)",
            predicted=predicted["last_level"].values,
            measured=held["loss"].values[:, -1],
            tolerance=STANDARD_ERRORS * sampling["level_error"].values + fitted.values,
            basis="3 standard errors of the loss over the sequences; D²/P of it, which D² fitted numbers take off",
        ),
        Claim.over(
            f"{NAME}/course",
            "On the population, the whole loss curve is that of the D + 1 equations from the initial weights: "
            "largest difference",
            predicted=0.0,
            measured=abs(population["loss"].values - alike["loss"].values).max(axis=1),
            tolerance=alike["leftover"].values,
            basis="initial weights in directions that do not grow",
            relation="<=",
        ),
        Claim.over(
            f"{NAME}/population-time",
            "On the population, the time t/τ of half the drop is that of the D + 1 equations",
            predicted=alike["drop_time"].values,
            measured=population_drops,
            tolerance=(alike["leftover"] / alike["slope_at_drop"]).values,
            basis="initial weights in directions that do not grow, over the slope of the loss at half the drop",
        ),
        Claim.over(
            f"{NAME}/time",
            "On P sequences, the time of half the drop is that of the D + 1 equations: predicted over measured time",
            predicted=1.0,
            measured=ratio,
            tolerance=by_rate + euler,
            basis="3 standard errors of the growth rate and of the start along it; half a step of descent",
        ),
        Claim.close(
            f"{NAME}/mean-time",
            f"On P sequences, predicted over measured time of half the drop, averaged over {len(ratio)} seeds",
            predicted=1.0,
            measured=ratio.mean(),
            tolerance=np.linalg.norm(by_rate) / len(ratio) + euler,
            basis="3 standard errors of the mean; half a step of descent",
        ),
    ]


def draw(data: dict[str, xr.Dataset]) -> Figure:
    held, free, mlp, population, predicted = (
        data[key] for key in ("attention_held", "attention_free", "mlp", "population", "theory")
    )
    last, first = float(predicted["last_level"][0]), float(predicted["first_level"][0])
    end = float(held["time"][-1])
    with styled():
        figure = new_figure(7.2, 7.0)
        loss, apart = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))

        time, others = free["time"], free.sizes["run"] - 1
        loss.plot(held["time"], held["loss"][0], color=BLUE, linewidth=3.2, label="ATTN_M, label blocks held at zero")
        few = mlp.isel(step=slice(None, None, 8))
        loss.plot(
            few["time"], few["loss"][0], "o", color=VERMILION, markersize=3.6, label="MLP(z), same data and start"
        )
        loss.plot(time, free["loss"][0], color=GREEN, linewidth=1.4, label="ATTN_M, label blocks free")
        label = "theory: D + 1 equations, infinite data"
        loss.plot(predicted["time"], predicted["loss"][0], "--", color=BLACK, linewidth=1.4, label=label)
        for run in range(1, others + 1):
            label = f"ATTN_M, blocks free, {others} other seeds" if run == 1 else None
            loss.plot(time, free["loss"][run], color="#C0C0C0", linewidth=0.9, label=label, zorder=1)
        loss.axhline(last, color=GREY, linestyle=":", linewidth=1.4, zorder=0)
        loss.annotate(
            f"predicted final loss $L(M_D)$ = {last:.3f}",
            (0.02 * end, last),
            xytext=(0, -14),
            textcoords="offset points",
            color="#555555",
            fontsize=9,
        )
        loss.set_ylabel("training loss (mean squared error)")
        loss.set_ylim(0, 1.12 * first)
        loss.set_title("(a) One curve, one drop")
        loss.legend(loc="upper right")

        curves = (
            (time, free["loss"][0] - held["loss"][0], GREEN, "ATTN_M, blocks free, from MLP(z)"),
            (
                predicted["time"],
                population["loss"][0] - predicted["loss"][0],
                BLACK,
                "gradient flow on infinite data from the D + 1 equations",
            ),
            (held["time"], held["loss"][0] - mlp["loss"][0], BLUE, "ATTN_M, blocks held at zero, from MLP(z)"),
        )
        words: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9}
        after = 1.3 * float(predicted["drop_time"][0])
        for times, difference, colour, label in curves:
            # A difference of exactly zero is drawn at the smallest step of float64.
            sizes = np.maximum(np.abs(np.asarray(difference)), np.finfo(float).eps / 2)
            apart.semilogy(times, sizes, color=colour, linewidth=1.4)
            height = sizes[np.asarray(times) > after].max()
            apart.annotate(label, (after, height), xytext=(0, 5), color=colour, **words)
        apart.axhline(ROUNDING, color=GREY, linestyle=":", linewidth=1.4)
        label = "tolerance for blocks held at zero, $10^{-10}$"
        apart.annotate(label, (end, ROUNDING), xytext=(-2, -13), ha="right", color="#555555", **words)
        apart.set_ylim(3e-17, 3e1)
        apart.set_yticks([1e-15, 1e-10, 1e-5, 1e0])
        apart.set_xlim(0, end)
        apart.set_ylabel("difference of two losses")
        apart.set_xlabel("training time $t/\\tau$")
        apart.set_title("(b) How far apart the curves are")
    return figure


def _in_paper_time(trajectory: xr.Dataset, rate: float) -> xr.Dataset:
    factor = time_factor("none", "1/N", length=CONTEXT, factors=2)
    time = flow_time(trajectory["step"], rate) * factor
    return trajectory.assign_coords(time=time.assign_attrs(units=f"{TIME_UNIT}, attention divided by N"))


def _steps(trajectory: xr.Dataset, run: int) -> int:
    return len(staircase(trajectory["time"].values, trajectory["loss"].values[run]).drops)


def _drop_times(trajectory: xr.Dataset) -> np.ndarray:
    """When each run is halfway between its own first and last loss."""
    time, losses = trajectory["time"].values, trajectory["loss"].values
    return np.array([passage_time(time, loss, (loss[0] + loss[-1]) / 2) for loss in losses])
