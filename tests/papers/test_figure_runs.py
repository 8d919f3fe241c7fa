"""Many seeds at once are the runs of their experiments, and their onset is that of linear growth."""

import numpy as np
import pytest
import xarray as xr

from stepwell.experiments import Experiment
from stepwell.figures import Origin, figure
from stepwell.models import MergedAttention
from stepwell.objectives import Moments
from stepwell.papers.linear._onset import PART, Growth, measured_onset, onset_claim
from stepwell.papers.linear._runs import labeled, runs_of, train_together
from stepwell.tasks import InContextRegression


def experiment_of(name: str) -> Experiment:
    return figure(name).settings.experiment


@pytest.mark.parametrize("name", ["linear/fig1", "linear/fig3", "linear/fig14"])
def test_seeds_together_are_the_runs_of_the_experiment(name: str):
    """Another order of the same sums: to rounding, relative to the loss, after thirty steps."""
    experiment = experiment_of(name).replace(
        task={"context": 7, **({"in_context": 0.4} if name == "linear/fig14" else {})},
        model={"scale": 0.3},
        objective={"sequences": 200},
        training={"steps": 30},
    )
    together = train_together(runs_of(experiment, (3, 4)))
    for place, seed in enumerate((3, 4)):
        alone = experiment.replace(seed=seed).run(progress=False)
        np.testing.assert_allclose(together["loss"].values[place], alone["loss"].values[0], rtol=1e-12)
    assert together["run"].values.tolist() == [3, 4]
    assert abs(together["loss"].values[0, -1] - together["loss"].values[1, -1]) > 1e-3


def test_values_that_are_kept_keep_their_labels():
    kept = [[True, False, True], [False, True, False]]
    row = labeled([[1, 2, 3], [4, 5, 6]], kept, seed=(203, 201), drop=range(1, 4))
    claim = Origin("check", "order").close("values", "They are these", measured=row, basis="a count")
    expected = [("seed 203, drop 1", 1), ("seed 203, drop 3", 3), ("seed 201, drop 2", 5)]
    assert [(value.label, value.measured) for value in claim.values] == expected


PUBLISHED = {
    "linear/fig1": {"task.eigenvalues": [0.4, 0.3, 0.2, 0.1], "model.kind": "merged", "model.heads": 8,
                      "model.scale": 1e-6, "training.rate": 1e-3, "training.steps": 6000, "objective.sequences": 5000},
    "linear/fig3": {"task.eigenvalues": [0.4, 0.3, 0.2, 0.1], "model.kind": "separate", "model.heads": 5,
                      "model.rank": 1, "model.scheme": "plain", "model.scale": 1e-2, "training.rate": 0.02,
                      "objective.sequences": 80_000},
    "linear/fig14": {"task.eigenvalues": [0.25] * 4, "model.kind": "merged", "model.heads": 8, "model.scale": 1e-6,
                      "training.rate": 5e-4, "training.steps": 5000},
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_experiments_have_the_published_settings(name: str):
    ours = experiment_of(name).canonical()
    same = {"task.context": 31, "task.centered": True, "model.normalization": "none", "training.optimizer": "sgd"}
    assert {key: ours[key] for key in (PUBLISHED[name] | same)} == PUBLISHED[name] | same


def test_a_seed_has_the_data_that_it_always_had():
    """The first loss of Fig 1 and of Fig 14 at a share of 0.4, as first recorded."""
    (first,) = runs_of(experiment_of("linear/fig1"), [100])
    assert float(first.objective(first.model)) == pytest.approx(0.9842638189851352, rel=1e-13)
    mixed = experiment_of("linear/fig14").replace(task={"in_context": 0.4}, objective={"sequences": 300})
    (second,) = runs_of(mixed, [100])
    assert float(second.objective(second.model)) == pytest.approx(1.0418801072234292, rel=1e-13)


@pytest.fixture(scope="module")
def moments() -> Moments:
    import jax

    task = InContextRegression(np.diag([0.7, 0.4]), 6)
    return Moments.of_task(task, 300, normalization="none", progress=False, key=jax.random.key(0))


@pytest.fixture(scope="module")
def model() -> MergedAttention:
    import jax

    return MergedAttention.random(dim=2, heads=3, scale=1e-5, normalization="none", key=jax.random.key(1))


def test_modes_are_the_curvature_at_zero(moments, model):
    """±2σ are eigenvalues of the Hessian of the loss at zero, by automatic differentiation."""
    import jax
    from jax.flatten_util import ravel_pytree

    _, back = ravel_pytree(model)
    hessian = jax.hessian(lambda flat: moments(back(flat)))(np.zeros(ravel_pytree(model)[0].size))
    lowest = np.unique(np.linalg.eigvalsh(hessian).round(9))[:3]
    np.testing.assert_allclose(lowest, -2 * Growth.of(moments).rates, rtol=1e-6)


@pytest.mark.parametrize("start", [1.0, 3.0])
def test_the_onset_is_that_of_a_descent(moments, model, start):
    from stepwell.dynamics import Record, descend

    growth, rate = Growth.of(moments), 1e-3
    run = descend(
        model.scaled(start), moments, rate=rate, steps=4000, record=Record(every=5, snapshots=2), progress=False
    )
    measured = measured_onset(run["step"].values.astype(float), run["loss"].values[0], growth.fall)
    assert abs(measured - growth.onset(model.scaled(start), rate)) < growth.uncertainty(rate)
    assert abs(measured - growth.onset(model.scaled(1.05 * start), rate)) > growth.uncertainty(rate)


def test_an_onset_is_interpolated_exponentially():
    steps = np.arange(0.0, 300.0, 10.0)
    loss = 1 - 1e-6 * (np.exp(0.05 * steps) - 1)
    assert measured_onset(steps, loss, 0.5) == pytest.approx(np.log(PART * 0.5 / 1e-6) / 0.05, rel=1e-4)
    assert np.isnan(measured_onset(steps, np.ones_like(steps), 0.5))


def onset_of(step: float, *, record: float = 10.0, until: float = 300.0):
    """The claim that a fall which begins at step 197 does so at another."""
    steps = np.arange(0.0, until, record)
    run = xr.Dataset({"loss": (("run", "step"), 1 - 1e-6 * (np.exp(0.05 * steps[None]) - 1))}, {"step": steps})
    expected = xr.Dataset({"step": ("run", [step]), "uncertainty": ("run", [0.1]), "fall": ("run", [2.0])})
    return onset_claim("time", "It falls", run, expected, counted="seeds")


def test_an_onset_is_judged_where_it_can_be_seen():
    right = float(np.log(PART * 2.0 / 1e-6) / 0.05)
    assert onset_of(right).passed
    assert onset_of(right + 1).judged() and not onset_of(right + 1).passed
    assert onset_of(10 * right).judged() and not onset_of(10 * right).passed, "it fell, and should not have"
    assert onset_of(20.0, until=100.0).judged() and not onset_of(20.0, until=100.0).passed, "it should have fallen"
    assert not onset_of(right, until=100.0).judged(), "too short"
    assert not onset_of(right, record=50.0).judged(), "too coarse"
    assert not onset_of(np.nan).judged(), "fallen at the start"


def test_weights_that_are_large_have_no_onset(moments, model):
    assert np.isnan(Growth.of(moments).onset(model.scaled(1e6), 1e-3))
