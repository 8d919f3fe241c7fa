"""What a kind of model declares is what its class does: one contract, over every kind."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell import _kinds
from stepwell._kinds import KINDS, Kind
from stepwell.models import AbstractCubicModel, class_of
from stepwell.theory import linear

SIZES = {"H": 3, "E": 5, "O": 2, "R": 2, "F": 18, "V": 4}
ALL = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
WITH_THEORY = pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.theory], ids=lambda k: k.name)
OPTIONS = {"activation": "linear", "normalisation": "none"}


def started(kind: Kind, **options: Any) -> AbstractCubicModel:
    own = kind.start_options(rank=2, start=kind.starts[-1], **OPTIONS)
    chosen = own | {"dim": 3, "heads": 4, "scale": 0.5, "key": jax.random.key(1)}
    return class_of(kind).random(**chosen, **options)


@ALL
def test_recorded_weights_are_those_of_the_class(kind: Kind):
    """By name; the model has every entry of them that it keeps, in its place."""
    drawn = np.random.default_rng(0)
    weights = {
        name: jnp.asarray(drawn.normal(size=[SIZES[letter] for letter in letters.split()]))
        for name, letters in kind.recorded.items()
    }
    model = class_of(kind).from_recording(weights, outputs=SIZES["O"], **OPTIONS)
    assert set(model.weight_dims) == set(kind.recorded) and set(kind.last_rows) <= set(kind.recorded)
    assert model.shape == (SIZES["O"], 3)
    for name, weight in model.weights().items():
        rows, columns = (min(pair) for pair in zip(weight.shape[-2:], weights[name].shape[-2:], strict=True))
        kept = weights[name][..., -rows:, :] if name in kind.last_rows else weights[name][..., :rows, :]
        np.testing.assert_array_equal(np.asarray(weight)[..., :rows, :columns], kept[..., :columns])
        assert float(np.abs(weight).sum()) == pytest.approx(np.abs(kept[..., :columns]).sum())  # the rest is zero


@pytest.mark.parametrize("name", _kinds.names(trained=True))
def test_a_trained_kind_has_a_start(name: str):
    model = started(KINDS[name], outputs=2)
    assert type(model).__name__ == KINDS[name].class_name and model.shape == (2, 3)
    assert all(np.all(np.isfinite(weight)) for weight in model.weights().values())


@WITH_THEORY
def test_the_theory_reads_what_the_model_hands_over(kind: Kind):
    """Its effective map is the model's, with leading axes too."""
    predictor = linear.PREDICTORS[str(kind.theory)]
    model = started(kind)
    weights = {name: np.asarray(value) for name, value in model.weights().items()}
    expected = model.effective_map()[0, 0]
    found = predictor.effective_map(class_of(kind).theory_weights(weights))
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)
    twice = {name: np.stack([value, 2 * value]) for name, value in weights.items()}
    found = predictor.effective_map(class_of(kind).theory_weights(twice))
    np.testing.assert_allclose(found[1], 2**model.factors * expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", _kinds.names(trained=True))
def test_tracked_values_are_those_of_the_last_output(name: str):
    kind = KINDS[name]
    model = started(kind, outputs=2)
    weights = {name: np.asarray(value) for name, value in model.weights().items()}
    first = weights["readout"] if "readout" in weights else weights["value"][..., -1].T
    np.testing.assert_array_equal(class_of(kind).theory_weights(weights)["values"], first[-1])


@pytest.mark.parametrize("name", _kinds.names(predicted=True))
def test_a_predicted_kind_can_be_balanced(name: str):
    assert callable(inspect.getattr_static(class_of(KINDS[name]), "balanced"))


def test_names():
    assert _kinds.names() == [*KINDS] == [kind.name for kind in KINDS.values()]
    assert {"attnM", "attnS"} <= set(_kinds.names(layout="tokens", trained=True)) & set(_kinds.names(predicted=True))
    assert "mlp" not in _kinds.names(predicted=True) and "multihead" not in _kinds.names(trained=True)
    assert [kind.name for kind in KINDS.values() if kind.is_called("msattn_stable")] == ["multihead"]
    assert not any(kind.is_called(None) or kind.is_called("attn") for kind in KINDS.values())
    assert _kinds.listed(["a", "b", "c"]) == "a, b or c" and _kinds.listed(["a"]) == "a"
