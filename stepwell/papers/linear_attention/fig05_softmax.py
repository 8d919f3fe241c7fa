r"""Fig 5: with softmax the loss still drops once where key and query are merged, and several times where not.

The paper gives no settings for this figure. Heads, dimensions and eigenvalues are those of its Figs 1 and 3, and the
start of both models is that of Fig 3, init 0.01: from that of Fig 1, 10⁻⁶, a finite set of sequences decides (below).
The number of sequences is less than their 5,000 and 80,000, and seeds are few, since every step passes every token
through the model.

The linear theory does not cover softmax: its levels are drawn for comparison, and no claim is made of them. A drop
counts if it is `COUNTED` of the whole fall. Drops and plateaus are separated by the default of `probes.staircase`, four
times the speed.

**Locked heads.** With weights near zero softmax averages the tokens, $\hat y = \sum_h v_h\,\bar y$. On P sequences the
mean label $\bar y$ correlates with $y_q$ by chance, and the values grow together, in the time $1/(H\langle\bar
y^2\rangle)$ of a few units, until $\sum_h v_h = \langle y_q\bar y\rangle/\langle\bar y^2\rangle \sim \sqrt{N/P}$. If
that is much more than they started with, all heads are alike, and as long as they are, they do no more than one head
can. Differences grow from their start as $e^{\|\Lambda^2\|t/\tau}$. Infinite data have no such term.
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from stepwell._types import Precision
from stepwell.dynamics import Ensemble, descend, flow
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Sampled
from stepwell.papers._claim import Claim, Known, Origin
from stepwell.papers._completed import completed
from stepwell.papers._settings import changeable, setting
from stepwell.probes import Drop, passage_time, staircase
from stepwell.tasks import Batch, InContextRegression, published_covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import provenance

from ._fig05_drawing import draw_runs

NAME = "linear/fig5"
TITLE = "Softmax attention: one drop with merged key and query, several with separate ones"
CAPTION = (
    "Training loss of softmax attention itself, over every token, divided by that of answering zero; a colour for "
    "each seed, with its own sequences and start (init 0.01). (a) Merged key and query: one drop. (b) Separate key "
    "and query of rank one: several. Dots: the middle of each drop detected in the curves. Dashed: the levels L(M_m) "
    "of linear attention on infinite data, for comparison only: no theory of the softmax levels is claimed. The "
    "paper's settings for this figure are not known; heads and task are those of its Figs 1 and 3. (c) Ours: merged, "
    "from the smaller start of Fig 1, init 10⁻⁶, where some seeds have two drops. On a finite set of sequences the "
    "mean label correlates with the answer by chance, and makes all values grow alike. Heads that are copies of each "
    "other do no more than one head can (dotted: the end of one head trained on the same sequences), until they part."
)

EIGENVALUES = setting("eigenvalues", (0.4, 0.3, 0.2, 0.1))
DIM = len(EIGENVALUES)
CONTEXT = setting("context", 31)
MERGED_HEADS = setting("merged_heads", 8)
SEPARATE_HEADS = setting("separate_heads", 5)
INIT = setting("init", 1e-2)
SMALL_INIT = setting("small_init", 1e-6)
COUNTED = 0.05
"""A drop counts if it is at least this part of the whole fall."""
SEVERAL = 3
"""At least so many drops are several: one for each component but the last, whose fall is small and slow."""
ALIKE = 0.1
"""Heads are copies if they differ from their mean by less than this part of it: $10^{-6} e^{\\|\\Lambda^2\\|t}$ at t =
60.
"""
FALLEN = 0.1
"""Heads are compared when the loss has fallen by this part."""

PAPER_SETTINGS: dict[str, Any] = {
    "dimension D": f"not known; {DIM} in Figs 1 and 3",
    "context length N": f"not known; {CONTEXT} in Figs 1 and 3",
    "heads": f"not known; {MERGED_HEADS} merged in Fig 1, {SEPARATE_HEADS} separate of rank one in Fig 3",
    "initial weights": "not known; standard deviation 1e-6 in Fig 1, 0.01 in Fig 3",
    "training": "not known; descent, 6,000 steps at 0.001 in Fig 1, 10,000 at 0.02 in Fig 3",
    "sequences": "not known; 5,000 in Fig 1, 80,000 in Fig 3",
}


@changeable
@dataclass(frozen=True)
class Settings:
    """What a quick run has less of. Times are t/τ."""

    seeds: tuple[int, ...] = (200, 201, 202, 203, 204, 205)
    """Settings were chosen on seeds 100 to 105 and 1000 to 1005."""
    small_seeds: int = 4
    """So many of them also start from `SMALL_INIT`."""
    sequences: int = 2000
    rate: float = 0.1
    merged_steps: int = 1500
    small_steps: int = 3000
    separate_until: float = 4000.0
    """The 10,000 steps of Fig 3 are 3,950."""
    precision: Precision = "float32"
    """Of the pass over a sequence; sums over sequences are in float64."""


FULL = Settings()
QUICK = Settings(seeds=(200,), small_seeds=1, sequences=600)


def settings(quick: bool) -> dict[str, Any]:
    return {
        "dimension D": DIM,
        "context length N": CONTEXT,
        "eigenvalues of the covariance": list(EIGENVALUES),
        "heads": f"{MERGED_HEADS} merged; {SEPARATE_HEADS} separate, of rank one",
        "initial weights": f"Gaussian, standard deviation {INIT:g}, and {SMALL_INIT:g} in (c); label blocks zero",
        "training": "merged: descent; separate: gradient flow",
        "a drop counts from": f"{COUNTED:g} of the whole fall",
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    batches = prepare(chosen)
    few = batches[: chosen.small_seeds]
    return {
        "merged": train_merged(batches, chosen, steps=chosen.merged_steps)[["loss"]],
        "separate": train_separate(batches, chosen),
        "small": with_spread(train_merged(few, chosen, steps=chosen.small_steps, init=SMALL_INIT, snapshots=501)),
        "one_head": train_merged(few, chosen, steps=chosen.merged_steps, heads=1)[["loss"]],
        "theory": predict(batches),
    }


def prepare(chosen: Settings) -> list[Batch]:
    """Sequences of each seed, with eigenvectors of its own."""
    batches = []
    for seed in chosen.seeds:
        rotation, data, _ = jax.random.split(jax.random.key(seed), 3)
        task = InContextRegression(published_covariance(DIM, key=rotation), CONTEXT, centred=True, whitened=True)
        batches.append(task.sample(chosen.sequences, key=data))
    return batches


def _weights(seed: int):
    return jax.random.split(jax.random.key(seed), 3)[2]


def train_merged(
    batches: list[Batch],
    chosen: Settings,
    *,
    steps: int,
    heads: int = MERGED_HEADS,
    init: float = INIT,
    snapshots: int = 2,
) -> xr.Dataset:
    """Full-batch descent of all seeds as one program, every token passed through the model at every step."""
    shape: dict[str, Any] = {"dim": DIM, "heads": heads, "scale": init, "activation": "softmax"}
    models = [
        MergedAttention.random(**shape, key=_weights(seed)) for seed, _ in zip(chosen.seeds, batches, strict=False)
    ]
    trajectory = descend(
        Ensemble.of(models),
        Ensemble.of([Sampled(batch, precision=chosen.precision) for batch in batches]),
        rate=chosen.rate,
        steps=steps,
        snapshots=snapshots,
        progress=False,
        configuration={"figure": NAME, "heads": heads, "init": init, **asdict(chosen)},
    )
    return completed(trajectory)


def train_separate(batches: list[Batch], chosen: Settings) -> xr.Dataset:
    """Gradient flow of each seed, which needs a tenth of the gradients of a descent that is as long. Losses only."""
    shape: dict[str, Any] = {"dim": DIM, "heads": SEPARATE_HEADS, "rank": 1, "scale": INIT, "activation": "softmax"}
    runs = []
    for seed, batch in zip(chosen.seeds, batches, strict=True):
        model = SeparateAttention.random(**shape, key=_weights(seed))
        options: dict[str, Any] = {"until": chosen.separate_until, "save": 2001, "solver": "lsoda", "rtol": 1e-5}
        trajectory = flow(
            model,
            Sampled(batch, precision=chosen.precision),
            progress=False,
            configuration={"figure": NAME, **asdict(chosen)},
            **options,
        )
        runs.append(completed(trajectory)[["loss"]])
    joined: Any = xr.concat(runs, dim="run", combine_attrs="drop_conflicts")
    return joined


def with_spread(trajectory: xr.Dataset) -> xr.Dataset:
    """The losses, and at snapshots the `spread` of the heads: largest distance from their mean, over its size."""
    runs, times, heads = trajectory["value"].shape[:3]
    parts = [trajectory[name].values.reshape(runs, times, heads, -1) for name in ("value", "key_query")]
    weights = np.concatenate(parts, axis=3)
    mean = weights.mean(axis=2, keepdims=True)
    spread = np.linalg.norm(weights - mean, axis=3).max(axis=2) / np.linalg.norm(mean, axis=3)[:, :, 0]
    dims = ("run", "snapshot")
    return trajectory[["loss"]].assign(spread=(dims, spread)).assign_coords(snapshot=trajectory["snapshot"])


def predict(batches: list[Batch]) -> xr.Dataset:
    """The loss of answering zero, of each data set, and the levels of linear attention."""
    powers = [float(np.mean(np.asarray(batch.labels)[:, -1, 0] ** 2)) for batch in batches]
    task = InContextRegression(np.diag(EIGENVALUES), CONTEXT)
    return xr.Dataset(
        {"power": ("run", powers), "linear_levels": ("level", theory.levels(task))}, attrs=provenance({"figure": NAME})
    )


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    merged, separate, small = data["merged"], data["separate"], data["small"]
    criterion = f"a count; a drop is at least {COUNTED:.0%} of the whole fall, a plateau 4 times slower"
    paper: Origin = {"kind": "paper", "source": "Section 1, list of findings, and Fig 5", "explored": True}
    locked: Origin = {
        "kind": "theory",
        "source": "docstring of papers/linear_attention/fig05_softmax.py",
        "explored": True,
    }
    return [
        Claim.over(
            f"{NAME}/merged-drops-once",
            "Softmax attention with merged key and query: its loss drops once: number of drops",
            predicted=1,
            measured=[len(drops(merged, run)) for run in range(merged.sizes["run"])],
            tolerance=0,
            basis=criterion,
            **paper,
        ),
        Claim.over(
            f"{NAME}/separate-drops",
            f"Softmax attention with separate key and query: its loss drops at least {SEVERAL} times: number of drops",
            predicted=SEVERAL,
            measured=[len(drops(separate, run)) for run in range(separate.sizes["run"])],
            tolerance=0,
            basis=criterion,
            relation=">=",
            **paper,
        ),
        Claim.over(
            f"{NAME}/come-to-rest",
            "Runs have come to rest: what the loss falls in the last third of the time, over the whole fall, one for "
            "each model and seed",
            predicted=0.0,
            measured=np.concatenate([late_fall(merged), late_fall(separate)]),
            tolerance=COUNTED / 2,
            basis="half of what would count as a drop",
            relation="<=",
            counted="runs",
            kind="check",
            source="that no later drop is missed",
        ),
        Claim.over(
            f"{NAME}/locked-heads",
            "Merged, init 10⁻⁶, on finitely many sequences: all heads are copies of each other when the loss has "
            f"fallen by {FALLEN:.0%}: largest distance of a head from their mean, over its size",
            predicted=0.0,
            measured=[_spread_at(small, run) for run in range(small.sizes["run"])],
            tolerance=ALIKE,
            basis="10⁻⁶ grown by e^(‖Λ²‖t) in the time t = 60",
            relation="<=",
            **locked,
        ),
        Claim.over(
            f"{NAME}/merged-drops-once-small",
            "Merged, from the start of Fig 1, init 10⁻⁶, on finitely many sequences: its loss drops once: number of "
            "drops",
            predicted=1,
            measured=[len(drops(small, run)) for run in range(small.sizes["run"])],
            tolerance=0,
            basis=criterion,
            kind="paper",
            source="Fig 5, if it has the initial weights of Fig 1",
            explored=True,
            known=Known(
                "in some seeds heads that chance correlations have made alike stay so until the loss has come to a "
                "plateau, and part in a second drop",
                "softmax-attention-from-a-very-small-start",
            ),
        ),
    ]


def drops(trajectory: xr.Dataset, run: int) -> list[Drop]:
    """Drops that count. One that does not is joined to none: what it falls is part of no drop."""
    loss = trajectory["loss"].values[run]
    every = staircase(trajectory["time"].values, loss).drops
    return [drop for drop in every if drop.before - drop.after >= COUNTED * (loss[0] - loss.min())]


def late_fall(trajectory: xr.Dataset) -> Float[np.ndarray, " run"]:
    """What the loss falls in the last third of the time, over the whole fall."""
    time, losses = trajectory["time"].values, trajectory["loss"].values
    then = np.array([np.interp(2 / 3 * time[-1], time, loss) for loss in losses])
    return (then - losses[:, -1]) / (losses[:, 0] - losses[:, -1])


def _spread_at(small: xr.Dataset, run: int) -> float:
    """The spread of the heads when the loss has fallen by `FALLEN`."""
    loss = small["loss"].values[run]
    step = passage_time(small["step"].values.astype(float), loss, (1 - FALLEN) * float(loss[0]))
    return float(np.interp(step, small["snapshot"].values, small["spread"].values[run]))


def draw(data: dict[str, xr.Dataset]) -> Figure:
    counted = {
        name: [drops(data[name], run) for run in range(data[name].sizes["run"])]
        for name in ("merged", "separate", "small")
    }
    return draw_runs(data, counted)
