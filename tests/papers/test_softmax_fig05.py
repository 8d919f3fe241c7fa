"""The baselines lie where theory says, and do not for another theory."""

import dataclasses

import numpy as np
import pytest
import xarray as xr

from stepwell.papers.softmax import fig05_baselines as figure

FIGURE = "softmax/fig5"
QUICK = figure.FIGURE.at(quick=True)
BY_ERROR = {f"{risk}-{kind}" for risk in ("bayes", "ridge-0.05", "ridge-5") for kind in ("mean", "regressed")}


@pytest.mark.parametrize(
    ("changes", "not_judged"),
    [
        (
            {"seeds": "1", "dims": "15", "contexts_drawn": "1", "rates": "0.01", "gains": "((12, 12),)"},
            BY_ERROR | {"on-par", "no-double-descent", "softmax-sampled", "ten-fold", "ten-fold-together"},
        ),
        ({"seeds": "1000,2", "dims": "60,12", "gains": "((12, 1200), (12, 120000))"}, set()),
    ],
    ids=["one of each", "two seeds, dimensions that fall"],
)
def test_other_settings(survives, changes, not_judged):
    claims = survives(
        {
            "context": "20",
            "contexts_drawn": "5",
            "points": "5",
            "steps": "20",
            "sequences": "32",
            "together_steps": "20",
            "together_tested": "32",
            **changes,
        }
    )
    assert {name for name, claim in claims.items() if not claim.judged()} == not_judged
    assert claims["bayes-mean"].passed == ("bayes-mean" not in not_judged)


def test_a_penalty_added_to_the_sum_fails(data, monkeypatch, failing):
    """α = penalty/L in the regressions, where theory has the penalty itself."""
    right = figure._risks
    with monkeypatch.context() as patch:
        patch.setattr(
            figure,
            "_risks",
            lambda ratio: {k: r if k == "bayes" else r._replace(alpha=r.alpha / 100) for k, r in right(ratio).items()},
        )
        wrong = figure.drawn(dataclasses.replace(QUICK, dims=(60, 240)))
    kept = data["drawn"]["next_order"].sel(dim=wrong["dim"])
    assert failing({**data, "drawn": wrong.assign(next_order=kept)}) == {
        "ridge-0.05-mean",
        "ridge-0.05-regressed",
        "ridge-5-mean",
        "ridge-5-regressed",
        "on-par",
    }


def test_another_dimension_fails(data, failing):
    drawn = data["drawn"]
    shifted = drawn["predicted"].roll(dim=1, roll_coords=False)
    assert {"bayes-mean", "bayes-regressed", "ridge-0.05-mean", "ridge-5-mean"} <= failing(
        {**data, "drawn": drawn.assign(predicted=shifted)}
    )


def test_softmax_attention_that_is_not_trained_to_the_end_fails(data, failing):
    trained = data["softmax"]
    assert failing({**data, "softmax": trained.assign(risk=1.00001 * trained["risk"])}) == {"softmax-end"}


def test_the_closed_form_is_not_the_loss_over_sequences(data, failing):
    sampled = data["sampled"]
    rho = 2 * np.e * sampled["dim"] / data["softmax"].attrs["context"]
    assert failing({**data, "sampled": sampled.assign(mean=rho / (1 + rho))}) == {"softmax-sampled"}


def test_a_risk_that_peaks_fails(data, failing):
    """That of ridge regression with a small penalty in place of softmax attention."""
    trained = data["softmax"]
    ridge = data["drawn"]["predicted"].sel(risk="ridge_0.05")
    risk = trained["risk"] * 0 + ridge.drop_vars("risk")
    wrong = trained.assign(risk=risk, best=risk)
    assert failing({**data, "softmax": wrong}) == {"no-double-descent", "on-par", "softmax-sampled"}


def test_gains_of_other_numbers_of_tasks_fail(data, failing):
    found = data["gain"]
    assert failing({**data, "gain": found.assign(single=0.9 * found["single"])}) == {"gain", "ten-fold"}
    spectral = data["surrogate"]
    assert failing({**data, "surrogate": spectral.assign(single=0.9 * spectral["single"])}) == {"ten-fold-together"}


def test_heads_that_share_tasks_are_no_better_than_one(data, failing):
    """And heads that disturb each other end above the loss of a head alone."""
    found = data["gain"]
    shared = found.assign(several=found["several"].where(~found["together"], found["single"]))
    assert failing({**data, "gain": shared}) == {"together", "several-better", "gain"}
    disturbed = found.assign(several=found["several"] * xr.where(found["together"], 1.1, 1.0))
    assert "together" in failing({**data, "gain": disturbed})


def test_the_term_of_order_one_over_length_is_that_of_the_samples():
    """Bai and Silverstein's term, against many small contexts: without it the limit is off, with it next to nothing."""
    d, context, rng = 10, 20, np.random.default_rng(0)
    drawn = np.array([figure._context(rng, d, context)[0] for _ in range(4000)])
    limit = figure.curves(np.array([d / context]))
    for place, name in enumerate(figure.RISKS):
        term = figure.finite_size_term(figure._risks(d / context)[name].of_eigenvalue, d / context) / d
        error = drawn[:, place].std() / len(drawn) ** 0.5
        off = drawn[:, place].mean() - float(limit[name][0])
        assert abs(off - term) < 4 * error + abs(term) / 2
        assert abs(off) > 4 * error


def test_the_drawing_has_two_panels_with_words(data):
    drawn = figure.draw(data, QUICK)
    assert len(drawn.axes) == 2
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)


def test_no_closed_form_is_below_the_bayes_risk():
    """Ridge regression with penalty 5 is the posterior mean at d/L = 5."""
    curve = figure.curves(np.geomspace(0.01, 5, 40))
    for name in ("ridge_0.05", "ridge_5", "flow", "single"):
        assert float((curve[name] - curve["bayes"]).min()) > -1e-12
    np.testing.assert_allclose(figure._gain(curve["ratio"]), curve["single"] / curve["flow"], rtol=1e-6)
