"""Fig 2 of the softmax paper holds, and fails when the physics is broken."""

import numpy as np
import pytest

from stepwell.papers.softmax_attention import fig02_blocks as fig02

W_X, W_Y, U_X, NAMED, SHARE = range(5)


@pytest.fixture(scope="module")
def data():
    return fig02.simulate(quick=True)


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(fig02.claims(data)) if not claim.passed}


def test_trained_matrices_have_the_shapes_of_tokens(data):
    found = data["trained"]
    assert found["scores"].shape[2:] == (3, 33, 30) and found["readout"].shape[2:] == (3, 3, 33)


def test_the_blocks_are_those_of_the_eigenvalues(data):
    """The matrices that are drawn and the eigenvalues that are observed are read off in different ways."""
    found = data["trained"]
    blocks = np.einsum("...ii->...i", found["scores"].values[..., :30, :]).reshape(*found["omega"].shape[:3], 3, 10)
    np.testing.assert_allclose(blocks.mean(axis=-1), found["omega"].values, atol=1e-12)
    np.testing.assert_allclose(
        np.einsum("...ii->...i", found["readout"].values[..., 30:]), found["mu"].values, atol=1e-12
    )
    whole = (found["scores"].values ** 2).sum(axis=(-3, -2, -1))
    parts = 10 * (found["omega"].values ** 2).sum(axis=(-2, -1)) + (found["off"].values[..., :2] ** 2).sum(axis=-1)
    np.testing.assert_allclose(whole, parts)


def test_heads_in_another_order_fail(data):
    found = data["trained"]
    assert NAMED in failing({"trained": found.assign(winner=("task", found["winner"].values[::-1]))})


def test_noise_that_does_not_fall_fails(data):
    found = data["trained"]
    still = found["off"].values * 0 + 0.01
    quiet = found.assign(off=(found["off"].dims, still), late_loss=found["late_loss"] * 0 + 7.0)
    assert failing({"trained": quiet}) >= {W_X, W_Y, U_X}


def test_weights_mostly_off_the_structure_fail(data):
    found = data["trained"]
    assert SHARE in failing({"trained": found.assign(off=found["off"] * 30)})


def test_the_drawing_has_two_panels_and_a_scale(data):
    assert len(fig02.draw(data).axes) == 3
