"""A figure of your own: `stepwell reproduce own_figure.py` runs it, checks its claims and reports both."""

from dataclasses import dataclass

import matplotlib.figure

from stepwell.analysis.style import GRAY, PALETTE, new_figure, styled
from stepwell.experiments import Experiment
from stepwell.figures import Claim, Data, Figure, Origin


@dataclass(frozen=True)
class Settings:
    """Each can be changed: `stepwell reproduce own_figure.py --set context=60`."""

    eigenvalues: tuple[float, ...] = (0.6, 0.3)
    context: int = 20
    heads: int = 2
    scale: float = 0.01
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    @property
    def experiment(self) -> Experiment:
        """Each seed has its own task, the same one rotated: `experiment.replace(seed=3).build().task`."""
        task = {"eigenvalues": self.eigenvalues, "context": self.context}
        return Experiment(task=task, model={"heads": self.heads, "scale": self.scale})


def simulate(settings: Settings) -> Data:
    """Compute everything, theory included; each data set becomes a netCDF file."""
    run = settings.experiment.run(seeds=settings.seeds, progress=False)
    # A row for each drop of each seed, predicted from the initial weights and measured.
    drops = run.stepwell.compare().table
    return {"runs": run[["loss"]], "drops": drops[["run", "drop", "predicted", "measured", "level"]].to_xarray()}


def claims(data: Data, settings: Settings) -> list[Claim]:
    """Each claim can fail: a prediction, an independent measurement, and a tolerance with its reason."""
    drops = data["drops"].to_dataframe().dropna()
    return [
        Origin("theory", "Experiment.predict").close(
            "drop-times",
            "The initial weights predict when the loss drops: measured time over predicted time",
            predicted=1.0,
            measured=drops["measured"] / drops["predicted"],
            tolerance=settings.scale,
            required=0.8,
            counted="drops",
            labels=[f"seed {seed}, drop {drop}" for seed, drop in zip(drops["run"], drops["drop"], strict=True)],
            basis="next order in the initialization scale; its factor has heavy tails, hence four drops of five",
        )
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        drawn = new_figure(5, 3)
        axes = drawn.subplots()
        for level in sorted(set(data["drops"]["level"].values)):
            axes.axhline(level, color=GRAY, linestyle="--", linewidth=1)
        for number, loss in enumerate(data["runs"]["loss"]):
            color = PALETTE[number % len(PALETTE)]
            axes.plot(data["runs"]["time"], loss, color=color)
            mine = data["drops"].to_dataframe().query(f"run == {int(loss['run'])}")
            axes.plot(mine["predicted"], [0.0] * len(mine), "^", color=color, clip_on=False)
        axes.set(xlabel="time t/τ", ylabel="loss", ylim=(0, None))
    return drawn


FIGURE = Figure(
    name="own/own-figure",
    title="The initial weights predict when the loss drops",
    caption=(
        "The loss of linear attention from several initializations (lines), the levels of the theory (dashed), and the "
        "times of the drops that the initial weights predict (triangles)."
    ),
    settings=Settings(),
    quick=Settings(seeds=(0, 1)),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
