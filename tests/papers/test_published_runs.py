"""Many seeds at once are the runs of `stepwell train`, and their onset is that of linear growth."""

import numpy as np
import pytest

from stepwell.models import MergedAttention
from stepwell.objectives import Moments
from stepwell.papers.linear_attention import _fig01_settings, _fig03_settings, _fig14_settings
from stepwell.papers.linear_attention._onset import PART, Growth, measured_onset
from stepwell.papers.linear_attention._published_runs import set_up_seeds, train_seeds, training_moments
from stepwell.published.training import train
from stepwell.tasks import InContextRegression

SMALL = "--trainset_size 200 --seq_len 8"


@pytest.mark.parametrize(
    "command",
    [
        f"{_fig01_settings.COMMAND} {SMALL}",
        f"{_fig03_settings.COMMAND} {SMALL}",
        f"{_fig14_settings.COMMAND} {SMALL} --icl 0.4",
    ],
    ids=["fig1", "fig3", "fig14"],
)
def test_seeds_together_are_the_runs_of_the_command(command: str):
    """Another order of the same sums: to rounding, relative to the loss, after thirty steps."""
    setups = set_up_seeds(f"{command} --init 0.3 --epoch 30", (3, 4))
    together = train_seeds(setups, [training_moments(setup) for setup in setups], steps=30, configuration={})
    for place, setup in enumerate(setups):
        alone = train(setup, None)
        np.testing.assert_allclose(together["loss"].values[place], alone["loss"].values[0], rtol=1e-12)
    assert together["run"].values.tolist() == [3, 4]
    assert abs(together["loss"].values[0, -1] - together["loss"].values[1, -1]) > 1e-3


def test_commands_have_the_published_settings():
    first, third, last = (
        set_up_seeds(module.COMMAND, [0])[0].flags for module in (_fig01_settings, _fig03_settings, _fig14_settings)
    )
    assert (first.model, first.head_num, first.init, first.lr, first.trainset_size) == ("attnM", 8, 1e-6, 1e-3, 5000)
    assert first.epoch - 1 == _fig01_settings.STEPS
    assert (third.model, third.head_num, third.init, third.lr, third.start_rule) == ("attnS", 5, 1e-2, 0.02, "plain")
    assert (last.model, last.head_num, last.init, last.lr, last.white_cov) == ("attnM", 8, 1e-6, 5e-4, True)


@pytest.fixture(scope="module")
def moments() -> Moments:
    import jax

    task = InContextRegression(np.diag([0.7, 0.4]), 6)
    return Moments.of_task(task, 300, normalisation="none", progress=False, key=jax.random.key(0))


@pytest.fixture(scope="module")
def model() -> MergedAttention:
    import jax

    return MergedAttention.random(dim=2, heads=3, scale=1e-5, normalisation="none", key=jax.random.key(1))


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
    from stepwell.dynamics import descend

    growth, rate = Growth.of(moments), 1e-3
    run = descend(model.scaled(start), moments, rate=rate, steps=4000, record=5, snapshots=2, progress=False)
    measured = measured_onset(run["step"].values.astype(float), run["loss"].values[0], growth.fall)
    assert abs(measured - growth.onset(model.scaled(start), rate)) < growth.uncertainty(rate)
    assert abs(measured - growth.onset(model.scaled(1.05 * start), rate)) > growth.uncertainty(rate)


def test_an_onset_is_interpolated_exponentially():
    steps = np.arange(0.0, 300.0, 10.0)
    loss = 1 - 1e-6 * (np.exp(0.05 * steps) - 1)
    assert measured_onset(steps, loss, 0.5) == pytest.approx(np.log(PART * 0.5 / 1e-6) / 0.05, rel=1e-4)
    assert np.isnan(measured_onset(steps, np.ones_like(steps), 0.5))
