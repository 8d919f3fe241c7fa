"""A figure of your own: `stepwell reproduce --figure own_figure.py` makes it, checks its claims and reports both."""

from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from stepwell.experiments import Experiment
from stepwell.papers import Claim, completed
from stepwell.papers.style import GREY, PALETTE, new_figure, styled

NAME = "own/own-figure"
TITLE = "Training ends at the lowest level of the theory"
CAPTION = "The loss of linear attention from several initializations (lines), and the levels of the theory (dashed)."

EXPERIMENT = Experiment(task={"eigenvalues": [0.6, 0.3], "context": 20}, model={"heads": 2, "scale": 0.02})


def settings(quick: bool) -> dict[str, Any]:
    """Shown in the report."""
    return {"eigenvalues": EXPERIMENT.task.eigenvalues, "context": EXPERIMENT.task.context, "seeds": 2 if quick else 5}


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    """Run everything, theory included; each data set becomes a netCDF file."""
    run = completed(EXPERIMENT.run(seeds=range(settings(quick)["seeds"]), progress=False))
    levels = [level.loss for level in EXPERIMENT.predict().levels]
    return {"runs": run[["loss"]], "theory": xr.Dataset({"level": ("learned", levels)})}


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    """Each claim can fail: a prediction, a measurement by another route, and a tolerance with its reason."""
    return [
        Claim.over(
            f"{NAME}/last-level",
            "training ends at the lowest level",
            predicted=data["theory"]["level"][-1],
            measured=data["runs"]["loss"][:, -1],
            tolerance=1e-5,
            basis="flow stops within a millionth of the last drop",
            kind="theory",
            source="Experiment.predict",
        )
    ]


def draw(data: dict[str, xr.Dataset]) -> Figure:
    with styled():
        drawn = new_figure(5, 3)
        axes = drawn.subplots()
        for level in data["theory"]["level"].values:
            axes.axhline(level, color=GREY, linestyle="--", linewidth=1)
        for number, loss in enumerate(data["runs"]["loss"]):
            axes.plot(data["runs"]["time"], loss, color=PALETTE[number % len(PALETTE)])
        axes.set(xlabel="time t/τ", ylabel="loss")
    return drawn
