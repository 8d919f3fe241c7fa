"""The simulations of `allocation`: softmax attention itself, and its surrogate."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import numpy as np
import xarray as xr
from scipy.optimize import minimize_scalar

from stepwell.analysis import head_task_allocation
from stepwell.figures import Data
from stepwell.models import SpectralAttention
from stepwell.objectives import ReducedSampled, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._common import over
from ._eigenvalues import Descent, best_readout_loss, descent, off_balance, softmax_losses
from ._whole_matrices import UNIT, FirstSetting

SPREAD = 0.3
"""Standard deviation of the logarithms of random initial weights."""
MARGIN = SPREAD**2
"""By so much a head must lead in log ω for the rule to name it with certainty: the rule is of first order in leads."""
UNEQUAL_HEADS = 4


@dataclass(frozen=True)
class Settings(FirstSetting):
    """Initializations, steps and a seed of the surrogate; those of softmax attention itself, for equal tasks, and for
    unequal ones with noise and a head more than tasks."""

    rate: float = 0.02
    draws: int = 150
    steps: int = 10_000
    seed: int = 102
    softmax_runs: int = 24
    softmax_sequences: int = 640
    softmax_seed: int = 105
    unequal_runs: int = 12
    unequal_sequences: int = 1000
    unequal_seed: int = 101
    softmax_steps: int = 1500
    softmax_rate: float = 0.02
    softmax_tested: int = 500

    @property
    def alike(self) -> bool:
        """Whether all tasks have one dimension."""
        return len(set(self.dims)) == 1

    @cached_property
    def unequal_task(self) -> MultiTaskRegression:
        return MultiTaskRegression((6, 10, 14), (2.0, 1.0, 0.5), self.context, noise_variance=2.0)

    def drawn_weights(
        self, rng: np.random.Generator, runs: int, heads: int, tasks: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Random small ω and μ, (run, head, task), their logarithms Gaussian."""
        omega, mu = np.exp(SPREAD * rng.standard_normal((2, runs, heads, tasks)))
        return 1.5 * self.omega * omega, self.mu * mu


def leads(task: MultiTaskRegression, omega: np.ndarray, mu: np.ndarray, *, embedding: int) -> np.ndarray:
    """By how much the predicted head of each task leads, in units of log ω (`theory.head_advantage`)."""
    if omega.shape[0] == 1:
        return np.full(omega.shape[1], np.inf)
    ratio = np.exp(np.mean(np.log(mu / omega), axis=0))
    worth = theory.head_advantage(task, ratio, heads=omega.shape[0], embedding=embedding)
    ordered = np.sort(np.log(omega) + worth.mu / worth.omega * np.log(mu), axis=0)
    return ordered[-1] - ordered[-2]


def equal_tasks(settings: Settings) -> xr.Dataset:
    """Equal tasks and as many heads, from all weights drawn. `level` is known with a head for each, or one fewer."""
    tasks, rng = settings.tasks, np.random.default_rng(settings.softmax_seed)
    begun = settings.drawn_weights(rng, settings.softmax_runs, tasks, tasks)
    runs = _train(settings.task, begun, settings.softmax_sequences, settings.softmax_seed, settings)
    levels = {}
    if settings.alike:
        alone = _least_shared(settings, 1)
        shared = {tasks - 1: _least_shared(settings, 2) + (tasks - 2) * alone} if tasks > 1 else {}
        levels = {**shared, tasks: tasks * alone}
    return runs.assign(level=("used", list(levels.values()))).assign_coords(used=list(levels))


def unequal_tasks(settings: Settings) -> xr.Dataset:
    """Unequal tasks with noise and more heads than tasks, from the first weights for which the rule is certain.

    It then names a head of its own for every task, by more than `MARGIN`: weights are chosen before any training.
    `tail` is what the flow of the spectral loss, from the same weights, has left at the end, relative to its limit.
    """
    task, rng, kept = settings.unequal_task, np.random.default_rng(settings.unequal_seed), []
    width: theory.FlowOptions = {"embedding": settings.embedding}
    while len(kept) < settings.unequal_runs:
        omega, mu = (each[0] for each in settings.drawn_weights(rng, 1, UNEQUAL_HEADS, len(task.dims)))
        named = theory.winners(task, omega, mu, **width)
        if np.unique(named).size == named.size and leads(task, omega, mu, embedding=settings.embedding).min() > MARGIN:
            kept.append((omega, mu))
    omega, mu = (np.array(each) for each in zip(*kept, strict=True))
    runs = _train(task, (omega, mu), settings.unequal_sequences, settings.unequal_seed, settings)
    limit = theory.flow_limit_loss(task).sum()
    until = np.array([settings.softmax_steps * settings.softmax_rate])
    ends = [theory.spectral_flow(task, omega, mu, until, **width).loss[0].sum() for omega, mu in kept]
    best = theory.exact_optimum(task)
    added = over("run", tail=np.array(ends) / limit - 1) | over("", level=best.loss.sum(), limit=limit)
    return runs.assign(added | over("task", best_omega=best.omega, best_mu=best.mu))


def _train(
    task: MultiTaskRegression, begun: tuple[np.ndarray, np.ndarray], sequences: int, seed: int, settings: Settings
) -> xr.Dataset:
    """Descent from all weights on the same sequences; `tested` is the loss at the end, over fresh sequences."""
    initial, key = list(zip(*begun, strict=True)), jax.random.key(seed)
    models = [SpectralAttention.balanced(*each, task.dims, embedding=settings.embedding) for each in initial]
    every = np.unique(np.linspace(0, settings.softmax_steps, 151).astype(int))
    objective = ReducedSampled(task, sequences, precision="float32", key=key)
    run = descent(models, objective, rate=settings.softmax_rate, steps=settings.softmax_steps, points=every)
    omega, mu = run.omega[:, -1], run.mu[:, -1]
    key = jax.random.fold_in(key, 1)
    tested, error = softmax_losses(task, omega, mu, settings.softmax_tested, key=key)
    allocated = head_task_allocation(omega, mu)
    return xr.Dataset(
        over("run time", loss=run.loss)
        | over("run", tested=tested, tested_error=error, heads_used=allocated.heads_used)
        | over("run head task", omega=omega, mu=mu)
        | _predicted(task, initial, settings.embedding)
        | over("run task", served_by=allocated.head, share=allocated.share),
        {"time": ("time", run.time, {"units": UNIT})},
        {"sequences": sequences, "signal": float(task.signals.sum())},
    )


def _predicted(task: MultiTaskRegression, weights: list, embedding: int) -> dict[str, Any]:
    """The head that theory names for each run and task, by how much it leads, and whether it is named for several."""
    named = np.array([theory.winners(task, *each, embedding=embedding) for each in weights])
    lead = np.array([leads(task, *each, embedding=embedding) for each in weights])
    contested = (named[:, :, None] == named[:, None, :]).sum(axis=2) > 1
    return over("run task", predicted=named, lead=lead, contested=contested)


def _least_shared(settings: Settings, count: int) -> float:
    """The least exact loss, by quadrature, of `count` of the equal tasks in one head, alike in it."""
    task = MultiTaskRegression(settings.dims[:count], 1.0, settings.context)
    middle = -np.log(sum(task.dims)) / 2
    # At a minimum an error of 3e-3 in log ω is one of 1e-5 in the loss.
    best: Any = minimize_scalar(
        lambda log_omega: best_readout_loss(task, np.full((1, count), np.exp(log_omega))),
        bounds=(middle - 0.5, middle + 0.5),
        options={"xatol": 3e-3},
    )
    return float(best.fun)


IMBALANCES = (0.0, 1e-8, 1e-6, 1e-4, 1e-2)
"""Values are larger than outputs by this factor, and outputs smaller."""
PAIR = (10, 10)
SECOND = 1e-3
"""μ of the small second head."""
ENDS = (0.2, 0.35, 0.4, 0.45, 0.5, 0.6, 0.8)
SIZES = np.linspace(0.05, 0.95, 19)
"""x of the small second head, where its rate is measured."""
FADED = 0.75
"""The part of the time, at least, for which scores off task have faded: all tasks emerge in the first quarter."""
WATCHED = 0.4
"""For so long its rate is measured."""


def simulate(settings: Settings) -> Data:
    return {
        "equal": equal_tasks(settings),
        "unequal": unequal_tasks(settings),
        "random": random_draws(settings),
        "imbalance": imbalance(settings),
        "sharing": sharing(settings),
    }


def _surrogate(models: list[SpectralAttention], task: MultiTaskRegression, steps: int, *, rate: float) -> Descent:
    """Descent on the spectral loss, recorded densely at first, then at ever longer intervals."""
    early = max(1, round(30 / rate))
    late = np.geomspace(early, steps, 80).astype(int)
    kept = np.unique([*np.linspace(0, min(steps, early), 151).astype(int), *late, steps])
    kept = kept[kept <= steps]
    return descent(models, Spectral(task), rate=rate, steps=steps, points=kept, snapshots=kept)


def random_draws(settings: Settings) -> xr.Dataset:
    """The heads predicted for each random initialization, in half of which all μ are equal, and those observed.

    `cost` is the predicted loss of the tasks in the heads that they are observed in, and `tail` what it may be short of
    the loss at the end: see `fading_tail`.
    """
    task, rng = settings.task, np.random.default_rng(settings.seed)
    omega, mu = settings.drawn_weights(rng, 2 * settings.draws, settings.tasks, settings.tasks)
    mu[: settings.draws] = settings.mu
    weights = list(zip(omega, mu, strict=True))
    runs = _surrogate([settings.with_eigenvalues(*each) for each in weights], task, settings.steps, rate=settings.rate)
    allocated = head_task_allocation(runs.omega[:, -1], runs.mu[:, -1])
    groups = [[np.flatnonzero(heads == head).tolist() for head in np.unique(heads)] for heads in allocated.head]
    cost = [theory.shared_loss(task, each).sum() for each in groups]
    tail = [fading_tail(settings, each, runs.time[-1]) for each in groups]
    return xr.Dataset(
        over("run time", loss=runs.loss)
        | _predicted(task, weights, settings.embedding)
        | over("run task", served_by=allocated.head)
        | over("run", heads_used=allocated.heads_used, cost=cost, tail=tail, equal_mu=np.ptp(mu, axis=(1, 2)) == 0),
        {"time": ("time", runs.time, {"units": UNIT})},
    )


def fading_tail(settings: Settings, groups: list[list[int]], until: float) -> float:
    r"""At most what scores off task still cost at a time, where each head serves a group of tasks.

    In a head that serves the tasks G, $P = \tfrac eL\sum_GS\phi\mu^2$, the score of another task j fades as
    $d(1/\omega_j)/dt = 4sP$ and costs $d_j\omega_j^2P$. It has faded for the part `FADED` of the time at least.
    """
    cost, dims = 0.0, np.array(settings.dims)
    for places in groups:
        group = replace(settings, dims=tuple(dims[places].tolist())).task
        best = theory.single_head_optimum(group)
        push = np.e / settings.context * float(np.sum(group.signals * group.noise_factors * best.mu**2))
        score = 1 / (4 * settings.embedding**-0.5 * push * FADED * until)
        cost += int(np.delete(dims, places).sum()) * score**2 * push
    return cost


def imbalance(settings: Settings) -> xr.Dataset:
    r"""The initialization of Fig 1, unbalanced: the loss, a losing μ, the initial δ = |o² - v²|, and what theory says.

    `log_mu` is the losing log μ of the balanced flow. With an imbalance μ = (δ/2) sinh s, and s has the velocity that
    log μ has where weights are balanced, as long as μ is small: s = $\mathrm{arsinh}(2\mu_0/\delta) +
    \log\mu(t) - \log\mu_0$.
    """
    task, mu = settings.task, settings.mu
    models = [off_balance(settings.spectral_model(), part) for part in IMBALANCES]
    runs = _surrogate(models, task, 4 * settings.steps, rate=settings.rate / 4)
    course = theory.spectral_flow(task, *settings.initial_weights(), runs.time, embedding=settings.embedding)
    losing = min(1, settings.tasks - 1)  # of the first head; if there is but one task, nothing loses
    fallen = np.log(course.mu[:, 0, losing] / mu)
    delta = np.array([mu * ((1 + part) ** 2 - (1 + part) ** -2) for part in IMBALANCES])
    limit, bound = theory.flow_limit_loss(task).sum(), theory.lower_bound(task, settings.tasks).sum()
    tail = fading_tail(settings, [[i] for i in range(settings.tasks)], runs.time[-1])
    return xr.Dataset(
        over("part time", loss=runs.loss, losing_mu=runs.mu[:, :, 0, losing])
        | over("part", delta=delta)
        | over("time", log_mu=fallen + np.log(mu))
        | over("", settled=_settled(settings), limit=limit, tail=tail, bound=bound),
        {"part": list(IMBALANCES), "time": ("time", runs.time, {"units": UNIT})},
    )


def _settled(settings: Settings) -> float:
    """When all but a hundredth of the winners' slow mode has died since the latest time of emergence."""
    omega, mu = (np.diag(weights) for weights in settings.initial_weights())
    width: theory.FlowOptions = {"embedding": settings.embedding}
    late = theory.emergence_bracket(settings.task, omega, mu, heads=settings.tasks, **width).late.max()
    return float(late + np.log(100) / theory.late_rates(settings.task, **width).slow.min())


def sharing(settings: Settings, *, context: int | None = None) -> xr.Dataset:
    """A small second head beside one that two equal tasks share: how fast its μ grows, and where it ends.

    `context` is that of the training, by default the theory's.
    """
    pair = replace(settings, dims=PAIR)
    theory_task = pair.task
    best = theory.single_head_optimum(theory_task)
    models = []
    for x in (*SIZES, *ENDS):
        omega = np.stack([best.omega, [x * best.omega[0], 0.0]])
        mu = np.stack([best.mu, [SECOND if len(models) >= SIZES.size else SECOND**3, 0.0]])
        models.append(pair.with_eigenvalues(omega, mu))
    trained_task = replace(pair, context=context or settings.context).task
    runs = _surrogate(models, trained_task, settings.steps, rate=settings.rate)
    early = runs.time <= max(WATCHED, runs.time[1])
    rate = np.polyfit(runs.time[early], np.log(runs.mu[: SIZES.size, early, 1, 0]).T, 1)[0]
    shared, split = theory.shared_loss(theory_task, [(0, 1)]).sum(), theory.flow_limit_loss(theory_task).sum()
    tail = fading_tail(pair, [[0], [1]], runs.time[-1])
    drive = 4 * theory_task.signals[0] * best.omega[0] * (1 - best.omega[0] * best.mu[0])
    return xr.Dataset(
        over("x", rate=rate, predicted_rate=drive * (SIZES - np.exp(SIZES / 2 - 1)))
        | over("", threshold=theory.revival_threshold(0.5), tail=tail, shared=shared, split=split)
        | over("end", end_loss=runs.loss[SIZES.size :, -1], revives=theory.revives(np.array(ENDS), 0.5)),
        {"x": SIZES, "end": list(ENDS)},
    )
