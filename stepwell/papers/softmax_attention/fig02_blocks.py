r"""Fig 2: the blocks of the combined weights, and which of them training fills.

$W = K^\top Q/\sqrt{d_e} = [W_X; W_Y]$ scores inputs and labels of a token against the query, $U = OV = [U_X, U_Y]$
reads inputs and labels out. By symmetry the population's gradient keeps $W_Y = U_X = 0$, $W_X$ a multiple of the
identity on each block of inputs and $U_Y$ diagonal.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stepwell.papers._claim import Claim, slug
from stepwell.papers._style import BLACK, BLUE, GREEN, GREY, VERMILION, new_figure, styled
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax as theory
from stepwell.trajectory import provenance

from ._full_model import CONTEXT, DIM, DIMS, EMBEDDING, SETTING, TASKS, start, train

NAME = "softmax/fig2"
TITLE = "Training fills the diagonal of two blocks and leaves the other two empty"
CAPTION = (
    "Left, the combined weights of a head. W scores a token (x, y) against the query: its block W_X meets the token's "
    "inputs, W_Y its labels. U answers from the token that is attended to: U_X from its inputs, U_Y from its labels. "
    "Coloured is what theory keeps: one number ω for each task's inputs and one number μ for each label. Right, the "
    "same blocks of the first head, trained as whole matrices on fresh sequences, in the bases of the task; each "
    "matrix is drawn over its largest entry. What is off the structure is the noise of finite batches. That the "
    "paper's figure is this is inferred from its caption."
)


@dataclass(frozen=True)
class Settings:
    """Batch sizes are a factor of four apart; each has a run for every seed."""

    batches: tuple[int, int] = (64, 256)
    seeds: tuple[int, ...] = (20,)
    rate: float = 0.02
    steps: int = 450


LATE = 50
"""Steps at the end over which the loss is averaged."""


FULL = Settings()
QUICK = Settings(batches=(16, 64))


def settings(quick: bool) -> dict[str, Any]:
    return {**SETTING, **asdict(QUICK if quick else FULL)}


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    rows = [
        xr.concat(
            [
                train(
                    seed, batch=batch, rate=chosen.rate, steps=chosen.steps, configuration={"figure": NAME}
                ).drop_attrs()
                for seed in chosen.seeds
            ],
            dim="seed",
        )
        for batch in chosen.batches
    ]
    runs = xr.concat(rows, dim="batch").assign_coords(batch=list(chosen.batches), seed=list(chosen.seeds))
    late = runs["loss"].isel(time=slice(-LATE, None)).mean("time")
    trained = runs.isel(time=-1).drop_vars("loss").assign(late_loss=late)
    theory_task = MultiTaskRegression(DIMS, 1.0, CONTEXT)
    trained["winner"] = ("task", theory.allocation.winners(theory_task, *start(), embedding=EMBEDDING))
    return {"trained": trained.assign_attrs(provenance({"figure": NAME, **asdict(chosen)}))}


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    trained = data["trained"]
    off = trained["off"].values ** 2
    scores = (np.array(DIMS) * trained["omega"].values ** 2).sum(axis=(-2, -1))
    readout = (trained["mu"].values ** 2).sum(axis=(-2, -1))
    share = off / (np.stack([scores, scores, readout, readout], axis=-1) + off)
    small, large = trained["batch"].values
    seeds, factor = trained.sizes["seed"], np.log(large / small)
    # Entries off the structure: all but the block means, in every head.
    entries = TASKS * np.array([DIM**2 - TASKS, TASKS * DIM, TASKS * DIM, TASKS * (TASKS - 1)])
    exponent = np.log(off[1].mean(axis=0) / off[0].mean(axis=0)) / factor
    error = np.sqrt(4 / (entries * seeds)) / factor
    louder = float(np.log(trained["late_loss"][0].mean() / trained["late_loss"][1].mean())) / factor
    all_claims = [
        Claim.close(
            f"{NAME}/noise-{slug(name)}",
            f"{name}: the squared size of what is off the structure falls with the batch as its noise: exponent",
            predicted=-1.0,
            measured=exponent[column],
            tolerance=3 * error[column] + share[0, :, column].mean() + louder,
            basis="three standard errors of as many entries; next order: its share of the norm, and noise that goes "
            "with the loss, which small batches raise",
        )
        # U_Y has 18 entries off its diagonal, too few to tell one exponent from another.
        for column, name in enumerate(("W_X", "W_Y", "U_X"))
    ]
    inputs = np.abs(trained["scores"].values[1][:, :, :DIM]).reshape(seeds, TASKS, -1).argmax(axis=-1) // DIM
    outputs = np.abs(trained["readout"].values[1][..., DIM:]).reshape(seeds, TASKS, -1).argmax(axis=-1) // TASKS
    task_of_head = np.argsort(trained["winner"].values)
    right = (np.repeat(np.arange(TASKS), DIMS)[inputs] == task_of_head) & (outputs == task_of_head)
    whole = trained["off"].values[1] ** 2
    all_claims += [
        Claim.over(
            f"{NAME}/named-heads",
            "The largest entries of W_X and of U_Y of a head are those of the task that theory names for it: number "
            "of such heads",
            predicted=TASKS,
            measured=right.sum(axis=1),
            tolerance=0,
            basis="a count",
        ),
        Claim.over(
            f"{NAME}/on-structure",
            f"Batches of {large}: most of the squared norm of W and U is on the structure: share of the smaller",
            predicted=0.5,
            measured=np.minimum(
                scores[1] / (scores[1] + whole[:, :2].sum(axis=1)), readout[1] / (readout[1] + whole[:, 2:].sum(axis=1))
            ),
            tolerance=0,
            basis="more than half; random matrices would have 3 of 330 entries' worth of W, 1 of 11 of U",
            relation=">=",
        ),
    ]
    return all_claims


def draw(data: dict[str, xr.Dataset]) -> Figure:
    trained = data["trained"].isel(batch=1, seed=0)
    with styled():
        figure = new_figure(11.0, 5.4)
        left, right = figure.subplots(1, 2)
        _schematic(left)
        _trained(right, trained)
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
        axes.text(_END + 0.6, spot[1] + 0.55, f"$\\mu_{i + 1}$", color=colour, va="center", fontsize=12)
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


def _trained(axes: Any, trained: xr.Dataset) -> None:
    scores, readout = trained["scores"].values[0], trained["readout"].values[0].T
    style: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1, "interpolation": "nearest", "aspect": "auto"}
    axes.imshow(scores / np.abs(scores).max(), extent=(0, DIM, DIM + TASKS, 0), **style)
    shown = axes.imshow(readout / np.abs(readout).max(), extent=(_RIGHT, _END, DIM + TASKS, 0), **style)
    _frame(axes)
    axes.set_title(f"(b) Head 1, trained on batches of {int(trained['batch'])}")
    axes.figure.colorbar(shown, ax=axes, shrink=0.7, label="over the largest entry of W, of U")
