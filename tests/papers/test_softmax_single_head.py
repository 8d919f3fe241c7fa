"""Water-filling is what single heads are trained to, and not something else."""

import pytest

from stepwell.papers.softmax_attention import single_head as figure

LIMIT, TRAINED = 0, 1
SHARES, BUDGET, LOSS, FADING = range(4)


@pytest.fixture(scope="module")
def data():
    return figure.simulate(quick=True)


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(figure.claims(data)) if not claim.passed}


def place(instance: int, claim: int) -> int:
    """The first instance has no task left out, and no claim of fading."""
    return 2 + (claim if instance == 0 else 3 + 4 * (instance - 1) + claim)


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_another_context_in_the_prediction_fails(data, monkeypatch):
    changed = {name: (d, lam, n + 20) for name, (d, lam, n) in figure.INSTANCES.items()}
    kept = data["unequal2"]
    with monkeypatch.context() as patch:
        patch.setattr(figure, "INSTANCES", changed)
        other = figure.unequal("one left out", figure.QUICK)
    wrong = kept.assign(best_omega=other["best_omega"], best_loss=other["best_loss"], fading=other["fading"])
    assert failing({**data, "unequal2": wrong}) == {place(1, claim) for claim in (SHARES, LOSS, FADING)}


def test_a_budget_of_two_fails(data):
    found = data["unequal1"]
    wrong = found.assign(omega=found["omega"] * 2**0.5)
    assert failing({**data, "unequal1": wrong}) == {place(0, SHARES), place(0, BUDGET)}


def test_exponential_fading_fails(data):
    found = data["unequal3"]
    assert failing({**data, "unequal3": found.assign(fading=1.1 * found["fading"])}) == {place(2, FADING)}


def test_as_many_heads_as_tasks_fails(data):
    found = data["trained"]
    assert failing({**data, "trained": found.assign(single=found["multiple"])}) == {TRAINED}
    ratio = data["ratio"]
    assert failing({**data, "ratio": ratio.assign(ratio=ratio["ratio"] * 1.001)}) == {LIMIT}


def test_the_drawing_has_three_panels_with_words(data):
    drawn = figure.draw(data)
    assert len(drawn.axes) == 3
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
