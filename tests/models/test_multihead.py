"""The starts and the scaling of multi-head attention, against the recorded runs."""

import json
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.models import MultiHeadAttention, decompose
from stepwell.tasks import MultiTaskRegression

DATA = Path(__file__).parent.parent / "data"
KEY = jax.random.key(0)


def test_the_diagonal_start_is_the_recorded_one_but_for_its_random_numbers():
    recorded = np.load(DATA / "msattn_diagonal.npz")
    setting = json.loads(str(recorded["config"]))
    assert setting["init"] == "diagonal"
    readout = float(recorded["init_output"].astype(float)[0, 1, -1])
    model = MultiHeadAttention.diagonal(
        dim=setting["dx"], outputs=setting["dy"], heads=setting["heads"], scale=0.1, readout=readout, key=KEY
    )
    np.testing.assert_allclose(model.value, recorded["init_value"], rtol=1e-6)
    np.testing.assert_allclose(model.output, recorded["init_output"], rtol=1e-6)
    for name in ("key", "query"):
        weight, given = getattr(model, name), recorded[f"init_{name}"][:, :, : getattr(model, name).shape[2]]
        # One random number a head on the diagonal, nothing else.
        np.testing.assert_allclose(weight / weight[:, :1, :1] * given[:, :1, :1], given, rtol=1e-6)


def test_a_diagonal_start_is_decomposable_and_spreads_as_asked():
    task = MultiTaskRegression((2, 2, 2), context=4)
    model = MultiHeadAttention.diagonal(dim=6, outputs=3, heads=400, scale=0.3, readout=0.1, advantage=3.0, key=KEY)
    found = decompose(model, task)
    assert all(float(value) < 1e-14 for value in found.departures().values())
    np.testing.assert_allclose(found.mu[:3], 0.01 + 0.08 * np.eye(3), rtol=1e-12)
    np.testing.assert_allclose(found.mu[3:], 0.01, rtol=1e-12)
    np.testing.assert_allclose(found.omega, np.tile(found.omega[:, :1], 3), rtol=1e-12)
    for diagonal in (model.key[:, 0, 0], model.query[:, 0, 0]):
        assert abs(np.std(diagonal) - 0.3) < 5 * 0.3 / np.sqrt(800)


def test_the_score_is_over_the_root_of_a_heads_or_a_tokens_width():
    common = {"dim": 5, "outputs": 3, "heads": 1, "embedding": 4, "scale": 1.0, "key": KEY}
    plain = MultiHeadAttention.random(**common, score_scale=1.0).bilinear()
    np.testing.assert_allclose(MultiHeadAttention.random(**common).bilinear(), plain / 2, rtol=1e-14)
    over_token = MultiHeadAttention.random(**common, score_scale="token").bilinear()
    np.testing.assert_allclose(over_token, plain / np.sqrt(8), rtol=1e-14)


def test_the_uniform_scheme_has_the_bounds_of_linear_layers_over_their_inputs():
    model = MultiHeadAttention.random(dim=5, outputs=1, heads=400, scale=2.0, scheme="uniform", key=KEY)
    for name, inputs in (("query", 6), ("key", 6), ("value", 6), ("output", 400 * 6)):
        weight, bound = np.asarray(getattr(model, name)).ravel(), 2.0 / np.sqrt(inputs)
        # The distribution function at any point is that of the uniform law: Kolmogorov-Smirnov at the level 1e-4.
        gap = np.abs(np.sort(weight) / bound - (2 * np.arange(1, weight.size + 1) / weight.size - 1)).max() / 2
        assert np.abs(weight).max() <= bound and gap < 2.23 / np.sqrt(weight.size)


@pytest.mark.parametrize(("scheme", "signs"), [("identity", [1, 1]), ("identity-qk", [1, 1]), ("opposite", [1, -1])])
def test_identity_schemes_have_scores_of_the_given_signs(scheme, signs):
    model = MultiHeadAttention.random(dim=3, outputs=2, heads=4, embedding=6, scale=1e-2, scheme=scheme, key=KEY)
    scores = np.repeat(signs, 2)[:, None, None] * np.eye(5, 3) * 1e-4 / np.sqrt(6)
    np.testing.assert_allclose(model.bilinear(), scores, rtol=1e-14)
    other = MultiHeadAttention.random(dim=3, outputs=2, heads=4, embedding=6, scale=1.0, scheme="uniform", key=KEY)
    value = np.tile(1e-2 * np.eye(6, 5), (4, 1, 1)) if scheme == "identity" else other.value
    np.testing.assert_allclose(model.value, value, rtol=1e-14)
    np.testing.assert_allclose(model.output, other.output, rtol=1e-14)


@pytest.mark.parametrize("scheme", ["plain", "uniform", "identity", "identity-qk", "opposite"])
def test_every_scheme_is_drawn_by_vmap_with_the_numbers_of_each_key(scheme):
    draw = partial(MultiHeadAttention.random, dim=2, outputs=1, heads=2, scale=0.3, scheme=scheme)
    keys = jax.random.split(KEY, 2)
    together, alone = eqx.filter_vmap(lambda key: draw(key=key))(keys), draw(key=keys[1])
    for name in ("query", "key", "value", "output"):
        np.testing.assert_allclose(getattr(together, name)[1], getattr(alone, name), rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: MultiHeadAttention.random(dim=2, outputs=1, heads=3, scale=1, scheme="opposite", key=KEY), "even"),
        (lambda: MultiHeadAttention.random(dim=2, outputs=1, heads=1, scale=1, score_scale=0.0, key=KEY), "above 0"),
        (lambda: MultiHeadAttention.diagonal(dim=2, outputs=1, heads=1, scale=-1, readout=1, key=KEY), "scale"),
        (lambda: MultiHeadAttention.diagonal(dim=2, outputs=1, heads=1, scale=1, readout=jnp.nan, key=KEY), "readout"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, words):
    with pytest.raises(InvalidInput) as refusal:
        make()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
