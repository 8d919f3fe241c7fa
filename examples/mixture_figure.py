"""A figure of your own, on a task of your own: `stepwell reproduce mixture_figure.py`.

It imports the file beside it, and is reported and checked as the figures of the papers are.
"""

from dataclasses import dataclass

import jax
import matplotlib.figure
import numpy as np
import xarray as xr
from mixture_of_gaussians import MixtureOfGaussians

from stepwell.analysis.style import GRAY, PALETTE, new_figure, styled
from stepwell.dynamics import Ensemble, flow
from stepwell.figures import Claim, Data, Figure, Origin
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import ContextLengths, InContextRegression
from stepwell.theory import linear


@dataclass(frozen=True)
class Settings:
    context: int = 4
    scale: float = 0.02
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    sequences: int = 50_000
    """New sequences, on which the trained models are tested; as many others give the standard error."""


def simulate(settings: Settings) -> Data:
    task = MixtureOfGaussians(ContextLengths(settings.context))
    keys = [jax.random.key(seed) for seed in settings.seeds]
    models = [SeparateAttention.random(dim=2, heads=2, scale=settings.scale, key=key) for key in keys]
    run = flow(Ensemble.of(models), Population(task), progress=False)
    trained = [run.stepwell.model(run=number) for number in range(len(models))]
    tests, others = (squared_errors(trained, task, settings.sequences, seed) for seed in (1000, 1001))
    columns = {"test_loss": np.mean(tests, axis=1), "standard_error": np.std(others, axis=1) / settings.sequences**0.5}
    gaussian = InContextRegression(task.inputs_covariance, settings.context)
    levels = {"mixture": ("learned", linear.levels(task)), "gaussian": ("learned", linear.levels(gaussian))}
    tested = {name: ("run", values) for name, values in columns.items()}
    return {"runs": run[["loss"]].assign(tested), "theory": xr.Dataset(levels)}


def squared_errors(models: list[SeparateAttention], task: MixtureOfGaussians, sequences: int, seed: int) -> np.ndarray:
    """Return the squared error of each model on each of so many new sequences."""
    batch = task.sample(sequences, key=jax.random.key(seed))
    return np.array([np.sum((jax.vmap(model)(batch.tokens) - batch.labels[:, -1]) ** 2, axis=-1) for model in models])


def claims(data: Data, settings: Settings) -> list[Claim]:
    runs, theory = data["runs"], data["theory"]
    return [
        Origin("theory", "theory.linear.levels of MixtureOfGaussians").close(
            "tested",
            "On new sequences the trained model has the loss that the mixture's moments give",
            predicted=theory["mixture"][-1],
            measured=runs["test_loss"],
            tolerance=4 * runs["standard_error"].values,
            basis="four standard errors of the mean, from as many other sequences",
        ),
        Origin("theory", "MixtureOfGaussians.closed_form").at_most(
            "below-gaussian",
            "The loss on new sequences is below the lowest level of Gaussian inputs with the same covariance",
            predicted=theory["gaussian"][-1],
            measured=runs["test_loss"],
            basis="the fourth moment of the mixture is smaller",
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        drawn = new_figure(5, 3)
        axes = drawn.subplots()
        for name, style in (("mixture", "--"), ("gaussian", ":")):
            for level in data["theory"][name].values:
                axes.axhline(level, color=GRAY, linestyle=style, linewidth=1)
        for number, loss in enumerate(data["runs"]["loss"]):
            axes.plot(data["runs"]["time"], loss, color=PALETTE[number % len(PALETTE)])
        axes.set(xlabel="time t/τ", ylabel="loss")
    return drawn


FIGURE = Figure(
    name="own/mixture",
    title="Inputs from a mixture of Gaussians: a staircase of other heights",
    caption=(
        "The loss of linear attention on inputs around two points, from several initializations (lines), with the "
        "levels of the theory from the mixture's own moments (dashed) and from Gaussian inputs of the same covariance "
        "(dotted)."
    ),
    settings=Settings(),
    quick=Settings(seeds=(0, 1)),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
