"""Fig 1 of the softmax paper holds where it should, and fails when the physics is broken."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import xarray as xr

from stepwell.models import SpectralAttention, decomposable
from stepwell.papers.softmax import fig01_emergence as fig01
from stepwell.papers.softmax._fig01_runs import gradient_variance, predict
from stepwell.tasks import MultiTaskRegression

FIGURE = "softmax/fig1"
QUICK = fig01.FIGURE.at(quick=True)
BATCHES = np.array([64, 64, 64, 256, 256, 1024])


@pytest.fixture(scope="module")
def several(data) -> dict[str, xr.Dataset]:
    """Runs of several batch sizes, made up: what noise does falls as one over the batch, and the loss by theory."""
    runs, population = data["descent"], data["population"]
    rate, steps = fig01.FIGURE.settings.rate, runs.sizes["time"]
    copies = runs.isel(run=[0] * BATCHES.size).assign_coords(
        run=range(BATCHES.size), batch=("run", BATCHES), time=rate * np.arange(steps)
    )
    part = 64 / BATCHES * np.array([1, 1.1, 0.9, 1, 1.1, 1])
    late = population.sel(time=slice(*runs.attrs["late"]))
    for name, effect in (("omega", 0.15), ("mu", -0.3)):
        mean = np.einsum("...hh->...h", late[name].values).mean()
        spread = 0.1 * np.array([-1.0, 0.0, 1.0])
        copies[f"late_{name}"] = (("run", "task"), mean * (1 + effect * part[:, None] * (1 + spread)))
    cost = rate * float(data["noise"]["total"]) / 4 / 64
    copies["late_loss"] = ("run", float(late["loss"].mean()) + 1.3 * cost * part)
    copies["half"] = ("run", np.full(BATCHES.size, float(population["half"].mean()) + 0.1))
    copies["phase"] = (("run", "edge"), np.tile([5.0, 6.4], (BATCHES.size, 1)))
    others = copies[["late_mu", "late_loss"]].isel(run=[0, 1, 2])
    others["half"] = ("run", copies["half"].values[:3] + np.array([-0.02, 0.0, 0.02]))
    others["late_loss_error"] = ("run", np.full(3, 0.02 * cost))
    return {**data, "descent": copies, "others": others}


@pytest.mark.parametrize(
    ("changes", "judged"),
    [
        ({"dims": "4", "blocks": "1"}, {"gradient-eigenvalues", "emergence-exponent"}),
        (
            {"dims": "4,4", "blocks": "3", "runs": "((8, 1), (16, 1), (300, 2))"},
            {"gradient-eigenvalues", "gradient-population", "emergence-exponent", "emergence-brackets"}
            | {"limit-omega", "limit-mu", "fading", "tail"},
        ),
        (
            {"dims": "4,3", "blocks": "7", "steps": "520", "population_rate": "0.1", "population_steps": "620"},
            {"gradient-eigenvalues", "gradient-population", "gradient-noise", "one-head-a-task", "end-loss"}
            | {"inclination", "inclination-gradual", "three-phases"},
        ),
    ],
    ids=["one task, one batch, one run", "three batches, short runs", "unequal tasks, long runs"],
)
def test_other_settings(survives, changes, judged):
    small = {"embedding": "8", "context": "20", "steps": "20", "population_steps": "20", "sets": "1"}
    claims = survives({**small, "sequences": "32", "block_size": "8", "runs": "((8, 1),)", **changes})
    assert {name for name, claim in claims.items() if claim.judged()} == judged


def broken(several: dict[str, xr.Dataset], **changes) -> dict[str, xr.Dataset]:
    return {**several, "descent": several["descent"].assign(changes)}


def test_made_up_runs_hold(several, failing):
    assert failing(several) == set()
    names = {claim.id.rpartition("/")[2] for claim in fig01.claims(several, QUICK)}
    assert names >= {"three-phases", "emergence-whole", "batch-mu", "batch-loss", "noise-cost"}


def test_a_gradient_off_the_structure_in_the_population_fails(data, failing):
    gradient = data["gradient"]
    wrong = gradient.assign(square=gradient["square"] + 5 * gradient["error"], off=gradient["off"] * 0 + 1.0)
    assert failing({**data, "gradient": wrong}) == {"gradient-noise", "gradient-population"}


def test_another_gradient_on_the_structure_fails(data, failing):
    gradient = data["gradient"]
    wrong = gradient.assign(reduced=1.2 * gradient["reduced"])
    assert failing({**data, "gradient": wrong}) == {"gradient-eigenvalues"}


def test_heads_in_another_order_fail(data, failing):
    theory = data["theory"]
    wrong = theory.assign(winner=("task", theory["winner"].values[::-1]))
    assert failing({**data, "theory": wrong}) == {"one-head-a-task"}


def test_a_theory_of_another_context_fails(data, failing):
    wrong = failing({**data, "theory": predict(replace(QUICK, context=150))})
    assert wrong >= {"end-loss", "end-mu", "fading", "limit-mu", "tail"}


@pytest.mark.parametrize("name", ["omega", "mu"])
def test_a_head_that_does_not_learn_fails(data, failing, name: str):
    """However much the others then scatter about the mean."""
    population = data["population"].copy(deep=True)
    population[name].values[0, -1, 0, 0] = 0.0
    assert failing({**data, "population": population}) == {f"end-{name}"}


def test_times_of_the_half_squared_loss_fail(data, failing):
    late = data["emergence"].assign(time=2 * data["emergence"]["time"])
    assert failing({**data, "emergence": late}) == {"emergence-brackets", "emergence-exact"}


def test_another_power_of_the_start_fails(data, failing):
    emergence = data["emergence"]
    wrong = emergence.assign(time=emergence["time"] * emergence["scale"] ** 0.05)
    assert failing({**data, "emergence": wrong}) == {"emergence-exponent"}


def test_runs_without_phases_or_late_ones_fail(several, failing):
    """The phases of small batches are not judged; times are, by the noise of their batch."""
    phase, half = several["descent"]["phase"].copy(deep=True), several["descent"]["half"].copy(deep=True)
    phase[0], half[0] = np.nan, half[0] + 0.1
    assert failing(broken(several, phase=phase, half=half)) == set()
    phase[-1], half[-1] = np.nan, half[-1] + 0.1
    assert failing(broken(several, phase=phase, half=half)) == {"three-phases", "emergence-whole"}
    calm = several["population"]
    assert failing({**several, "population": calm.assign(phases=~calm["phases"])}) == {"three-phases"}


def test_heads_that_do_not_incline_in_the_warm_up_fail(several, failing):
    """If each head kept its initial inclination until the loss falls; and if it took it in one step."""
    calm, runs = several["population"], several["descent"]
    early = {name: calm[name].isel(time=0) + 0 * calm[name] for name in ("omega", "mu")}
    wrong = {name: calm[name].where(calm["time"] > 5.5, early[name]) for name in early}
    never = {name: runs[name].isel(time=0) + 0 * runs[name] for name in early}
    never = {name: values.transpose(*runs[name].dims) for name, values in never.items()}
    wrong = {name: values.transpose(*calm[name].dims) for name, values in wrong.items()}
    both = {**broken(several, **never), "population": calm.assign(wrong)}
    assert failing(both) >= {"inclination"}
    back = calm["omega"] * (1 - 0.3 * np.eye(3) * (calm["time"] > 3).values[:, None, None])
    assert failing({**several, "population": calm.assign(omega=back)}) >= {"inclination-gradual"}


@pytest.mark.parametrize("name", ["mu", "loss"])
@pytest.mark.parametrize("power", [-0.5, 0.5])
def test_noise_that_falls_as_another_power_fails(several, failing, name: str, power: float):
    """As the root of the batch, or as its power 3/2; with as many sequences as at the full settings."""
    several = {**several, "scatter": 0.6 * several["scatter"]}
    runs = several["descent"]
    late = several["population"].sel(time=slice(*runs.attrs["late"]))[name]
    mean = (late if name == "loss" else np.einsum("...hh->...h", late.values)).mean()
    wrong = mean + (runs[f"late_{name}"] - mean) * (runs["batch"] / 64) ** power
    assert f"batch-{name}" in failing(broken(several, **{f"late_{name}": wrong}))


@pytest.mark.parametrize("name", ["mu", "loss"])
@pytest.mark.parametrize("batch", [256, 1024])
def test_runs_without_any_noise_at_one_batch_fail(several, failing, name: str, batch: int):
    runs = several["descent"]
    late = several["population"].sel(time=slice(*runs.attrs["late"]))[name]
    mean = (late if name == "loss" else np.einsum("...hh->...h", late.values)).mean()
    wrong = runs[f"late_{name}"].where(runs["batch"] != batch, mean)
    assert f"batch-{name}" in failing(broken(several, **{f"late_{name}": wrong}))


def test_a_loss_without_the_cost_of_noise_fails(several, failing):
    runs = several["descent"]
    calm = float(several["population"]["loss"].sel(time=slice(*runs.attrs["late"])).mean())
    assert failing(broken(several, late_loss=calm + 0.5 * (runs["late_loss"] - calm))) == {"noise-cost"}


def test_the_cost_of_noise_is_judged_where_it_can_be_resolved(several, failing):
    """At the largest batch an excess of zero is within the error: runs there are not counted."""
    loss = several["descent"]["late_loss"].copy(deep=True)
    calm = float(several["population"]["loss"].sel(time=slice(*several["descent"].attrs["late"])).mean())
    loss[-2] = calm
    assert {"noise-cost"} <= failing(broken(several, late_loss=loss)) <= {"noise-cost", "batch-loss"}
    # With as many sequences as at the full settings.
    population = several["population"].assign(error=0.6 * several["population"]["error"])
    (judged,) = (c for c in fig01.claims({**several, "population": population}, QUICK) if c.id == "noise-cost")
    assert judged.count == np.sum(BATCHES < BATCHES.max()) and judged.tolerance < judged.predicted


def test_the_variance_of_gradients_does_not_depend_on_the_batch():
    """That of a sequence, from batches of two sizes."""
    task = MultiTaskRegression((2,), 1.0, 5)
    spectral = SpectralAttention.balanced(np.full((1, 1), 0.5), np.ones((1, 1)), task.dims)
    model = decomposable(spectral, task, embedding=2, key=jax.random.key(0))
    one, other = (gradient_variance(model, task, blocks=200, size=size, seed=size) for size in (16, 64))
    assert abs(float(one["total"] - other["total"])) < 4 * np.hypot(float(one["error"]), float(other["error"]))
    assert float(one["error"]) < 0.2 * float(one["total"])


def test_the_drawing_has_six_panels(data, several):
    assert len(fig01.draw(data, QUICK).axes) == 6 and len(fig01.draw(several, QUICK).axes) == 6
