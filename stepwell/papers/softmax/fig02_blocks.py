r"""Fig 2: the blocks of the combined weights, and which of them training fills.

$W = K^\top Q/\sqrt{d_e} = [W_X; W_Y]$ scores inputs and labels of a token against the query, $U = OV = [U_X, U_Y]$
reads inputs and labels out. By symmetry the gradient at infinitely many sequences keeps $W_Y = U_X = 0$, $W_X$ a
multiple of the identity on each block of inputs and $U_Y$ diagonal. Training on finite batches leaves that structure by
noise alone: weights random-walk off it, $\langle\mathrm{off}^2\rangle \propto \eta\,\mathcal L/B$, for the squared
gradient of a sequence goes with its squared residual.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, zip_longest
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from matplotlib.patches import Rectangle

from stepwell.analysis.style import BLACK, BLUE, GRAY, GREEN, VERMILION, new_figure, styled
from stepwell.figures import Claim, Data, Figure, Origin, slug
from stepwell.theory import softmax as theory

from ._common import Slope, against_batches, over, slope
from ._whole_matrices import FirstSetting, train

CAPTION = (
    "(a) The combined weights of a head. W scores a token (x, y) against the query: its block W_X meets the token's "
    "inputs, W_Y its labels. U predicts from the token that is attended to: U_X from its inputs, U_Y from its labels. "
    "Colored is what theory keeps: one number ω for each task's inputs and one number μ for each label. (b) The same "
    "blocks of the first head of softmax attention itself, trained as whole matrices on fresh sequences from small "
    "weights, in the bases of the task; each matrix is drawn over its largest entry. (c), ours: what is off the "
    "structure is the noise of finite batches. From decomposable weights of late training, whole matrices are trained "
    "for a short while on batches of three sizes, several runs each: the squared size of what has left the structure, "
    "over the loss, falls as one over the batch. That the paper's figure is this is inferred from its caption."
)


@dataclass(frozen=True)
class Settings(FirstSetting):
    """Runs from small weights, and batch sizes with seeds of the runs that measure the noise."""

    batch: int = 128
    seeds: tuple[int, ...] = (1210, 1211, 1212, 1213)
    rate: float = 0.02
    steps: int = 450
    noise_batches: tuple[int, ...] = (32, 128, 512)
    noise_seeds: tuple[int, ...] = (8, 8, 4)
    noise_rate: float = 0.004
    noise_steps: int = 75


OTHERS = 20
"""Further runs, of the smallest batch, which the scatter of the others is judged by: relative to its mean what is off
the structure scatters alike at every batch."""
FIRST_SEED = 1300
"""Of the runs that measure the noise."""
LATE = 9.0
"""The time at which theory gives the weights from which the noise is measured."""
BLOCKS = ("W_X", "W_Y", "U_X", "U_Y")


def noise_runs(settings: Settings) -> list[tuple[int, int]]:
    """Batch sizes, with how many runs each has: batches beyond the numbers given have as many as the last."""
    batches, seeds = settings.noise_batches, settings.noise_seeds
    return list(zip_longest(batches, seeds[: len(batches)], fillvalue=seeds[-1]))


def describe(settings: Settings) -> dict[str, Any]:
    added = settings.added()
    runs = [f"{seeds} of batch {batch}" for batch, seeds in noise_runs(settings)]
    del added["noise_seeds"], added["noise_batches"]
    return {**settings.described(), **added, "noise runs": runs, "further runs, for the scatter": OTHERS}


def simulate(settings: Settings) -> Data:
    return {"trained": trained(settings), "noise": noise(settings)}


def trained(settings: Settings) -> xr.Dataset:
    """Whole matrices from small weights, as they are at the end, for each seed."""
    options: dict[str, Any] = {"batch": settings.batch, "rate": settings.rate, "steps": settings.steps}
    runs = [train(settings, seed, **options) for seed in settings.seeds]
    last = xr.concat([run.isel(time=-1).drop_vars(["loss", "time"]) for run in runs], dim="seed")
    last["winner"] = ("task", theory.winners(settings.task, *settings.initial_weights(), embedding=settings.embedding))
    return last.assign_coords(seed=list(settings.seeds)).assign_attrs(batch=settings.batch)


def noise(settings: Settings) -> xr.Dataset:
    """Short runs from the weights that theory has at `LATE`: what is off each block, squared, and the last losses.

    `other_off` is that of the other runs.
    """
    weights, until = settings.initial_weights(), np.array([LATE])
    late = theory.spectral_flow(settings.task, *weights, until, embedding=settings.embedding)
    begun = settings.with_eigenvalues(late.omega[0], late.mu[0])
    batches = [batch for batch, seeds in noise_runs(settings) for _ in range(seeds)]
    options: dict[str, Any] = {"rate": settings.noise_rate, "steps": settings.noise_steps, "spectral": begun}
    off, loss = [], []
    for number, batch in enumerate([*batches, *[batches[0]] * OTHERS]):
        run = train(settings, FIRST_SEED + number, batch=batch, **options)
        second = run.isel(time=slice(settings.noise_steps // 2, None))
        off.append((second["off"] ** 2).mean("time").values)
        loss.append(float(second["loss"].mean()))
    judged, others = np.split(np.array(off), [len(batches)])
    return xr.Dataset(
        over("run block", off=judged) | over("run", loss=loss[: len(batches)]) | over("other block", other_off=others),
        {"batch": ("run", batches), "block": list(BLOCKS)},
    )


def _relative(runs: xr.Dataset) -> np.ndarray:
    """What is off each block, squared, over the mean loss of the batch size."""
    return (runs["off"] / runs["loss"].groupby(runs["batch"]).map(lambda one: one * 0 + one.mean())).values


def claims(data: Data, settings: Settings) -> list[Claim]:
    return [*_noise(data["noise"], settings), *_entries(data["trained"], settings)]


def _noise(runs: xr.Dataset, settings: Settings) -> Iterator[Claim]:
    logs, off = np.log(runs["batch"].values), (_relative(runs), runs["other_off"].values)
    sizes, others = (np.log(np.where(each > 0, each, np.nan)).T for each in off)
    # U_Y has 18 entries off its diagonal: two batch sizes are too few to distinguish one exponent from another.
    judged = BLOCKS if np.unique(logs).size > 2 else BLOCKS[:3]
    few = "" if np.unique(logs).size > 1 else "a slope needs two batch sizes"
    numbers = {"W_X": sum(settings.dims), "U_Y": settings.tasks}
    for name, size, other in zip(judged, sizes, others, strict=False):
        why = few if numbers.get(name) != 1 else "it has a single number, which is on the structure"
        fit = Slope(0.0, 0.0) if why else slope(logs, size, other)
        yield Origin("theory", "symmetry of the task: docstring of fig02_blocks", explored=True).close(
            f"noise-{slug(name)}",
            f"{name}: the squared size of what is off the structure, over the loss, falls with the batch as its noise: "
            f"exponent, over {runs.sizes['run']} runs",
            unless=why,
            predicted=-1.0,
            measured=fit.value,
            tolerance=fit.allowed,
            basis="Student's interval for the scatter of other runs, as rare as three standard errors",
        )


def _entries(weights: xr.Dataset, settings: Settings) -> Iterator[Claim]:
    task_of_head = np.argsort(weights["winner"].values)
    tasks, dim = settings.tasks, sum(settings.dims)
    of_token = np.concatenate([np.repeat(np.arange(tasks), settings.dims), dim + np.arange(tasks)])
    named, filled, seeds = [], [], [f"seed {seed}" for seed in weights["seed"].values]
    for score, read in zip(*(np.abs(weights[name].values) for name in ("scores", "readout")), strict=True):
        rows = score.reshape(tasks, -1).argmax(axis=1) // dim
        columns = read.reshape(tasks, -1).argmax(axis=1) % (dim + tasks)
        named.append(int(np.sum((of_token[rows] == task_of_head) & (columns == dim + task_of_head))))
        filled.append(sum(_filled(score[h], read[h], int(i), of_token) for h, i in enumerate(task_of_head)))
    yield Origin("paper", "abstract (task allocation) and Fig 2").close(
        "named-heads",
        "The largest entries of W and of U of a head are those of the task that theory names for it: number of such "
        "heads",
        predicted=tasks,
        measured=named,
        labels=seeds,
        basis="a count",
    )
    yield Origin("paper", "Fig 2 (decomposable weights)").close(
        "filled",
        "The entries that theory fills, d on the diagonal of W_X and one of U_Y, are each larger than all others of "
        "their matrix, W_Y and U_X included: number of such heads",
        predicted=tasks,
        measured=filled,
        labels=seeds,
        basis="a count",
    )


def _filled(scores: np.ndarray, readout: np.ndarray, task: int, of_token: np.ndarray) -> bool:
    """Whether the least of the entries that a task fills is above the largest of all others, in W and in U."""
    dim = scores.shape[1]
    place = np.flatnonzero(of_token[:dim] == task)
    kept, predicting = (np.zeros(matrix.shape, dtype=bool) for matrix in (scores, readout))
    kept[place, place] = predicting[task, dim + task] = True
    return all(bool(matrix[own].min() > matrix[~own].max()) for matrix, own in ((scores, kept), (readout, predicting)))


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    weights = data["trained"].isel(seed=0)
    with styled():
        figure = new_figure(13.4, 5.2)
        left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1.12, 0.8))
        _schematic(left, settings.dims)
        _trained(middle, weights, data["trained"].attrs["batch"])
        series = {f"${name}$": column for name, column in zip(BLOCKS, _relative(data["noise"]).T, strict=True)}
        words = {"ylabel": "(off the structure)² / loss", "title": "(c) Off the structure by noise"}
        against_batches(right, data["noise"]["batch"].values, series, **words)
    return figure


_GAP = 5
_WIDE = 3
"""Columns of U are drawn this many times as wide as those of W."""


def _sides(dim: int, tasks: int) -> tuple[int, int]:
    """Where U begins and ends, from left to right."""
    return dim + _GAP, dim + _GAP + _WIDE * tasks


def _frame(axes: Any, dim: int, tasks: int) -> None:
    right, end = _sides(dim, tasks)
    for x, wide in ((0, dim), (right, _WIDE * tasks)):
        for y, high in ((0, dim), (dim, tasks)):
            axes.add_patch(Rectangle((x, y), wide, high, fill=False, edgecolor=BLACK, linewidth=0.9))
    axes.set(xlim=(-0.5, end + 2.5), ylim=(dim + tasks + 0.5, -0.5))
    axes.set_xticks([dim / 2, (right + end) / 2], ["W, against the query", "Uᵀ, to predictions"])
    axes.set_yticks([dim / 2, dim + tasks / 2], ["inputs x\nof a token", "labels y"])
    axes.tick_params(length=0)
    axes.set_frame_on(False)


def _schematic(axes: Any, dims: tuple[int, ...]) -> None:
    dim, tasks = sum(dims), len(dims)
    right, end = _sides(dim, tasks)
    edges = np.concatenate([[0], np.cumsum(dims)])
    for i, (size, color) in enumerate(zip(dims, cycle((BLUE, VERMILION, GREEN)), strict=False)):
        corner = edges[i]
        axes.plot([corner, corner + size], [corner, corner + size], color=color, linewidth=3.5, solid_capstyle="butt")
        axes.text(corner + size / 2 + 1.0, corner + size / 2 - 0.6, f"$\\omega_{i + 1} I$", color=color, fontsize=12)
        spot = (right + _WIDE * i, dim + i)
        axes.add_patch(Rectangle(spot, _WIDE, 1, color=color))
        axes.text(end + 0.6, spot[1] + 0.55, f"$\\mu_{i + 1}$", color=color, va="center", fontsize=9)
        for edge in edges[1:-1]:
            axes.plot([0, dim], [edge, edge], color=GRAY, linewidth=0.4)
            axes.plot([edge, edge], [0, dim], color=GRAY, linewidth=0.4)
    for x, y, text in (
        (23 / 30 * dim, dim / 6, "$W_X$"),
        (dim / 2, dim + tasks / 2, "$W_Y = 0$"),
        ((right + end) / 2, dim / 2, "$U_X = 0$"),
        (right - 2.6, dim + tasks / 2, "$U_Y$"),
    ):
        axes.text(x, y, text, ha="center", va="center", fontsize=13)
    _frame(axes, dim, tasks)
    axes.set_title("(a) What the symmetry of the task lets grow")


def _trained(axes: Any, weights: xr.Dataset, batch: int) -> None:
    scores, readout = weights["scores"].values[0], weights["readout"].values[0].T
    dim, tasks = weights.sizes["input"], weights.sizes["output"]
    right, end = _sides(dim, tasks)
    style: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1, "interpolation": "nearest", "aspect": "auto"}
    axes.imshow(scores / np.abs(scores).max(), extent=(0, dim, dim + tasks, 0), **style)
    shown = axes.imshow(readout / np.abs(readout).max(), extent=(right, end, dim + tasks, 0), **style)
    _frame(axes, dim, tasks)
    axes.set_title(f"(b) Softmax attention, trained: head 1, batches of {batch}")
    bar = axes.figure.colorbar(shown, ax=axes, shrink=0.7, label="over the largest entry of W, of U")
    bar.ax.yaxis.set_label_position("left")  # the right is next to panel (c)


FIGURE = Figure(
    title="Training fills the diagonal of two blocks and leaves the other two empty",
    caption=CAPTION,
    source="Fig 2",
    settings=Settings(),
    quick=Settings(batch=64, seeds=(1210, 1211), noise_batches=(32, 128), noise_seeds=(4, 4)),
    described=describe,
    simulate=simulate,
    claims=claims,
    draw=draw,
)
