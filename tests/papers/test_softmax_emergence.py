"""Fig 1 of the softmax paper holds where it should, and fails when the physics is broken."""

import numpy as np
import pytest

from stepwell.papers.softmax_attention import fig01_emergence as fig01

NOISY = {"three phases found in the curve", "half of the fall is done between"}
"""What one run on batches of 64 may fail: it can settle later than it is trained."""


@pytest.fixture(scope="module")
def data():
    return fig01.simulate(quick=True)


def failing(data) -> list[str]:
    return [
        claim.statement
        for claim in fig01.claims(data)
        if not claim.passed and not any(words in claim.statement for words in NOISY)
    ]


def test_claims_hold(data):
    assert failing(data) == []


def test_a_gradient_off_the_structure_in_the_population_fails(data):
    gradient = data["gradient"]
    wrong = gradient.assign(square=gradient["square"] + 5 * gradient["error"], off=gradient["off"] * 0 + 1.0)
    assert len(failing({**data, "gradient": wrong})) == 2


def test_heads_in_another_order_fail(data):
    theory = data["theory"]
    wrong = theory.assign(winner=("task", theory["winner"].values[::-1]))
    assert [words[:14] for words in failing({**data, "theory": wrong})] == ["Whole matrices"]


def test_a_theory_of_another_context_fails(data):
    found = failing({**data, "theory": fig01.predict(context=150)})
    assert any("The exact loss" in words and "quadrature" in words for words in found)
    assert any("fades" in words for words in found) and any("μ = √d" in words for words in found)


def test_times_of_the_half_squared_loss_fail(data):
    found = failing({**data, "emergence": data["emergence"].assign(time=2 * data["emergence"]["time"])})
    assert len(found) == 1 and "lie in their brackets" in found[0]


def test_another_power_of_the_start_fails(data):
    emergence = data["emergence"]
    wrong = emergence.assign(time=emergence["time"] * emergence["scale"] ** 0.2)
    assert any("as one over the size of the start" in words for words in failing({**data, "emergence": wrong}))


def test_over_batch_sizes_the_noise_must_fall(data):
    """Runs made up: what is off the structure falls as 1/√batch, or not at all."""
    runs, batches = data["descent"], np.array([64, 64, 128, 128, 256])
    copies = runs.isel(run=[0] * 5).assign_coords(run=range(5), batch=("run", batches))
    root = (64 / batches) ** 0.5 * np.array([1, 1.02, 1, 1.02, 1.01])
    late = data["population"].sel(time=slice(*runs.attrs["late"]))
    for name in ("omega", "mu"):
        mean = np.einsum("...hh->...h", late[name].values).mean()
        spread = np.array([0.999, 1.0, 1.001])
        copies[f"late_{name}"] = (("run", "task"), mean * (1 + 0.2 * root[:, None] ** 2 * spread))
    copies["late_loss"] = ("run", float(late["loss"].mean()) + 4 * root**2)
    copies["late_loss_error"] = ("run", np.full(5, 0.1))
    copies["late_off"] = (("run", "block"), np.outer(root, np.ones(4)))
    good = {**data, "descent": copies}
    assert failing(good) == []
    assert len(fig01.claims(good)) == len(fig01.claims(data)) + 4
    still = {**data, "descent": copies.assign(late_off=copies["late_off"] * 0 + root[:1, None])}
    assert len(failing(still)) == 1
    away = copies.assign(late_loss=copies["late_loss"] * 0 + 12.0)
    assert any("the loss approaches" in words for words in failing({**data, "descent": away}))


def test_the_drawing_has_seven_panels(data):
    assert len(fig01.draw(data).axes) == 7
