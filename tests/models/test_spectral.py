"""Attention as eigenvalues, its whole matrices, and the way back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.models import MultiHeadAttention, SpectralAttention, decomposable, decompose
from stepwell.tasks import MultiTaskRegression

KEY = jax.random.key(0)


def drawn(seed, dims, heads, **options):
    """Random weights of either sign, unbalanced."""
    rng = np.random.default_rng(seed)
    weights = (jnp.asarray(rng.normal(size=(heads, len(dims)))) for _ in range(4))
    return SpectralAttention(*weights, dims=dims, **options)


sizes = {
    "dims": st.lists(st.integers(1, 4), min_size=1, max_size=3),
    "heads": st.integers(1, 3),
    "beyond": st.integers(0, 2),
    "seed": st.integers(0, 1000),
}


def task_of(dims, beyond, seed):
    return MultiTaskRegression(
        dims,
        context=6,
        outputs=len(dims) + beyond,
        inputs_rotation="random",
        outputs_rotation="random",
        key=jax.random.key(seed),
    )


@given(**sizes)
@settings(max_examples=8)
def test_the_whole_matrices_answer_as_the_eigenvalues_do_in_the_bases_of_the_task(dims, heads, beyond, seed):
    task = task_of(dims, beyond, seed)
    spectral = drawn(seed, dims, heads)
    whole = decomposable(spectral, task, embedding=task.dim + 3, key=jax.random.key(seed))
    tokens = np.random.default_rng(seed).normal(size=(7, task.dim + task.outputs))
    tokens[-1, task.dim :] = 0.0
    turned = np.concatenate(
        [tokens[:, : task.dim] @ task.inputs_rotation, tokens[:, task.dim :] @ task.outputs_rotation], axis=1
    )
    own = turned[:, : task.dim + len(dims)]
    answer = eqx.filter_jit(lambda model, tokens: model(tokens))
    expected = np.pad(np.asarray(answer(spectral, jnp.asarray(own))), (0, beyond)) @ task.outputs_rotation.T
    np.testing.assert_allclose(answer(whole, jnp.asarray(tokens)), expected, rtol=1e-9, atol=1e-11)


@given(**sizes)
@settings(max_examples=8)
def test_the_way_back_finds_the_eigenvalues_and_no_departure(dims, heads, beyond, seed):
    task = task_of(dims, beyond, seed)
    spectral = drawn(seed, dims, heads)
    found = eqx.filter_jit(decompose)(decomposable(spectral, task, key=jax.random.key(seed)), task)
    np.testing.assert_allclose(found.omega, spectral.omega(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.mu, spectral.mu(), rtol=1e-9, atol=1e-12)
    assert all(float(value) < 1e-13 for value in found.departures().values())


def test_eigenvalues_are_means_over_a_block_and_departures_what_they_leave():
    """Against loops over the entries, for weights that are nothing like decomposable."""
    task = task_of((2, 3), 1, 3)
    model = MultiHeadAttention.random(dim=5, outputs=3, heads=2, scale=1.0, key=KEY)
    found = decompose(model, task)
    rest = {"score_inputs": 0.0, "score_labels": 0.0, "readout_inputs": 0.0, "readout_labels": 0.0}
    scores = readouts = 0.0
    for head in range(2):
        w = np.asarray(model.key[head].T @ model.query[head]) / np.sqrt(8)
        u = np.asarray(model.output[head] @ model.value[head])
        wx = task.inputs_rotation.T @ w[:5] @ task.inputs_rotation
        uy = task.outputs_rotation.T @ u[:, 5:] @ task.outputs_rotation
        omega = [(wx[0, 0] + wx[1, 1]) / 2, (wx[2, 2] + wx[3, 3] + wx[4, 4]) / 3]
        np.testing.assert_allclose(found.omega[head], omega, rtol=1e-12)
        np.testing.assert_allclose(found.mu[head], [uy[0, 0], uy[1, 1]], rtol=1e-12)
        off = float(np.linalg.norm(wx - np.diag(np.repeat(omega, (2, 3)))))
        np.testing.assert_allclose(found.score_inputs[head], off, rtol=1e-12)
        rest["score_inputs"] += off**2
        rest["score_labels"] += np.sum(w[5:] ** 2)
        rest["readout_inputs"] += np.sum(u[:, :5] ** 2)
        rest["readout_labels"] += np.sum((uy - np.diag([uy[0, 0], uy[1, 1], 0.0])) ** 2)
        scores += np.sum(np.repeat(omega, (2, 3)) ** 2)
        readouts += uy[0, 0] ** 2 + uy[1, 1] ** 2
    for name, value in found.departures().items():
        whole = scores if name.startswith("score") else readouts
        np.testing.assert_allclose(value, np.sqrt(rest[name] / whole), rtol=1e-12)


def test_weights_of_zero_depart_by_nothing_and_label_blocks_alone_by_an_infinite_ratio():
    task = MultiTaskRegression((2,), context=3)
    zero = MultiHeadAttention.random(dim=2, outputs=1, heads=1, scale=0.0, key=KEY)
    assert all(float(value) == 0.0 for value in decompose(zero, task).departures().values())
    labels = jnp.zeros((1, 3, 3)).at[:, :, 2].set(1.0)
    model = zero.with_weights({**zero.weights(), "key": labels, "query": jnp.ones((1, 3, 2))})
    assert float(decompose(model, task).departures()["score_labels"]) == np.inf


@pytest.mark.parametrize("signs", [1.0, -1.0])
def test_balanced_weights_have_the_given_eigenvalues_and_equal_factors(signs):
    omega, mu = signs * np.array([[0.3, 0.0], [0.1, 0.2]]), np.array([[1.0, -2.0], [0.5, 0.0]])
    model = SpectralAttention.balanced(omega, mu, (4, 9), embedding=25)
    assert model.score_scale == 0.2
    np.testing.assert_allclose(model.omega(), omega, rtol=1e-14)
    np.testing.assert_allclose(model.mu(), mu, rtol=1e-14)
    np.testing.assert_allclose(np.abs(model.key), np.abs(model.query), rtol=1e-14)
    np.testing.assert_allclose(np.abs(model.value), np.abs(model.output), rtol=1e-14)
    np.testing.assert_allclose(np.abs(model.key), np.sqrt(np.abs(omega) * np.array([4, 9]) / 0.2), rtol=1e-14)


def test_the_gradient_of_the_eigenvalues_is_that_of_the_whole_matrices():
    """Plain descent in either parametrization is the same: here, one step of descent on a function of W and U."""
    task = task_of((2, 3), 0, 7)
    spectral = drawn(7, task.dims, 2)
    whole = decomposable(spectral, task, key=jax.random.key(1))
    coefficients = np.random.default_rng(0).normal(size=(2, 2, 2))

    def loss(model):
        if isinstance(model, MultiHeadAttention):
            found = decompose(model, task)
            omega, mu = found.omega, found.mu
        else:
            omega, mu = model.omega(), model.mu()
        return jnp.sum(jnp.sin(coefficients[0] * omega * mu)) + jnp.sum(coefficients[1] * mu**2)

    rate = 0.05
    moved = jax.tree.map(lambda w, g: w - rate * g, whole, jax.grad(loss)(whole))
    small = jax.tree.map(lambda w, g: w - rate * g, spectral, jax.grad(loss)(spectral))
    found = decompose(moved, task)
    np.testing.assert_allclose(found.omega, small.omega(), rtol=1e-10)
    np.testing.assert_allclose(found.mu, small.mu(), rtol=1e-10)
    assert all(float(value) < 1e-13 for value in found.departures().values())


def test_scores_are_scaled_by_name_or_number():
    omega = np.full((1, 2), 0.1)
    scales = [
        SpectralAttention.balanced(omega, omega, (3, 4), embedding=16, score_scale=scale).score_scale
        for scale in ("head", "token", 0.5)
    ]
    np.testing.assert_allclose(scales, [1 / 4, 1 / 3, 0.5])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SpectralAttention(*[jnp.ones((2, 2))] * 4, dims=(3,)), "must be (2, 1)"),
        (lambda: drawn(0, (3,), 1, score_scale=-1.0), "score_scale"),
        (lambda: drawn(0, (3,), 1, embedding=0), "embedding"),
        (lambda: decomposable(drawn(0, (3,), 1), MultiTaskRegression((3,)), embedding=2), "at least 3"),
        (lambda: decomposable(drawn(0, (3,), 1), MultiTaskRegression((4,))), "must agree"),
        (lambda: decompose(drawn(0, (3,), 1), MultiTaskRegression((4,))), "must agree"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, words):
    with pytest.raises(InvalidInput) as refusal:
        make()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (2, 3)])
def test_eigenvalues_of_another_shape_are_refused(shape, monkeypatch: pytest.MonkeyPatch):
    """And not repeated; unwatched, since here the types alone would refuse them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(InvalidInput, match="has shape"):
        SpectralAttention.balanced(np.ones((2, 2)), np.ones(shape), (3, 4))
