"""Initializations have the scale and the symmetry they promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.models import CubicMLP, MergedAttention, MultiHeadAttention, SeparateAttention

KEY = jax.random.key(0)


def deviation_is(values, expected):
    values = np.asarray(values).reshape(-1)
    assert abs(values.std() - expected) < 5 * expected / np.sqrt(2 * values.size)


def test_plain_starts_have_the_given_standard_deviation_and_zero_label_blocks():
    model = MergedAttention.random(dim=8, heads=200, scale=0.03, key=KEY)
    deviation_is(model.key_query[:, :8], 0.03)
    deviation_is(model.value[..., 8:], 0.03)
    assert all(float(jnp.abs(block).max()) == 0.0 for block in model.label_blocks())


def test_label_blocks_can_be_random_too():
    model = SeparateAttention.random(dim=8, heads=200, rank=2, scale=0.03, label_blocks="random", key=KEY)
    deviation_is(model.key[..., 8:], 0.03)
    deviation_is(model.value[..., :8], 0.03)


@pytest.mark.parametrize(
    ("scheme", "value", "pair"),
    [
        ("plain", 0.5, 0.5),
        ("per-head", 0.5, 0.5 / np.sqrt(4 * 9)),
        ("stacked", 0.5 / np.sqrt(100 * 81), 0.5 / np.sqrt(100 * 4 * 9)),
    ],
)
def test_the_schemes_of_separate_attention(scheme, value, pair):
    model = SeparateAttention.random(dim=8, heads=100, rank=4, scale=0.5, scheme=scheme, key=KEY)
    deviation_is(model.value[..., 8:], value)
    deviation_is(model.key[..., :8], pair)
    deviation_is(model.query, pair)


def test_a_balanced_merged_initialization_has_equal_norms():
    model = MergedAttention.random(dim=3, heads=4, scale=0.1, outputs=2, key=KEY).balanced()
    np.testing.assert_allclose(np.sum(model.value**2, axis=(1, 2)), np.sum(model.key_query**2, axis=(1, 2)))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_balanced_separate_start_has_equal_gram_matrices(rank):
    model = SeparateAttention.random(dim=3, heads=4, rank=rank, scale=0.1, key=KEY).balanced()
    keys = np.einsum("hrw,hsw->hrs", model.key, model.key)
    np.testing.assert_allclose(keys, np.einsum("hrd,hsd->hrs", model.query, model.query), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(np.sum(model.value**2, axis=(1, 2)), np.trace(keys, axis1=1, axis2=2))


def test_aligned_starts_lie_along_the_given_directions():
    vectors = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    separate = SeparateAttention.aligned(jnp.asarray(vectors), heads=3, scale=jnp.array([0.1, 0.2, 0.3]))
    expected = np.einsum("h,ih,jh->ij", np.array([0.1, 0.2, 0.3]) ** 3, vectors, vectors)
    np.testing.assert_allclose(separate.effective_map()[0, 0], expected, atol=1e-15)
    square = vectors @ np.diag([3.0, 2.0, 1.0]) @ vectors.T
    merged = MergedAttention.aligned(jnp.asarray(square), heads=2, scale=0.1)
    np.testing.assert_allclose(merged.effective_map()[0, 0], 2 * 0.01 * square / np.linalg.norm(square), atol=1e-15)
    for model in (separate, merged):
        balanced = model.balanced()
        assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.allclose(a, b, atol=1e-15)), model, balanced))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MergedAttention.random(dim=3, heads=0, scale=1.0, key=KEY), "heads"),
        (lambda: SeparateAttention.random(dim=3, heads=1, rank=0, scale=1.0, key=KEY), "rank"),
        (lambda: MergedAttention.random(dim=3, heads=1, scale=-1.0, key=KEY), "scale"),
        (lambda: MergedAttention(jnp.zeros((2, 1, 4)), jnp.zeros((2, 4, 2))), "must be"),
        (lambda: CubicMLP(jnp.zeros((1, 2)), jnp.zeros((2, 5))), "outputs * dim * dim"),
        (
            lambda: CubicMLP.from_merged(MergedAttention.random(dim=2, heads=1, outputs=2, scale=1.0, key=KEY)),
            "one output",
        ),
        (lambda: MultiHeadAttention.random(dim=2, outputs=1, heads=1, embedding=0, scale=1.0, key=KEY), "embedding"),
        (
            lambda: CubicMLP.random(dim=2, heads=2, scale=1.0, key=KEY).with_weights({"readout": jnp.zeros((1, 2))}),
            "hidden",
        ),
        (lambda: SeparateAttention.aligned(jnp.eye(2), heads=3, scale=jnp.ones(2)), "one for each of 3 heads"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, words):
    with pytest.raises(InvalidInput) as refusal:
        make()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_rank_above_the_dimension_is_allowed_with_a_word_but_cannot_be_balanced():
    with pytest.warns(UserWarning, match="above the dimension"):
        model = SeparateAttention.random(dim=2, heads=1, rank=5, scale=1.0, key=KEY)
    assert model.map_rank() == 2
    with pytest.raises(InvalidInput, match="rank ≤ dim"):
        model.balanced()
