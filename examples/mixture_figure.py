"""A figure of your own, on a task of your own: `stepwell reproduce --figure mixture_figure.py`.

It imports the file beside it, and goes through the same report, checks and netCDF files as those of the papers.
"""

from typing import Any

import jax
import xarray as xr
from matplotlib.figure import Figure
from mixture_of_gaussians import MixtureOfGaussians

from stepwell.dynamics import Ensemble, flow
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.papers import Claim, completed
from stepwell.papers.style import GREY, PALETTE, new_figure, styled
from stepwell.tasks import ContextLengths, InContextRegression
from stepwell.theory import linear

NAME = "own/mixture"
TITLE = "Inputs from a mixture of Gaussians: a staircase of other heights"
CAPTION = (
    "The loss of linear attention on inputs around two points, from several random starts (lines), with the levels of "
    "the theory from the mixture's own moments (dashed) and from Gaussian inputs of the same covariance (dotted)."
)

CONTEXT = 4
SCALE = 0.02


def settings(quick: bool) -> dict[str, Any]:
    return {"context": CONTEXT, "initial weights": SCALE, "seeds": 2 if quick else 5}


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    task = MixtureOfGaussians(ContextLengths(CONTEXT))
    keys = jax.random.split(jax.random.key(0), settings(quick)["seeds"])
    starts = Ensemble.of([SeparateAttention.random(dim=2, heads=2, scale=SCALE, key=key) for key in keys])
    run = completed(flow(starts, Population(task), progress=False))
    gaussian = InContextRegression(task.inputs_covariance, CONTEXT)
    levels = {
        "mixture": ("learned", linear.levels(task)),
        "gaussian": ("learned", linear.levels(gaussian)),
    }
    return {"runs": run[["loss"]], "theory": xr.Dataset(levels)}


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    last, gaussian = data["theory"]["mixture"][-1], data["theory"]["gaussian"][-1]
    measured = data["runs"]["loss"][:, -1]
    return [
        Claim.over(
            f"{NAME}/last-level",
            "training ends at the lowest level that the mixture's moments give",
            predicted=last,
            measured=measured,
            tolerance=1e-5,
            basis="flow stops within a millionth of the last drop",
            kind="theory",
            source="theory.linear.levels",
        ),
        Claim.over(
            f"{NAME}/below-gaussian",
            "it ends below the lowest level of Gaussian inputs with the same covariance",
            predicted=gaussian,
            measured=measured,
            tolerance=0.0,
            relation="<=",
            basis="the fourth moment of the mixture is smaller",
            kind="theory",
            source="MixtureOfGaussians.moments",
        ),
    ]


def draw(data: dict[str, xr.Dataset]) -> Figure:
    with styled():
        drawn = new_figure(5, 3)
        axes = drawn.subplots()
        for name, style in (("mixture", "--"), ("gaussian", ":")):
            for level in data["theory"][name].values:
                axes.axhline(level, color=GREY, linestyle=style, linewidth=1)
        for number, loss in enumerate(data["runs"]["loss"]):
            axes.plot(data["runs"]["time"], loss, color=PALETTE[number % len(PALETTE)])
        axes.set(xlabel="time t/τ", ylabel="loss")
    return drawn
