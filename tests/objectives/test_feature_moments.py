"""Moments of features against the loss over examples, and levels against the ends of flows of narrow networks."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import flow
from stepwell.models import ActivationUnits, PolynomialUnits
from stepwell.objectives import FeatureMoments, Moments, Population, Sampled
from stepwell.tasks import FeatureBatch, GaussianTeacher, InContextRegression, SupervisedMoments

KEY = jax.random.key(0)


def examples(dim: int = 6, outputs: int = 2, count: int = 40) -> FeatureBatch:
    rng = np.random.default_rng(3)
    weights = rng.uniform(size=count)
    x, y = rng.standard_normal((count, dim)), rng.standard_normal((count, outputs))
    return FeatureBatch(jnp.asarray(x), jnp.asarray(y), jnp.asarray(weights / weights.sum()))


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("patches", [1, 2])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_loss_and_gradient_are_those_over_the_examples(degree: int, patches: int, reduce: Any):
    batch = examples()
    moments = FeatureMoments(SupervisedMoments.of_examples(batch, degree=degree, patches=patches), reduce=reduce)
    sizes: Any = {"dim": 6, "units": 3, "outputs": 2, "scale": 0.5, "key": KEY}
    model = PolynomialUnits.random(**sizes, degree=degree, patches=patches)
    moments.check(model)
    value_and_gradient = eqx.filter_value_and_grad(lambda model, loss: loss(model))
    loss, gradient = value_and_gradient(model, moments)
    expected, by_examples = value_and_gradient(model, Sampled(batch, reduce))
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(by_examples), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)


def tasks() -> dict[str, Any]:
    """Moments of correlated inputs, and of patches; with the outputs and patches of their networks."""
    rng = np.random.default_rng(5)
    root = rng.standard_normal((3, 3))
    teacher = rng.standard_normal((2, 3))
    gram = root @ root.T + 0.1 * np.eye(3)
    dense = SupervisedMoments(teacher @ gram, gram, float(np.trace(teacher @ gram @ teacher.T)) + 0.3)
    patched = GaussianTeacher([1.0, 0.6], [1.5, 1.0] * 2, patches=2).moments(patches=2)
    return {"dense": (dense, 3, 2, 1), "patches": (patched, 4, 1, 2)}


@pytest.mark.parametrize("name", ["dense", "patches"])
def test_levels_are_the_ends_of_narrow_networks(name: str):
    """A network of r units from small weights ends at the level of rank r, of which the solver's target is 1e-8."""
    moments, dim, outputs, patches = tasks()[name]
    objective = FeatureMoments(moments)
    wide = PolynomialUnits.random(dim=dim, units=5, outputs=outputs, patches=patches, scale=0.1, key=KEY)
    levels = objective.plateaus(wide)
    assert levels is not None and len(levels) == 3 and objective.floor(wide) == levels[-1]
    for rank in (1, 2):
        narrow = PolynomialUnits.random(dim=dim, units=rank, outputs=outputs, patches=patches, scale=0.1, key=KEY)
        run = flow(narrow, objective, until=400.0, rtol=1e-8, progress=False)
        np.testing.assert_allclose(float(run["loss"][0, -1]), levels[rank], rtol=1e-7, atol=1e-9)
        assert objective.floor(narrow) == pytest.approx(levels[rank], rel=1e-14, abs=1e-14)


def test_a_flow_knows_when_a_linear_network_has_converged():
    moments, dim, outputs, patches = tasks()["dense"]
    model = PolynomialUnits.random(dim=dim, units=10, outputs=outputs, patches=patches, scale=1e-4, key=KEY)
    run = flow(model, FeatureMoments(moments), progress=False)
    assert run.attrs["outcome"] == "converged"
    np.testing.assert_allclose(float(run["loss"][0, -1]), 0.3, rtol=1e-3)


def test_levels_that_are_not_known_are_not_given():
    correlated = FeatureMoments(GaussianTeacher([1.0], [1.0, 1.0, 2.0, 1.0], patches=2).moments(patches=2))
    model = PolynomialUnits.random(dim=4, units=3, patches=2, scale=0.1, key=KEY)
    assert correlated.plateaus(model) is None and correlated.floor(model) is None
    squares = FeatureMoments(GaussianTeacher([1.0], [1.0, 1.0], degree=2).moments(2))
    assert squares.floor(PolynomialUnits.random(dim=2, units=3, degree=2, scale=0.1, key=KEY)) is None


def test_quadratic_networks_end_where_phase_retrieval_does():
    """With h directions of white Gaussian inputs learned the loss is $2 \\sum_{out} \\lambda^2 + 2 (\\sum_{out}
    \\lambda)^2/(2+h)$, over those that are not."""
    lam = np.array([0.5, 0.3, 0.15])
    objective = FeatureMoments(GaussianTeacher(lam, np.ones(3), degree=2).moments(2))
    for units in (1, 2, 3):
        out = lam[units:]
        expected = 2 * np.sum(out**2) + 2 * out.sum() ** 2 / (2 + units)
        model = PolynomialUnits.random(dim=3, units=units, degree=2, scale=0.1, key=jax.random.key(1))
        model = model.with_weights({"outer": jnp.abs(model.outer), "inner": model.inner})
        run = flow(model, objective, until=3000.0, rtol=1e-8, progress=False)
        np.testing.assert_allclose(float(run["loss"][0, -1]), expected, rtol=1e-6, atol=1e-9)


def test_other_models_and_sizes_are_refused():
    moments = FeatureMoments(GaussianTeacher([1.0], [1.0, 1.0]).moments())
    with pytest.raises(InvalidInput, match="not known to be a polynomial of its input"):
        moments.check(ActivationUnits.random(dim=2, units=2, scale=0.1, key=KEY))
    with pytest.raises(InvalidInput, match="the model has degree 2, 1 patches, 1 outputs and 4 features"):
        moments.check(PolynomialUnits.random(dim=2, units=2, degree=2, scale=0.1, key=KEY))
    network = PolynomialUnits.random(dim=2, units=2, scale=0.1, key=KEY)
    task = InContextRegression(np.eye(2), 5)
    for other in (Population(task), Moments.of_task(task, 100, progress=False, key=KEY)):
        with pytest.raises(InvalidInput, match="not known to be linear in features"):
            other.check(network)
