"""The product of a matrix with its own transpose, native and not, against NumPy's."""

import jax
import numpy as np
import pytest

from stepwell.native import _kernels
from stepwell.objectives._gram import gram


def matrix(examples, features):
    return np.random.default_rng(examples + features).standard_normal((examples, features))


@pytest.fixture(params=["native", "off"])
def way(request, monkeypatch):
    """With the native pass and without; the others use it as it is."""
    monkeypatch.setenv("STEPWELL_NATIVE", "" if request.param == "native" else "off")
    _kernels.state.cache_clear()
    yield request.param
    _kernels.state.cache_clear()


@pytest.mark.parametrize("examples", [1, 255, 256, 700])
@pytest.mark.parametrize("features", [1, 7, 8, 25, 60, 131])
def test_sums_are_numpys(way, examples, features):
    """Sizes that fill panels, tiles and blocks, and that do not."""
    phi = matrix(examples, features)
    found = np.asarray(jax.jit(gram)(phi))
    # n ε is the bound of a sum of n rounded products, relative to that of their sizes.
    bound = examples * np.finfo(float).eps * (np.abs(phi).T @ np.abs(phi))
    assert (np.abs(found - phi.T @ phi) <= 2 * bound).all()
    if way == "native":
        np.testing.assert_array_equal(found, found.T)
        assert "custom-call" in jax.jit(gram).lower(phi).compile().as_text()  # pyright: ignore[reportOperatorIssue]


def test_many_features_are_shared_by_threads(way):
    phi = matrix(600, 1500)
    np.testing.assert_allclose(jax.jit(gram)(phi), phi.T @ phi, rtol=0, atol=600 * np.finfo(float).eps * 600)


def test_single_precision_stays_single():
    phi = matrix(20, 5).astype(np.float32)
    found = gram(jax.numpy.asarray(phi))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, phi.T @ phi, rtol=1e-4, atol=1e-5)
