"""Supervised tasks: closed-form moments against samples and against Gaussian quadrature."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.tasks import FeatureBatch, GaussianTeacher, GivenExamples, SupervisedMoments, polynomial_features

KEY = jax.random.key(0)


def test_features_are_products_of_the_entries_of_a_patch():
    x = np.random.default_rng(0).standard_normal((5, 6))
    for degree, patches in itertools.product((1, 2, 3), (1, 2, 3)):
        split = x.reshape(5, patches, -1)
        names = itertools.product(range(patches), *[range(6 // patches)] * degree)
        expected = np.stack([np.prod(split[:, patch, entries], axis=-1) for patch, *entries in names], axis=-1)
        np.testing.assert_allclose(polynomial_features(jnp.asarray(x), degree, patches), expected, rtol=1e-15)


def quadrature(task: GaussianTeacher, nodes: int = 7) -> FeatureBatch:
    """Examples with weights whose moments are those of the task to order 13: a product of Gauss-Hermite rules."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[points] * task.dim, indexing="ij"), axis=-1).reshape(-1, task.dim)
    mass = np.prod(np.meshgrid(*[weights / weights.sum()] * task.dim, indexing="ij"), axis=0).reshape(-1)
    x = grid * np.sqrt(task.variances)
    y = x[:, task.places] ** task.degree @ task.readout.T
    return FeatureBatch(jnp.asarray(x), jnp.asarray(y), jnp.asarray(mass))


@given(
    # Squares of the smallest numbers are zero, and the label's power is what allowances are relative to.
    strengths=st.lists(st.floats(-2.0, 2.0).filter(lambda s: s == 0 or abs(s) > 1e-100), min_size=1, max_size=2),
    variances=st.lists(st.floats(0.1, 3.0), min_size=4, max_size=4),
    teacher=st.sampled_from([1, 2, 3]),
    degree=st.sampled_from([1, 2, 3]),
    patches=st.sampled_from([1, 2]),
    separate=st.booleans(),
)
@settings(max_examples=20)
def test_moments_are_those_of_quadrature(strengths, variances, teacher, degree, patches, separate):
    task = GaussianTeacher(strengths, variances, degree=teacher, patches=patches, separate=separate)
    found = task.moments(degree, patches)
    expected = SupervisedMoments.of_examples(quadrature(task), degree=degree, patches=patches)
    size = np.abs(expected.gram).max()
    np.testing.assert_allclose(found.gram, expected.gram, rtol=1e-12, atol=1e-12 * size)
    np.testing.assert_allclose(
        found.cross, expected.cross, rtol=1e-12, atol=1e-12 * (size * expected.label_power) ** 0.5
    )
    np.testing.assert_allclose(found.label_power, expected.label_power, rtol=1e-12)


def test_examples_have_the_labels_of_the_teacher():
    task = GaussianTeacher([2.0, 1.0], [1.0, 4.0, 1.0, 4.0], degree=2, patches=2)
    batch = task.examples(20_000, key=KEY)
    x = np.asarray(batch.features)
    np.testing.assert_allclose(batch.labels[:, 0], 2 * x[:, 0] ** 2 + x[:, 3] ** 2, rtol=1e-14)
    np.testing.assert_allclose(x.var(axis=0), task.variances, rtol=5 * (2 / 20_000) ** 0.5)


def test_given_examples_are_all_there_are():
    batch = FeatureBatch(jnp.eye(2), jnp.array([[1.0], [-1.0]]))
    task = GivenExamples(batch)
    assert task.examples() is batch and (task.dim, task.outputs) == (2, 1)
    np.testing.assert_allclose(task.moments(2).cross, [[0.5, 0.0, 0.0, -0.5]])
    with pytest.raises(InvalidInput, match="count is 3; the data set has 2 examples"):
        task.examples(3, key=KEY)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strengths": [1.0, 1.0, 1.0], "variances": [1.0, 1.0]}, "from 1 to 2 directions"),
        ({"strengths": [1.0], "variances": [1.0, 0.0]}, "above 0"),
        ({"strengths": [1.0], "variances": [1.0] * 3, "patches": 2}, "cannot be cut into 2 patches"),
    ],
)
def test_what_is_no_teacher_is_refused(given, words):
    with pytest.raises(InvalidInput, match=words):
        GaussianTeacher(**given)


def test_infinitely_many_examples_are_not_drawn():
    with pytest.raises(InvalidInput, match="give count"):
        GaussianTeacher([1.0], [1.0]).examples()


@pytest.mark.parametrize(
    ("gram", "cross", "power", "match"),
    [
        ([[1.0, 0.5], [0.4, 1.0]], [[0.1, 0.1]], 1.0, "not symmetric"),
        ([[-1.0, 0.0], [0.0, 1.0]], [[0.0, 0.1]], 1.0, "same examples"),
        ([[1.0, 0.0], [0.0, 1.0]], [[0.8, 0.0], [0.7, 0.0]], 1.0, "same examples"),
        ([[1.0, 0.0], [0.0, 0.0]], [[0.5, 0.1]], 1.0, "same examples"),
        ([[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0]], -1.0, "same examples"),
    ],
)
def test_moments_of_nothing_are_refused(gram, cross, power, match):
    with pytest.raises(InvalidInput, match=match):
        SupervisedMoments(np.array(cross), np.array(gram), power)
