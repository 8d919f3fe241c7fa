r"""Fig 2: the blocks of the combined weights, and which of them training fills.

$W = K^\top Q/\sqrt{d_e} = [W_X; W_Y]$ scores inputs and labels of a token against the query, $U = OV = [U_X, U_Y]$
reads inputs and labels out. By symmetry the population's gradient keeps $W_Y = U_X = 0$, $W_X$ a multiple of the
identity on each block of inputs and $U_Y$ diagonal. Training on finite batches leaves that structure by noise alone:
weights random-walk off it, $\langle\mathrm{off}^2\rangle \propto \eta\,\mathcal L/B$, for the squared gradient of a
sequence goes with its squared residual.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stepwell.models import SpectralAttention
from stepwell.papers._claim import Claim, slug
from stepwell.papers._settings import changeable
from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, PALETTE, VERMILION, new_figure, styled
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory
from stepwell.trajectory import provenance

from ._batch_axes import against_batches
from ._full_model import CONTEXT, DIM, DIMS, EMBEDDING, SETTING, TASKS, start, train
from ._slope import slope

NAME = "softmax/fig2"
TITLE = "Training fills the diagonal of two blocks and leaves the other two empty"
CAPTION = (
    "(a) The combined weights of a head. W scores a token (x, y) against the query: its block W_X meets the token's "
    "inputs, W_Y its labels. U answers from the token that is attended to: U_X from its inputs, U_Y from its labels. "
    "Coloured is what theory keeps: one number ω for each task's inputs and one number μ for each label. (b) The same "
    "blocks of the first head of softmax attention itself, trained as whole matrices on fresh sequences from small "
    "weights, in the bases of the task; each matrix is drawn over its largest entry. (c), ours: what is off the "
    "structure is the noise of finite batches. From decomposable weights of late training, whole matrices are trained "
    "for a short while on batches of three sizes, several runs each: the squared size of what has left the structure, "
    "over the loss, falls as one over the batch. That the paper's figure is this is inferred from its caption."
)


@changeable
@dataclass(frozen=True)
class Settings:
    """Runs from small weights, and batch sizes with seeds of the runs that measure the noise."""

    batch: int = 256
    seeds: tuple[int, ...] = (1200,)
    rate: float = 0.02
    steps: int = 450
    noise_batches: tuple[int, ...] = (32, 128, 512)
    noise_seeds: tuple[int, ...] = (8, 8, 4)
    noise_rate: float = 0.004
    noise_steps: int = 75


FULL = Settings()
QUICK = Settings(batch=64, noise_batches=(32, 128), noise_seeds=(4, 4))
OTHERS = 20
"""Further runs, of the smallest batch, which the scatter of the others is judged by: relative to its mean what is off
the structure scatters alike at every batch."""
FIRST_SEED = 1300
"""Of the runs that measure the noise."""
LATE = 9.0
"""The time at which theory gives the weights from which the noise is measured."""
BLOCKS = ("W_X", "W_Y", "U_X", "U_Y")
PAPER_SETTINGS: dict[str, Any] = {}


def settings(quick: bool) -> dict[str, Any]:
    chosen = asdict(QUICK if quick else FULL)
    counts = zip(chosen.pop("noise_seeds"), chosen.pop("noise_batches"), strict=True)
    runs = [f"{seeds} of batch {batch}" for seeds, batch in counts]
    return {**SETTING, **chosen, "noise runs": runs, "further runs, for the scatter": OTHERS}


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    return {"trained": trained(chosen), "noise": noise(chosen)}


def trained(chosen: Settings) -> xr.Dataset:
    """Whole matrices from small weights, as they are at the end, for each seed."""
    options: dict[str, Any] = {"batch": chosen.batch, "rate": chosen.rate, "steps": chosen.steps}
    runs = [train(seed, configuration={"figure": NAME}, **options).drop_attrs() for seed in chosen.seeds]
    last = xr.concat([run.isel(time=-1).drop_vars(["loss", "time"]) for run in runs], dim="seed")
    last["winner"] = ("task", theory.allocation.winners(_task(), *start(), embedding=EMBEDDING))
    return last.assign_coords(seed=list(chosen.seeds)).assign_attrs(
        provenance({"figure": NAME, **asdict(chosen)}), batch=chosen.batch
    )


def noise(chosen: Settings) -> xr.Dataset:
    """Short runs from the weights that theory has at `LATE`: what is off each block, squared, and the last losses.

    `other_off` is that of the other runs.
    """
    late = theory.flow.spectral_flow(_task(), *start(), np.array([LATE]), embedding=EMBEDDING)
    begun = SpectralAttention.balanced(late.omega[0], late.mu[0], DIMS, embedding=EMBEDDING)
    batches = [b for b, seeds in zip(chosen.noise_batches, chosen.noise_seeds, strict=True) for _ in range(seeds)]
    options: dict[str, Any] = {"rate": chosen.noise_rate, "steps": chosen.noise_steps, "spectral": begun}
    off, loss = [], []
    for number, batch in enumerate([*batches, *[batches[0]] * OTHERS]):
        run = train(FIRST_SEED + number, batch=batch, configuration={"figure": NAME}, **options)
        second = run.isel(time=slice(chosen.noise_steps // 2, None))
        off.append((second["off"] ** 2).mean("time").values)
        loss.append(float(second["loss"].mean()))
    judged, others = np.split(np.array(off), [len(batches)])
    return xr.Dataset(
        {
            "off": (("run", "block"), judged),
            "loss": ("run", loss[: len(batches)]),
            "other_off": (("other", "block"), others),
        },
        {"batch": ("run", batches), "block": list(BLOCKS)},
    )


def _task() -> MultiTaskRegression:
    return MultiTaskRegression(DIMS, 1.0, CONTEXT)


def _relative(runs: xr.Dataset) -> np.ndarray:
    """What is off each block, squared, over the mean loss of the batch size."""
    return (runs["off"] / runs["loss"].groupby(runs["batch"]).map(lambda one: one * 0 + one.mean())).values


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    weights, runs = data["trained"], data["noise"]
    logs, sizes = np.log(runs["batch"].values), np.log(_relative(runs))
    # U_Y has 18 entries off its diagonal: two batch sizes are too few to distinguish one exponent from another.
    judged = BLOCKS if np.unique(logs).size > 2 else BLOCKS[:3]
    others = np.log(runs["other_off"].values)
    fits = [slope(logs, sizes[:, column], others[:, column]) for column in range(len(judged))]
    all_claims = [
        Claim.close(
            f"{NAME}/noise-{slug(name)}",
            f"{name}: the squared size of what is off the structure, over the loss, falls with the batch as its noise: "
            f"exponent, over {runs.sizes['run']} runs",
            predicted=-1.0,
            measured=fit.value,
            tolerance=fit.allowed,
            basis="Student's interval for the scatter of other runs, as rare as three standard errors",
            kind="theory",
            source="symmetry of the task: docstring of fig02_blocks",
            explored=True,
        )
        for name, fit in zip(judged, fits, strict=True)
    ]
    scores, readout = weights["scores"].values, weights["readout"].values
    task_of_head = np.argsort(weights["winner"].values)
    of_input = np.repeat(np.arange(TASKS), DIMS)
    named, filled = [], []
    for score, answer in zip(np.abs(scores), np.abs(readout), strict=True):
        rows = score.reshape(TASKS, -1).argmax(axis=1) // DIM
        columns = answer.reshape(TASKS, -1).argmax(axis=1) % (DIM + TASKS)
        of_token = np.concatenate([of_input, DIM + np.arange(TASKS)])
        named.append(int(np.sum((of_token[rows] == task_of_head) & (columns == DIM + task_of_head))))
        filled.append(sum(_filled(score[h], answer[h], int(i)) for h, i in enumerate(task_of_head)))
    common: dict[str, Any] = {"predicted": TASKS, "tolerance": 0, "basis": "a count", "kind": "paper"}
    all_claims += [
        Claim.over(
            f"{NAME}/named-heads",
            "The largest entries of W and of U of a head are those of the task that theory names for it: number of "
            "such heads, for each seed",
            measured=named,
            source="abstract (task allocation) and Fig 2",
            **common,
        ),
        Claim.over(
            f"{NAME}/filled",
            "The entries that theory fills, d on the diagonal of W_X and one of U_Y, are each larger than all others "
            "of their matrix, W_Y and U_X included: number of such heads, for each seed",
            measured=filled,
            source="Fig 2 (decomposable weights)",
            **common,
        ),
    ]
    return all_claims


def _filled(scores: np.ndarray, readout: np.ndarray, task: int) -> bool:
    """Whether the least of the entries that a task fills is above the largest of all others, in W and in U."""
    place = np.flatnonzero(np.repeat(np.arange(TASKS), DIMS) == task)
    kept = np.zeros(scores.shape, dtype=bool)
    kept[place, place] = True
    answered = np.zeros(readout.shape, dtype=bool)
    answered[task, DIM + task] = True
    return all(bool(matrix[own].min() > matrix[~own].max()) for matrix, own in ((scores, kept), (readout, answered)))


def draw(data: dict[str, xr.Dataset]) -> Figure:
    weights = data["trained"].isel(seed=0)
    with styled():
        figure = new_figure(13.4, 5.2)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.12, 0.8))
        _schematic(left)
        _trained(middle, weights, data["trained"].attrs["batch"])
        _noise(right, data["noise"])
    return figure


_GAP = 5
_WIDE = 3
"""Columns of U are drawn this many times as wide as those of W."""
_RIGHT = DIM + _GAP
_END = _RIGHT + _WIDE * TASKS


def _frame(axes: Any) -> None:
    for x, wide, y, high in (
        (0, DIM, 0, DIM),
        (0, DIM, DIM, TASKS),
        (_RIGHT, _WIDE * TASKS, 0, DIM),
        (_RIGHT, _WIDE * TASKS, DIM, TASKS),
    ):
        axes.add_patch(Rectangle((x, y), wide, high, fill=False, edgecolor=BLACK, linewidth=0.9))
    axes.set_xlim(-0.5, _END + 2.5)
    axes.set_ylim(DIM + TASKS + 0.5, -0.5)
    axes.set_xticks([DIM / 2, (_RIGHT + _END) / 2], ["W, against the query's inputs", "Uᵀ, to the answers"])
    axes.set_yticks([DIM / 2, DIM + TASKS / 2], ["inputs x\nof a token", "labels y"])
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _schematic(axes: Any) -> None:
    edges = np.concatenate([[0], np.cumsum(DIMS)])
    for i, colour in enumerate((BLUE, VERMILION, GREEN)):
        corner, size = edges[i], DIMS[i]
        axes.plot([corner, corner + size], [corner, corner + size], color=colour, linewidth=3.5, solid_capstyle="butt")
        axes.text(corner + size / 2 + 1.0, corner + size / 2 - 0.6, f"$\\omega_{i + 1} I$", color=colour, fontsize=12)
        spot = (_RIGHT + _WIDE * i, DIM + i)
        axes.add_patch(Rectangle(spot, _WIDE, 1, color=colour))
        axes.text(_END + 0.6, spot[1] + 0.55, f"$\\mu_{i + 1}$", color=colour, va="center", fontsize=9)
        for edge in edges[1:-1]:
            axes.plot([0, DIM], [edge, edge], color=GREY, linewidth=0.4)
            axes.plot([edge, edge], [0, DIM], color=GREY, linewidth=0.4)
    for x, y, text in (
        (23, 5, "$W_X$"),
        (DIM / 2, DIM + 1.5, "$W_Y = 0$"),
        ((_RIGHT + _END) / 2, DIM / 2, "$U_X = 0$"),
        (_RIGHT - 2.6, DIM + 1.5, "$U_Y$"),
    ):
        axes.text(x, y, text, ha="center", va="center", fontsize=13)
    _frame(axes)
    axes.set_title("(a) What the symmetry of the task lets grow")


def _trained(axes: Any, weights: xr.Dataset, batch: int) -> None:
    scores, readout = weights["scores"].values[0], weights["readout"].values[0].T
    style: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1, "interpolation": "nearest", "aspect": "auto"}
    axes.imshow(scores / np.abs(scores).max(), extent=(0, DIM, DIM + TASKS, 0), **style)
    shown = axes.imshow(readout / np.abs(readout).max(), extent=(_RIGHT, _END, DIM + TASKS, 0), **style)
    _frame(axes)
    axes.set_title(f"(b) Softmax attention, trained: head 1, batches of {batch}")
    axes.figure.colorbar(shown, ax=axes, shrink=0.7, label="over the largest entry of W, of U")


def _noise(axes: Any, runs: xr.Dataset) -> None:
    batches, sizes = runs["batch"].values, _relative(runs)
    every = np.unique(batches)
    for column, (name, marker) in enumerate(zip(BLOCKS, "osD^", strict=True)):
        style: dict[str, Any] = {"color": PALETTE[column], "markersize": 5, "fillstyle": "none", "linewidth": 1.0}
        axes.plot(batches, sizes[:, column], marker, label=f"${name}$", **style)
        means = [np.exp(np.log(sizes[batches == one, column]).mean()) for one in every]
        axes.plot(every, means[0] * every[0] / every, "--", color=PALETTE[column], linewidth=1.0)
    against_batches(axes, every)
    axes.set_ylabel("(off the structure)² / loss")
    axes.set_title("(c) Off the structure by noise")
    axes.legend(loc="lower left", fontsize=8.5)
