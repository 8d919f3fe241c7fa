r"""Fig 1: three heads emerge, one for each task, and weights stay decomposable.

The same start is trained in three ways: whole matrices by gradient descent on fresh sequences, eigenvalues alone by
gradient descent on the exact loss over fixed samples (`ReducedSampled`), and the flow of the spectral loss (theory).
The first two are softmax attention itself, and differ by the noise of batches only, which is followed over batch
sizes; the third stands for it at large d and L.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy.optimize import isotonic_regression

from stepwell.analysis import passage_time, phases
from stepwell.dynamics import Ensemble, Record, descend, flow
from stepwell.figures import Data, Figure
from stepwell.models import SpectralAttention
from stepwell.objectives import ReducedSampled, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._fig01_claims import TAIL, claims, late_part
from ._fig01_drawing import draw
from ._full_model import UNIT, FirstSetting, train, whole_model
from ._off_structure import gradient_variance, off_structure_gradient
from ._softmax_search import DRAWS, Weights, least_softmax, softmax_slopes

CAPTION = (
    "Three regressions in one sequence, three softmax heads, trained from small decomposable weights. (a) Eigenvalues "
    "ω of the scores and (b) eigenvalues μ of the readout, for each head and task. Colors: softmax attention, whole "
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


@dataclass(frozen=True)
class Settings(FirstSetting):
    """`runs` are batch sizes with how many seeds each has, the first being `seed`."""

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


SCALES = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""Of the start, for the law of the emergence time."""
LATE = (8.5, 10.0)
"""Runs of whole matrices are averaged between these times: the drop is over, and heads that lost are still small."""
LATE_VALUES = ("late_mu", "late_loss", "late_loss_error")
OTHERS = 4
"""Further runs of the smallest batch: the scatter of runs is that of these."""


def describe(settings: Settings) -> dict[str, Any]:
    added = settings.added()
    counts = [f"{seeds} runs of {batch}" for batch, seeds in added.pop("runs")]
    others = OTHERS if len(counts) > 1 else 0
    return {
        **settings.described(),
        "sequences a step": counts,
        "further runs, for the scatter": others,
        **added,
    }


def simulate(settings: Settings) -> Data:
    predictions = predict(settings)
    middle = float(predictions["middle"])
    population, descent = exact_descent(settings, middle), descents(settings, middle)
    if len(settings.runs) > 1:
        smallest = min(batch for batch, _ in settings.runs)
        apart = replace(settings, runs=((smallest, OTHERS),), seed=settings.seed + 50)
        judges = {"others": descents(apart, middle)[list(LATE_VALUES)]}
    else:
        judges = {}
    return {
        "descent": descent,
        **judges,
        "population": population,
        "scatter": scatter(settings),
        "spectral": spectral_course(settings, population["time"].values),
        "gradient": gradient(settings, middle),
        "noise": gradient_noise(settings),
        "emergence": emergence_times(settings),
        "theory": predictions,
    }


def descents(settings: Settings, middle: float) -> xr.Dataset:
    """Whole matrices, a run for each batch size and seed.

    `half` is when the loss passes `middle`, its mean of start and end by theory, and `phase` the edges of the emergence
    that a probe finds, if any. Late means are over the times `LATE`: `late_omega` and `late_mu` of the head with the
    task's number, `late_loss`, `late_off`.
    """
    batches = [batch for batch, seeds in settings.runs for _ in range(seeds)]
    trajectories = [
        train(settings, settings.seed + number, batch=batch, rate=settings.rate, steps=settings.steps)
        for number, batch in enumerate(batches)
    ]
    runs = xr.concat(trajectories, dim="run").assign_coords(run=range(len(batches)), batch=("run", batches))
    late, time = late_part(runs, LATE), runs["time"].values
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
    ).assign_attrs(late=list(LATE))


def _passage(time: np.ndarray, loss: np.ndarray, level: float) -> float:
    """When the falling curve nearest to a noisy one passes a level."""
    return passage_time(time, np.asarray(isotonic_regression(loss, increasing=False).x), level)


def exact_descent(settings: Settings, middle: float) -> xr.Dataset:
    """Eigenvalues alone on the exact loss, by gradient descent, over each of several sets of fixed samples.

    Curves over (set, time), and the standard error of the last loss of each set, from as many other sequences.
    """
    keys = jax.random.split(jax.random.key(settings.seed), 2 * settings.sets)
    model = settings.spectral_model()
    drawn = [ReducedSampled(settings.task, settings.sequences, precision="float32", key=key) for key in keys]
    objectives, others = drawn[: settings.sets], drawn[settings.sets :]
    run = descend(
        Ensemble.of([model] * settings.sets),
        Ensemble.of(objectives),
        rate=settings.population_rate,
        steps=settings.population_steps,
        record=Record(snapshots=settings.population_steps + 1),
        progress=False,
    )
    last = [model.with_weights({n: run[n].values[k, -1] for n in model.weight_dims}) for k in range(settings.sets)]
    time = settings.population_rate * run["step"].values
    return xr.Dataset(
        {
            "loss": (("set", "time"), run["loss"].values),
            **_eigenvalues(run, model),
            "error": ("set", [float(o.standard_error(m)) for o, m in zip(others, last, strict=True)]),
            "half": ("set", [passage_time(time, loss, middle) for loss in run["loss"].values]),
        },
        {"time": ("time", time, {"units": UNIT})},
    )


def scatter(settings: Settings) -> xr.Dataset:
    """Standard deviations of ω and μ of least loss over sets of as many sequences, on which no run is trained.

    Where each task has a head of its own, they are those of one head on one task.
    """
    task, key = MultiTaskRegression(settings.dims[:1], 1.0, settings.context), jax.random.key(settings.seed + 3)
    rng = np.random.default_rng(settings.seed)
    drawn = [
        least_softmax(task, 1, settings.sequences, key=jax.random.fold_in(key, draw), rng=rng) for draw in range(DRAWS)
    ]
    # The search may end at either of two signs.
    spread = np.abs(drawn).std(axis=0, ddof=1).squeeze()
    return xr.Dataset(dict(zip(("omega", "mu"), spread, strict=True)))


def _eigenvalues(run: xr.Dataset, model: SpectralAttention) -> dict[str, Any]:
    q, k, v, o = (run[name].values for name in ("query", "key", "value", "output"))
    dims = ("set", "time", "head", "task")
    return {"omega": (dims, q * k * model.score_scale / np.array(model.dims)), "mu": (dims, v * o)}


def spectral_course(settings: Settings, times: np.ndarray) -> xr.Dataset:
    """The flow of theory at the times of the other runs, and on to the end of the tail."""
    until = np.union1d(times, TAIL)
    course = flow_of_theory(settings, until)
    dims = ("time", "head", "task")
    return xr.Dataset(
        {"loss": ("time", course.loss.sum(axis=1)), "omega": (dims, course.omega), "mu": (dims, course.mu)},
        {"time": ("time", until, {"units": UNIT})},
    )


def flow_of_theory(settings: Settings, until: np.ndarray) -> theory.FlowCourse:
    return theory.spectral_flow(settings.task, *settings.initial_weights(), until, embedding=settings.embedding)


def gradient(settings: Settings, middle: float) -> xr.Dataset:
    """At the middle of the emergence, where gradients are large, in random bases; and by the eigenvalues alone.

    `reduced` and `reduced_error` are the derivatives by ω and μ over reduced sequences.
    """
    course = flow_of_theory(settings, np.linspace(0, _bracket(settings)[1], 2001))
    place = int(np.argmin(np.abs(course.loss.sum(axis=1) - middle)))
    omega, mu = course.omega[place], course.mu[place]
    task, whole = whole_model(settings, settings.seed, settings.with_eigenvalues(omega, mu))
    gradients = off_structure_gradient(
        whole, task, blocks=settings.blocks, size=settings.block_size, seed=settings.seed
    )
    slopes = softmax_slopes(
        settings.task, Weights(omega, mu), settings.sequences, key=jax.random.key(settings.seed + 1)
    )
    dims = ("matrix", "head", "task")
    return gradients.assign(reduced=(dims, slopes.mean), reduced_error=(dims, slopes.error))


def gradient_noise(settings: Settings) -> xr.Dataset:
    """The variance of the gradient of a sequence where theory has the weights in the middle of `LATE`, all added up."""
    late = flow_of_theory(settings, np.array([np.mean(LATE)]))
    task, whole = whole_model(settings, settings.seed, settings.with_eigenvalues(late.omega[0], late.mu[0]))
    return gradient_variance(whole, task, blocks=max(2, settings.blocks), size=64, seed=settings.seed + 2)


def emergence_times(settings: Settings) -> xr.Dataset:
    """When half of the fall is done, by the flow of the factors of the eigenvalues, from ever smaller starts."""
    task, times = settings.task, []
    objective = Spectral(task)
    low, high = theory.flow_limit_loss(task).sum(), task.signals.sum()  # of the surrogate
    brackets = [_bracket(settings, scale) for scale in SCALES]
    for scale, bracket in zip(SCALES, brackets, strict=True):
        # Trajectories count time at half the speed. A program compiled once serves all, with as many save times.
        until = 2.4 * bracket[1]
        model = settings.spectral_model(scale)
        run = flow(model, objective, until=until, record=Record(points=2001), rtol=1e-8, progress=False)
        times.append(passage_time(run["time"].values / 2, run["loss"].values[0], (low + high) / 2))
    return xr.Dataset(
        {"time": ("scale", times, {"units": UNIT}), "bracket": (("scale", "end"), np.array(brackets))},
        {"scale": list(SCALES)},
    )


def _bracket(settings: Settings, scale: float = 1.0) -> tuple[float, float]:
    omega, mu = (np.diag(weights) for weights in settings.initial_weights(scale))
    options: Any = {"heads": settings.tasks, "embedding": settings.embedding}
    bracket = theory.emergence_bracket(settings.task, omega, mu, **options)
    return float(bracket.early[0]), float(bracket.late[0])


def predict(settings: Settings) -> xr.Dataset:
    """What theory says of the limit, the time and the tail, and which heads win."""
    task = settings.task
    limit, best = theory.flow_limit(task), theory.exact_optimum(task)
    training: theory.FlowOptions = {"embedding": settings.embedding}
    return xr.Dataset(
        {
            "omega": ("task", limit.omega),
            "mu": ("task", limit.mu),
            "loss": theory.flow_limit_loss(task).sum(),
            "best_omega": ("task", best.omega),
            "best_mu": ("task", best.mu),
            "best_loss": best.loss.sum(),
            "middle": (task.signals.sum() + best.loss.sum()) / 2,
            "winner": ("task", theory.winners(task, *settings.initial_weights(), **training)),
            "bracket": ("end", list(_bracket(settings))),
            "width": theory.loss_drop_width(task, **training).max(),
            "fading": theory.off_task_fading(task, **training)[0],
            "slow": theory.late_rates(task, **training).slow.min(),
        }
    )


def _own(weights: xr.DataArray) -> np.ndarray:
    """Of each task, the entry of the head with its number."""
    return np.einsum("...hh->...h", weights.values)


FIGURE = Figure(
    title="Three heads wait, emerge together and converge, each to a task of its own",
    caption=CAPTION,
    source="Fig 1",
    settings=Settings(),
    quick=Settings(runs=((64, 1),), rate=0.02, steps=500, sets=2, sequences=640, blocks=16, block_size=128),
    described=describe,
    paper_settings=PAPER_SETTINGS,
    simulate=simulate,
    claims=claims,
    draw=draw,
)
