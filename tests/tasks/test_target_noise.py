"""Targets with noise: one more term of every loss, and refused where a formula leaves it out."""

import jax
import numpy as np
import pytest

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.objectives import Exact, Population, ReducedSampled, Sampled, Spectral
from stepwell.tasks import ContextLengths, InContextRegression, MultiTaskRegression, check_moments
from stepwell.theory import linear, softmax

KEY = jax.random.key(0)
COVARIANCE = np.diag([1.5, 0.5])


def pair(make, *sizes, **options):
    """The task without and with a noisy target."""
    return [make(*sizes, noise_variance=0.4, target_noise=noisy, **options) for noisy in (False, True)]


@pytest.mark.parametrize(
    ("make", "sizes"),
    [(InContextRegression, (COVARIANCE, ContextLengths((3, 6)))), (MultiTaskRegression, ((2, 3), 1.0, 6))],
)
def test_the_tokens_are_the_same_and_the_target_has_the_noise_of_its_own_label(make, sizes):
    plain, noisy = (task.sample(20_000, key=KEY) for task in pair(make, *sizes))
    np.testing.assert_array_equal(plain.tokens, noisy.tokens)
    np.testing.assert_array_equal(noisy.labels[:, :-1], noisy.tokens[:, :-1, -noisy.outputs :])
    noise = np.asarray(noisy.labels - plain.labels)
    target, context = noise[:, -1, 0], noise[:, 0, 0]
    assert abs(target.var() - 0.4) < 5 * 0.4 * np.sqrt(2 / target.size)
    assert abs(np.mean(target * context)) < 5 * 0.4 / np.sqrt(target.size)


def test_the_closed_form_is_that_of_the_samples_and_differs_by_the_variance():
    plain, noisy = pair(InContextRegression, COVARIANCE, ContextLengths((3, 6)))
    assert max(check_moments(noisy, 20_000, key=KEY).values()) < 6
    model = sw.models.MergedAttention.random(dim=2, heads=2, scale=0.5, key=KEY)
    losses = [float(Population(task)(model)) for task in (plain, noisy)]
    assert losses[1] - losses[0] == pytest.approx(0.4, rel=1e-12)


def test_the_mean_loss_over_sequences_is_higher_by_the_variance():
    model = sw.models.MultiHeadAttention.random(dim=5, outputs=2, heads=2, scale=0.5, key=KEY)
    plain, noisy = (Sampled(task.sample(20_000, key=KEY)) for task in pair(MultiTaskRegression, (2, 3), 1.0, 6))
    # The difference is the mean of ε² + 2 ε (y - ŷ), over sequences and two outputs.
    error = np.sqrt((2 * 0.4**2 + 4 * 0.4 * float(plain(model))) / 40_000)
    assert abs(float(noisy(model) - plain(model)) - 0.4) < 5 * error


@pytest.mark.parametrize(
    "use",
    [
        lambda one, several: linear.levels(one),
        lambda one, several: linear.moments(one),
        lambda one, several: linear.escape_rates(one),
        lambda one, several: softmax.exact_bayes_risk(several),
        lambda one, several: softmax.flow_limit_loss(several),
        lambda one, several: Spectral(several),
        lambda one, several: Exact(several),
        lambda one, several: ReducedSampled(several, 64, key=KEY),
    ],
)
def test_formulas_for_targets_without_noise_say_what_to_add(use):

    def tasks(variance):
        options = {"noise_variance": variance, "target_noise": True}
        return InContextRegression(COVARIANCE, 8, **options), MultiTaskRegression((3,), 1.0, 8, **options)

    with pytest.raises(InvalidInput, match=r"target_noise=False, and add its noise_variance, 0\.4"):
        use(*tasks(0.4))
    use(*tasks(0.0))


def test_an_experiment_says_whether_its_target_has_noise():
    words = {"dim": 2, "context": 9, "noise": 0.3}
    plain, noisy = (sw.Experiment(task={**words, "target_noise": target}) for target in (False, True))
    assert plain == sw.Experiment(task=words) and plain.name != noisy.name
    assert sw.Experiment(task={"dim": 2, "target_noise": True}) == sw.Experiment(task={"dim": 2})
    assert sw.Experiment.from_canonical(noisy.canonical()) == noisy
    losses = [run.run(progress=False).loss.values[0] for run in (plain, noisy)]
    assert losses[1][0] - losses[0][0] == pytest.approx(0.3, rel=1e-9)
    assert plain.predict().levels and not noisy.predict().levels
    assert "targets with noise" in noisy.predict().reason
    with pytest.raises(InvalidInput, match="the objective spectral is the loss of a target without noise"):
        sw.Experiment(task={"kind": "multitask", "noise": 0.3, "target_noise": True})
