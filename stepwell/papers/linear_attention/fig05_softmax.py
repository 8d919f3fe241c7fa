"""Fig 5: with softmax the loss still drops once where key and query are merged, and several times where not.

The linear theory does not cover softmax: its levels are drawn for comparison, and no claim is made of them. A drop
counts if it is `COUNTED` of the whole fall, which leaves out the early gain by chance (see `predict`). Drops and
plateaus are separated by the default of `probes.staircase`, four times the speed. Sequences are few, since every step
passes every token through the model; with a quarter of them, the first two components fall together in one of six
seeds.
"""

from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from stepwell._types import Precision
from stepwell.dynamics import Ensemble, descend
from stepwell.models import AbstractAttention, MergedAttention, SeparateAttention
from stepwell.objectives import Sampled
from stepwell.papers._claim import Claim
from stepwell.papers._completed import completed
from stepwell.papers._style import BLACK, GREY, PALETTE, new_figure, styled
from stepwell.probes import staircase
from stepwell.tasks import Batch, InContextRegression, published_covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import provenance

NAME = "linear/fig5"
TITLE = "Softmax attention: one drop with merged key and query, several with separate ones"
CAPTION = (
    "Training loss of softmax attention, divided by that of answering zero, from small initial weights; a colour for "
    "each seed, with its own sequences and start. Left, merged key and query; right, separate key and query of rank "
    "one. Dots: the middle of each drop detected in the curves. Dashed: the levels L(M_m) of linear attention on "
    "infinite data, for comparison only: no theory of the softmax levels is claimed."
)

EIGENVALUES = (0.4, 0.3, 0.2, 0.1)
DIM, CONTEXT = 4, 31
MERGED_HEADS, SEPARATE_HEADS = 8, 5
MERGED_INIT = 1e-3
COUNTED = 0.05
"""A drop counts if it is at least this part of the whole fall."""
SEVERAL = 3
"""At least so many drops are several: one for each component but the last, whose fall is small and slow."""


@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    sequences: int = 2000
    rate: float = 0.1
    merged_steps: int = 500
    separate_steps: int = 6000
    separate_init: float = 0.01
    records: int = 1000
    precision: Precision = "float32"
    """Of the pass over a sequence; sums over sequences are in float64."""


PUBLISHED = Settings()
QUICK = Settings(seeds=(0,), sequences=300, separate_steps=4000, separate_init=0.02)


PAPER_SETTINGS: dict[str, Any] = {
    "sequences": "5000 (merged), 80000 (separate)",
    "initial weights": "as in Fig 1 and Fig 3, as far as known",
}


def settings(quick: bool) -> dict[str, Any]:
    return {
        "dimension D": DIM,
        "context length N": CONTEXT,
        "eigenvalues of the covariance": list(EIGENVALUES),
        "heads": f"{MERGED_HEADS} merged; {SEPARATE_HEADS} separate, of rank one",
        "initial weights": f"Gaussian, standard deviation {MERGED_INIT:g} merged; label blocks zero",
        "a drop counts from": f"{COUNTED:g} of the whole fall",
        **asdict(QUICK if quick else PUBLISHED),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else PUBLISHED
    batches = prepare(chosen)
    return {
        "merged": train(merged_models(chosen), batches, chosen.merged_steps, chosen),
        "separate": train(separate_models(chosen), batches, chosen.separate_steps, chosen),
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


def merged_models(chosen: Settings) -> list[AbstractAttention]:
    shape: dict[str, Any] = {"dim": DIM, "heads": MERGED_HEADS, "scale": MERGED_INIT, "activation": "softmax"}
    return [MergedAttention.random(**shape, key=_weights(seed)) for seed in chosen.seeds]


def separate_models(chosen: Settings) -> list[AbstractAttention]:
    shape: dict[str, Any] = {
        "dim": DIM,
        "heads": SEPARATE_HEADS,
        "scale": chosen.separate_init,
        "activation": "softmax",
    }
    return [SeparateAttention.random(**shape, rank=1, key=_weights(seed)) for seed in chosen.seeds]


def _weights(seed: int):
    return jax.random.split(jax.random.key(seed), 3)[2]


def train(models: list[AbstractAttention], batches: list[Batch], steps: int, chosen: Settings) -> xr.Dataset:
    """Full-batch descent of all seeds as one program, every token passed through the model at every step."""
    trajectory = descend(
        Ensemble.of(models),
        Ensemble.of([Sampled(batch, precision=chosen.precision) for batch in batches]),
        rate=chosen.rate,
        steps=steps,
        record=max(1, steps // chosen.records),
        snapshots=11,
        progress=False,
        configuration={"figure": NAME, **asdict(chosen)},
    )
    return completed(trajectory)


def predict(batches: list[Batch]) -> xr.Dataset:
    r"""What needs no theory of softmax: the loss of answering zero, and the little that can be had before any drop.

    With weights near zero softmax averages the tokens, and $\hat y = \sum_h v_h\,\bar y$. On a finite sample the mean
    label $\bar y$ correlates with $y_q$ by chance: the best multiple of it has the loss
    $\langle y_q^2\rangle - \langle y_q\bar y\rangle^2/\langle\bar y^2\rangle$ (`gain` is the last term).
    """
    powers, gains = [], []
    for batch in batches:
        answers = np.asarray(batch.labels)[:, -1, 0]
        means = np.asarray(batch.tokens)[:, :, DIM].mean(axis=1)
        powers.append(np.mean(answers**2))
        gains.append(np.mean(answers * means) ** 2 / np.mean(means**2))
    task = InContextRegression(np.diag(EIGENVALUES), CONTEXT)
    return xr.Dataset(
        {"power": ("run", powers), "gain": ("run", gains), "linear_levels": ("level", theory.levels(task))},
        attrs=provenance({"figure": NAME}),
    )


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    merged, separate, predicted = data["merged"], data["separate"], data["theory"]
    powers, gains = predicted["power"].values, predicted["gain"].values
    criterion = f"a count; a drop is at least {COUNTED:.0%} of the whole fall, a plateau 4 times slower"
    all_claims = [
        Claim.over(
            f"{NAME}/merged-drops-once",
            "Softmax attention with merged key and query: its loss drops once: number of drops",
            predicted=1,
            measured=[len(_drops(merged, run)) for run in range(merged.sizes["run"])],
            tolerance=0,
            basis=criterion,
            kind="paper",
            source="Fig 5",
        ),
        Claim.over(
            f"{NAME}/separate-drops",
            f"Softmax attention with separate key and query: its loss drops at least {SEVERAL} times: number of drops",
            predicted=SEVERAL,
            measured=[len(_drops(separate, run)) for run in range(separate.sizes["run"])],
            tolerance=0,
            basis=criterion,
            relation=">=",
            kind="paper",
            source="Fig 5",
            explored=True,
        ),
    ]
    for name, trajectory in (("merged", merged), ("separate", separate)):
        all_claims.append(
            Claim.over(
                f"{NAME}/{name}-start",
                f"The first drop of the {name} model begins where it answers zero, up to what the mean label gains by "
                "chance: level before it",
                predicted=powers,
                measured=[
                    _drops(trajectory, run)[0].before if _drops(trajectory, run) else np.nan
                    for run in range(powers.size)
                ],
                tolerance=gains + COUNTED * (powers - trajectory["loss"].values[:, -1]),
                basis="⟨y_q ȳ⟩²/⟨ȳ²⟩ on the sample; the smallest drop that counts",
                kind="check",
                source="small weights answer zero",
            )
        )
    return all_claims


def _drops(trajectory: xr.Dataset, run: int):
    """Drops that count. One that does not is joined to none: what it falls is part of no drop."""
    loss = trajectory["loss"].values[run]
    all_drops = staircase(trajectory["time"].values, loss).drops
    return [drop for drop in all_drops if drop.before - drop.after >= COUNTED * (loss[0] - loss.min())]


def draw(data: dict[str, xr.Dataset]) -> Figure:
    levels = data["theory"]["linear_levels"].values
    powers = data["theory"]["power"].values
    with styled():
        figure = new_figure(9.6, 4.6)
        panels = figure.subplots(1, 2, sharey=True, width_ratios=(2, 3))
        titles = {"merged": "(a) Merged key and query", "separate": "(b) Separate key and query, rank one"}
        for axes, (name, title) in zip(panels, titles.items(), strict=True):
            trajectory = data[name]
            time = trajectory["time"].values
            shown = levels if name == "separate" else levels[[0, -1]]
            for level in shown:
                axes.axhline(level / levels[0], color=GREY, linestyle="--", linewidth=1.0, zorder=0)
            counts = []
            for run, power in enumerate(powers):
                colour = PALETTE[run % len(PALETTE)]
                drops = _drops(trajectory, run)
                counts.append(len(drops))
                axes.plot(time, trajectory["loss"].values[run] / power, color=colour, linewidth=1.6)
                for drop in drops:
                    height = (drop.before + drop.after) / 2 / power
                    axes.plot([drop.time], [height], "o", color=colour, markersize=5, markeredgecolor=BLACK)
            axes.set_title(f"{title}: {_counted(counts)}")
            axes.set_xlabel("training time $t/\\tau$")
            axes.set_xlim(0, float(time[-1]))
            axes.set_ylim(0, 1.08)
        panels[0].set_ylabel("training loss / loss of answering zero")
        for m, level in enumerate(levels):
            right = float(data["separate"]["time"][-1])
            panels[1].annotate(
                f"$L(M_{m})$ linear",
                (right, level / levels[0]),
                xytext=(-2, 3 if m < DIM else -12),
                textcoords="offset points",
                ha="right",
                fontsize=9,
                color="#555555",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8},
            )
        panels[0].plot([], [], "o", color="white", markeredgecolor=BLACK, markersize=5, label="half of a drop")
        panels[0].plot([], [], "--", color=GREY, linewidth=1.0, label="levels of linear attention")
        panels[0].legend(loc="upper right", bbox_to_anchor=(1.0, 0.95))
    return figure


def _counted(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    number = f"{low}" if low == high else f"{low} to {high}"
    return f"{number} drop" + ("s" if high > 1 else "")
