"""Several regressions at once, against their stated law."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.tasks import ContextLengths, MultiTaskRegression, random_rotation

KEY = jax.random.key(0)


def general_task(**changes) -> MultiTaskRegression:
    options = {
        "noise_variance": 0.3,
        "outputs": 3,
        "inputs_rotation": "random",
        "outputs_rotation": "random",
        "key": jax.random.key(5),
    } | changes
    return MultiTaskRegression((2, 3), (1.5, 0.5), 12, **options)


def relations(batch, dim):
    """G of each sequence, by least squares: labels are exactly linear in more tokens than dimensions."""
    x, y = np.asarray(batch.tokens[..., :dim]), np.asarray(batch.labels)
    return np.stack([np.linalg.lstsq(a, b, rcond=None)[0] for a, b in zip(x, y, strict=True)])


def test_the_default_is_the_first_figure_of_the_paper():
    task = MultiTaskRegression()
    assert (task.dims, task.strengths, task.noise_variance) == ((10, 10, 10), (1.0, 1.0, 1.0), 0.0)
    assert task.context.counts == (100,) and task.dim == 30 and task.outputs == 3
    batch = task.sample(2, key=KEY)
    assert batch.tokens.shape == (2, 101, 33) and batch.labels.shape == (2, 101, 3)


def test_the_relation_is_block_diagonal_in_the_given_bases_with_the_given_variances():
    task = general_task()
    found = relations(task.sample(4000, key=KEY), 5)
    turned = task.inputs_rotation.T @ found @ task.outputs_rotation
    blocks = np.zeros((5, 3), dtype=bool)
    blocks[:2, 0] = blocks[2:, 1] = True
    np.testing.assert_allclose(turned[:, ~blocks], 0.0, atol=1e-9)
    for rows, column, strength in ((slice(0, 2), 0, 1.5), (slice(2, 5), 1, 0.5)):
        g = turned[:, rows, column].reshape(-1)
        assert abs(g.var() - strength) < 5 * strength * np.sqrt(2 / g.size)


def test_noise_reaches_every_context_label_and_no_target():
    task = general_task()
    batch = task.sample(4000, key=KEY)
    noise = np.asarray(batch.tokens[:, :-1, 5:] - batch.labels[:, :-1]).reshape(-1, 3)
    spread = np.cov(noise.T)
    np.testing.assert_allclose(spread, 0.3 * np.eye(3), atol=5 * 0.3 * np.sqrt(2 / len(noise)))
    target = np.asarray(batch.labels[:, -1]) @ task.outputs_rotation
    np.testing.assert_allclose(target[:, 2], 0.0, atol=1e-12)


def test_a_total_strength_is_the_signal_power():
    task = MultiTaskRegression((2, 8), (1.0, 4.0), 5, convention="total", noise_variance=2.0)
    assert task.strengths == (0.5, 0.5)
    np.testing.assert_allclose(task.signals, [1.0, 4.0])
    np.testing.assert_allclose(task.noise_factors, [3.0, 1.5])
    target = np.asarray(task.sample(20_000, key=KEY).labels[:, -1]) ** 2
    error = target.std(axis=0) / np.sqrt(len(target))
    assert np.all(np.abs(target.mean(axis=0) - task.signals) < 5 * error)


@given(
    dims=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    beyond=st.integers(0, 2),
    rotated=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=5)
def test_labels_follow_one_relation_a_sequence_whatever_the_sizes(dims, beyond, rotated, seed):
    turn = "random" if rotated else "identity"
    task = MultiTaskRegression(
        dims,
        context=ContextLengths([1, sum(dims) + 2]),
        outputs=len(dims) + beyond,
        inputs_rotation=turn,
        outputs_rotation=turn,
        key=jax.random.key(seed),
    )
    batch = task.draw(3, key=jax.random.key(seed))
    found = relations(batch, task.dim)
    np.testing.assert_allclose(np.asarray(batch.tokens[..., : task.dim]) @ found, batch.labels, atol=1e-8)
    np.testing.assert_array_equal(batch.tokens[:, :-1, task.dim :], batch.labels[:, :-1])
    assert np.all(np.asarray(batch.tokens[:, -1, task.dim :]) == 0.0)


def test_a_shorter_sample_is_the_beginning_of_a_longer_one():
    task = general_task()
    whole = task.sample(3000, key=KEY)
    np.testing.assert_array_equal(task.sample(100, key=KEY).tokens, whole.tokens[:100])
    np.testing.assert_array_equal(np.concatenate([c.tokens for c in task.chunks(3000, key=KEY)]), whole.tokens)


def test_the_two_random_bases_of_a_key_are_not_the_same():
    task = MultiTaskRegression((1, 1), outputs=2, inputs_rotation="random", outputs_rotation="random", key=KEY)
    assert np.abs(task.inputs_rotation - task.outputs_rotation).max() > 0.01


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dims": ()}, "dims are empty"),
        ({"dims": (2, 0)}, "dimension of a task"),
        ({"strengths": (1.0, 1.0)}, "one for each task"),
        ({"strengths": 0.0}, "strength of a task"),
        ({"outputs": 2}, "an output of its own"),
        ({"noise_variance": -1.0}, "noise_variance"),
        ({"context": 0}, "context length"),
        ({"inputs_rotation": "random"}, "needs a key"),
        ({"inputs_rotation": np.eye(4)}, "must be (30, 30)"),
        ({"outputs_rotation": np.ones((3, 3))}, "not orthogonal"),
        ({"outputs_rotation": np.full((3, 3), np.nan)}, "not finite"),
        ({"outputs_rotation": "haar"}, "outputs_rotation"),
        ({"outputs_rotation": random_rotation}, "orthogonal matrix"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, words):
    with pytest.raises(InvalidInput) as refusal:
        MultiTaskRegression(**arguments)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
