r"""Fig 14: learning from the context and by heart, as the share of sequences with a task of their own varies.

Runs are those of the published script (attention not divided by N). The prediction for infinitely many sequences is
exact: the moments of all features in closed form, for every share.
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell.dynamics import Ensemble, descend, flow_time, steps_for
from stepwell.models import MergedAttention
from stepwell.objectives import Moments
from stepwell.papers._claim import Claim, slug
from stepwell.papers._completed import completed
from stepwell.papers._style import BLACK, BLUE, GREY, VERMILION, new_figure, styled
from stepwell.probes import passage_time
from stepwell.tasks import AbstractTask, Batch, InContextInWeightMixture, InContextRegression
from stepwell.theory import linear as theory
from stepwell.trajectory import provenance

from ._fig14_expectations import (
    Quadratic,
    exact_moments,
    expected_deviation,
    leading_mode,
    leftover,
    missing,
    rate_error,
)

NAME = "linear/fig14"
TITLE = "In-context and in-weight learning, from contexts that say nothing to a task in every context"
CAPTION = (
    "Merged linear attention trained on mixtures. A share icl of the training sequences has a task vector of its own, "
    "which only the context reveals; the others share one vector w*, which can be learned by heart. (At icl = 0 the "
    "labels in the context are noise.) Training loss, and the loss on two test sets: in-context, new task vectors; "
    "in-weight, the vector w* behind contexts of noise. Dashed: the same descent on infinitely many sequences, whose "
    "moments are exact. Dotted: final losses that theory gives in closed form. For icl between 0 and 1, w* is learned "
    "by heart first and given up later, in favour of the context."
)

DIM, CONTEXT, HEADS, INIT = 4, 31, 8, 1e-6
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
STANDARD_ERRORS = 3.0
TESTS = ("in_context_test_loss", "in_weight_test_loss")


@dataclass(frozen=True)
class Settings:
    """What a quick run has less of. The seeds draw training sequences and initial weights; w* and tests are shared."""

    seeds: tuple[int, ...] = (0, 1, 2)
    sequences: int = 5000
    test_sequences: int = 5000
    rate: float = 5e-4
    steps: int = 4000
    record: int = 10


PUBLISHED = Settings()
QUICK = Settings(seeds=(0,), sequences=3000, test_sequences=3000, rate=1e-3, steps=2000)


def settings(quick: bool) -> dict[str, Any]:
    return {
        "dimension D": DIM,
        "context length N": CONTEXT,
        "heads H": HEADS,
        "covariance": "I/D",
        "shares icl": list(SHARES),
        "initial weights": f"Gaussian, standard deviation {INIT:g} without 1/N, label blocks zero",
        **asdict(QUICK if quick else PUBLISHED),
    }


@dataclass(frozen=True)
class Setup:
    """The shared task, its test sets, and what is trained, by seed and share."""

    fixed_task: np.ndarray
    tests: tuple[Batch, Batch]
    models: list[MergedAttention]
    batches: list[list[Batch]]


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else PUBLISHED
    setup = prepare(chosen)
    return {
        "sampled": train(setup, chosen),
        "infinite": train_on_infinite_data(setup, chosen),
        "theory": predict(setup, chosen),
    }


def prepare(chosen: Settings) -> Setup:
    covariance = np.eye(DIM) / DIM
    keys = jax.random.split(jax.random.key(14), 3)
    mixture = InContextInWeightMixture.random(covariance, 0.5, CONTEXT, centred=True, key=keys[0])
    fixed_task = mixture.fixed_task[:, 0]
    in_context = mixture.in_context_test().sample(chosen.test_sequences, key=keys[1])
    in_weight = mixture.in_weight_test().sample(chosen.test_sequences, key=keys[2])
    tasks: list[AbstractTask] = [
        mixture.in_context_test()
        if p == 1
        else InContextInWeightMixture(covariance, fixed_task, p, CONTEXT, centred=True)
        for p in SHARES
    ]
    models, batches = [], []
    for seed in chosen.seeds:
        data, weights = jax.random.split(jax.random.key(seed))
        batches.append([task.sample(chosen.sequences, key=data) for task in tasks])
        models.append(MergedAttention.random(dim=DIM, heads=HEADS, scale=INIT, normalisation="none", key=weights))
    return Setup(fixed_task, (in_context, in_weight), models, batches)


def train(setup: Setup, chosen: Settings) -> xr.Dataset:
    """All seeds and shares as one program, by the moments of all features; label blocks are free."""
    objectives = [Moments.of_batch(batch, normalisation="none") for row in setup.batches for batch in row]
    tests = [Moments.of_batch(batch, normalisation="none") for batch in setup.tests]
    return _descend(setup.models, objectives, tests, chosen)


def train_on_infinite_data(setup: Setup, chosen: Settings) -> xr.Dataset:
    """The same starts and steps on the exact moments."""
    exact = [_objective(exact_moments(np.eye(DIM) / DIM, setup.fixed_task, p, CONTEXT)) for p in SHARES]
    return _descend(setup.models, exact * len(setup.models), [exact[-1], exact[0]], chosen)


def _objective(problem: Quadratic) -> Moments:
    gram, cross, power = jnp.asarray(problem.gram), jnp.asarray(problem.cross[None]), jnp.asarray(problem.power)
    return Moments(gram, cross, power, DIM, 1, "full", "none", True)


def _descend(models: list[MergedAttention], objectives: list[Moments], tests: list[Moments], chosen: Settings):
    trajectory = descend(
        Ensemble.of([model for model in models for _ in SHARES]),
        Ensemble.of(objectives),
        rate=chosen.rate,
        steps=chosen.steps,
        record=chosen.record,
        snapshots=2,
        observe=dict(zip(TESTS, tests, strict=True)),
        progress=False,
        configuration={"figure": NAME, **asdict(chosen)},
    )
    kept = completed(trajectory)[["loss", *TESTS]]
    shape = (len(models), len(SHARES), kept.sizes["step"])
    by_share = {name: (("seed", "share", "step"), kept[name].values.reshape(shape)) for name in kept.data_vars}
    coordinates = {"step": kept["step"], "time": kept["time"], "share": list(SHARES)}
    return xr.Dataset(by_share, coordinates, attrs=kept.attrs)


def predict(setup: Setup, chosen: Settings, *, context: int = CONTEXT) -> xr.Dataset:
    r"""Ends and times in closed form; for tolerances, moments of the data at the theory's weights.

    With p = 1, $\hat y = \beta^\top A^* x_q$; noise in place of labels makes $\beta$ of covariance $\Lambda/N$,
    independent of $y_q$: the in-weight loss is $\mathrm{tr}\Lambda + \mathrm{tr}(A^{*\top}\Lambda A^*\Lambda)/N$.
    With p = 0, the first mode to grow is $\hat y = s\,S_{yy}\,w_*^\top x_q$, $S_{yy} = \sum_n y_n^2$, whose least loss
    is $2/(N+2)$, since $S_{yy}$ is χ² of N. There new task vectors, $S_{yy} = w^\top W w$, have the loss
    $1 + (1 + 2/D)N/(N+2)$. A further fall, to `minimum`, needs a second mode, which has not grown by
    the end of the published run.
    """
    covariance = np.eye(DIM) / DIM
    task = InContextRegression(covariance, context)
    ends = theory.minimiser(task)
    problems = [exact_moments(covariance, setup.fixed_task, p, context) for p in SHARES]
    modes = [leading_mode(problem.gram, problem.cross, DIM) for problem in problems]
    tested = (problems[-1], problems[0])
    duration = flow_time(chosen.steps, chosen.rate)
    rows: dict[str, Any] = {
        "in_weight_end_at_1": 1 + np.trace(ends.T @ covariance @ ends @ covariance) / context,
        "in_context_end_at_1": theory.minimal_loss(task),
        "in_weight_end_at_0": 2 / (context + 2),
        "in_context_end_at_0": 1 + (1 + 2 / DIM) * context / (context + 2),
        "minimum": ("share", [problem.loss(problem.minimiser()) for problem in problems]),
        "rate": ("share", [mode.rate for mode in modes]),
        "fall": ("share", [mode.fall for mode in modes]),
        "time_step": flow_time(1, chosen.rate),
        "half_time": (("seed", "share"), [[mode.half_time(*_blocks(m)) for mode in modes] for m in setup.models]),
        "rate_error": (
            ("seed", "share"),
            [[rate_error(mode, b) for mode, b in zip(modes, row, strict=True)] for row in setup.batches],
        ),
    }
    for which, place in ((0, 0), (1, len(SHARES) - 1)):
        halves = [modes[place].half_time(*_blocks(model)) for model in setup.models]
        left = [missing(modes[place], half, duration, flow_time(1, chosen.rate)) for half in halves]
        rows[f"missing_at_{which}"] = ("seed", left)
        for name, problem, batch in zip(("in_context", "in_weight"), tested, setup.tests, strict=True):
            departures = [
                expected_deviation(modes[place], problems[place], row[place], problem, batch) for row in setup.batches
            ]
            left = [leftover(modes[place], problems[place], problem, *_blocks(m), duration) for m in setup.models]
            rows[f"{name}_leftover_at_{which}"] = ("seed", left)
            rows[f"{name}_error_at_{which}"] = ("seed", [d.error for d in departures])
            rows[f"{name}_excess_at_{which}"] = ("seed", [d.excess for d in departures])
    attributes = provenance({"figure": NAME, "context": context, **asdict(chosen)})
    return xr.Dataset(rows, {"share": list(SHARES)}, attrs=attributes)


def _blocks(model: MergedAttention) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(model.value[:, 0]), np.asarray(model.key_query)


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    sampled, infinite, predicted = data["sampled"], data["infinite"], data["theory"]
    all_claims = []
    last = {which: predicted[f"missing_at_{which}"].values for which in (0, 1)}
    slopes = {
        (0, "in_context"): 2 * float(predicted["in_context_end_at_0"] - 1) * last[0],
        (0, "in_weight"): last[0] ** 2,
        (1, "in_context"): last[1] ** 2,
        (1, "in_weight"): 2 * float(predicted["in_weight_end_at_1"] - 1) * last[1],
    }
    rests = {key: rest + predicted[f"{key[1]}_leftover_at_{key[0]}"].values for key, rest in slopes.items()}
    statements = {
        (0, "in_weight"): "icl = 0: the in-weight test loss ends at 2/(N + 2), on the plateau of its first fall",
        (0, "in_context"): "icl = 0: the in-context test loss ends at 1 + (1 + 2/D) N/(N + 2), above its start",
        (1, "in_context"): "icl = 1: the in-context test loss ends at L(M_D)",
        (1, "in_weight"): "icl = 1: the in-weight test loss ends above its start, by tr(A*ᵀΛA*Λ)/N",
    }
    for (which, name), statement in statements.items():
        at = {"share": float(which), "step": infinite["step"][-1]}
        end = float(predicted[f"{name}_end_at_{which}"])
        all_claims.append(
            Claim.over(
                f"{NAME}/{slug(name)}-end-at-{which}",
                f"{statement} (infinite data)",
                predicted=end,
                measured=infinite[f"{name}_test_loss"].sel(at).values,
                tolerance=rests[which, name],
                basis="the rest of the way, by the logistic course; initial weights outside the mode",
            )
        )
        error, excess = (predicted[f"{name}_{part}_at_{which}"].values for part in ("error", "excess"))
        all_claims.append(
            Claim.over(
                f"{NAME}/{slug(name)}-end-at-{which}-sampled",
                f"{statement} (P sequences)",
                predicted=end,
                measured=sampled[f"{name}_test_loss"].sel(at).values,
                tolerance=STANDARD_ERRORS * error + excess + rests[which, name],
                basis="3 standard errors, by the delta method, of training and test set; mean excess",
            )
        )
    for name, words, sign in (("in_context", "falls", -1), ("in_weight", "rises", 1)):
        ends = sampled[f"{name}_test_loss"][..., -1].values
        wrong = (np.diff(ends, axis=1) * sign <= 0).sum(axis=1)
        all_claims.append(
            Claim.over(
                f"{NAME}/{slug(name)}-order",
                f"The final {name.replace('_', '-')} test loss {words} with every rise of icl, as on infinite data: "
                "neighbours out of order",
                predicted=0,
                measured=wrong,
                tolerance=0,
                basis="a count",
            )
        )
    times = {
        kind: _half_times(data[kind], predicted) / predicted["half_time"].values for kind in data if kind != "theory"
    }
    euler = predicted["rate"].values * float(predicted["time_step"]) / 2
    rotation = np.where(np.isin(SHARES, (0.0, 1.0)), 0.0, 1 / (predicted["half_time"] * predicted["rate"]).values)
    mixed = (euler + rotation) * np.ones_like(times["infinite"])
    noisy = mixed + STANDARD_ERRORS * predicted["rate_error"].values
    for kind, words, allowed, basis in (
        ("infinite", "infinite data", mixed, "half a step of descent; for mixtures an e-folding, as the mode rotates"),
        (
            "sampled",
            "P sequences",
            noisy,
            "half a step of descent; an e-folding for mixtures; 3 standard errors of the growth rate",
        ),
    ):
        all_claims.append(
            Claim.over(
                f"{NAME}/time-{kind}",
                "The first fall of the training loss, at every icl, comes when the leading mode of E[y_q S x_qᵀ] has "
                f"grown: measured over predicted time at half of it, one ratio for each seed and icl ({words})",
                predicted=1.0,
                measured=times[kind].ravel(),
                tolerance=allowed.ravel(),
                basis=basis,
            )
        )
    given_up = sampled["in_weight_test_loss"].isel(share=slice(1, -1))
    expected = infinite["in_weight_test_loss"].isel(share=slice(1, -1))
    middle = (expected.min("step") + expected.isel(step=-1)) / 2
    dips = ((given_up.min("step") < middle) & (given_up.isel(step=-1) > middle)).values
    all_claims.append(
        Claim.over(
            f"{NAME}/given-up",
            "For icl between 0 and 1, w* is learned by heart and then given up: number of icl at which the in-weight "
            "test loss goes below the middle between the lowest and the last of infinite data, and ends above it",
            predicted=dips.size / dips.shape[0],
            measured=dips.sum(axis=1),
            tolerance=0,
            basis="a count",
        )
    )
    return all_claims


def _half_times(trajectory: xr.Dataset, predicted: xr.Dataset) -> np.ndarray:
    """When the training loss has fallen by half of the first mode's fall."""
    time, falls = trajectory["time"].values, predicted["fall"].values
    losses = trajectory["loss"].values
    return np.array([[passage_time(time, x, x[0] - f / 2) for x, f in zip(row, falls, strict=True)] for row in losses])


def draw(data: dict[str, xr.Dataset]) -> Figure:
    sampled, infinite, predicted = data["sampled"], data["infinite"], data["theory"]
    rate = float(sampled["time"][1] / sampled["step"][1]) / 2
    kinds = (
        ("in_weight_test_loss", VERMILION, "in-weight test (w*, noise as context)"),
        ("in_context_test_loss", BLUE, "in-context test (new task vectors)"),
        ("loss", GREY, "training"),
    )
    with styled():
        figure = new_figure(9.6, 6.4)
        panels = figure.subplots(2, 3, sharex=True, sharey=True)
        for place, (axes, share) in enumerate(zip(panels.flat, SHARES, strict=True)):
            for name, colour, label in kinds:
                for seed in range(sampled.sizes["seed"]):
                    curve = sampled[name].isel(seed=seed, share=place)
                    axes.plot(curve["step"], curve, color=colour, linewidth=1.6, label=label if seed == 0 else None)
                exact = infinite[name].isel(seed=0, share=place)
                known = "infinite data, exact moments" if name == "loss" else None
                axes.plot(exact["step"], exact, "--", color=BLACK, linewidth=1.0, label=known)
            when = float(steps_for(predicted["half_time"].values[0, place], rate))
            fall = float(predicted["fall"][place])
            axes.plot([when], [1 - fall / 2], "D", color=BLACK, markersize=4.5, zorder=5,
                      label="first fall, predicted in closed form")  # fmt: skip
            if share in (0.0, 1.0):
                for name, colour in (("in_context", BLUE), ("in_weight", VERMILION)):
                    end = float(predicted[f"{name}_end_at_{int(share)}"])
                    axes.axhline(end, color=colour, linestyle=":", linewidth=1.2)
                    words = {"color": colour, "fontsize": 9, "textcoords": "offset points", "ha": "left"}
                    above = end < 2
                    axes.annotate(f"{end:.3f}", (0, end), xytext=(2, 3 if above else -12), **words)
            extra = {0.0: ": noise as context", 1.0: ": every context has its task"}.get(share, "")
            axes.set_title(f"icl = {share:g}{extra}")
            axes.set_ylim(0, 2.6)
            axes.set_xlim(0, float(sampled["step"][-1]))
        for axes in panels[:, 0]:
            axes.set_ylabel("loss (mean squared error)")
        for axes in panels[1]:
            axes.set_xlabel("step of gradient descent")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure
