r"""Which head wins which task, what sharing a head costs, and why the limit of the flow is a saddle.

Eigenvalues are trained by gradient descent on the spectral loss, all starts as one ensemble. A task that has its
winner (`theory.allocation.winners`) to itself gets it. Tasks with one winner share that head, or one of them is driven
away.
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import xarray as xr

from stepwell.dynamics import Ensemble, descend
from stepwell.models import SpectralAttention
from stepwell.objectives import Spectral
from stepwell.papers._completed import completed
from stepwell.papers._settings import changeable, setting
from stepwell.probes import head_task_allocation
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory
from stepwell.trajectory import provenance

from ._allocation_claims import NAME
from ._allocation_claims import claims as claims
from ._allocation_drawing import draw as draw
from ._full_model import CONTEXT, DIMS, EMBEDDING, HEADS, MU, OMEGA, SETTING, TASKS, UNIT, start

TITLE = "Heads are allocated by the initial weights; sharing lasts; an imbalance undoes the limit"
CAPTION = (
    "(a) Loss from random small weights, three tasks and three heads: where each task has a head of its own (blue), "
    "where two share one (red), where all three do (green); dashed, the final loss predicted for each. (b) How many "
    "tasks get the head predicted from the initial weights, where that head is predicted for no other task, and where "
    "tasks contend for it. Contention can drive a task to another head, so that more runs end one to one than by "
    "chance. (c) Two tasks in one head, and a small second head whose ω on one of them is x times that of the first: "
    "the rate at which its μ grows, by theory (line) and in training (dots). Below x = 0.464 it decays and sharing "
    "lasts; triangles are the ends of long runs. (d) The limit of the flow holds only where values and outputs are "
    "balanced, o = v. With an imbalance, however small, heads without a task become negative, at the rate at which "
    "they would have decayed, and the loss continues to fall, towards the lower bound for three heads."
)

RATE = setting("rate", 0.02)
SPREAD = setting("spread", 0.3)
"""Standard deviation of the logarithms of random starts."""
IMBALANCES = (0.0, 1e-8, 1e-6, 1e-4, 1e-2)
"""Values are larger than outputs by this factor, and outputs smaller."""
PAIR = (10, 10)
SECOND = 1e-3
"""μ of the small second head."""
ENDS = (0.2, 0.35, 0.4, 0.45, 0.5, 0.6, 0.8)
SIZES = np.linspace(0.05, 0.95, 19)
"""x of the small second head, where its rate is measured."""
WATCHED = 0.4
"""For so long its rate is measured."""


@changeable
@dataclass(frozen=True)
class Settings:
    starts: int = 150
    steps: int = 10_000


FULL = Settings()
QUICK = Settings(starts=40, steps=5_000)


PAPER_SETTINGS: dict[str, Any] = {}
"""The paper has no such figure."""


def settings(quick: bool) -> dict[str, Any]:
    return {
        **SETTING,
        "initial weights": f"logarithms Gaussian around ω = {1.5 * OMEGA:g} and μ = {MU:g}, deviation {SPREAD:g}",
        "kinds of starts": "equal μ; random μ",
        "rate": RATE,
        "imbalances": [f"{value:g}" for value in IMBALANCES],
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    weights = random_starts(chosen)
    runs = train(weights, chosen)
    return {
        "starts": starts(*weights, runs),
        "imbalance": imbalance(runs.isel(run=slice(-len(IMBALANCES), None))),
        "sharing": sharing(chosen),
    }


def the_task(dims: tuple[int, ...] = DIMS, *, context: int = CONTEXT) -> MultiTaskRegression:
    return MultiTaskRegression(dims, 1.0, context)


def random_starts(chosen: Settings) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of all starts; in the first half all μ are equal."""
    rng = np.random.default_rng(0)
    shape = (2 * chosen.starts, HEADS, TASKS)
    omega = 1.5 * OMEGA * np.exp(SPREAD * rng.standard_normal(shape))
    mu = MU * np.exp(SPREAD * rng.standard_normal(shape))
    mu[: chosen.starts] = MU
    return omega, mu


def train(weights: tuple[np.ndarray, np.ndarray], chosen: Settings) -> xr.Dataset:
    """Random starts, then the unbalanced ones, as one program."""
    task = the_task()
    models = [SpectralAttention.balanced(*each, DIMS, embedding=EMBEDDING) for each in zip(*weights, strict=True)]
    return descent([*models, *(unbalanced(part) for part in IMBALANCES)], task, chosen.steps)


def unbalanced(part: float) -> SpectralAttention:
    """The start of Fig 1, with values larger and outputs smaller by a factor 1 + `part`: μ is the same."""
    model = SpectralAttention.balanced(*start(), DIMS, embedding=EMBEDDING)
    weights = {name: np.asarray(weight) for name, weight in model.weights().items()}
    weights["value"] = weights["value"] * (1 + part)
    weights["output"] = weights["output"] / (1 + part)
    return model.with_weights({name: jax.device_put(weight) for name, weight in weights.items()})


def descent(models: list[SpectralAttention], task: MultiTaskRegression, steps: int) -> xr.Dataset:
    """`loss`, `omega` and `mu` over (run, time): densely at first, then at ever longer intervals, and at the middle."""
    kept = np.unique([*range(0, min(steps, 1500), 10), *np.geomspace(1500, steps, 80).astype(int), steps // 2, steps])
    kept = kept[kept <= steps]
    run = completed(
        descend(
            Ensemble.of(models),
            Spectral(task),
            rate=RATE,
            steps=steps,
            record=kept,
            snapshots=kept,
            progress=False,
            configuration={"figure": NAME},
        )
    )
    key, query, value, output = (run[name].values for name in ("key", "query", "value", "output"))
    dims = ("run", "time", "head", "task")
    return xr.Dataset(
        {
            "loss": (("run", "time"), run["loss"].values),
            "omega": (dims, key * query * models[0].score_scale / np.array(task.dims)),
            "mu": (dims, value * output),
        },
        {"time": ("time", RATE * run["step"].values, {"units": UNIT})},
        run.attrs,
    )


def starts(omega: np.ndarray, mu: np.ndarray, runs: xr.Dataset, *, context: int = CONTEXT) -> xr.Dataset:
    """The heads predicted for each random start, and those observed; `lead` is by how much the predicted head leads.

    Leads are in units of log ω, by the rule's own weights (`theory.allocation.head_advantage`). `context` is the
    prediction's.
    """
    theory_task, count = the_task(context=context), len(omega)
    allocated = head_task_allocation(runs["omega"].values[:count, -1], runs["mu"].values[:count, -1])
    training: theory.conventions.Training = {"embedding": EMBEDDING}
    predicted = np.array(
        [theory.allocation.winners(theory_task, *each, **training) for each in zip(omega, mu, strict=True)]
    )
    lead = np.array([_leads(theory_task, *each) for each in zip(omega, mu, strict=True)])
    contested = (predicted[:, :, None] == predicted[:, None, :]).sum(axis=2) > 1
    cost = np.array([theory.allocation.shared_loss(theory_task, _groups(heads)).sum() for heads in allocated.head])
    loss = runs["loss"].values[:count]
    middle = loss[:, _middle(runs)]
    return xr.Dataset(
        {
            "loss": (("run", "time"), loss),
            "middle": ("run", middle),
            "predicted": (("run", "task"), predicted),
            "head": (("run", "task"), allocated.head),
            "lead": (("run", "task"), lead),
            "contested": (("run", "task"), contested),
            "heads_used": ("run", allocated.heads_used),
            "cost": ("run", cost),
            "equal_mu": ("run", np.ptp(mu, axis=(1, 2)) == 0),
        },
        {"time": runs["time"]},
        {**provenance({"figure": NAME}), "outcome": runs.attrs["outcome"]},
    )


def _leads(task: MultiTaskRegression, omega: np.ndarray, mu: np.ndarray) -> np.ndarray:
    ratio = np.exp(np.mean(np.log(mu / omega), axis=0))
    worth = theory.allocation.head_advantage(task, ratio, heads=HEADS, embedding=EMBEDDING)
    ordered = np.sort(np.log(omega) + worth.mu / worth.omega * np.log(mu), axis=0)
    return ordered[-1] - ordered[-2]


def _groups(heads: np.ndarray) -> list[list[int]]:
    return [np.flatnonzero(heads == head).tolist() for head in np.unique(heads)]


def _middle(runs: xr.Dataset) -> int:
    """The place of half of the time."""
    return int(np.argmin(np.abs(runs["time"].values - runs["time"].values[-1] / 2)))


def imbalance(runs: xr.Dataset) -> xr.Dataset:
    """Unbalanced starts: the loss, a losing μ, the rate at which it dies by theory, and δ = |o² - v²| at the start."""
    theory_task = the_task()
    relative = runs["omega"].values[:, :, 0, 1] / np.einsum("...hh->...h", runs["omega"].values)[..., 1]
    training: theory.conventions.Training = {"embedding": EMBEDDING}
    rate = theory.flow.losing_head_rate(
        theory_task, np.broadcast_to(relative[..., None], (*relative.shape, TASKS)), **training
    )
    return xr.Dataset(
        {
            "loss": (("part", "time"), runs["loss"].values),
            "losing_mu": (("part", "time"), runs["mu"].values[:, :, 0, 1]),
            "delta": ("part", [MU * ((1 + part) ** 2 - (1 + part) ** -2) for part in IMBALANCES]),
            "dying": (("part", "time"), rate[..., 0]),
            "settled": _settled(theory_task),
            "limit": theory.limits.flow_limit_loss(theory_task).sum(),
            "bound": theory.bounds.lower_bound(theory_task, HEADS).sum(),
        },
        {"part": list(IMBALANCES), "time": runs["time"]},
    )


def _settled(task: MultiTaskRegression) -> float:
    """When all but a hundredth of the winners' slow mode has died since the latest time of emergence."""
    omega, mu = (np.diag(weights) for weights in start())
    late = theory.emergence.emergence_bracket(task, omega, mu, heads=HEADS, embedding=EMBEDDING).late.max()
    return float(late + np.log(100) / theory.flow.late_rates(task, embedding=EMBEDDING).slow.min())


def sharing(chosen: Settings, *, context: int = CONTEXT) -> xr.Dataset:
    """A small second head beside one that two equal tasks share: how fast its μ grows, and where it ends."""
    theory_task = the_task(PAIR)
    best = theory.limits.single_head_optimum(theory_task)
    models = []
    for x in (*SIZES, *ENDS):
        omega = np.stack([best.omega, [x * best.omega[0], 0.0]])
        mu = np.stack([best.mu, [SECOND if len(models) >= SIZES.size else SECOND**3, 0.0]])
        models.append(SpectralAttention.balanced(omega, mu, PAIR, embedding=EMBEDDING))
    runs = descent(models, the_task(PAIR, context=context), chosen.steps)
    early = runs["time"].values <= WATCHED
    logs = np.log(runs["mu"].values[: SIZES.size, early, 1, 0])
    rate = np.polyfit(runs["time"].values[early], logs.T, 1)[0]
    drive = 4 * theory_task.signals[0] * best.omega[0] * (1 - best.omega[0] * best.mu[0])
    return xr.Dataset(
        {
            "rate": ("x", rate),
            "predicted_rate": ("x", drive * (SIZES - np.exp(SIZES / 2 - 1))),
            "threshold": theory.allocation.revival_threshold(0.5),
            "end_loss": ("end", runs["loss"].values[SIZES.size :, -1]),
            "end_middle": ("end", runs["loss"].values[SIZES.size :, _middle(runs)]),
            "revives": ("end", theory.allocation.revives(np.array(ENDS), 0.5)),
            "shared": theory.allocation.shared_loss(theory_task, [(0, 1)]).sum(),
            "split": theory.limits.flow_limit_loss(theory_task).sum(),
        },
        {"x": SIZES, "end": list(ENDS)},
    )
