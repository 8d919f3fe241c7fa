"""The baselines lie where theory says, and do not for another theory."""

import dataclasses

import numpy as np

from stepwell.papers.softmax_attention import fig05_baselines as figure

FIGURE = "softmax/fig5"


def test_a_penalty_added_to_the_sum_fails(data, monkeypatch, failing):
    """α = penalty/L in the regressions, where theory has the penalty itself."""
    right = figure._risks
    with monkeypatch.context() as patch:
        patch.setattr(
            figure,
            "_risks",
            lambda ratio: {k: r if k == "bayes" else r._replace(alpha=r.alpha / 100) for k, r in right(ratio).items()},
        )
        wrong = figure.drawn(dataclasses.replace(figure.QUICK, dims=(20, 110)))
    kept = data["drawn"]["next_order"].sel(dim=wrong["dim"])
    assert failing({**data, "drawn": wrong.assign(next_order=kept)}) == {
        "ridge-0.05-mean",
        "ridge-0.05-regressed",
        "ridge-5-mean",
        "ridge-5-regressed",
    }


def test_another_dimension_fails(data, failing):
    drawn = data["drawn"]
    shifted = drawn["predicted"].roll(dim=1, roll_coords=False)
    assert {"bayes-mean", "bayes-regressed", "ridge-0.05-mean", "ridge-5-mean"} <= failing(
        {**data, "drawn": drawn.assign(predicted=shifted)}
    )


def test_the_leading_order_is_not_the_exact_loss(data, failing):
    sampled = data["sampled"]
    assert failing({**data, "sampled": sampled.assign(exact=sampled["leading"])}) == {"flow-sampled"}


def test_heads_for_each_task_are_not_a_single_head(data, failing):
    trained = data["trained"]
    assert failing({**data, "trained": trained.assign(loss=0.99 * trained["loss"])}) == {"single-head"}


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
    drawn = figure.draw(data)
    assert len(drawn.axes) == 2
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)


def test_curves_of_another_shape_fail(data, failing):
    curve = data["curves"]
    assert failing({**data, "curves": curve.assign({"ridge_0.05": curve["bayes"]})}) == {"peak"}
    assert failing({**data, "curves": curve.assign({"ridge_5": curve["ridge_0.05"]})}) == {"rises"}
    assert failing({**data, "curves": curve.assign(flow=0.1 * curve["bayes"])}) == {"least"}
    sampled = data["sampled"]
    assert "flow-leading" in failing({**data, "sampled": sampled.assign(leading=1.5 * sampled["leading"])})
