"""Every kernel as the library calls it, at every level of the processor, against plain JAX or NumPy.

Sizes are few, and do not fill tiles and vectors: the tests in C have many, at every level, and so have those of each
objective, with kernels for the processor at hand.
"""

import functools

import equinox as eqx
import jax
import numpy as np
import pytest
from traces import traced_as

from stepwell import native
from stepwell.dynamics import Ensemble, Record, descend, flow
from stepwell.dynamics.fast import gradient_form
from stepwell.models import MergedAttention, SeparateAttention, SpectralAttention
from stepwell.native import _kernels
from stepwell.native._processor import levels
from stepwell.objectives import Population, ReducedSampled, Sampled
from stepwell.tasks import InContextRegression, MultiTaskRegression
from stepwell.tasks._random import standard_normals

KEY = jax.random.key(3)
RTOL = {"float64": 1e-11, "float32": 3e-6}
VECTORS = {"avx512": 64, "avx2": 32, "baseline": 16}


@pytest.fixture(params=levels())
def level(request, monkeypatch: pytest.MonkeyPatch):
    """Kernels of this level until the end of the test."""
    monkeypatch.setenv("STEPWELL_NATIVE", request.param)
    _kernels.state.cache_clear()
    with traced_as(request.param):
        yield request.param
    _kernels.state.cache_clear()


def plain(call):
    """The result without kernels, found once for all levels."""

    @functools.cache
    def found(*arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("STEPWELL_NATIVE", "off")
            _kernels.state.cache_clear()
            with traced_as("off"):
                result = call(*arguments)
        _kernels.state.cache_clear()
        return result

    return found


def assert_near(found, expected, rtol: float):
    """To the largest entry of all: small ones are differences of large ones."""
    scale = max(float(np.abs(part).max()) for part in jax.tree.leaves(expected))
    for ours, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=rtol * scale)


def test_vectors_are_those_of_the_level(level: str):
    for name, elements in _kernels.KERNELS.items():
        for element in elements:
            kernel = native.kernel(name, element)
            assert kernel is not None and kernel.vector_bytes == VECTORS[level]


@eqx.filter_jit
def value_and_gradient(objective, model):
    return eqx.filter_value_and_grad(objective)(model)


def softmax_case(heads, dim, precision):
    task = InContextRegression(np.eye(dim), 3 + dim, noise_variance=0.1)
    batch = task.sample(5 + 4 * heads, key=KEY)
    model = MergedAttention.random(dim=dim, heads=heads, scale=0.5, activation="softmax", key=KEY)
    return Sampled(batch, precision=precision), model


@plain
def plain_softmax(heads, dim):
    return value_and_gradient(*softmax_case(heads, dim, "float64"))


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize(("heads", "dim"), [(1, 1), (5, 6)])
def test_softmax_attention(level, heads, dim, precision):
    expected = plain_softmax(heads, dim)
    objective, model = softmax_case(heads, dim, precision)
    fused = gradient_form(objective, model)
    assert fused is not objective
    assert_near(value_and_gradient(fused, model), expected, RTOL[precision])


def reduced_case(heads, tasks, precision):
    task = MultiTaskRegression((3,) * tasks, np.linspace(0.5, 2.0, tasks), 7, noise_variance=0.5)
    rng = np.random.default_rng(heads)
    shape = heads, tasks
    model = SpectralAttention.balanced(0.3 * rng.random(shape), 0.2 + rng.random(shape), task.dims)
    return ReducedSampled(task, 37, precision=precision, key=KEY), model


@plain
def plain_reduced(heads, tasks):
    return value_and_gradient(*reduced_case(heads, tasks, "float64"))


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_reduced_sequences(level, precision):
    heads, tasks = 5, 3
    expected = plain_reduced(heads, tasks)
    objective, model = reduced_case(heads, tasks, precision)
    fused = gradient_form(objective, model)
    assert fused is not objective
    # Single precision leaves sums of squares and products six digits, of which differences keep four.
    assert_near(value_and_gradient(fused, model), expected, 1e-11 if precision == "float64" else 1e-4)


def separate(dim, seed):
    return SeparateAttention.random(dim=dim, heads=3, rank=2, scale=0.3, key=jax.random.key(seed))


def population_runs(dim, runs):
    objective = Population(InContextRegression(np.diag(np.linspace(1.0, 0.4, dim)), 9, noise_variance=0.2))
    models = Ensemble.of([separate(dim, seed) for seed in range(runs)])
    return descend(models, objective, rate=0.02, steps=50, record=Record(every=50, snapshots=2), progress=False)


plain_population_runs = plain(population_runs)


@pytest.mark.parametrize(("dim", "runs"), [(3, 1), (5, 11)])
def test_descent_in_population(level, dim, runs):
    expected, found = plain_population_runs(dim, runs), population_runs(dim, runs)
    for name in ("loss", "value", "key", "query"):
        assert_near(found[name].values, expected[name].values, 1e-12)


def population_flow(dim, runs):
    objective = Population(InContextRegression(np.diag(np.linspace(1.0, 0.4, dim)), 9, noise_variance=0.2))
    models = separate(dim, 0) if runs == 1 else Ensemble.of([separate(dim, seed) for seed in range(runs)])
    return flow(models, objective, until=3.0, record=Record(points=5), solver="rodas5p", progress=False)


plain_population_flow = plain(population_flow)


@pytest.mark.parametrize("runs", [1, 3])
def test_flow_in_population(level, runs):
    """Steps are the same to rounding, and so is their number."""
    expected, found = plain_population_flow(3, runs), population_flow(3, runs)
    assert found.attrs["configuration"] == expected.attrs["configuration"]
    for name in ("loss", "value", "key", "query"):
        assert_near(found[name].values, expected[name].values, 1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_standard_normals(level, dtype):
    found = standard_normals(KEY, (3, 1031), dtype)
    np.testing.assert_allclose(found, jax.random.normal(KEY, (3, 1031), dtype), rtol=40 * np.finfo(dtype).eps)
