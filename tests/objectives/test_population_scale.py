"""The population loss without effective maps, and in the eigenbasis, against the formula that has them."""

import equinox as eqx
import jax
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble, Record, descend
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import ContextLengths, InContextRegression, covariance, population_moments, random_rotation
from stepwell.trajectory import model_at

KEY = jax.random.key(0)


def by_formula(model, task):
    """The loss and its gradient with respect to every weight, by way of the maps."""
    moments = population_moments(task, model.normalization)
    lam, m, c = moments.input, moments.cross, moments.second
    maps, own = np.asarray(model.effective_map()), np.eye(task.outputs)[:, :, None, None]
    loss = moments.label_power + np.sum(maps * (c @ maps @ lam) - 2 * own * maps * (m @ lam)) / task.outputs
    slope = 2 * (c @ maps @ lam - own * (m @ lam)) / task.outputs
    weights = {name: np.asarray(weight) for name, weight in model.weights().items()}
    gradient = {name: np.zeros_like(weight) for name, weight in weights.items()}
    dim = model.dim
    values = weights["value"][..., dim:]
    if isinstance(model, SeparateAttention):
        keys, queries = weights["key"][..., :dim], weights["query"]
        gradient["value"][..., dim:] = np.einsum("hri,opij,hrj->hop", keys, slope, queries)
        gradient["key"][..., :dim] = np.einsum("hop,opij,hrj->hri", values, slope, queries)
        gradient["query"][:] = np.einsum("hop,opij,hri->hrj", values, slope, keys)
    else:
        gradient["value"][..., dim:] = np.einsum("hij,opij->hop", weights["key_query"][:, :dim], slope)
        gradient["key_query"][:, :dim] = np.einsum("hop,opij->hij", values, slope)
    return loss, model.with_weights(gradient)


@eqx.filter_jit
def compiled(objective, model):
    return eqx.filter_value_and_grad(lambda model: objective(model))(model)


def vector(model):
    return np.concatenate([np.asarray(weight).reshape(-1) for weight in model.weights().values()])


def separate(dim, **options):
    return SeparateAttention.random(**({"dim": dim, "heads": 2, "scale": 0.3, "key": KEY} | options))


def task_of(dim, kind, *, outputs=1, lengths: int | ContextLengths = 7):
    """Λ and Ω along the axes, along common other directions, or each along directions of its own."""
    turn = np.eye(dim) if kind == "axes" else random_rotation(dim, key=jax.random.key(dim))
    other = random_rotation(dim, key=jax.random.key(99)) if kind == "own" else turn
    return InContextRegression(
        covariance(np.linspace(1.0, 0.3, dim), turn),
        lengths,
        task_covariance=covariance(np.linspace(0.5, 2.0, dim), other),
        noise_variance=0.2,
        outputs=outputs,
    )


@pytest.mark.parametrize(
    ("dim", "heads", "rank", "outputs", "kind"),
    [
        (1, 1, 1, 1, "axes"),
        (4, 4, 1, 1, "common"),
        (3, 4, 2, 2, "own"),
        (32, 2, 2, 1, "own"),
        (33, 3, 1, 2, "common"),
        (34, 1, 3, 2, "own"),
        (40, 2, 3, 1, "axes"),
        (32, 16, 2, 1, "common"),
    ],
)
def test_values_and_gradients_are_those_of_the_formula(dim, heads, rank, outputs, kind):
    task = task_of(dim, kind, outputs=outputs, lengths=ContextLengths([3, 8]))
    model = separate(dim, heads=heads, rank=rank, outputs=outputs, scale=0.8)
    given, eigen = Population(task), Population(task, basis="eigen")
    eigen.check(eigen.rotated(model))
    loss, slope = by_formula(model, task)
    found, gradient = compiled(given, model)
    rotated, rotated_gradient = compiled(eigen, eigen.rotated(model))
    np.testing.assert_allclose([found, rotated], loss, rtol=1e-12)
    for each in (gradient, eigen.rotated(rotated_gradient, back=True)):
        assert np.abs(vector(each) - vector(slope)).max() < 1e-12 * np.abs(vector(slope)).max()
    assert eigen.floor(model) == pytest.approx(given.floor(model), rel=1e-9)


@pytest.mark.parametrize("kind", ["axes", "own"])
def test_merged_attention_has_the_loss_of_the_formula_in_either_basis(kind):
    task = task_of(4, kind, outputs=2)
    model = MergedAttention.random(dim=4, heads=3, outputs=2, scale=0.8, key=KEY)
    eigen = Population(task, basis="eigen")
    vectors = np.asarray(eigen.directions)
    key_query = np.array(model.key_query)
    key_query[:, :4] = vectors.T @ key_query[:, :4] @ vectors
    loss, slope = by_formula(model, task)
    found, gradient = compiled(Population(task), model)
    rotated, _ = compiled(eigen, model.with_weights({"value": model.value, "key_query": key_query}))
    np.testing.assert_allclose([found, rotated], loss, rtol=1e-12)
    assert np.abs(vector(gradient) - vector(slope)).max() < 1e-12 * np.abs(vector(slope)).max()


@pytest.mark.parametrize("kind", ["axes", "common", "own"])
def test_one_value_in_256_dimensions(kind):
    task, n = task_of(256, kind), 7
    model = separate(256, heads=4)
    v, k, q = (np.asarray(w) for w in (model.value[:, 0, 256], model.key[:, 0, :256], model.query[:, 0]))
    lam, omega = task.covariance, task.task_covariance
    power = np.trace(omega @ lam)
    second = (1 + 1 / n) * lam @ omega @ lam + (power + 0.2) / n * lam
    a = (k * v[:, None]).T @ q
    expected = power - 2 * np.sum(a * (lam @ omega @ lam)) + np.sum(a * (second @ a @ lam))
    eigen = Population(task, basis="eigen")
    np.testing.assert_allclose(compiled(Population(task), model)[0], expected, rtol=1e-12)
    np.testing.assert_allclose(compiled(eigen, eigen.rotated(model))[0], expected, rtol=1e-12)
    # Of commuting moments the diagonals are kept; otherwise of Λ alone.
    kept = [moment.ndim for moment in (eigen._input, eigen._drive, eigen._second)]
    assert kept == ([1, 2, 2] if kind == "own" else [1, 1, 1])
    if kind == "axes":
        np.testing.assert_array_equal(vector(eigen.rotated(model)), vector(model))


@pytest.mark.parametrize("basis", ["given", "eigen"])
def test_no_array_of_the_size_of_a_map_is_computed(basis):
    objective = Population(task_of(64, "common"), basis=basis)
    model = separate(64, rank=2)
    traced = jax.make_jaxpr(jax.grad(objective))(model)
    # A moment may be transposed: that computes nothing.
    sizes = [e.outvars[0].aval.size for e in traced.eqns if e.primitive.name != "transpose"]  # pyright: ignore
    assert max(sizes) == 4 * 65


def test_descent_in_the_eigenbasis_is_descent_rotated():
    task = task_of(33, "common")
    model = separate(33, heads=3, scale=0.1)
    eigen = Population(task, basis="eigen")
    options = {"rate": 0.01, "steps": 200, "record": Record(every=10), "progress": False}
    one, other = descend(model, Population(task), **options), descend(eigen.rotated(model), eigen, **options)
    np.testing.assert_allclose(other["loss"], one["loss"], rtol=1e-10)
    end = eigen.rotated(model_at(other, model), back=True)
    np.testing.assert_allclose(end.query, model_at(one, model).query, rtol=1e-8, atol=1e-10)


def test_objectives_of_different_covariances_make_an_ensemble():
    tasks = [task_of(3, kind) for kind in ("axes", "common", "own")]
    models = [separate(3, key=jax.random.key(seed)) for seed in range(3)]
    together = descend(Ensemble.of(models), Ensemble.of([Population(task) for task in tasks]), rate=0.05, steps=5)
    expected = [by_formula(model, task)[0] for model, task in zip(models, tasks, strict=True)]
    np.testing.assert_allclose(together.loss[:, 0], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Population(task_of(2, "axes")).rotated(separate(2)), "basis='eigen'"),
        (lambda: Population(task_of(2, "axes"), basis="eigen").rotated(separate(3)), "of dimension 2"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, words):
    with pytest.raises(InvalidInput) as refusal:
        call()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
