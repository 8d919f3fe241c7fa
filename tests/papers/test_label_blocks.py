"""Label blocks: the claims hold on few data sets, and fail where a gradient has a mean or blocks leak."""

import numpy as np
import pytest

from stepwell.papers.linear import label_blocks as figure
from stepwell.papers.linear._fig14_theory import exact_moments

FIGURE = "linear/label-blocks"
QUICK = figure.FIGURE.at(quick=True)


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        (
            {"seeds": "1", "sizes": "200", "block_sizes": "0", "sets": "1", "duration": "60", "eigenvalues": "1"},
            {"gradient-exponent", "growth", "kept"},
        ),
        (
            {"seeds": "1,2", "block_sizes": "3e-4", "eigenvalues": "0.7,0.3", "context": "10"},
            {"zero-stays", "no-contribution"},
        ),
        ({"heads": "1", "sets": "1", "duration": "60", "eigenvalues": "1"}, {"kept"}),
    ],
)
def test_other_settings(survives, changes, unjudged):
    claims = survives({"sizes": "100,400", "sets": "4", **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged
    assert claims["gradient-size"].passed and claims["end"].passed


def test_a_gradient_with_a_mean_fails(data, failing):
    """What does not fall with P is no sampling error."""
    gradients = data["gradients"]
    constant = gradients.assign(gradient=gradients["gradient"].mean() + 0 * gradients["gradient"])
    assert failing({**data, "gradients": constant}) >= {"gradient-exponent"}
    assert failing({**data, "gradients": gradients.assign(gradient=2 * gradients["gradient"])}) == {"gradient-size"}


def test_blocks_that_move_fail(data, failing):
    moved = data["flows"].copy(deep=True)
    moved["blocks"][:, 0] += 1e-9
    assert failing({**data, "flows": moved}) == {"zero-stays"}


def test_growth_at_the_rate_of_the_drop_fails(data, failing):
    """The blocks grow at λ_d², more slowly than the weights that make the drop."""
    theory = data["theory"].copy(deep=True)
    theory["growth"] = theory["growth"] * 1.01 ** theory["time"]
    assert failing({**data, "theory": theory}) == {"growth"}


def test_another_end_fails(data, failing):
    theory = data["theory"].assign(last_level=data["theory"]["last_level"] * 0.99)
    assert failing({**data, "theory": theory}) == {"end"}


def test_blocks_that_are_unlearned_fail(data, failing):
    silent = data["flows"].copy(deep=True)
    silent["blocks"][:, 1:, -1] = 0.0
    assert failing({**data, "flows": silent}) == {"kept"}


def test_blocks_that_are_unlearned_in_no_direction_fail(data, failing):
    """All that has grown, not only what is at right angles to what the heads carry."""
    flows = data["flows"].copy(deep=True)
    flows["blocks"][:, :, -1] = flows["blocks"].max("time")
    assert failing({**data, "flows": flows}) == {"kept"}


def test_blocks_that_go_on_contributing_fail(data, failing):
    flows = data["flows"].copy(deep=True)
    flows["added"][:, 1, -1] = flows["added"].max("time")[:, 1]
    assert failing({**data, "flows": flows}) == {"no-contribution"}


def test_what_only_blocks_reach_is_of_no_use():
    """Least squares on infinite data puts nothing on S_xx x_q and S_yy x_q."""
    best = exact_moments(QUICK.task.covariance, np.zeros(QUICK.dim), 1.0, QUICK.context).minimizer()
    assert np.linalg.norm(best[figure._alike(QUICK.dim)]) < 1e-10 * np.linalg.norm(best)


def test_block_sizes_share_all_other_weights():
    zero, large = QUICK.initial_model(0, 0.0), QUICK.initial_model(0, 1e-2)
    assert float(abs(zero.value[:, :, 4] - large.value[:, :, 4]).max()) == 0.0
    assert float(abs(zero.key_query[:, :4] - large.key_query[:, :4]).max()) == 0.0
    assert float(abs(zero.key_query[:, 4]).max()) == 0.0


def test_the_drawing_has_three_panels(data):
    assert len(figure.draw(data, QUICK).axes) == 3
