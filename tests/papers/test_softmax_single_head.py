"""Water-filling is what single heads are trained to, and not something else."""

import numpy as np

from stepwell.papers.softmax_attention import single_head as figure

FIGURE = "softmax/single-head"


def test_another_context_in_the_prediction_fails(data, monkeypatch, failing):
    changed = {name: (d, lam, n + 20) for name, (d, lam, n) in figure.INSTANCES.items()}
    kept = data["unequal2"]
    with monkeypatch.context() as patch:
        patch.setattr(figure, "INSTANCES", changed)
        other = figure.unequal("one left out", figure.QUICK)
    wrong = kept.assign(best_omega=other["best_omega"], best_loss=other["best_loss"], fading=other["fading"])
    assert failing({**data, "unequal2": wrong}) == {"one-left-out-shares", "one-left-out-loss", "one-left-out-fading"}


def test_a_budget_of_two_fails(data, failing):
    unequal = data["unequal1"]
    wrong = unequal.assign(omega=unequal["omega"] * 2**0.5)
    assert failing({**data, "unequal1": wrong}) == {"unequal-dimensions-shares", "unequal-dimensions-budget"}


def test_exponential_fading_fails(data, failing):
    unequal = data["unequal3"]
    assert failing({**data, "unequal3": unequal.assign(fading=1.1 * unequal["fading"])}) == {"two-left-out-fading"}


def test_as_many_heads_as_tasks_fails(data, failing):
    trained = data["trained"]
    assert failing({**data, "trained": trained.assign(single=trained["multiple"])}) == {"ratio-trained"}


def test_the_ratio_tends_to_the_number_of_tasks():
    """I(1+ρ)/(1+Iρ), ρ = eφd/L, from the closed forms of both losses; φ = 2."""
    for over in (1e-1, 1e-2, 1e-3):
        wanted = [count * (1 + 2 * np.e * over) / (1 + count * 2 * np.e * over) for count in figure.COUNTS]
        np.testing.assert_allclose(figure.ratios(np.array([over]))["ratio"][:, 0], wanted, rtol=1e-6)


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data)
    assert len(drawn.axes) == 3
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
