"""Drops of networks of units, predicted and measured."""

import jax
import numpy as np
import pytest

from stepwell.analysis import compare
from stepwell.dynamics import Ensemble, flow
from stepwell.models import PolynomialUnits
from stepwell.objectives import FeatureMoments, Sampled
from stepwell.tasks import GaussianTeacher, GivenExamples


@pytest.mark.parametrize("together", [False, True], ids=["one run", "an ensemble"])
@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_times_and_levels_are_those_of_the_loss(reduce, together):
    """Of which the mean over three outputs is a third of the sum, and falls three times as slowly."""
    task = GaussianTeacher([1.0, 0.6, 0.3], [1.0, 1.0, 1.0], separate=True)
    batch = task.examples(50, key=jax.random.key(1))
    model = PolynomialUnits.random(dim=3, outputs=3, units=10, scale=1e-3, key=jax.random.key(0))
    loss = Sampled(batch, reduce)
    pair = (Ensemble.of([model, model]), Ensemble.of([loss, loss])) if together else (model, loss)
    run = flow(*pair, until=120.0, rtol=1e-9, progress=False)
    table = compare(run, GivenExamples(batch)).table
    assert len(table) == (6 if together else 3) and np.all(table["status"] == "measured")
    # Recorded points are 1 % apart in time, and the loss between them is interpolated.
    np.testing.assert_allclose(table["measured"], table["predicted"], rtol=1e-3)
    np.testing.assert_allclose(table["level"][0], table["measured_level"][0], rtol=0.1)


def test_a_unit_is_judged_by_its_part_of_the_map():
    """|v||u|² of quadratic units: here that of the second, whose |v||u| is less than that of the first."""
    task = GaussianTeacher([0.5], [1.0], degree=2)
    model = PolynomialUnits.random(dim=1, units=2, degree=2, scale=1e-2, key=jax.random.key(0))
    run = flow(model, FeatureMoments(task.moments(2)), until=1000.0, progress=False)
    grown = run["outer"].values[..., 0, 0], run["inner"].values[..., 0]
    for values, last in zip(grown, ([1.0, 0.3], [1.0, 3.0]), strict=True):
        values[:, run["time"].values > 45.0] = last  # the drop is at 44.9
    table = compare(run, task).table
    assert table["measured_head"].tolist() == [2]
