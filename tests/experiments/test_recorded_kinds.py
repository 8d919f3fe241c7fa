"""What recordings say of a model is what its class does: one contract, over every kind."""

import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.experiments.recorded._recording import KINDS, Kind, listed

SIZES = {"H": 3, "E": 5, "O": 2, "R": 2, "F": 18, "V": 4}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_recorded_weights_are_those_of_the_class(kind: Kind):
    """By name; the model has every entry of them that it keeps, in its place."""
    drawn = np.random.default_rng(0)
    weights = {
        name: jnp.asarray(drawn.normal(size=[SIZES[letter] for letter in letters.split()]))
        for name, letters in kind.recorded.items()
    }
    model = kind.build(**weights, outputs=SIZES["O"], activation="linear", normalization="none")
    assert set(model.weight_dims) == set(kind.recorded) and set(kind.last_rows) <= set(kind.recorded)
    assert model.shape == (SIZES["O"], 3)
    for name, weight in model.weights().items():
        rows, columns = (min(pair) for pair in zip(weight.shape[-2:], weights[name].shape[-2:], strict=True))
        kept = weights[name][..., -rows:, :] if name in kind.last_rows else weights[name][..., :rows, :]
        np.testing.assert_array_equal(np.asarray(weight)[..., :rows, :columns], kept[..., :columns])
        assert float(np.abs(weight).sum()) == pytest.approx(np.abs(kept[..., :columns]).sum())  # the rest is zero


def test_names():
    assert [kind.name for kind in KINDS if kind.is_called("msattn_stable")] == ["multihead"]
    assert not any(kind.is_called(None) or kind.is_called("attn") for kind in KINDS)
    assert listed(["a", "b", "c"]) == "a, b or c" and listed(["a"]) == "a"
