"""What is kept of a training: one object, with one meaning in all dynamics."""

import dataclasses
import pickle

import jax
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble, Interrupted, Record, RunFailed, descend, flow, online
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression

TASK = InContextRegression(np.diag([0.6, 0.4]), 6)
MODEL = SeparateAttention.random(dim=2, heads=2, scale=0.3, key=jax.random.key(0))
LOSS = Population(TASK)
TRAININGS = {
    "descend": lambda **how: descend(MODEL, LOSS, rate=0.1, steps=90, progress=False, **how),
    "online": lambda **how: online(
        MODEL, TASK, batch_size=4, rate=0.1, steps=90, progress=False, key=jax.random.key(1), **how
    ),
    "flow": lambda **how: flow(MODEL, LOSS, until=9.0, progress=False, **how),
    "ensemble": lambda **how: flow(Ensemble.of([MODEL, MODEL]), LOSS, until=9.0, progress=False, **how),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_points_and_snapshots_are_counted_alike(name):
    """Ten points are ten points, and four snapshots four of these, with the weights of a run that keeps all."""
    record = Record(points=10, snapshots=4, observe={"first": lambda model: model.query[0, 0, 0]})
    run = TRAININGS[name](record=record)
    every = TRAININGS[name](record=dataclasses.replace(record, snapshots=10))
    axis = "time" if name in ("flow", "ensemble") else "step"
    assert run.sizes[axis] == 10 and run.sizes["snapshot"] == 4 and run["loss"].dims == run["first"].dims
    assert run["snapshot"].values.tolist() == run[axis].values[[0, 3, 6, 9]].tolist()
    np.testing.assert_array_equal(run["query"], every["query"].values[:, [0, 3, 6, 9]])
    np.testing.assert_array_equal(run["query"].values[:, :, 0, 0, 0], run["first"].values[:, [0, 3, 6, 9]])


def test_listed_snapshots_of_a_flow_are_at_the_next_points():
    run = TRAININGS["flow"](record=Record(points=[0.0, 1.0, 4.0, 9.0], snapshots=[0.5, 9.0]))
    assert run["time"].values.tolist() == [0, 1, 4, 9] and run["snapshot"].values.tolist() == [0, 1, 9]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Record(points=1), "points"),
        (lambda: Record(points=[3, 2]), "rising"),
        (lambda: Record(points=[]), "rising"),
        (lambda: Record(points=[-1.0, 2.0]), "from 0 on"),
        (lambda: Record(snapshots=1), "snapshots"),
        (lambda: Record(every=0), "every"),
        (lambda: Record(every=2, points=5), "give either"),
        (lambda: Record(points=[0, 2], spacing="log"), "no spacing"),
        (lambda: TRAININGS["flow"](record=Record(every=2)), "a flow has times"),
        (lambda: TRAININGS["descend"](record=Record(spacing="steps")), "linear"),
        (lambda: TRAININGS["online"](record=Record(points=[0, 91])), "from 0 to 90"),
        (lambda: TRAININGS["descend"](record=Record(points=[0, 1.5])), "recorded step"),
        (lambda: TRAININGS["flow"](record=Record(points=[0.0, 10.0])), "after the end"),
    ],
)
def test_what_cannot_be_used_is_refused(make, words):
    with pytest.raises(InvalidInput, match=words) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_two_points_spaced_by_log_are_the_ends():
    assert Record(points=2, spacing="log").times(5.0).tolist() == [0, 5]
    assert Record(points=2, spacing="log").steps(7).tolist() == [0, 7]


@pytest.mark.parametrize("kind", [RunFailed, Interrupted])
def test_failures_pass_between_processes_with_their_trajectory(kind):
    run = TRAININGS["descend"]()
    again = pickle.loads(pickle.dumps(kind("why", run)))
    assert str(again) == "why" and again.trajectory.identical(run)
