"""Sign pairs do what is claimed, and the claims fail where signs, rates or levels are wrong."""

import numpy as np

from stepwell.papers.softmax_attention import sign_pairs as figure

FIGURE = "softmax/sign-pairs"


def test_the_limit_of_the_flow_for_all_fails(data, failing):
    """If every training ended where positive balanced weights do."""
    curve = data["curves"]
    wrong = {**data, "curves": curve.assign(bound=curve["flow"])}
    assert failing(wrong) == {"unbalanced-end", "signed-end"}


def test_the_bound_for_positive_weights_fails(data, failing):
    curve, heads = data["curves"], data["heads"]
    assert failing({**data, "curves": curve.assign(flow=curve["bound"])}) == {"balanced-end"}
    assert failing({**data, "heads": heads.assign(partition=heads["bound"])}) == {"heads-positive"}
    assert failing({**data, "heads": heads.assign(bound=heads["partition"])}) == {"heads-signed", "heads-contrasts"}


def test_another_rate_of_leaving_fails(data, failing):
    """That of μ = vo itself, which is twice that of v - o."""
    left = data["unbalanced"]
    assert failing({**data, "unbalanced": left.assign(rate=2 * left["rate"])}) == {"plateau-slope"}


def test_two_heads_of_one_sign_are_no_linear_attention(data, failing):
    sampled, curve = data["sampled"], data["curves"]
    wrong = sampled["mean"].copy()
    wrong.loc[{"kind": "pair"}] = float(curve["best_exact"])
    assert failing({**data, "sampled": sampled.assign(mean=wrong)}) == {"flat-pair", "pairs-beat-one-head"}
    share = curve["pair_gap"] + 1e-6
    assert failing({**data, "curves": curve.assign(pair_gap=share)}) == {"share"}


def test_the_variance_of_linear_attention_has_the_query_in_it(data, failing):
    """(dφ+1)/L, and not twice dφ/L."""
    curve = data["curves"]
    variance = 2 * 1.1 * figure.DIM / figure.CONTEXT
    wrong = curve.assign(linear_exact=0 * curve["linear_exact"] + variance / (1 + variance))
    assert failing({**data, "curves": wrong}) == {"linear-variance", "linear-leading"}


def test_softmax_itself_leaves_the_plateau(data, failing):
    exact = data["exact"]
    assert np.sign(exact["mu"].values).sum() == 0
    stayed = exact.assign(tested=data["curves"]["flow_exact"])
    assert failing({**data, "exact": stayed}) == {"exact-leaves"}


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data)
    assert len(drawn.axes) == 3
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
