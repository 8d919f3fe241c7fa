"""Standard normals drawn natively against those of `jax.random.normal` and of SciPy."""

import ctypes
from pathlib import Path

import jax
import jax.extend
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from native_code import LEVELS, Compiled, pointer
from scipy.special import erfcinv, erfinv

from stepwell.dynamics import online
from stepwell.models import SeparateAttention
from stepwell.tasks import InContextRegression
from stepwell.tasks._normals import standard_normals

DOUBLE, SINGLE = np.float64, np.float32
# In units of the last digit. Ours is within 3 of the exact value. JAX's is within 4, but for double precision around
# |z| = 0.9, where its logarithm is off by up to 30. SciPy, in double precision, adds the roundings of `exact`.
OURS = 3
JAX = {DOUBLE: 30 + OURS, SINGLE: 4 + OURS}
SCIPY = {DOUBLE: 5 + OURS, SINGLE: OURS}
KEY = jax.random.key(7)


def units(found, expected) -> float:
    """The largest difference, in units of the last digit."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    unit = np.spacing(np.abs(expected)).astype(float)
    return float(np.max(np.abs(found.astype(float) - expected.astype(float)) / unit, initial=0.0))


def is_native(key=KEY, dtype: type = float) -> bool:
    lowered = jax.jit(lambda key: standard_normals(key, (3,), dtype)).lower(key)
    return "stepwell_normals" in lowered.as_text()


@pytest.mark.parametrize("dtype", [DOUBLE, SINGLE])
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (15,), (16,), (7, 19), (1024,), (3, 5, 137), (67, 1023)])
def test_they_are_those_of_jax(shape, dtype):
    """Sizes that fill vectors, groups and blocks, and that do not; the last is shared by threads."""
    assert is_native(dtype=dtype)
    found = standard_normals(KEY, shape, dtype)
    assert units(found, jax.random.normal(KEY, shape, dtype)) <= JAX[dtype]


@pytest.mark.parametrize("words", [[0, 0], [2**32 - 1, 2**32 - 1], [3, 2**31]])
def test_of_any_key_typed_or_raw(words):
    raw = jnp.asarray(words, jnp.uint32)
    typed = jax.random.wrap_key_data(raw)
    for key in (raw, typed):
        assert is_native(key)
        assert units(standard_normals(key, (100,)), jax.random.normal(typed, (100,))) <= JAX[DOUBLE]


def test_as_precise_as_programs_are():
    """Without a precision, that of JAX."""
    assert standard_normals(KEY, (3,)).dtype == DOUBLE
    with jax.enable_x64(False):
        assert standard_normals(KEY, (3,)).dtype == SINGLE


def test_of_many_keys():
    """One array of keys, two axes of them, and keys that share their numbers with a batch of something else."""
    keys = jax.random.split(KEY, 70 * 3)
    expected = np.stack([jax.random.normal(key, (1030,)) for key in keys])
    found = jax.jit(jax.vmap(lambda key: standard_normals(key, (1030,))))(keys)
    assert units(found, expected) <= JAX[DOUBLE]
    twice = jax.vmap(jax.vmap(lambda key: standard_normals(key, (1030,))))(keys.reshape(70, 3))
    np.testing.assert_array_equal(twice, np.asarray(found).reshape(70, 3, 1030))
    beside = jax.vmap(lambda key, x: x + standard_normals(key, (1030,)), in_axes=(None, 0))(keys[0], jnp.zeros(2))
    np.testing.assert_array_equal(beside, np.asarray(found)[[0, 0]])


def test_inside_a_loop():
    def add(step, total):
        return total + standard_normals(jax.random.fold_in(KEY, step), (5, 9))

    found = jax.jit(lambda steps: jax.lax.fori_loop(0, steps, add, jnp.zeros((5, 9))))(4)
    expected = sum(np.asarray(standard_normals(jax.random.fold_in(KEY, step), (5, 9))) for step in range(4))
    np.testing.assert_array_equal(found, expected)


def test_what_is_not_native_is_left_to_jax(monkeypatch: pytest.MonkeyPatch):
    """Other generators, numberings and precisions, and several devices."""
    for key in (jax.random.key(1, impl="rbg"), jax.random.key(1, impl="unsafe_rbg")):
        assert not is_native(key)
        np.testing.assert_array_equal(standard_normals(key, (3,)), jax.random.normal(key, (3,)))
    assert not is_native(dtype=jnp.float16)
    with jax.threefry_partitionable(False):
        assert not is_native()
        np.testing.assert_array_equal(standard_normals(KEY, (3,)), jax.random.normal(KEY, (3,)))
    monkeypatch.setattr(jax, "local_device_count", lambda: 2)
    assert not is_native()


def test_several_keys_are_for_vmap(monkeypatch: pytest.MonkeyPatch):
    """As JAX says; unwatched, since here the type alone would refuse them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match="single key"):
        standard_normals(jax.random.split(KEY, 3), (6,))


def test_runs_are_the_same_with_and_without(with_and_without):
    """But for rounding, which a stable run does not enlarge."""
    task = InContextRegression(np.diag([0.6, 0.4]), 6, noise_variance=0.1)
    model = SeparateAttention.random(dim=2, heads=2, scale=0.5, key=KEY)
    kinds = with_and_without(is_native)
    assert kinds == (True, False)
    batches = with_and_without(lambda: task.draw(50, key=KEY))
    for ours, other in zip(*(jax.tree.leaves(batch) for batch in batches), strict=True):
        np.testing.assert_allclose(ours, other, rtol=0, atol=1e-14 * np.max(np.abs(other)))
    losses = with_and_without(
        lambda: online(model, task, batch=20, rate=0.05, steps=20, progress=False, key=KEY)["loss"].values
    )
    np.testing.assert_allclose(*losses, rtol=1e-12)


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

    def __init__(self, folder: Path, dtype: type, level: str | None):
        self.dtype = dtype
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
def built(request, level: str | None, tmp_path_factory: pytest.TempPathFactory) -> Built:
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
    assert error.max() <= SCIPY[built.dtype]
    np.testing.assert_array_equal(found[: x.size // 2], -found[x.size // 2 :])


def test_the_least_and_the_greatest_are_those_of_jax(built: Built):
    """Of bits all zero and all one, as `jax.random.uniform` would make of them."""
    half = 2.0 ** -(np.finfo(built.dtype).nmant + 1)
    x = np.array([half - 1, 1 - 3 * half], built.dtype)
    expected = built.dtype(np.sqrt(2)) * np.asarray(jax.lax.erf_inv(x))
    assert units(built.quantiles(x), expected) <= 4 + OURS


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
