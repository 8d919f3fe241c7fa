"""The regimes of softmax are where quadrature says, and not elsewhere."""

import numpy as np
import pytest

from stepwell.papers.softmax import regimes as figure

FIGURE = "softmax/regimes"
QUICK = figure.FIGURE.at(quick=True)


@pytest.fixture(scope="module")
def failing(failing):
    """What fails besides the claim that is known to."""
    return lambda data: failing(data) - {"noise-spread"}


@pytest.mark.parametrize(
    "changes",
    [
        {"seeds": "7", "contexts": "20"},
        {"seeds": "7,8", "contexts": "200,2,30", "points": "10"},
    ],
)
def test_other_settings(survives, changes):
    claims = survives({"tokens": "1000", **changes})
    assert all(claim.judged() for claim in claims.values())


def test_the_exponential_law_everywhere_fails(data, failing):
    sampled = data["sampled"]
    law = np.exp(sampled["square"]) / sampled["context"]
    assert failing({**data, "sampled": sampled.assign(exact=law.transpose("context", "square"))}) == {
        "sampled",
        "stein",
    }


def test_another_length_fails(data, failing):
    sampled = data["sampled"]
    wrong = sampled["exact"] * (1 + 1 / sampled["context"]) ** 20
    assert "sampled" in failing({**data, "sampled": sampled.assign(exact=wrong)})


def test_other_points_fail(data, monkeypatch, failing):
    """Half a unit further on."""
    with monkeypatch.context() as patch:
        patch.setattr(figure.theory, "saturation_point", lambda n, ratio: 1.5 + 0.5 * np.log(n))
        wrong = figure.saturation(QUICK)
    assert "points" in failing({**data, "points": wrong})


def test_a_law_of_one_half_fails(data, failing):
    """(1/2) ln L is where typical contexts leave the law, not their mean."""
    points = data["points"]
    assert failing({**data, "points": points.assign(annealed=points["typical"])}) == {"halved-before"}
    assert "halved-after" in failing({**data, "points": points.assign(square=0.85 * points["square"])})
    assert failing({**data, "points": points.assign(rival=points["rival"] + 0.015)}) == {"rival"}


def test_another_maximum_fails(data, failing):
    hard = data["hard"]
    wrong = failing({**data, "hard": hard.assign(law=1 - 1.01 * (1 - hard["law"]))})
    assert wrong == failing({**data, "hard": hard.assign(exact=hard["law"])}) == {"hard", "hard-next"}
    constant = hard["law"] + 1.01 * (hard["largest"] * np.pi**2 / (12 * hard["a"] ** 3)).transpose("context", "a")
    assert failing({**data, "hard": hard.assign(exact=constant)}) == {"hard-next"}


def test_noise_that_spreads_attention_holds_what_is_known_to_fail(data):
    """If ω fell with the noise as it does with the readout held."""
    noisy = data["noisy"]
    claims = {claim.id: claim for claim in figure.claims({**data, "noisy": noisy.assign(x=noisy["held"])}, QUICK)}
    assert claims["noise-spread"].passed and claims["noise-spread"].unexpected(quick=True)


def test_noise_that_spares_the_readout_or_held_scores_fails(data, failing):
    noisy = data["noisy"]
    assert failing({**data, "noisy": noisy.assign(y=0 * noisy["y"] + noisy["y"][0])}) == {"noise-readout"}
    assert failing({**data, "noisy": noisy.assign(held=0 * noisy["held"] + 1)}) == {"noise-held"}


def test_the_weighted_mean_is_the_plain_one():
    z = np.random.default_rng(0).standard_normal((40_000, 30))
    for a in (0.5, 1.5, 4.0):
        values, _ = figure._values(z, a)
        p = np.exp(a * z)
        plain = np.sum((p / p.sum(axis=1, keepdims=True)) ** 2, axis=1)
        error = np.hypot(values.std(), plain.std()) / 200
        assert abs(values.mean() - plain.mean()) < 4 * error


def test_the_drawing_has_four_panels_with_words(data):
    drawn = figure.draw(data, QUICK)
    assert len(drawn.axes) == 4
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in drawn.axes)
