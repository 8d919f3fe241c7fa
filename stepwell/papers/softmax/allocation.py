r"""Which head learns which task, where training ends, what sharing a head costs, and why the limit is a saddle.

Softmax attention itself is trained on sampled sequences, and its surrogate, the spectral loss, from many more starts,
all as ensembles. A task that has its winner (`theory.winners`) to itself gets it. Tasks with one winner
share that head, or one of them is driven away.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import xarray as xr

from stepwell.analysis import head_task_allocation
from stepwell.dynamics import Ensemble, Record, descend
from stepwell.figures import Data, Figure
from stepwell.models import SpectralAttention
from stepwell.objectives import Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory

from ._allocation_claims import claims
from ._allocation_drawing import draw
from ._allocation_settings import SPREAD, UNEQUAL_HEADS, Settings
from ._allocation_softmax import equal_tasks, leads, unequal_tasks
from ._full_model import UNIT

CAPTION = (
    "Ours: the paper has no such figure. Above, softmax attention itself: its eigenvalues, on sampled sequences. "
    "(a) Three equal tasks and three heads, random small weights: runs end with a head for each task (blue), with two "
    "tasks in one head (red) or all three (green); dashed, the least losses by quadrature. (b) How many tasks get the "
    "head that theory names from the initial weights: where it is named for no other task and leads clearly, where it "
    "leads by less than the error of the rule, and where tasks contend for it; softmax attention and its surrogate. "
    "(c) Three unequal tasks with noise and four heads: every initialization for which theory names a head for each "
    "task converges to the least loss by quadrature; the limit of the surrogate is lower by what is of next order in "
    "1/d. Below, the surrogate: the spectral loss, to leading order in d and L. (d) Random starts, as in (a). (e) Two "
    "tasks in one head, and a small second head whose ω on one of them is x times that of the first: the rate at which "
    "its μ grows, by theory (line) and in training (dots). Below x = 0.464 it decays and sharing lasts; triangles are "
    "the ends of long runs. (f) The limit of the flow holds only where values and outputs are balanced, o = v. With an "
    "imbalance, however small, heads without a task become negative, at the rate at which they would have decayed, and "
    "the loss continues to fall, towards the lower bound for three heads."
)

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


def describe(settings: Settings) -> dict[str, Any]:
    itself, unequal = settings.added(), settings.unequal_task
    surrogate = {name: itself.pop(name) for name in ("rate", "starts", "steps", "seed")}
    rate = surrogate.pop("rate")
    return {
        **settings.described(),
        "initial weights": f"logarithms Gaussian around ω = {1.5 * settings.omega:g} and μ = {settings.mu:g}, "
        f"deviation {SPREAD:g}",
        "unequal tasks": f"d = {unequal.dims}, λ = {unequal.strengths}, σ² = {unequal.noise_variance:g}, "
        f"{UNEQUAL_HEADS} heads",
        **{
            f"softmax attention: {name.removeprefix('softmax_').replace('_', ' ')}": value
            for name, value in itself.items()
        },
        "surrogate: kinds of starts": "equal μ; random μ",
        "surrogate: rate": f"{rate:g}; {rate / 4:g} for unbalanced starts",
        **{f"surrogate: {name}": value for name, value in surrogate.items()},
        "imbalances": [f"{value:g}" for value in IMBALANCES],
    }


def simulate(settings: Settings) -> Data:
    weights, rate = random_weights(settings), settings.rate
    off_balance = [unbalanced(settings, part) for part in IMBALANCES]
    return {
        "equal": equal_tasks(settings),
        "unequal": unequal_tasks(settings),
        "starts": starts(settings, *weights, train(settings, weights)),
        "imbalance": imbalance(settings, descent(off_balance, settings.task, 4 * settings.steps, rate=rate / 4)),
        "sharing": sharing(settings),
    }


def random_weights(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of all starts; in the first half all μ are equal."""
    rng = np.random.default_rng(settings.seed)
    omega, mu = settings.drawn_weights(rng, 2 * settings.starts, settings.tasks, settings.tasks)
    mu[: settings.starts] = settings.mu
    return omega, mu


def train(settings: Settings, weights: tuple[np.ndarray, np.ndarray]) -> xr.Dataset:
    """Random starts, as one program."""
    models = [settings.with_eigenvalues(*each) for each in zip(*weights, strict=True)]
    return descent(models, settings.task, settings.steps, rate=settings.rate)


def unbalanced(settings: Settings, part: float) -> SpectralAttention:
    """The start of Fig 1, with values larger and outputs smaller by a factor 1 + `part`: μ is the same."""
    model = settings.spectral_model()
    weights = {name: np.asarray(weight) for name, weight in model.weights().items()}
    weights["value"] = weights["value"] * (1 + part)
    weights["output"] = weights["output"] / (1 + part)
    return model.with_weights({name: jax.device_put(weight) for name, weight in weights.items()})


def descent(models: list[SpectralAttention], task: MultiTaskRegression, steps: int, *, rate: float) -> xr.Dataset:
    """`loss`, `omega` and `mu` over (run, time): densely at first, then at ever longer intervals."""
    early = max(1, round(30 / rate))
    kept = np.unique(
        [*np.linspace(0, min(steps, early), 151).astype(int), *np.geomspace(early, steps, 80).astype(int), steps]
    )
    kept = kept[kept <= steps]
    run = descend(
        Ensemble.of(models),
        Spectral(task),
        rate=rate,
        steps=steps,
        record=Record(points=kept, snapshots=kept),
        progress=False,
    )
    key, query, value, output = (run[name].values for name in ("key", "query", "value", "output"))
    dims = ("run", "time", "head", "task")
    return xr.Dataset(
        {
            "loss": (("run", "time"), run["loss"].values),
            "omega": (dims, key * query * models[0].score_scale / np.array(task.dims)),
            "mu": (dims, value * output),
        },
        {"time": ("time", rate * run["step"].values, {"units": UNIT})},
        run.attrs,
    )


def starts(settings: Settings, omega: np.ndarray, mu: np.ndarray, runs: xr.Dataset) -> xr.Dataset:
    """The heads predicted for each random start, and those observed; `lead` is by how much the predicted head leads.

    `cost` is the predicted loss of the tasks in the heads that they are observed in, and `tail` what it may be short of
    the loss at the end: see `fading_tail`.
    """
    theory_task, count, embedding = settings.task, len(omega), settings.embedding
    allocated = head_task_allocation(runs["omega"].values[:count, -1], runs["mu"].values[:count, -1])
    weights = list(zip(omega, mu, strict=True))
    predicted = np.array([theory.winners(theory_task, *each, embedding=embedding) for each in weights])
    groups = [_groups(heads) for heads in allocated.head]
    until = float(runs["time"][-1])
    return xr.Dataset(
        {
            "loss": (("run", "time"), runs["loss"].values[:count]),
            "predicted": (("run", "task"), predicted),
            "served_by": (("run", "task"), allocated.head),
            "lead": (("run", "task"), np.array([leads(theory_task, *each, embedding=embedding) for each in weights])),
            "contested": (("run", "task"), (predicted[:, :, None] == predicted[:, None, :]).sum(axis=2) > 1),
            "heads_used": ("run", allocated.heads_used),
            "cost": ("run", [theory.shared_loss(theory_task, each).sum() for each in groups]),
            "tail": ("run", [fading_tail(settings, each, until) for each in groups]),
            "equal_mu": ("run", np.ptp(mu, axis=(1, 2)) == 0),
        },
        {"time": runs["time"]},
        {"outcome": runs.attrs["outcome"]},
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


def _groups(heads: np.ndarray) -> list[list[int]]:
    return [np.flatnonzero(heads == head).tolist() for head in np.unique(heads)]


def imbalance(settings: Settings, runs: xr.Dataset) -> xr.Dataset:
    r"""Unbalanced starts: the loss and a losing μ. Besides, δ = |o² - v²| at the start, and what theory says.

    `log_mu` is the losing log μ of the balanced flow. With an imbalance μ = (δ/2) sinh s, and s has the velocity that
    log μ has where weights are balanced, as long as μ is small: s = $\mathrm{arsinh}(2\mu_0/\delta) +
    \log\mu(t) - \log\mu_0$.
    """
    task, time, mu, embedding = settings.task, runs["time"].values, settings.mu, settings.embedding
    course = theory.spectral_flow(task, *settings.initial_weights(), time, embedding=embedding)
    losing = min(1, settings.tasks - 1)  # of the first head; if there is but one task, nothing loses
    fallen = np.log(course.mu[:, 0, losing] / mu)
    delta = np.array([mu * ((1 + part) ** 2 - (1 + part) ** -2) for part in IMBALANCES])
    return xr.Dataset(
        {
            "loss": (("part", "time"), runs["loss"].values),
            "losing_mu": (("part", "time"), runs["mu"].values[:, :, 0, losing]),
            "delta": ("part", delta),
            "log_mu": ("time", fallen + np.log(mu)),
            "settled": _settled(settings),
            "limit": theory.flow_limit_loss(task).sum(),
            "tail": fading_tail(settings, [[i] for i in range(settings.tasks)], float(time[-1])),
            "bound": theory.lower_bound(task, settings.tasks).sum(),
        },
        {"part": list(IMBALANCES), "time": runs["time"]},
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
    runs = descent(models, trained_task, settings.steps, rate=settings.rate)
    early = runs["time"].values <= max(WATCHED, float(runs["time"][1]))
    logs = np.log(runs["mu"].values[: SIZES.size, early, 1, 0])
    rate = np.polyfit(runs["time"].values[early], logs.T, 1)[0]
    drive = 4 * theory_task.signals[0] * best.omega[0] * (1 - best.omega[0] * best.mu[0])
    return xr.Dataset(
        {
            "rate": ("x", rate),
            "predicted_rate": ("x", drive * (SIZES - np.exp(SIZES / 2 - 1))),
            "threshold": theory.revival_threshold(0.5),
            "end_loss": ("end", runs["loss"].values[SIZES.size :, -1]),
            "tail": fading_tail(pair, [[0], [1]], float(runs["time"][-1])),
            "revives": ("end", theory.revives(np.array(ENDS), 0.5)),
            "shared": theory.shared_loss(theory_task, [(0, 1)]).sum(),
            "split": theory.flow_limit_loss(theory_task).sum(),
        },
        {"x": SIZES, "end": list(ENDS)},
    )


FIGURE = Figure(
    title="Heads are allocated by the initial weights; sharing lasts; an imbalance undoes the limit",
    caption=CAPTION,
    settings=Settings(),
    quick=Settings(
        starts=40,
        steps=5_000,
        softmax_starts=8,
        softmax_sequences=320,
        unequal_starts=3,
        unequal_sequences=500,
        softmax_steps=1200,
        softmax_tested=250,
    ),
    described=describe,
    simulate=simulate,
    claims=claims,
    draw=draw,
)
