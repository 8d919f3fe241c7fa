"""How far a run to convergence has come is said by the levels of the loss that it has passed."""

import jax.numpy as jnp
import numpy as np
import pytest

import stepwell as sw
from stepwell.dynamics._plan import Plan
from stepwell.theory import linear

TASK = sw.InContextRegression(sw.covariance([1.0, 0.1, 0.01]), 31)
MODEL = sw.SeparateAttention.aligned(jnp.eye(3), heads=3, scale=0.1)


def _plan(until, levels):
    last = float(linear.levels(TASK)[-1])
    return Plan(
        until=until,
        targets=None if until else np.array([last + 1e-9]),
        starts=None if until else np.array([1.11]),
        record=sw.Record(points=2),
        rtol=1e-6,
        atol=1e-6,
        patience=np.inf,
        progress=False,
        levels=levels,
    )


def test_the_plateaus_of_the_population_are_the_levels_of_the_theory():
    np.testing.assert_allclose(np.asarray(sw.Population(TASK).plateaus(MODEL), float), linear.levels(TASK), rtol=1e-9)
    one = sw.SeparateAttention.aligned(jnp.eye(3), heads=1, scale=0.1)
    np.testing.assert_allclose(np.asarray(sw.Population(TASK).plateaus(one), float), linear.levels(TASK)[:2], rtol=1e-9)


def test_each_level_counts_the_same():
    levels = linear.levels(TASK)
    plan = _plan(None, levels)
    assert [plan.done(level, 1.0) for level in levels[:3]] == pytest.approx([0, 1 / 3, 2 / 3], abs=1e-9)
    assert plan.done(2.0, 1.0) == 0.0
    assert plan.note(float(levels[1]), 5.0).endswith("1 of 3 levels passed")
    # On the last plateau, and not converged: not yet all.
    assert plan.done(float(levels[-1]) + 1e-6, 1.0) == 0.99 and plan.done(float(levels[-1]), 1.0) == 1.0


def test_without_levels_the_loss_counts_and_to_a_time_the_time():
    assert 0.4 < _plan(None, None).done(0.6, 1.0) < 0.6
    assert _plan(10.0, None).done(0.6, 2.5) == 0.25
    assert "levels" not in _plan(10.0, None).note(0.6, 2.5)
