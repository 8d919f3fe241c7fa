"""Ensembles at infinitely many sequences, which descend natively, against their runs one by one and a textbook loop."""

import jax
import numpy as np
import optax
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble, Record, descend
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance

TASK = InContextRegression(covariance([0.5, 0.3, 0.2], key=jax.random.key(0)), 7, noise_variance=0.1)
OTHER = InContextRegression(covariance([0.7, 0.2, 0.1]), 9, task_covariance=np.diag([1.0, 2.0, 3.0]))
OPTIONS = {"steps": 30, "progress": False}
THIRD = Record(every=3, snapshots=3)


def models(rank=1):
    return [
        SeparateAttention.random(dim=3, heads=2, rank=rank, scale=scale, key=jax.random.key(seed))
        for seed in range(3)
        for scale in (0.3, 0.6)
    ]


def by_loop(model, objective, rate, steps):
    gradient = jax.jit(jax.value_and_grad(objective))
    losses = []
    for _ in range(steps + 1):
        loss, slope = gradient(model)
        losses.append(float(loss))
        model = jax.tree.map(lambda w, g: w - rate * g, model, slope)
    return losses


@pytest.mark.parametrize("basis", ["given", "eigen"])
@pytest.mark.parametrize("rank", [1, 2])
def test_an_ensemble_in_population_is_its_runs(basis, rank):
    """For two heads of rank one or two: the latter have more pairs than dimensions."""
    objective = Population(TASK, basis=basis)
    members = models(rank)
    rates = np.linspace(0.05, 0.2, len(members))
    together = descend(Ensemble.of(members), objective, rate=rates, record=THIRD, **OPTIONS)
    for run in (0, 3):
        alone = descend(members[run], objective, rate=float(rates[run]), record=THIRD, **OPTIONS)
        for name in ("loss", "value", "key", "query"):
            np.testing.assert_allclose(together[name][run], alone[name][0], rtol=1e-12, atol=1e-15)
        losses = by_loop(members[run], objective, rates[run], 30)
        np.testing.assert_allclose(alone["loss"][0], losses[::3], rtol=1e-12)


def test_each_run_may_have_its_own_task_and_optimizer_state():
    members = models()
    tasks = [TASK, OTHER] * 3
    record = Record(every=3, snapshots=3, observe={"first": lambda model: model.query[0, 0]})
    together = descend(
        Ensemble.of(members),
        Ensemble.of([Population(task) for task in tasks]),
        optimizer=optax.adam(0.01),
        record=record,
        **OPTIONS,
    )
    for run in (1, 4):
        alone = descend(members[run], Population(tasks[run]), optimizer=optax.adam(0.01), record=record, **OPTIONS)
        for name in ("loss", "first", "query"):
            np.testing.assert_allclose(together[name][run], alone[name][0], rtol=1e-11)


def test_one_bad_member_among_good_ones_is_refused():
    good = [MergedAttention.random(dim=3, heads=2, scale=0.1, key=jax.random.key(seed)) for seed in range(3)]
    bad = MergedAttention.random(dim=3, heads=2, scale=0.1, label_blocks="random", key=jax.random.key(3))
    with pytest.raises(InvalidInput, match="label blocks"):
        descend(Ensemble.of([*good, bad]), Population(TASK), rate=0.1, **OPTIONS)


def test_label_blocks_that_are_zero_in_every_member_are_not_refused():
    """Here the score of labels is zero for another reason in each: no key there, or no query."""
    one, other = models()[:2]
    key = np.array(other.key)
    key[:, :, 3] = 1.0
    queryless = other.with_weights({"value": other.value, "key": key, "query": 0 * other.query})
    found = descend(Ensemble.of([one, queryless]), Population(TASK), rate=0.1, **OPTIONS)
    assert found.sizes["run"] == 2
