"""A run made again from its file is the same run."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import stepwell as sw
from stepwell._errors import InvalidInput
from stepwell.tasks import ContextLengths

TASK = sw.InContextRegression(sw.covariance([1.0, 0.5, 0.25], key=jax.random.key(5)), ContextLengths([5, 10], [3, 1]))
MODEL = sw.SeparateAttention.random(dim=3, heads=2, scale=0.3, key=jax.random.key(0))
OTHER = sw.SeparateAttention.random(dim=3, heads=2, scale=0.3, key=jax.random.key(1))
KEY = jax.random.key(2)


def _descend(model, objective, **options):
    return sw.descend(model, objective, **{"rate": 0.05, "steps": 30, "progress": False} | options)


RUNS = {
    "population": lambda: _descend(MODEL, sw.Population(TASK)),
    "eigenvectors": lambda: _descend(MODEL, sw.Population(TASK, basis="eigen")),
    "moments": lambda: _descend(MODEL, sw.Moments.of_task(TASK, 40, progress=False, key=KEY)),
    "moments of a batch": lambda: _descend(MODEL, sw.Moments.of_batch(TASK.sample(40, key=KEY))),
    "sampled": lambda: _descend(MODEL, sw.Sampled(TASK.sample(20, key=KEY)), configuration={"note": "why"}),
    "ensemble": lambda: _descend(sw.Ensemble.of([MODEL, OTHER]), sw.Population(TASK), rate=[0.05, 0.02]),
    "adam": lambda: _descend(MODEL, sw.Population(TASK), optimiser="adam", rate=0.01),
    "some steps": lambda: _descend(MODEL, sw.Population(TASK), record=7, snapshots=[3, 9], start=4),
    "online": lambda: sw.online(MODEL, TASK, batch=8, rate=0.05, steps=20, progress=False, key=KEY),
    "flow": lambda: sw.flow(MODEL, sw.Population(TASK), progress=False),
    "flow to a time": lambda: sw.flow(MODEL, sw.Population(TASK), until=3.0, save=7, spacing="log", progress=False),
    "flow at times": lambda: sw.flow(MODEL, sw.Population(TASK), until=3.0, save=np.array([0.0, 3.0]), progress=False),
}


@pytest.mark.parametrize("name", RUNS)
def test_bit_for_bit(name: str, tmp_path):
    run = RUNS[name]()
    again = sw.rerun(sw.save(run, tmp_path / "run.nc"), progress=False)
    assert again.identical(run)


def test_a_file_of_the_command_line(tmp_path, capsys):
    from stepwell.cli import main

    assert main(["train", "--in_dim", "2", "--epoch", "20", "--trainset_size", "50", "--out", str(tmp_path)]) == 0
    (file,) = tmp_path.glob("*.nc")
    assert sw.rerun(file).identical(sw.load(file))


@pytest.mark.parametrize(
    ("options", "words", "given"),
    [
        ({"rate": optax.cosine_decay_schedule(0.1, 30)}, "was the schedule", "rate"),
        ({"rate": None, "optimiser": optax.sgd(0.1)}, "an object of optax", "optimiser"),
    ],
)
def test_what_a_file_does_not_hold_has_to_be_given(options, words, given):
    run = _descend(MODEL, sw.Population(TASK), **options)
    with pytest.raises(InvalidInput, match=words):
        sw.rerun(run, progress=False)
    np.testing.assert_array_equal(sw.rerun(run, progress=False, **{given: options[given]})["loss"], run["loss"])


def test_sequences_from_elsewhere_have_to_be_given():
    batch = sw.tasks.Batch(jnp.ones((400, 6, 4)), jnp.ones((400, 6, 1)))
    run = _descend(MODEL, sw.Sampled(batch), rate=0.001)
    with pytest.raises(InvalidInput, match="does not hold all of Batch.tokens"):
        sw.rerun(run)
    assert sw.rerun(run, objective=sw.Sampled(batch), progress=False).identical(run)
