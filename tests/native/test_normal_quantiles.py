"""The C of standard normals, of given uniform numbers and of given counters, against SciPy and JAX."""

import ctypes
from pathlib import Path

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from native_code import LEVELS, Compiled, is_fused, pointer, units
from scipy.special import erfcinv, erfinv

from stepwell.native._processor import levels

DOUBLE, SINGLE = np.float64, np.float32


def ours(level: str) -> int:
    """Units of the last digit by which quantiles are off at the most.

    With fused products 3. Without, z = x Q has an error more: Q = c₀ + p t ends with a product of up to 1.1 in size,
    rounded by half a unit of 1, which beside Q ≥ 1.25 is 0.4 of the relative distance of numbers, and so less than 1
    unit. (The other products are smaller, or their error is, by what Q depends on them.)
    """
    return 3 if is_fused(level) else 4


class Built:
    """The C for one precision, of given uniform numbers and of given counters."""

    TEXT = """
    #include "normals.c"

    void quantiles(const REAL *given, REAL *found, int groups)
    {
        for (int k = 0; k < groups; k++) {
            vec x[TOGETHER];
            memcpy(x, given + k * TOGETHER * LANES, sizeof(x));
            normal_quantiles(x);
            memcpy(found + k * TOGETHER * LANES, x, sizeof(x));
        }
    }

    void from_counter(const uint32_t *key, uint64_t first, int count, REAL *results)
    {
        one_block(key, first, count, results);
    }
    """

    def __init__(self, folder: Path, dtype: type, level: str):
        self.dtype, self.ours = dtype, ours(level)
        self._compiled = Compiled(self.TEXT, folder, "double" if dtype == DOUBLE else "float", level)

    def quantiles(self, x) -> np.ndarray:
        together = 8
        given, found = self._compiled.in_groups(x, together)
        groups = given.size // (together * self._compiled.lanes)
        self._compiled.call.quantiles(pointer(given), pointer(found), ctypes.c_int(groups))
        return found[: np.size(x)]

    def from_counter(self, key: np.ndarray, first: int, count: int) -> np.ndarray:
        found = np.empty(count, self.dtype)
        places = ctypes.c_uint64(first), ctypes.c_int(count)
        self._compiled.call.from_counter(pointer(key), *places, pointer(found))
        return found


@pytest.fixture(scope="module", params=LEVELS, ids=str)
def level(request) -> str | None:
    return request.param


@pytest.fixture(scope="module", params=[DOUBLE, SINGLE])
def built(request, level: str, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("normals"), request.param, level)


def exact(x: np.ndarray) -> np.ndarray:
    """By SciPy: x Q(w), where far out w is that of the rounded square, as in JAX."""
    rounded = (1 - x * x).astype(float)
    x = x.astype(float)
    far = rounded < 0.5
    d = np.where(far, rounded, 0.5)
    of_rounded = np.sqrt(2) * erfcinv(d / (1 + np.sqrt(1 - d))) * x / np.sqrt(1 - d)
    return np.where(far, of_rounded, np.sqrt(2) * erfinv(x))


def test_quantiles_are_scipys(built: Built):
    """Of all sizes: uniform, near 0, near 1, and the very last numbers; on both sides."""
    digits = np.finfo(built.dtype).nmant + 1
    near = 2.0 ** -np.linspace(1, digits, 20_000)
    last = 1 - np.arange(1, 1000) * 2.0**-digits
    x = np.concatenate([np.random.default_rng(0).uniform(-1, 1, 100_000), near, 1 - near, last]).astype(built.dtype)
    x = x[np.abs(x) < 1]
    x = np.concatenate([x, -x])
    found, expected = built.quantiles(x), exact(x)
    unit = np.spacing(np.abs(expected).astype(built.dtype)).astype(float)
    error = np.abs(found.astype(float) - expected) / unit
    scipys = 5 if built.dtype == DOUBLE else 0  # the roundings of `exact`
    assert error.max() <= built.ours + scipys
    np.testing.assert_array_equal(found[: x.size // 2], -found[x.size // 2 :])


def test_the_least_and_the_greatest_are_those_of_jax(built: Built):
    """Of bits all zero and all one, as `jax.random.uniform` would make of them."""
    half = 2.0 ** -(np.finfo(built.dtype).nmant + 1)
    x = np.array([half - 1, 1 - 3 * half], built.dtype)
    expected = built.dtype(np.sqrt(2)) * np.asarray(jax.lax.erf_inv(x))
    assert units(built.quantiles(x), expected) <= 4 + built.ours


@pytest.mark.parametrize("first", [0, 2**32 - 16, 2**32, 5 * 2**32 + 48])
def test_counters_have_two_words(built: Built, first):
    """No array of the tests is as long, so the cipher is asked: its first and its second half of counters."""
    words = np.array([11, 2**31 + 5], np.uint32)
    counters = first + np.arange(40, dtype=np.uint64)
    halves = np.concatenate([counters >> np.uint64(32), counters & np.uint64(2**32 - 1)]).astype(np.uint32)
    high, low = np.split(np.asarray(jax.extend.random.threefry_2x32(jnp.asarray(words), jnp.asarray(halves))), 2)
    if built.dtype == DOUBLE:
        bits = (high.astype(np.uint64) << np.uint64(32) | low) >> np.uint64(12)
    else:
        bits = (high ^ low) >> np.uint32(9)
    nmant = np.finfo(built.dtype).nmant
    x = bits.astype(float) * 2.0 ** (1 - nmant) - (1 - 2.0 ** -(nmant + 1))
    np.testing.assert_allclose(
        built.from_counter(words, first, 40), exact(x.astype(built.dtype)), rtol=8 * np.finfo(built.dtype).eps
    )


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
def test_the_same_numbers_whatever_the_width(dtype, tmp_path_factory: pytest.TempPathFactory):
    """To the last bit where products are fused; without, to rounding: the cipher is the same, the polynomial nearly."""
    key = np.array([5, 2**31 + 7], np.uint32)
    found = {
        each: Built(tmp_path_factory.mktemp("width"), dtype, each).from_counter(key, 0, 10_007) for each in levels()
    }
    best = found[levels()[0]]
    for each, numbers in found.items():
        if is_fused(each) == is_fused(levels()[0]):
            np.testing.assert_array_equal(numbers, best)
        else:
            assert units(numbers, best) <= ours(each) + ours(levels()[0])
