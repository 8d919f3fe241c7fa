"""Fig 2 of the softmax paper holds, and fails when the physics is broken."""

import numpy as np
import pytest

from stepwell.papers.softmax_attention import fig02_blocks as fig02

FIGURE = "softmax/fig2"


def test_trained_matrices_have_the_shapes_of_tokens(data):
    trained = data["trained"]
    assert trained["scores"].shape[2:] == (3, 33, 30) and trained["readout"].shape[2:] == (3, 3, 33)


def test_the_blocks_are_those_of_the_eigenvalues(data):
    """The matrices that are drawn and the eigenvalues that are observed are read off in different ways."""
    trained = data["trained"]
    blocks = np.einsum("...ii->...i", trained["scores"].values[..., :30, :]).reshape(*trained["omega"].shape[:3], 3, 10)
    np.testing.assert_allclose(blocks.mean(axis=-1), trained["omega"].values, atol=1e-12)
    np.testing.assert_allclose(
        np.einsum("...ii->...i", trained["readout"].values[..., 30:]), trained["mu"].values, atol=1e-12
    )
    whole = (trained["scores"].values ** 2).sum(axis=(-3, -2, -1))
    parts = 10 * (trained["omega"].values ** 2).sum(axis=(-2, -1)) + (trained["off"].values[..., :2] ** 2).sum(axis=-1)
    np.testing.assert_allclose(whole, parts)


@pytest.fixture(scope="module")
def quiet(data):
    """What is off the structure made to fall as the root of the batch, which one seed does not show of every block."""
    trained = data["trained"]
    off = trained["off"].copy(deep=True)
    off[1] = off[0] * float(trained["batch"][0] / trained["batch"][1]) ** 0.5
    return trained.assign(off=off)


def test_claims_hold_for_noise_that_falls_as_it_should(quiet, failing):
    assert failing({"trained": quiet}) == set()


def test_heads_in_another_order_fail(quiet, failing):
    wrong = quiet.assign(winner=("task", quiet["winner"].values[::-1]))
    assert failing({"trained": wrong}) == {"named-heads"}


def test_noise_that_does_not_fall_fails(quiet, failing):
    trained = quiet
    still = trained["off"].values * 0 + 0.01
    wrong = trained.assign(off=(trained["off"].dims, still), late_loss=trained["late_loss"] * 0 + 7.0)
    assert failing({"trained": wrong}) >= {"noise-w-x", "noise-w-y", "noise-u-x"}


def test_weights_mostly_off_the_structure_fail(quiet, failing):
    assert "on-structure" in failing({"trained": quiet.assign(off=quiet["off"] * 30)})


def test_the_drawing_has_two_panels_and_a_scale(data):
    assert len(fig02.draw(data).axes) == 3
