"""Label blocks: the claims hold on few data sets, and fail where a gradient has a mean or blocks leak."""

import pytest

from stepwell.papers.linear_attention import label_blocks as figure

ZERO, SLOPE, SIZE, GROWTH, USELESS, END, STAY = range(7)


@pytest.fixture(scope="module")
def data():
    return figure.simulate(quick=True)


def failing(data) -> set[int]:
    return {place for place, claim in enumerate(figure.claims(data)) if not claim.passed}


def test_all_claims_hold(data):
    assert failing(data) == set()


def test_a_gradient_with_a_mean_fails(data):
    """What does not fall with P is no sampling error."""
    gradients = data["gradients"]
    constant = gradients.assign(gradient=gradients["gradient"].mean() + 0 * gradients["gradient"])
    assert failing({**data, "gradients": constant}) >= {SLOPE}
    assert failing({**data, "gradients": gradients.assign(gradient=2 * gradients["gradient"])}) == {SIZE}


def test_blocks_that_move_fail(data):
    moved = data["flows"].copy(deep=True)
    moved["blocks"][0] += 1e-6
    assert failing({**data, "flows": moved}) == {ZERO}


def test_growth_at_the_rate_of_the_drop_fails(data):
    """The blocks grow at λ_d², more slowly than the weights that make the drop."""
    theory = data["theory"].copy(deep=True)
    theory["growth"] = theory["growth"] * 1.01 ** theory["time"]
    assert failing({**data, "theory": theory}) == {GROWTH}


def test_another_end_fails(data):
    theory = data["theory"].assign(last_level=data["theory"]["last_level"] * 0.98)
    assert END in failing({**data, "theory": theory})


def test_blocks_that_are_unlearned_fail(data):
    silent = data["flows"].copy(deep=True)
    silent["blocks"][1:, -1] = 0.0
    assert failing({**data, "flows": silent}) == {STAY}


def test_the_starts_share_all_other_weights():
    zero, large = figure.start(0, 0.0), figure.start(0, 1e-2)
    assert float(abs(zero.value[:, :, 4] - large.value[:, :, 4]).max()) == 0.0
    assert float(abs(zero.key_query[:, :4] - large.key_query[:, :4]).max()) == 0.0
    assert float(abs(zero.key_query[:, 4]).max()) == 0.0


def test_the_drawing_has_three_panels(data):
    assert len(figure.draw(data).axes) == 3
