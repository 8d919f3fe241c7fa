"""Velocities are along the manifolds under their conditions, and not without; zero units are left as predicted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from stepwell.papers.simplicity import manifolds as figure
from stepwell.papers.simplicity._networks import NETWORKS, Landscape

FIGURE = "simplicity/manifolds"


@pytest.mark.parametrize(
    ("networks", "unjudged"),
    [("sigmoid", {"images", "negative-directions", "order"}), ("conv. ReLU", {"images", "negative-directions"})],
)
def test_other_settings(survives, networks: str, unjudged: set[str]):
    claims = survives({"networks": networks, "seeds": "3"})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


def test_other_conditions_fail(data, failing):
    tangent = data["tangent"]
    wrong = tangent.assign(applies=~tangent["applies"])
    assert failing({**data, "tangent": wrong}) == {"tangent", "images", "conditions"}


@pytest.mark.parametrize(("name", "claim"), [("negative", "negative-directions"), ("measured_order", "order")])
def test_another_kind_of_point_fails(data, failing, name: str, claim: str):
    zero = data["zero"].copy(deep=True)
    zero[name] = zero[name] + 1
    assert failing({**data, "zero": zero}) == {claim}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_velocities_that_are_not_finite_fail(data, failing, value: float):
    tangent = data["tangent"].copy(deep=True)
    tangent["off"].loc[{"network": "quadratic"}] = value
    assert failing({**data, "tangent": tangent}) == {"tangent", "images", "conditions"}


def test_fewer_negative_directions_than_without_the_unit_fail(data, failing):
    zero = data["zero"].copy(deep=True)
    zero["negative"] = xr.where(zero["network"] == "tanh", -1, zero["negative"])
    assert failing({**data, "zero": zero}) == {"negative-directions"}


def test_searches_that_found_none_are_counted(data):
    claims = figure.claims({**data, "zero": data["zero"].isel(point=slice(1))}, figure.FIGURE.at(quick=True))
    assert all("5 of 6 searches" in claim.statement for claim in claims[-2:])


def test_the_block_of_a_zero_unit():
    """Its eigenvalues are ±2σ, with σ the singular values of E[e x], whatever the units beside it."""
    rng = np.random.default_rng(0)
    landscape = Landscape("tanh", rng)
    network, (x, y) = landscape.network, landscape.examples
    wide = np.vstack([rng.normal(size=(2, network.size)), np.zeros(network.size)])
    block = landscape.hessian(wide)[2 * network.size :]
    error = np.asarray(y - jax.vmap(network.model(jnp.asarray(wide)))(x))
    values = 2 * np.linalg.svd(error.T @ np.asarray(x) / len(x), compute_uv=False)
    np.testing.assert_allclose(np.linalg.eigvalsh(block[:, -network.size :]), np.sort([*values, *-values]), atol=1e-8)
    np.testing.assert_allclose(block[:, : -network.size], 0.0, atol=1e-8)


def test_predicted_negative_directions():
    counts = {name: figure.negative_directions(NETWORKS[name]) for name in NETWORKS if NETWORKS[name].order}
    assert counts["linear"] == counts["convolutional"] == 1 and counts["tanh"] == 3
    assert not any(counts[name] for name in ("x tanh x", "quadratic", "cubic", "attention"))


def test_the_drawing_has_two_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    table, falls, *_ = drawn.axes
    assert all(axes.get_xlabel() and axes.get_ylabel() and axes.get_title(loc="left") for axes in (table, falls))
