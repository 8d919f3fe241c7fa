"""Every attention against loops written from its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.models import ConvolutionalAttention, CubicMLP, MergedAttention, MultiHeadAttention, SeparateAttention
from stepwell.tasks import Batch

NORMALIZATIONS = ["1/N", "none", "1/tokens"]


def by_loops(tokens, dim, bilinear, readout, activation, normalization, attends_query, length):
    """The prediction, head by head and token by token."""
    tokens = np.array(tokens[: length + 1])
    tokens[-1, dim:] = 0.0
    query = tokens[-1]
    seen = tokens if attends_query else tokens[:-1]
    answer = np.zeros(readout.shape[1])
    for w, u in zip(bilinear, readout, strict=True):
        scores = np.array([z @ w @ query for z in seen])
        if activation == "softmax":
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
        else:
            weights = np.maximum(scores, 0.0) if activation == "relu" else scores
        weights = weights * {"1/N": 1 / length, "none": 1.0, "1/tokens": 1 / (length + 1)}[normalization]
        answer += u @ sum(a * z for a, z in zip(weights, seen, strict=True))
    return answer


@given(
    dim=st.integers(1, 4),
    outputs=st.integers(1, 2),
    heads=st.integers(1, 3),
    rank=st.integers(1, 5),
    activation=st.sampled_from(["linear", "softmax", "relu"]),
    normalization=st.sampled_from(NORMALIZATIONS),
    kind=st.sampled_from(["merged", "separate", "multihead"]),
    whole=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40)
def test_attention_is_its_definition(dim, outputs, heads, rank, activation, normalization, kind, whole, seed):
    rng = np.random.default_rng(seed)
    width, total = dim + outputs, 6
    tokens = rng.normal(size=(total, width))
    options = {"activation": activation, "normalization": normalization}
    square = [jnp.asarray(rng.normal(size=(heads, width, width))) for _ in range(2)]
    first, second, third = (jnp.asarray(rng.normal(size=(heads, rank, width))) for _ in range(3))
    output = jnp.asarray(rng.normal(size=(heads, outputs, rank)))
    if kind == "merged":
        model = MergedAttention.from_matrices(*square, outputs=outputs, **options)
        bilinear, readout = square[1], square[0][:, -outputs:]
    elif kind == "separate":
        model = SeparateAttention.from_matrices(square[0], first, second, outputs=outputs, **options)
        bilinear, readout = np.einsum("hrw,hrv->hwv", first, second), square[0][:, -outputs:]
    else:
        model = MultiHeadAttention.from_matrices(first, second, third, output, **options)
        bilinear = np.einsum("hrw,hrv->hwv", second, first) / np.sqrt(rank)
        readout = np.einsum("hor,hrw->how", output, third)
    length = total - 1 if whole else 3
    expected = by_loops(
        tokens, dim, np.asarray(bilinear), np.asarray(readout), activation, normalization, kind != "multihead", length
    )
    found = model(jnp.asarray(tokens), None if whole else jnp.asarray(length))
    # Rounding grows with the size of the terms that are added up.
    scale = max(1.0, float(np.abs(np.asarray(bilinear)).max() * np.abs(np.asarray(readout)).max()) * 100)
    np.testing.assert_allclose(found, expected, atol=1e-13 * scale)


def test_what_follows_the_query_and_its_label_are_not_looked_at():
    model = MergedAttention.random(dim=2, heads=2, scale=1.0, label_blocks="random", key=jax.random.key(0))
    tokens = jax.random.normal(jax.random.key(1), (6, 3))
    changed = tokens.at[4:].set(9.0).at[3, 2].set(-5.0)
    np.testing.assert_array_equal(model(tokens, jnp.asarray(3)), model(changed, jnp.asarray(3)))


@pytest.mark.parametrize("normalization", NORMALIZATIONS)
def test_the_network_on_cubic_features_is_merged_attention_with_zero_label_blocks(normalization):
    merged = MergedAttention.random(dim=3, heads=4, scale=1.0, normalization=normalization, key=jax.random.key(0))
    tokens = jax.random.normal(jax.random.key(1), (5, 7, 4)).at[:, -1, 3].set(0.0)
    features = Batch(tokens, jnp.zeros((5, 7, 1))).cubic_features(normalization).features
    answers = jax.vmap(CubicMLP.from_merged(merged))(features)
    np.testing.assert_allclose(answers, jax.vmap(merged)(tokens), rtol=1e-12, atol=1e-13)


def test_the_convolutional_form_is_rank_one_attention_with_zero_label_blocks():
    separate = SeparateAttention.random(dim=3, heads=4, scale=1.0, key=jax.random.key(0))
    tokens = jax.random.normal(jax.random.key(1), (5, 7, 4)).at[:, -1, 3].set(0.0)
    features = Batch(tokens, jnp.zeros((5, 7, 1))).cubic_features().features
    form = ConvolutionalAttention.from_separate(separate)
    np.testing.assert_allclose(jax.vmap(form)(features), jax.vmap(separate)(tokens), rtol=1e-12, atol=1e-13)
    explicit = jnp.kron(jnp.eye(3), form.key[0])  # K = I ⊗ kᵀ on the columns of β xᵀ, one after another
    column_major = features[0].reshape(3, 3).T.reshape(-1)
    one_head = ConvolutionalAttention(form.value[:1], form.key[:1], form.query[:1])
    np.testing.assert_allclose(one_head(features[0])[0], form.value[0] * form.query[0] @ (explicit @ column_major))


def test_weights_go_out_and_come_back_by_name():
    model = SeparateAttention.random(dim=3, heads=2, rank=2, scale=1.0, key=jax.random.key(0))
    again = model.with_weights({name: np.asarray(value) for name, value in model.weights().items()})
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), model, again)))
    assert model.activation == again.activation
