r"""Fig 1: three heads emerge, one for each task, and weights stay decomposable.

The same start is trained in three ways: whole matrices by gradient descent on fresh sequences, eigenvalues alone by
gradient descent on the exact loss over fixed samples (`ReducedSampled`), and the flow of the spectral loss (theory).
The first two are softmax attention itself, and differ by the noise of batches only, which is followed over batch
sizes; the third stands for it at large d and L.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy.optimize import isotonic_regression

from stepwell.dynamics import Ensemble, descend, flow
from stepwell.models import SpectralAttention
from stepwell.objectives import ReducedSampled, Spectral
from stepwell.papers._completed import completed
from stepwell.papers._settings import changeable
from stepwell.probes import passage_time, phases
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory
from stepwell.trajectory import provenance

from ._fig01_claims import NAME
from ._fig01_claims import claims as claims
from ._fig01_drawing import draw as draw
from ._full_model import CONTEXT, DIMS, EMBEDDING, HEADS, SETTING, UNIT, spectral_model, start, train, whole_model
from ._off_structure import gradient_variance, off_structure_gradient
from ._softmax_search import DRAWS, Weights, least_softmax, softmax_slopes

TITLE = "Three heads wait, emerge together and converge, each to a task of its own"
CAPTION = (
    "Three regressions in one sequence, three softmax heads, trained from small decomposable weights. (a) Eigenvalues "
    "ω of the scores and (b) eigenvalues μ of the readout, for each head and task. Colours: softmax attention, whole "
    "matrices by gradient descent on fresh sequences, in random bases. Dashed: softmax attention again, descent of the "
    "eigenvalues alone on the exact loss, without noise. Dotted: its surrogate, the flow of the spectral loss, which "
    "is that of theory. (c) The loss, with the three phases that a probe finds in it, and the bracket that theory "
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


@changeable
@dataclass(frozen=True)
class Settings:
    """What a quick run has less of. `runs` are batch sizes with how many seeds each has, the first being `seed`."""

    runs: tuple[tuple[int, int], ...] = ((64, 3), (256, 2), (1024, 1))
    seed: int = 2100
    rate: float = 0.0125
    steps: int = 800
    population_rate: float = 0.02
    population_steps: int = 1000
    sets: int = 3
    sequences: int = 1000
    blocks: int = 128
    block_size: int = 512


FULL = Settings()
QUICK = Settings(runs=((64, 1),), rate=0.02, steps=500, sets=2, sequences=640, blocks=16, block_size=128)
SCALES = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""Of the start, for the law of the emergence time."""
LATE = (8.5, 10.0)
"""Runs of whole matrices are averaged between these times: the drop is over, and heads that lost are still small."""
LATE_VALUES = ("late_mu", "late_loss", "late_loss_error")
OTHERS = 4
"""Further runs of the smallest batch: the scatter of runs is that of these."""
TAIL = (60.0, 120.0)
"""Between these times the fading of what is off task is measured."""


def settings(quick: bool) -> dict[str, Any]:
    chosen = asdict(QUICK if quick else FULL)
    counts = [f"{seeds} runs of {batch}" for batch, seeds in chosen.pop("runs")]
    others = OTHERS if len(counts) > 1 else 0
    return {**SETTING, "sequences a step": counts, "further runs, for the scatter": others, **chosen}


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    predictions, population = predict(), exact_descent(chosen)
    descent = descents(chosen, float(predictions["middle"]))
    if len(chosen.runs) > 1:
        smallest = min(batch for batch, _ in chosen.runs)
        apart = replace(chosen, runs=((smallest, OTHERS),), seed=chosen.seed + 50)
        judges = {"others": descents(apart, float(predictions["middle"]))[list(LATE_VALUES)]}
    else:
        judges = {}
    return {
        "descent": descent,
        **judges,
        "population": population,
        "scatter": scatter(chosen),
        "spectral": spectral_course(population["time"].values),
        "gradient": gradient(chosen),
        "noise": gradient_noise(chosen),
        "emergence": emergence_times(),
        "theory": predictions,
    }


def the_task(*, context: int = CONTEXT) -> MultiTaskRegression:
    return MultiTaskRegression(DIMS, 1.0, context)


def descents(chosen: Settings, middle: float) -> xr.Dataset:
    """Whole matrices, a run for each batch size and seed.

    `half` is when the loss passes `middle`, its mean of start and end by theory, and `phase` the edges of the emergence
    that a probe finds, if any. Late means are over the times `LATE`: `late_omega` and `late_mu` of the head with the
    task's number, `late_loss`, `late_off`.
    """
    trajectories, batches = [], [batch for batch, seeds in chosen.runs for _ in range(seeds)]
    for number, batch in enumerate(batches):
        run = train(
            chosen.seed + number,
            batch=batch,
            rate=chosen.rate,
            steps=chosen.steps,
            configuration={"figure": NAME},
        )
        trajectories.append(run.drop_attrs())
    runs = xr.concat(trajectories, dim="run").assign_coords(run=range(len(batches)), batch=("run", batches))
    late, time = runs.sel(time=slice(*LATE)), runs["time"].values
    detected = [phases(time, loss) for loss in runs["loss"].values]
    return runs.assign(
        half=("run", [_passage(time, loss, middle) for loss in runs["loss"].values], {"units": UNIT}),
        phase=(
            ("run", "edge"),
            [[np.nan] * 2 if one is None else [one.emergence.start, one.emergence.end] for one in detected],
            {"units": UNIT},
        ),
        late_omega=(("run", "task"), _own(late["omega"]).mean(axis=1)),
        late_mu=(("run", "task"), _own(late["mu"]).mean(axis=1)),
        late_loss=late["loss"].mean("time"),
        late_loss_error=late["loss"].std("time", ddof=1) / late.sizes["time"] ** 0.5,
        late_off=(late["off"] ** 2).mean("time") ** 0.5,
    ).assign_attrs(provenance({"figure": NAME, **asdict(chosen)}), late=list(LATE))


def _passage(time: np.ndarray, loss: np.ndarray, level: float) -> float:
    """When the falling curve nearest to a noisy one passes a level."""
    return passage_time(time, np.asarray(isotonic_regression(loss, increasing=False).x), level)


def exact_descent(chosen: Settings, *, context: int = CONTEXT) -> xr.Dataset:
    """Eigenvalues alone on the exact loss, by gradient descent, over each of several sets of fixed samples.

    Curves over (set, time), and the standard error of the last loss of each set, from as many other sequences.
    """
    keys = jax.random.split(jax.random.key(chosen.seed), 2 * chosen.sets)
    task, model = the_task(context=context), spectral_model()
    drawn = [ReducedSampled(task, chosen.sequences, precision="float32", key=key) for key in keys]
    objectives, others = drawn[: chosen.sets], drawn[chosen.sets :]
    run = completed(
        descend(
            Ensemble.of([model] * chosen.sets),
            Ensemble.of(objectives),
            rate=chosen.population_rate,
            steps=chosen.population_steps,
            snapshots=chosen.population_steps + 1,
            progress=False,
            configuration={"figure": NAME, **asdict(chosen)},
        )
    )
    last = [model.with_weights({n: run[n].values[k, -1] for n in model.weight_dims}) for k in range(chosen.sets)]
    time = chosen.population_rate * run["step"].values
    middle = float(predict()["middle"])
    return xr.Dataset(
        {
            "loss": (("set", "time"), run["loss"].values),
            **_eigenvalues(run, model),
            "error": ("set", [float(o.standard_error(m)) for o, m in zip(others, last, strict=True)]),
            "half": ("set", [passage_time(time, loss, middle) for loss in run["loss"].values]),
        },
        {"time": ("time", time, {"units": UNIT})},
        run.attrs,
    )


def scatter(chosen: Settings) -> xr.Dataset:
    """Standard deviations of ω and μ of least loss over sets of as many sequences, on which no run is trained.

    Where each task has a head of its own, they are those of one head on one task.
    """
    task, key = MultiTaskRegression(DIMS[:1], 1.0, CONTEXT), jax.random.key(chosen.seed + 3)
    rng = np.random.default_rng(chosen.seed)
    drawn = [
        least_softmax(task, 1, chosen.sequences, key=jax.random.fold_in(key, draw), rng=rng) for draw in range(DRAWS)
    ]
    # The search may end at either of two signs.
    spread = np.abs(drawn).std(axis=0, ddof=1).squeeze()
    return xr.Dataset(dict(zip(("omega", "mu"), spread, strict=True)), attrs=provenance({"figure": NAME}))


def _eigenvalues(run: xr.Dataset, model: SpectralAttention) -> dict[str, Any]:
    q, k, v, o = (run[name].values for name in ("query", "key", "value", "output"))
    dims = ("set", "time", "head", "task")
    return {"omega": (dims, q * k * model.score_scale / np.array(DIMS)), "mu": (dims, v * o)}


def spectral_course(times: np.ndarray) -> xr.Dataset:
    """The flow of theory at the times of the other runs, and on to the end of the tail."""
    until = np.concatenate([times, np.array(TAIL)])
    course = theory.flow.spectral_flow(the_task(), *start(), until, embedding=EMBEDDING)
    dims = ("time", "head", "task")
    return xr.Dataset(
        {"loss": ("time", course.loss.sum(axis=1)), "omega": (dims, course.omega), "mu": (dims, course.mu)},
        {"time": ("time", until, {"units": UNIT})},
    )


def gradient(chosen: Settings) -> xr.Dataset:
    """At the middle of the emergence, where gradients are large, in random bases; and by the eigenvalues alone.

    `reduced` and `reduced_error` are the derivatives by ω and μ over reduced sequences.
    """
    until = np.linspace(0, _bracket(1.0)[1], 2001)
    course = theory.flow.spectral_flow(the_task(), *start(), until, embedding=EMBEDDING)
    place = int(np.argmin(np.abs(course.loss.sum(axis=1) - float(predict()["middle"]))))
    omega, mu = course.omega[place], course.mu[place]
    task, whole = whole_model(chosen.seed, SpectralAttention.balanced(omega, mu, DIMS, embedding=EMBEDDING))
    gradients = off_structure_gradient(whole, task, blocks=chosen.blocks, size=chosen.block_size, seed=chosen.seed)
    slopes = softmax_slopes(the_task(), Weights(omega, mu), chosen.sequences, key=jax.random.key(chosen.seed + 1))
    dims = ("matrix", "head", "task")
    return gradients.assign(reduced=(dims, slopes.mean), reduced_error=(dims, slopes.error))


def gradient_noise(chosen: Settings) -> xr.Dataset:
    """The variance of the gradient of a sequence where theory has the weights in the middle of `LATE`, all added up."""
    late = theory.flow.spectral_flow(the_task(), *start(), np.array([np.mean(LATE)]), embedding=EMBEDDING)
    begun = SpectralAttention.balanced(late.omega[0], late.mu[0], DIMS, embedding=EMBEDDING)
    task, whole = whole_model(chosen.seed, begun)
    return gradient_variance(whole, task, blocks=chosen.blocks, size=64, seed=chosen.seed + 2)


def emergence_times(*, context: int = CONTEXT) -> xr.Dataset:
    """When half of the fall is done, by the flow of the factors of the eigenvalues, from ever smaller starts."""
    theory_task, times = the_task(), []
    objective = Spectral(the_task(context=context))
    low, high = theory.limits.flow_limit_loss(theory_task).sum(), theory_task.signals.sum()  # of the surrogate
    brackets = [_bracket(scale) for scale in SCALES]
    for scale, bracket in zip(SCALES, brackets, strict=True):
        # Trajectories count time at half the speed. A program compiled once serves all, with as many save times.
        until = 2.4 * bracket[1]
        run = completed(flow(spectral_model(scale), objective, until=until, save=2001, rtol=1e-8, progress=False))
        times.append(passage_time(run["time"].values / 2, run["loss"].values[0], (low + high) / 2))
    return xr.Dataset(
        {"time": ("scale", times, {"units": UNIT}), "bracket": (("scale", "end"), np.array(brackets))},
        {"scale": list(SCALES)},
    )


def _bracket(scale: float) -> tuple[float, float]:
    omega, mu = (np.diag(weights) for weights in start(scale))
    bracket = theory.emergence.emergence_bracket(the_task(), omega, mu, heads=HEADS, embedding=EMBEDDING)
    return float(bracket.early[0]), float(bracket.late[0])


def predict(*, context: int = CONTEXT) -> xr.Dataset:
    """What theory says of the limit, the time and the tail, and which heads win."""
    theory_task = the_task(context=context)
    limit, best = theory.limits.flow_limit(theory_task), theory.losses.exact_optimum(theory_task)
    training: theory.conventions.Training = {"embedding": EMBEDDING}
    return xr.Dataset(
        {
            "omega": ("task", limit.omega),
            "mu": ("task", limit.mu),
            "loss": theory.limits.flow_limit_loss(theory_task).sum(),
            "best_omega": ("task", best.omega),
            "best_mu": ("task", best.mu),
            "best_loss": best.loss.sum(),
            "middle": (theory_task.signals.sum() + best.loss.sum()) / 2,
            "winner": ("task", theory.allocation.winners(theory_task, *start(), **training)),
            "bracket": ("end", list(_bracket(1.0))),
            "width": theory.emergence.loss_drop_width(theory_task, **training).max(),
            "fading": theory.flow.off_task_fading(theory_task, **training)[0],
            "slow": theory.flow.late_rates(theory_task, **training).slow.min(),
        }
    )


def _own(weights: xr.DataArray) -> np.ndarray:
    """Of each task, the entry of the head with its number."""
    return np.einsum("...hh->...h", weights.values)
