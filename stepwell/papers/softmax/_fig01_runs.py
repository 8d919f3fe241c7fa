"""The simulations of Fig 1, and the noise of gradients: how much of one lies off the decomposable weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy.optimize import isotonic_regression

from stepwell.analysis import passage_time, phases
from stepwell.dynamics import Ensemble, Record, descend, flow
from stepwell.dynamics.fast import gradient_form
from stepwell.figures import Data
from stepwell.models import MergedAttention, MultiHeadAttention
from stepwell.objectives import ReducedSampled, Sampled, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory
from stepwell.trajectory import model_at

from ._common import over, stacked
from ._eigenvalues import DRAWS, Weights, eigenvalues, least_softmax, softmax_slopes
from ._whole_matrices import UNIT, FirstSetting, in_the_bases, train, whole_model


@dataclass(frozen=True)
class Settings(FirstSetting):
    """`runs` are batch sizes with how many seeds each has, the first being `seed`."""

    runs: tuple[tuple[int, int], ...] = ((64, 3), (256, 4), (1024, 1))
    seed: int = 2200
    rate: float = 0.0125
    steps: int = 800
    population_rate: float = 0.02
    population_steps: int = 1000
    sets: int = 3
    sequences: int = 1000
    blocks: int = 128
    block_size: int = 512


SCALES = (1.0, 0.5, 0.25, 0.125, 0.0625)
"""Of the initial weights, for the law of the emergence time."""
LATE = (8.5, 10.0)
"""Runs of whole matrices are averaged between these times: the drop is over, and heads that lost are still small."""
OTHERS = 4
"""Further runs of the smallest batch: the scatter of runs is that of these."""


def simulate(settings: Settings) -> Data:
    predictions = predict(settings)
    middle = float(predictions["middle"])
    population = exact_descent(settings, middle)
    data = {
        "descent": descents(settings, middle),
        "population": population,
        "scatter": scatter(settings),
        "spectral": spectral_course(settings, population["time"].values),
        "gradient": gradient(settings, middle),
        "noise": gradient_noise(settings),
        "emergence": emergence_times(settings),
        "theory": predictions,
    }
    if len(settings.runs) > 1:
        apart = replace(settings, runs=((min(settings.runs)[0], OTHERS),), seed=settings.seed + 50)
        data["others"] = descents(apart, middle)[["late_mu", "late_loss", "late_loss_error", "half"]]
    return data


def descents(settings: Settings, middle: float) -> xr.Dataset:
    """Whole matrices, a run for each batch size and seed.

    `half` is when the loss passes `middle`, half-way down by theory, and `phase` the edges of the emergence that a
    probe detects, if any. Late means are over the times `LATE`: `late_omega` and `late_mu` of the head with the
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
    edges = [[np.nan] * 2 if one is None else [one.emergence.start, one.emergence.end] for one in detected]
    # The falling curves nearest to the noisy ones.
    falling = [np.asarray(isotonic_regression(loss, increasing=False).x) for loss in runs["loss"].values]
    return runs.assign(
        half=("run", [passage_time(time, loss, middle) for loss in falling], {"units": UNIT}),
        phase=(("run", "edge"), edges, {"units": UNIT}),
        late_omega=(("run", "task"), own_entries(late["omega"]).mean(axis=1)),
        late_mu=(("run", "task"), own_entries(late["mu"]).mean(axis=1)),
        late_loss=late["loss"].mean("time"),
        late_loss_error=late["loss"].std("time", ddof=1) / late.sizes["time"] ** 0.5,
        late_off=(late["off"] ** 2).mean("time") ** 0.5,
    ).assign_attrs(late=list(LATE))


def exact_descent(settings: Settings, middle: float) -> xr.Dataset:
    """Eigenvalues alone on the exact loss, by gradient descent, over each of several sets of fixed samples.

    Curves over (set, time), and the standard error of the last loss of each set, from as many other sequences.
    """
    keys = jax.random.split(jax.random.key(settings.seed), 2 * settings.sets)
    model = settings.spectral_model()
    drawn = [ReducedSampled(settings.task, settings.sequences, precision="float32", key=key) for key in keys]
    objectives, others = drawn[: settings.sets], drawn[settings.sets :]
    models, steps = Ensemble.of([model] * settings.sets), settings.population_steps
    options: dict[str, Any] = {"record": Record(snapshots=steps + 1), "progress": False}
    run = descend(models, Ensemble.of(objectives), rate=settings.population_rate, steps=steps, **options)
    last = [model_at(run, model, run=k) for k in range(settings.sets)]
    time, (omega, mu) = settings.population_rate * run["step"].values, eigenvalues(run, model)
    half = [passage_time(time, loss, middle) for loss in run["loss"].values]
    detected = [phases(time, loss) is not None for loss in run["loss"].values]
    error = [float(other.standard_error(model)) for other, model in zip(others, last, strict=True)]
    return xr.Dataset(
        over("set time", loss=run["loss"].values)
        | over("set time head task", omega=omega, mu=mu)
        | over("set", error=error, half=half, phases=detected),
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


def spectral_course(settings: Settings, times: np.ndarray) -> xr.Dataset:
    """The flow of theory at the times of the other runs, and on to the end of the tail."""
    until = np.union1d(times, TAIL)
    course = flow_of_theory(settings, until)
    return xr.Dataset(
        over("time", loss=course.loss.sum(axis=1)) | over("time head task", omega=course.omega, mu=course.mu),
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
    gradients = off_structure_gradient(whole, task, settings)
    key = jax.random.key(settings.seed + 1)
    slope, error = softmax_slopes(settings.task, Weights(omega, mu), settings.sequences, key=key)
    return gradients.assign(over("matrix head task", reduced=slope, reduced_error=error))


def gradient_noise(settings: Settings) -> xr.Dataset:
    """The variance of the gradient of a sequence where theory has the weights in the middle of `LATE`, all added up."""
    late = flow_of_theory(settings, np.array([np.mean(LATE)]))
    task, whole = whole_model(settings, settings.seed, settings.with_eigenvalues(late.omega[0], late.mu[0]))
    return gradient_variance(whole, task, blocks=max(2, settings.blocks), size=64, seed=settings.seed + 2)


def emergence_times(settings: Settings) -> xr.Dataset:
    """When half of the fall is done, by the flow of the factors of the eigenvalues, from ever smaller weights."""
    task, objective, times = settings.task, Spectral(settings.task), []
    low, high = theory.flow_limit_loss(task).sum(), task.signals.sum()  # of the surrogate
    brackets = [_bracket(settings, scale) for scale in SCALES]
    for scale, bracket in zip(SCALES, brackets, strict=True):
        # Trajectories count time at half the speed. A program compiled once serves all, with as many save times.
        options: dict[str, Any] = {"record": Record(points=2001), "rtol": 1e-8, "progress": False}
        run = flow(settings.spectral_model(scale), objective, until=2.4 * bracket[1], **options)
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
    winner = theory.winners(task, *settings.initial_weights(), **training)
    middle, width = (task.signals.sum() + best.loss.sum()) / 2, theory.loss_drop_width(task, **training).max()
    fading, slow = theory.off_task_fading(task, **training)[0], theory.late_rates(task, **training).slow.min()
    return xr.Dataset(
        over("task", omega=limit.omega, mu=limit.mu, best_omega=best.omega, best_mu=best.mu, winner=winner)
        | over("", loss=theory.flow_limit_loss(task).sum(), best_loss=best.loss.sum(), middle=middle)
        | over("", width=width, fading=fading, slow=slow)
        | over("end", bracket=list(_bracket(settings)))
    )


def own_entries(weights: xr.DataArray | np.ndarray) -> np.ndarray:
    """Of each task, the entry of the head with its number."""
    return np.einsum("...hh->...h", np.asarray(weights))


TAIL = (60.0, 120.0)
"""Between these times the fading of what is off task is measured."""


def inclination(weights: xr.Dataset) -> xr.DataArray:
    r"""The part of $\sum_j|\omega_j^h\mu_j^h|$ of head h that is on the task with its number, over `head`."""
    given = abs(weights["omega"] * weights["mu"])
    own = given.isel(
        head=xr.DataArray(range(given.sizes["head"]), dims="head"),
        task=xr.DataArray(range(given.sizes["head"]), dims="head"),
    )
    return own / given.sum("task")


def late_part(course: xr.Dataset, times: Sequence[float]) -> xr.Dataset:
    """A course between two times; if it ends before, it has no numbers."""
    part = course.sel(time=slice(*times))
    return part if part.sizes["time"] > 1 else course.isel(time=[-1, -1]) * np.nan


_TOGETHER = 4
"""Batches that are averaged, of the second half; those of the first half are taken one by one."""


def off_structure_gradient(model: MultiHeadAttention, task: MultiTaskRegression, settings: Settings) -> xr.Dataset:
    r"""The gradient of the loss in W and U, split into its decomposable part and the rest.

    Drawn are independent batches of sequences, `settings.blocks`, and half as many others (at least 16), which all
    errors are from. Over (matrix, group): `off`, the norm of the rest of the gradient over each of several independent
    groups of `sequences` sequences, and `other_off`, over each of the other batches: what scatters as Gaussian vectors
    do has the same relative scatter in groups of any size. Over matrix: `square`, an estimate of the squared norm of
    the rest in the population that has no bias, from products of the gradients of different batches, with its standard
    error `error`; and `on`, the norm of the decomposable part. Over (matrix, head, task): `slope`, the derivatives by
    $\omega_i^h$ and $\mu_i^h$ that the decomposable part amounts to, and their standard errors `slope_error`.
    """
    blocks, size = settings.blocks, settings.block_size
    every, half = blocks + max(16, blocks // 2), blocks // 2
    groups, rows = (blocks - half) // _TOGETHER, []
    merged = MergedAttention(model.readout(), model.bilinear(), activation="softmax", attends_query=False)
    drawn = [in_the_bases(g.key_query, g.value, task) for g in _gradients(merged, task, every, size, settings.seed)]
    for each in zip(*drawn, strict=True):
        derivatives, structured, rest = _split(np.stack(each), task)
        flat, others = np.split(rest.reshape(every, -1), [blocks])
        averaged = flat[half : half + groups * _TOGETHER].reshape(groups, _TOGETHER, flat.shape[1]).mean(axis=1)
        pairs, other_pairs = _products(flat), _products(others)
        # Products of pairs that share a batch are uncorrelated if the population has no such gradient.
        count = max(1, pairs.size)  # a single batch has no pairs
        rows.append(
            over("group", off=np.linalg.norm(np.concatenate([flat[:half], averaged]), axis=1))
            | over("other", other_off=np.linalg.norm(others, axis=1))
            | over("", square=pairs.sum() / count, error=np.sqrt(2 * np.mean(other_pairs**2) / count))
            | over("", on=np.linalg.norm(structured[:blocks].mean(axis=0)))
            | over("head task", slope=derivatives[:blocks].mean(axis=0))
            | over("head task", slope_error=derivatives[blocks:].std(axis=0, ddof=1) / blocks**0.5)
        )
    sequences = size * np.repeat([1, _TOGETHER], [half, groups])
    return stacked(rows, matrix=["W", "U"]).assign_coords(sequences=("group", sequences))


def _products(vectors: Float[np.ndarray, "block entry"]) -> Float[np.ndarray, " pair"]:
    """Of every two different vectors."""
    return (vectors @ vectors.T)[~np.eye(len(vectors), dtype=bool)]


def _gradients(model: Any, task: MultiTaskRegression, blocks: int, size: int, seed: int) -> list[Any]:
    """Gradients of the loss over `blocks` batches of `size` sequences, each like the model."""
    return [_gradient(model, task, size, jax.random.fold_in(jax.random.key(seed), block)) for block in range(blocks)]


@eqx.filter_jit
def _gradient(model: Any, task: MultiTaskRegression, size: int, key):
    objective = gradient_form(Sampled(task.draw(size, key=key), "sum"), model)
    return eqx.filter_grad(lambda m: objective(m))(model)


def gradient_variance(
    model: MultiHeadAttention, task: MultiTaskRegression, *, blocks: int, size: int, seed: int
) -> xr.Dataset:
    r"""`total`, the variance of the gradient of one sequence in all weights added up, $\mathrm{tr}\,C$, from that of
    `blocks` batches of `size` sequences; and its standard `error`, from the spread of their squared distances."""
    gradients = _gradients(model, task, blocks, size, seed)
    drawn = np.stack([np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one)]) for one in gradients])
    squares = size * blocks / (blocks - 1) * np.sum((drawn - drawn.mean(axis=0)) ** 2, axis=1)
    return xr.Dataset({"total": squares.mean(), "error": squares.std(ddof=1) / blocks**0.5})


def _split(gradient: Float[np.ndarray, "block head rows columns"], task: MultiTaskRegression):
    """(derivatives by the eigenvalues, decomposable part, rest) of gradients in W, which is the taller, or in U."""
    dim, tasks = task.dim, len(task.dims)
    structured = np.zeros_like(gradient)
    if gradient.shape[-1] == dim:
        of_task, place = np.repeat(np.arange(tasks), task.dims), np.arange(dim)
        derivatives = gradient[..., place, place] @ np.eye(tasks)[of_task]
        structured[..., place, place] = (derivatives / np.array(task.dims))[..., of_task]
    else:
        place = np.arange(tasks)
        derivatives = gradient[..., place, dim + place]
        structured[..., place, dim + place] = derivatives
    return derivatives, structured, gradient - structured
