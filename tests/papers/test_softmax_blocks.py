"""Fig 2 of the softmax paper holds, and fails when the physics is broken."""

import numpy as np
import pytest

from stepwell.papers.softmax_attention import fig02_blocks as fig02

FIGURE = "softmax/fig2"


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


@pytest.fixture(scope="module")
def quiet(data):
    """What is off the structure made to fall as the root of the batch, which one seed does not show of every block."""
    found = data["trained"]
    off = found["off"].copy(deep=True)
    off[1] = off[0] * float(found["batch"][0] / found["batch"][1]) ** 0.5
    return found.assign(off=off)


def test_claims_hold_for_noise_that_falls_as_it_should(quiet, failing):
    assert failing({"trained": quiet}) == set()


def test_heads_in_another_order_fail(quiet, failing):
    wrong = quiet.assign(winner=("task", quiet["winner"].values[::-1]))
    assert failing({"trained": wrong}) == {"named-heads"}


def test_noise_that_does_not_fall_fails(quiet, failing):
    found = quiet
    still = found["off"].values * 0 + 0.01
    wrong = found.assign(off=(found["off"].dims, still), late_loss=found["late_loss"] * 0 + 7.0)
    assert failing({"trained": wrong}) >= {"noise-w-x", "noise-w-y", "noise-u-x"}


def test_weights_mostly_off_the_structure_fail(quiet, failing):
    assert "on-structure" in failing({"trained": quiet.assign(off=quiet["off"] * 30)})


def test_the_drawing_has_two_panels_and_a_scale(data):
    assert len(fig02.draw(data).axes) == 3
