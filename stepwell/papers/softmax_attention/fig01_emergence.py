r"""Fig 1: three heads emerge, one for each task, and weights stay decomposable.

The same start is trained in three ways: whole matrices by gradient descent on fresh sequences, eigenvalues alone by
gradient descent on the exact loss over fixed samples (`ReducedSampled`), and the flow of the spectral loss (theory).
The first differs from the second by the noise of its batches only, which is followed to zero over batch sizes.
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import xarray as xr

from stepwell.dynamics import descend, flow
from stepwell.models import SpectralAttention
from stepwell.objectives import ReducedSampled, Spectral
from stepwell.papers._completed import completed
from stepwell.probes import passage_time, phases
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory
from stepwell.trajectory import provenance

from ._fig01_claims import NAME
from ._fig01_claims import claims as claims
from ._fig01_drawing import draw as draw
from ._full_model import CONTEXT, DIMS, EMBEDDING, HEADS, SETTING, UNIT, spectral_model, start, train, whole_model
from ._off_structure import off_structure_gradient

TITLE = "Three heads wait, emerge together and converge, each to a task of its own"
CAPTION = (
    "Three regressions in one sequence, three softmax heads, trained from small decomposable weights. (a) Eigenvalues "
    "ω of the scores and (b) eigenvalues μ of the readout, for each head and task: colours, gradient descent of whole "
    "matrices on fresh sequences, in random bases; dashed, the same descent of the eigenvalues alone on the exact "
    "loss; dotted, the flow of the spectral loss, which is that of theory. (c) The loss, with the three phases that a "
    "probe finds in it. (d) Weights stay decomposable up to the noise of finite batches: what is off the structure "
    "falls as one over the root of the number of sequences, for a gradient and for trained weights. The same noise "
    "lowers μ and raises the loss in (b) and (c). (e) Weights of the trained heads in the bases of the tasks: scores W "
    "and readout U, transposed; rows are the inputs and labels of a token. "
    "Inferred of the paper, whose text could not be consulted: strengths are those of a coordinate, and time is that "
    "of the plain squared loss."
)


@dataclass(frozen=True)
class Settings:
    """What a quick run has less of. `runs` are batch sizes with how many seeds each has."""

    runs: tuple[tuple[int, int], ...] = ((64, 2), (128, 2), (256, 1))
    rate: float = 0.02
    steps: int = 600
    population_steps: int = 1000
    sequences: int = 1500
    blocks: int = 64
    block_size: int = 256


FULL = Settings()
QUICK = Settings(runs=((32, 1),), population_steps=600, sequences=640, blocks=16, block_size=64)
SCALES = (1.0, 0.5, 0.25, 0.125)
"""Of the start, for the law of the emergence time."""
LATE = (8.5, 10.0)
"""Runs of whole matrices are averaged between these times: the drop is over, and heads that lost are still small."""
TAIL = (60.0, 120.0)
"""Between these times the fading of what is off task is measured."""


def settings(quick: bool) -> dict[str, Any]:
    chosen = asdict(QUICK if quick else FULL)
    return {**SETTING, **chosen, "runs": [f"{seeds} of batch {batch}" for batch, seeds in chosen["runs"]]}


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    population = exact_descent(chosen)
    return {
        "descent": descents(chosen),
        "population": population,
        "spectral": spectral_course(population["time"].values),
        "gradient": gradient(population, chosen),
        "emergence": emergence_times(),
        "theory": predict(),
    }


def the_task(*, context: int = CONTEXT) -> MultiTaskRegression:
    return MultiTaskRegression(DIMS, 1.0, context)


def descents(chosen: Settings) -> xr.Dataset:
    """Whole matrices, a run for each batch size and seed; `emerged` is the time of half the fall, if phases are found.

    Late means are over the times `LATE`: `late_omega` and `late_mu` of the head with the task's number, `late_loss`
    with its standard error, `late_off`.
    """
    trajectories = []
    for batch, seeds in chosen.runs:
        for _ in range(seeds):
            run = train(
                len(trajectories), batch=batch, rate=chosen.rate, steps=chosen.steps, configuration={"figure": NAME}
            )
            trajectories.append(run.drop_attrs())
    runs = xr.concat(trajectories, dim="run").assign_coords(
        run=range(len(trajectories)), batch=("run", [batch for batch, seeds in chosen.runs for _ in range(seeds)])
    )
    late = runs.sel(time=slice(*LATE))
    phases_of_runs = [phases(runs["time"].values, loss) for loss in runs["loss"].values]
    spans = [[np.nan] * 3 if f is None else [f.emergence.start, f.half, f.emergence.end] for f in phases_of_runs]
    count = late.sizes["time"]
    return runs.assign(
        span=(("run", "edge"), np.array(spans), {"units": UNIT}),
        late_omega=(("run", "task"), _own(late["omega"]).mean(axis=1)),
        late_mu=(("run", "task"), _own(late["mu"]).mean(axis=1)),
        late_loss=late["loss"].mean("time"),
        late_loss_error=late["loss"].std("time", ddof=1) / count**0.5,
        late_off=(late["off"] ** 2).mean("time") ** 0.5,
    ).assign_attrs(provenance({"figure": NAME, **asdict(chosen)}), late=list(LATE))


def exact_descent(chosen: Settings, *, context: int = CONTEXT) -> xr.Dataset:
    """Eigenvalues alone on the exact loss over fixed samples, by the same descent; and the loss's standard error."""
    objective = ReducedSampled(the_task(context=context), chosen.sequences, precision="float32", key=jax.random.key(99))
    model = spectral_model()
    run = completed(
        descend(
            model,
            objective,
            rate=chosen.rate,
            steps=chosen.population_steps,
            snapshots=chosen.population_steps + 1,
            progress=False,
            configuration={"figure": NAME, **asdict(chosen)},
        )
    )
    eigenvalues = _eigenvalues(run, model)
    last = model.with_weights({name: run[name].values[0, -1] for name in model.weight_dims})
    half = phases(chosen.rate * run["step"].values, run["loss"].values[0])
    return xr.Dataset(
        {
            "loss": ("time", run["loss"].values[0]),
            **eigenvalues,
            "error": float(objective.standard_error(last)),
            "emerged": np.nan if half is None else half.half,
        },
        {"time": ("time", chosen.rate * run["step"].values, {"units": UNIT})},
        run.attrs,
    )


def _eigenvalues(run: xr.Dataset, model: SpectralAttention) -> dict[str, Any]:
    q, k, v, o = (run[name].values[0] for name in ("query", "key", "value", "output"))
    dims = ("time", "head", "task")
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


def gradient(population: xr.Dataset, chosen: Settings) -> xr.Dataset:
    """At the middle of the emergence, where gradients are large, in random bases."""
    place = int(np.argmin(np.abs(population["time"].values - float(population["emerged"]))))
    grown = population.isel(time=place)
    model = SpectralAttention.balanced(grown["omega"].values, grown["mu"].values, DIMS, embedding=EMBEDDING)
    task, whole = whole_model(0, model)
    return off_structure_gradient(whole, task, blocks=chosen.blocks, size=chosen.block_size, seed=7)


def emergence_times(*, context: int = CONTEXT) -> xr.Dataset:
    """When half of the fall is done, by the flow of the factors of the eigenvalues, from ever smaller starts."""
    theory_task, times = the_task(), []
    objective = Spectral(the_task(context=context))
    low, high = theory.limits.flow_limit_loss(theory_task).sum(), theory_task.signals.sum()
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
