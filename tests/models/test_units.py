"""Networks of units against their definition, one unit and one patch at a time."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.models import ActivationUnits, PolynomialUnits

KEY = jax.random.key(0)
FUNCTIONS = {
    1: lambda s: s,
    2: lambda s: s * s,
    3: lambda s: s * s * s,
    "relu": lambda s: max(s, 0.0),
    "tanh": math.tanh,
    "x-tanh": lambda s: s * math.tanh(s),
}


def made(which, **sizes):
    sizes = {"dim": 6, "units": 4, "outputs": 2, "scale": 0.7, "key": KEY} | sizes
    if isinstance(which, int):
        return PolynomialUnits.random(**sizes, degree=which)
    return ActivationUnits.random(**sizes, nonlinearity=which)


@pytest.mark.parametrize("which", FUNCTIONS)
@pytest.mark.parametrize("patches", [1, 2, 3])
def test_predictions_are_sums_over_units_and_patches(which, patches):
    model = made(which, patches=patches)
    v, u = np.asarray(model.outer), np.asarray(model.inner)
    x = np.random.default_rng(1).standard_normal(6)
    expected = np.zeros(2)
    for i, p in itertools.product(range(4), range(patches)):
        width = 6 // patches
        score = float(u[i] @ x[p * width : (p + 1) * width])
        expected += v[i, :, p] * FUNCTIONS[which](score)
    np.testing.assert_allclose(model(jnp.asarray(x)), expected, rtol=1e-13, atol=1e-14)


def test_weights_are_normal_numbers_of_the_scale():
    model = made("relu", units=4000, dim=4, scale=0.1)
    assert (model.outer.shape, model.inner.shape) == ((4000, 2, 1), (4000, 4))
    for weight in model.weights().values():
        assert abs(float(weight.std()) / 0.1 - 1) < 5 / (2 * weight.size) ** 0.5


def test_only_relu_has_kinks():
    assert [made(which).smooth for which in FUNCTIONS] == [True, True, True, False, True, True]


def test_what_is_no_network_is_refused():
    with pytest.raises(InvalidInput, match="cannot be cut into 4 patches"):
        made(1, patches=4)
    with pytest.raises(InvalidInput, match="has 5 entries; the network reads 6"):
        made(1)(jnp.ones(5))
