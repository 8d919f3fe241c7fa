"""What makes plateaus long or short: the claims hold for the runs of Fig 2, and fail for others."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from stepwell.figures import InvalidInput
from stepwell.papers.simplicity import _fig02_runs as runs
from stepwell.papers.simplicity import fig02_plateaus as figure
from stepwell.theory.units import direction_times

FIGURE = "simplicity/fig2"
SMALL = {
    "seeds": "3",
    "starts": "20",
    "kappas": "1",
    "linear_widths": "10",
    "attention_widths": "4",
    "linear_scales": "1e-4",
    "attention_scales": "1e-2",
    "ranks": "1",
}
KNOWN = {"linear-width"}
ALONE = {"attention-width", "width-contrast", "linear-width", "attention-first-drop", "one-drop", "attention-spectrum"}
ALONE |= {
    "linear-manifold",
    "attention-manifold",
    "attention-equal",
    "linear-scale",
    "attention-scale",
    "logarithm",
    "inverse",
}


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        ({}, ALONE),
        ({"seeds": "3,5", "modes": "2", "kappas": "0,2", "ranks": "0", "linear_widths": "30,10"},
         {"linear-next-drop", "attention-next-drop"} | ALONE
         - {"linear-width", "one-drop", "attention-spectrum", "attention-equal", "linear-manifold",
            "attention-manifold"}),
    ],
)  # fmt: skip
def test_other_settings(survives, changes: dict[str, str], unjudged: set[str]):
    claims = survives({**SMALL, **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


@pytest.mark.parametrize(
    ("name", "value"), [("modes", 1), ("kappa", 0.0), ("widths", (2,)), ("ranks", (4,))], ids=lambda value: str(value)
)
def test_settings_without_plateaus_are_refused(name: str, value):
    with pytest.raises(InvalidInput, match=name):
        figure.Settings(**{"attention_widths" if name == "widths" else name: value})


def changed(data, panel: str, **arrays):
    return {**data, panel: data[panel].assign(arrays)}


def test_widths_that_do_nothing_fail(data, failing):
    same = 0 * data["drawn"]["time"] + data["drawn"]["time"].isel(value=0, drop=True)
    assert failing(changed(data, "drawn", time=same)) >= {"width-contrast", "attention-first-drop"}
    rising = data["drawn"]["time"] * np.arange(1, same.sizes["value"] + 1)[:, None, None] ** 2
    assert failing(changed(data, "drawn", time=rising)) >= {"attention-width"}


def test_linear_networks_on_which_width_had_no_effect_would_surprise(data, failing):
    """The claim of the paper would hold, and that of the logarithm fail."""
    passed = data["width-linear"]["passed"]
    same = 0 * passed + passed.isel(value=0, drop=True)
    claims = {claim.id.rpartition("/")[2]: claim for claim in figure.claims(changed(data, "width-linear", passed=same),
                                                                            figure.FIGURE.at(quick=True))}  # fmt: skip
    assert claims["linear-width"].passed and not claims["linear-times"].passed


def test_predictions_that_are_off_fail(data, failing):
    for panel, factor, claim in (
        ("width-attention", 1.03, "attention-schedule"),
        ("manifold-linear", 1.01, "linear-next-drop"),
        ("manifold-attention", 1.2, "attention-next-drop"),
    ):
        assert failing(changed(data, panel, predicted=factor * data[panel]["predicted"])) - KNOWN == {claim}


def test_other_plateaus_fail(data, failing):
    """Attention where linear networks are, and the other way round."""
    for panel, claim in (("spectrum", "one-drop"), ("spectrum", "attention-equal")):
        names = [f"{panel}-linear", f"{panel}-attention"]
        swapped = {name: data[other]["passed"] for name, other in zip(names, names[::-1], strict=True)}
        both = {**data, **{name: data[name].assign(passed=passed) for name, passed in swapped.items()}}
        assert claim in failing(both)


@pytest.mark.parametrize("architecture", figure.ARCHITECTURES)
def test_starts_that_are_all_small_fail(data, failing, architecture: str):
    """Near a manifold they have the plateaus of others, and of scale one, too."""
    near, scaled = data[f"manifold-{architecture}"], data[f"scale-{architecture}"]["passed"]
    first = near["passed"].isel(value=0, drop=True)
    assert f"{architecture}-manifold" in failing(
        changed(data, f"manifold-{architecture}", passed=0 * near["passed"].fillna(0.0) + first)
    )
    same = 0 * scaled.fillna(0.0) + scaled.isel(value=0, drop=True)
    expected = {f"{architecture}-scale", {"linear": "logarithm", "attention": "inverse"}[architecture]}
    assert failing(changed(data, f"scale-{architecture}", passed=same)) - KNOWN == expected


def test_exponents_in_another_order_fail(data, failing):
    passed = data["spectrum-attention"]["passed"]
    turned = passed.isel(value=slice(None, None, -1)).assign_coords(value=passed["value"].values)
    assert "attention-spectrum" in failing(changed(data, "spectrum-attention", passed=turned))


def test_curves_that_are_off_fail(data, failing):
    error = data["spectrum-linear"]["error"]
    assert failing(changed(data, "spectrum-linear", error=10 * error)) - KNOWN == {"linear-curves"}


def test_a_wide_linear_network_moves_as_its_reduction():
    """To the solver's error: the whole loss curve of thirty units is that of six."""
    from stepwell.dynamics import Record, flow
    from stepwell.models import PolynomialUnits
    from stepwell.objectives import FeatureMoments

    weights = 1e-2 * runs.gaussian(30, 3, False, 1)
    options = {"until": 40.0, "rtol": 1e-9, "record": Record(points=200), "progress": False}
    loss = FeatureMoments(runs.teacher(1.0, 3).moments())
    given = (jnp.asarray(weights[:, :3, None]), jnp.asarray(weights[:, 3:]))
    models = PolynomialUnits(*given), runs._linear(weights, 3)
    wide, narrow = (flow(model, loss, **options)["loss"].values[0] for model in models)
    assert len(models[1].inner) == 6
    np.testing.assert_allclose(narrow, wide, atol=1e-7 * wide[0])


def test_mean_times_are_those_of_many_initializations():
    settings = figure.Settings(linear_widths=(5, 40))
    mean, deviation = figure.expected_times(settings)
    cross = np.diag(runs.strengths(settings.kappa, 3))
    for width in settings.linear_widths:
        drawn = settings.linear_scale * np.random.default_rng(0).normal(size=(4000, width, 6))
        times = np.array([direction_times(cross, one[:, :3], one[:, 3:]) for one in drawn])
        error = deviation.sel(value=width).values / np.sqrt(len(times))
        assert np.all(np.abs(times.mean(axis=0) - mean.sel(value=width).values) < 4 * error)
        np.testing.assert_allclose(times.std(axis=0), deviation.sel(value=width).values, rtol=0.1)


def test_plateaus_are_counted():
    """Two drops: one after a wait, the other at once after it; and a third that never ends."""
    steps = np.array([3.0, 2.0, 1.0, 0.0])
    times = np.linspace(0.0, 20.0, 2001)
    loss = 3.0 - np.clip(times - 10, 0, 1) - np.clip(times - 11, 0, 1) - 0.6 * np.clip(times - 18, 0, 1)
    passed = xr.DataArray(
        runs.passages(times, loss, steps), {"mode": [1, 2, 3], "part": list(runs.PASSES)}, ("mode", "part")
    )
    np.testing.assert_allclose(passed.sel(part="half"), [10.5, 11.5, 18.0 + 5 / 6], atol=0.01)
    np.testing.assert_allclose(runs.plateau_lengths(passed), [10.1, 0.2, 6.267], atol=0.02)
    assert int(runs.plateau_count(passed)) == 2
    assert np.isnan(runs.passages(times, loss, steps)[2, 3])


def test_the_drawing_has_eight_panels_with_words(data):
    drawn = figure.draw(data, figure.FIGURE.at(quick=True))
    assert len(drawn.axes) == 8
    assert all(axes.get_title(loc="left") and axes.get_legend() for axes in drawn.axes)
