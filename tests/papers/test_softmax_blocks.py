"""Fig 2 of the softmax paper holds, and fails when the physics is broken."""

import numpy as np
import pytest
import scipy

from stepwell.papers.softmax import fig02_blocks as fig02
from stepwell.papers.softmax._common import CHANCE, slope

FIGURE = "softmax/fig2"
QUICK = fig02.FIGURE.at(quick=True)
NOISE = {"noise-w-x", "noise-w-y", "noise-u-x"}


def test_trained_matrices_have_the_shapes_of_tokens(data):
    trained = data["trained"]
    assert trained["scores"].shape[1:] == (3, 33, 30) and trained["readout"].shape[1:] == (3, 3, 33)


def test_the_blocks_are_those_of_the_eigenvalues(data):
    """The matrices that are drawn and the eigenvalues that are observed are read off in different ways."""
    trained = data["trained"]
    blocks = np.einsum("...ii->...i", trained["scores"].values[..., :30, :]).reshape(*trained["omega"].shape[:2], 3, 10)
    np.testing.assert_allclose(blocks.mean(axis=-1), trained["omega"].values, atol=1e-12)
    np.testing.assert_allclose(
        np.einsum("...ii->...i", trained["readout"].values[..., 30:]), trained["mu"].values, atol=1e-12
    )
    whole = (trained["scores"].values ** 2).sum(axis=(-3, -2, -1))
    parts = 10 * (trained["omega"].values ** 2).sum(axis=(-2, -1)) + (trained["off"].values[..., :2] ** 2).sum(axis=-1)
    np.testing.assert_allclose(whole, parts)


@pytest.mark.parametrize(
    "changes",
    [
        {"dims": "4", "noise_batches": "8", "noise_seeds": "1"},
        {"dims": "1", "noise_batches": "8,16,32", "noise_seeds": "1"},
        {"dims": "2,2,3,2", "seeds": "1,2", "noise_batches": "4,8,16", "noise_seeds": "2,1"},
    ],
)
def test_other_settings(survives, changes):
    claims = survives({"embedding": "9", "context": "20", "batch": "8", "steps": "30", "noise_steps": "5", **changes})
    assert claims["filled"].judged() and claims["filled"].count == len(changes.get("seeds", "1,2").split(","))
    several = {name for name, claim in claims.items() if "noise" in name and claim.judged()}
    expected = {"4": set(), "1": {"noise-w-y", "noise-u-x"}, "2,2,3,2": NOISE | {"noise-u-y"}}
    assert several == expected[changes["dims"]]


@pytest.mark.parametrize("power", [0.0, 0.5, 2.0])
def test_noise_of_another_power_fails(data, failing, power: float):
    """-1/2 too: what falls as the root of the batch must not pass for noise."""
    noise = data["noise"]
    wrong = noise.assign(off=noise["off"] * noise["batch"] ** (1 - power))
    assert failing({**data, "noise": wrong}) == NOISE


def test_heads_in_another_order_fail(data, failing):
    trained = data["trained"]
    wrong = trained.assign(winner=("task", trained["winner"].values[::-1]))
    assert failing({**data, "trained": wrong}) == {"named-heads", "filled"}


@pytest.mark.parametrize(
    ("matrix", "row", "column", "size", "expected"),
    [
        ("scores", 31, 4, 0.99, {"filled"}),
        ("scores", 15, 4, 0.99, {"filled"}),
        ("readout", 1, 7, 1.01, {"filled", "named-heads"}),
    ],
)
def test_an_entry_off_the_structure_fails(data, failing, matrix: str, row: int, column: int, size: float, expected):
    """In W_Y and in the rest of W_X, above the smallest that theory fills; in U_X, above the only one."""
    trained = data["trained"].copy(deep=True)
    values = trained[matrix].values
    values[:, 0, row, column] = size * np.abs(values[:, 0]).max()
    assert failing({**data, "trained": trained}) == expected


def test_the_drawing_has_three_panels_and_a_scale(data):
    assert len(fig02.draw(data, QUICK).axes) == 4


def test_slopes_and_their_errors_are_those_of_scipy():
    rng = np.random.default_rng(0)
    x = np.repeat([1.0, 2.0, 4.0], 3)
    y = 0.5 - 2 * x + rng.normal(0, 0.1, x.size)
    reference = scipy.stats.linregress(x, y)
    scatter = reference.stderr * np.sqrt(((x - x.mean()) ** 2).sum())
    # Eight others of the same scatter.
    fit = slope(x, y, np.repeat([-1.0, 1.0], 4) * scatter * np.sqrt(7 / 8))
    assert fit.value == pytest.approx(reference.slope, rel=1e-12)
    assert fit.allowed == pytest.approx(scipy.stats.t.isf(CHANCE / 2, 7) * reference.stderr, rel=1e-12)
