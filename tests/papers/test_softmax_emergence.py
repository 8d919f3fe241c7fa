"""Fig 1 of the softmax paper holds where it should, and fails when the physics is broken."""

import numpy as np

from stepwell.papers.softmax_attention import fig01_emergence as fig01

FIGURE = "softmax/fig1"

NOISY = {"three-phases", "emergence-whole"}
"""What one run on batches of 64 may fail: it can settle later than it is trained."""


def test_a_gradient_off_the_structure_in_the_population_fails(data, failing):
    gradient = data["gradient"]
    wrong = gradient.assign(square=gradient["square"] + 5 * gradient["error"], off=gradient["off"] * 0 + 1.0)
    assert failing({**data, "gradient": wrong}) - NOISY == {"gradient-noise", "gradient-population"}


def test_heads_in_another_order_fail(data, failing):
    theory = data["theory"]
    wrong = theory.assign(winner=("task", theory["winner"].values[::-1]))
    assert failing({**data, "theory": wrong}) - NOISY == {"one-head-a-task"}


def test_a_theory_of_another_context_fails(data, failing):
    assert failing({**data, "theory": fig01.predict(context=150)}) >= {"end-loss", "fading", "limit-mu"}


def test_times_of_the_half_squared_loss_fail(data, failing):
    late = data["emergence"].assign(time=2 * data["emergence"]["time"])
    assert failing({**data, "emergence": late}) - NOISY == {"emergence-brackets"}


def test_another_power_of_the_start_fails(data, failing):
    emergence = data["emergence"]
    wrong = emergence.assign(time=emergence["time"] * emergence["scale"] ** 0.2)
    assert "emergence-exponent" in failing({**data, "emergence": wrong})


def test_over_batch_sizes_the_noise_must_fall(data, failing):
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
    assert failing(good) <= NOISY
    assert len(fig01.claims(good)) == len(fig01.claims(data)) + 4
    still = {**data, "descent": copies.assign(late_off=copies["late_off"] * 0 + root[:1, None])}
    assert failing(still) - NOISY == {"batch-off-structure"}
    away = copies.assign(late_loss=copies["late_loss"] * 0 + 12.0)
    assert "batch-loss" in failing({**data, "descent": away})


def test_runs_in_the_bracket_hold_and_late_ones_fail(data, failing):
    """Half times made up: in the middle of the bracket, twice its end, and none."""
    runs, (early, late) = data["descent"], data["theory"]["bracket"].values
    for time, expected in (((early + late) / 2, set()), (2 * late, {"emergence-whole"}), (np.nan, NOISY)):
        span = runs["span"].copy(deep=True)
        span[:, 1] = time
        assert failing({**data, "descent": runs.assign(span=span)}) == expected


def test_the_drawing_has_seven_panels(data):
    assert len(fig01.draw(data).axes) == 7
