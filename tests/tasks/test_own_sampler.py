"""A task of any sampler: drawn in blocks, trained on in every way, and known to the theory by its moments alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell import theory
from stepwell._util.errors import InvalidInput
from stepwell.analysis import compare, sample_task
from stepwell.dynamics import Ensemble, Record, _online, descend, flow, online
from stepwell.experiments import Experiment, kinds
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import (
    AbstractTask,
    Batch,
    ContextLengths,
    InContextRegression,
    PopulationMoments,
    SamplerTask,
    assemble,
    attention_scale,
    check_moments,
    population_moments,
)
from stepwell.theory._task_protocols import require_regression
from stepwell.trajectory import model_at

KEY = jax.random.key(0)
CONTEXT, DIM, SPARSITY = 20, 3, 0.5
MODEL = SeparateAttention.random(dim=DIM, heads=3, scale=0.1, key=jax.random.key(4))


def sample(n, key):
    """Inputs of ±1, and task vectors of which half of the coordinates are zero."""
    inputs, vectors, coins = jax.random.split(key, 3)
    x = jax.random.rademacher(inputs, (n, CONTEXT + 1, DIM), float)
    w = jax.random.normal(vectors, (n, DIM)) * jax.random.bernoulli(coins, SPARSITY, (n, DIM))
    return x, jnp.einsum("sni,si->sn", x, w)


def moments(normalization, second=1.0):
    """M = p I and C = p (1 + (D - 1)/n) I, as |x|² = D."""
    scale, one = CONTEXT * attention_scale(normalization, CONTEXT), SPARSITY * np.eye(DIM)
    spread = second * (1 + (DIM - 1) / CONTEXT)
    return PopulationMoments(np.eye(DIM), scale * one, scale**2 * spread * one, SPARSITY * DIM)


TASK = SamplerTask(sample, moments=moments)


class Mixture(AbstractTask):
    """Inputs from Gaussians around two points, chosen by a coin: the class writes `draw` and nothing else."""

    context: ContextLengths
    dim: int = 2
    outputs: int = 1

    def draw(self, sequences, *, key):
        coins, inputs, vectors = jax.random.split(key, 3)
        shape = sequences, self.context.tokens, self.dim
        x = jax.random.rademacher(coins, (*shape[:2], 1), float) + 0.3 * jax.random.normal(inputs, shape)
        y = jnp.einsum("sni,si->sn", x, jax.random.normal(vectors, (sequences, self.dim)))[..., None]
        return assemble(x, y, y, self.context)


def test_shapes_are_read_off_what_it_draws():
    assert (TASK.dim, TASK.outputs, TASK.context) == (DIM, 1, ContextLengths(CONTEXT))
    batch = TASK.sample(7, key=KEY)
    assert batch.tokens.shape == (7, CONTEXT + 1, DIM + 1) and np.all(np.asarray(batch.tokens)[:, -1, -1] == 0)
    assert set(np.unique(batch.tokens[..., :DIM])) == {-1.0, 1.0}


def test_labels_that_are_shown_may_have_noise():
    task = SamplerTask(lambda n, key: (*sample(n, key), jnp.zeros((n, CONTEXT + 1))))
    batch = task.sample(3, key=KEY)
    assert np.any(np.asarray(batch.tokens)[..., -1] != 0) and np.all(np.asarray(batch.labels) == 0)


@pytest.mark.parametrize("task", [TASK, Mixture(ContextLengths([3, 5]))])
def test_samples_are_the_first_of_larger_ones_and_chunks_are_their_parts(task):
    whole = task.sample(5000, key=KEY)
    np.testing.assert_array_equal(task.sample(10, key=KEY).tokens, whole.tokens[:10])
    parts = list(task.chunks(5000, key=KEY, size=2048))
    assert [part.size for part in parts] == [2048, 2048, 904]
    np.testing.assert_array_equal(np.concatenate([part.tokens for part in parts]), whole.tokens)
    other = task.sample(5000, key=jax.random.key(1)).tokens
    assert not np.array_equal(other, whole.tokens)
    assert not np.array_equal(whole.tokens[:100], whole.tokens[2048:2148])


def test_the_mixture_is_one():
    """E x² = 1.09 and E x⁴ = 1 + 6·0.09 + 3·0.09², which a Gaussian of that variance does not have."""
    x = np.asarray(Mixture(ContextLengths(5)).sample(4000, key=KEY).tokens)[..., :2]
    for power, expected in ((2, 1.09), (4, 1 + 6 * 0.09 + 3 * 0.09**2)):
        values = (x[:, :, 0] ** power).ravel()
        assert abs(values.mean() - expected) < 5 * values.std() / values.size**0.5


def test_closed_form_moments_agree_with_samples_or_are_refused():
    for normalization in ("1/N", "none"):
        gaps = check_moments(TASK, 20_000, normalization=normalization, key=KEY)
        assert set(gaps) >= {"input", "cross", "second", "label_power"} and max(gaps.values()) < 6
    varied = InContextRegression(np.diag([0.6, 0.4]), ContextLengths([3, 9]), noise_variance=0.2, outputs=2)
    assert max(check_moments(varied, 20_000, key=KEY).values()) < 6
    wrong = SamplerTask(sample, moments=lambda normalization: moments(normalization, second=1.2))
    with pytest.raises(InvalidInput, match=r"second of moments\(\) of SamplerTask does not agree with 20000 samples"):
        check_moments(wrong, 20_000, key=KEY)


def test_a_query_that_depends_on_its_context_is_noticed():
    """x_q repeats the first input, whose size is random: all second moments are as before."""

    def repeating(n, key):
        x = InContextRegression(np.eye(2), 4).draw(n, key=key).tokens[..., :2]
        x = x.at[:, -1].set(x[:, 0])
        return x, jnp.einsum("sni,si->sn", x, jax.random.normal(jax.random.fold_in(key, 1), (n, 2)))

    def same(normalization):
        return InContextRegression(np.eye(2), 4).moments(normalization)

    with pytest.raises(InvalidInput, match="cross|independence"):
        check_moments(SamplerTask(repeating, moments=same), 20_000, key=KEY)


def test_population_and_theory_take_its_moments():
    levels = theory.linear.levels(TASK)
    expected = SPARSITY * (DIM - np.arange(DIM + 1) / (1 + (DIM - 1) / CONTEXT))
    np.testing.assert_allclose(levels, expected, rtol=1e-13)
    run = flow(MODEL, Population(TASK), progress=False)
    np.testing.assert_allclose(run.loss[0, -1], levels[-1], rtol=1e-6)
    measured = Moments.of_task(TASK, 20_000, key=KEY, features="cubic", progress=False)
    assert float(measured(MODEL)) == pytest.approx(float(Population(TASK)(MODEL)), rel=0.02)
    np.testing.assert_allclose(theory.linear.escape_rates(TASK), SPARSITY, rtol=1e-12)
    assert theory.linear.minimal_loss(TASK) == pytest.approx(levels[-1], rel=1e-12)


def test_theory_from_moments_is_that_from_covariances():
    """The same task, with its covariances and without."""
    known = InContextRegression(np.diag([0.6, 0.4]), 10, noise_variance=0.1, task_covariance=[[1.0, 0.3], [0.3, 0.5]])
    hidden = SamplerTask(lambda n, key: known.draw(n, key=key), moments=lambda scale: known.moments(scale))
    linear = theory.linear
    for function in (linear.levels, linear.escape_rates, linear.minimizer, linear.minimal_loss):
        np.testing.assert_allclose(function(hidden), function(known), rtol=1e-12, err_msg=function.__name__)
    gains = [linear.components(task).gains for task in (hidden, known)]
    np.testing.assert_allclose(*gains, rtol=1e-12)
    nearest = [linear.nearest_fixed_point(task, np.eye(2)) for task in (hidden, known)]
    assert nearest[0].distance == pytest.approx(nearest[1].distance, rel=1e-12)


def test_drop_times_are_those_of_training():
    r"""Inputs around $\pm\mu$, and task vectors of a covariance that has other eigenvectors than that of the inputs."""
    mu, spread, omega, n = np.array([0.8, 0.3]), 0.5, np.array([[1.0, 0.4], [0.4, 0.6]]), 6
    lam = np.outer(mu, mu) + spread**2 * np.eye(2)

    def draw(sequences, key):
        coins, inputs, vectors = jax.random.split(key, 3)
        x = jax.random.rademacher(coins, (sequences, n + 1, 1), float) * mu
        x = x + spread * jax.random.normal(inputs, (sequences, n + 1, 2))
        w = jax.random.normal(vectors, (sequences, 2)) @ np.linalg.cholesky(omega).T
        return x, jnp.einsum("sni,si->sn", x, w)

    def of(normalization):
        """Isserlis' theorem, less what the fourth moments of ±μ have less than those of a Gaussian."""
        scale = n * attention_scale(normalization, n)
        fourth = 2 * lam @ omega @ lam + np.sum(omega * lam) * lam - 2 * (mu @ omega @ mu) * np.outer(mu, mu)
        second = (1 - 1 / n) * lam @ omega @ lam + fourth / n
        return PopulationMoments(lam, scale * lam @ omega, scale**2 * second, float(np.sum(omega * lam)))

    task = SamplerTask(draw, moments=of)
    assert max(check_moments(task, 20_000, key=KEY).values()) < 6
    model = SeparateAttention.random(dim=2, heads=2, scale=1e-3, key=jax.random.key(5))
    weights = {name: np.asarray(value) for name, value in model.weights().items()}
    drops = theory.linear.drop_schedule(task, **SeparateAttention.theory_weights(weights))
    predicted = np.array([drop.time for drop in drops])
    assert predicted.size == 2
    run = flow(model, Population(task), until=float(2 * predicted[-1]), record=Record(points=20_000), progress=False)
    levels, loss = theory.linear.levels(task), np.asarray(run.loss[0])
    times = np.asarray(run.time)
    measured = np.array([times[np.argmax(loss < half)] for half in (levels[1:] + levels[:-1]) / 2])
    # A drop shifts later ones by up to five of its own times 1/(ρ v_end), v_end³ the size of the component's map.
    ends = np.linalg.norm(theory.linear.components(task).maps, axis=(1, 2)) ** (1 / 3)
    own_time = 1 / (theory.linear.escape_rates(task) * ends)
    assert np.all(np.abs(predicted - measured) < 5 * np.arange(1, 3) * own_time + np.diff(times).max())


def test_theory_says_what_a_task_lacks():
    for task, words in (
        (SamplerTask(sample), ["SamplerTask has no covariance", "moments(normalization)", "theory.Regression"]),
        (Mixture(ContextLengths(5)), ["Mixture has no covariance", "no closed-form moments"]),
    ):
        with pytest.raises(InvalidInput) as refusal:
            theory.linear.levels(task)
        assert all(word in str(refusal.value) for word in words) and "\n" not in str(refusal.value)
    # Called directly: while tests run, types are checked before any function of the theory begins.
    with pytest.raises(InvalidInput, match="SamplerTask has no covariance; .*Gaussian inputs.*levels"):
        require_regression(TASK)


def test_it_is_trained_on_in_every_way():
    assert np.isfinite(online(MODEL, TASK, batch_size=16, rate=0.05, steps=3, key=KEY, progress=False).loss).all()
    assert np.isfinite(
        flow(MODEL, Sampled(TASK.sample(50, key=KEY)), until=1.0, record=Record(points=3), progress=False).loss
    ).all()
    first = online(MODEL, TASK, batch_size=16, rate=0.05, steps=1, key=KEY, progress=False).loss[0, 0]
    drawn = Sampled(TASK.draw(16, key=jax.random.fold_in(KEY, 0)))
    assert float(first) == pytest.approx(float(drawn(MODEL)), rel=1e-12)


def by_numpy(n, key):
    rng = np.random.default_rng(int(jax.random.bits(key)))
    return rng.normal(size=(n, 5, DIM)), rng.normal(size=(n, 5))


def test_a_sampler_of_numpy_is_sampled_and_called_while_training():
    """By hand the same: each step is one of descent on what the task draws from the key of that step."""
    task = SamplerTask(by_numpy)
    np.testing.assert_array_equal(task.sample(9, key=KEY).tokens, task.sample(9, key=KEY).tokens)
    run = online(MODEL, task, batch_size=4, rate=0.1, steps=2, key=KEY, progress=False)
    model = MODEL
    for step in range(2):
        drawn = Sampled(task.draw(4, key=jax.random.fold_in(KEY, step)))
        assert float(run.loss[0, step]) == pytest.approx(float(drawn(model)), rel=1e-12)
        model = model_at(descend(model, drawn, rate=0.1, steps=1, progress=False), model)
    both = online(Ensemble.of([MODEL, MODEL]), task, batch_size=4, rate=0.1, steps=2, key=KEY, progress=False)
    np.testing.assert_allclose(both.loss, np.repeat(run.loss, 2, axis=0), rtol=1e-12)


def test_a_program_that_calls_back_is_not_spread_over_devices(monkeypatch):
    """One device would wait for the other, which waits for Python."""

    def never(tree):
        raise AssertionError("spread over devices")

    monkeypatch.setattr(_online, "divides", lambda size: True)
    monkeypatch.setattr(_online, "everywhere", never)
    online(MODEL, SamplerTask(by_numpy), batch_size=4, rate=0.1, steps=2, key=KEY, progress=False)
    with pytest.raises(AssertionError):
        online(MODEL, TASK, batch_size=4, rate=0.1, steps=2, key=KEY, progress=False)


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (lambda n, key: 3, "returned 3; it must return inputs and labels"),
        (lambda n: 3, "could not be called as sample(2, key=key)"),
        (lambda n, key: (np.ones((n, 3, 2)), np.ones((n, 4))), "shapes (2, 3, 2), (2, 4)"),
        (lambda n, key: (np.ones((5, 3, 2)), np.ones((5, 3))), "for 2 sequences"),
        (lambda n, key: (np.ones((n, 3, 2)), "labels"), "it must return inputs and labels"),
    ],
)
def test_a_sampler_that_draws_something_else_is_refused_in_one_line(sampler, words):
    with pytest.raises(InvalidInput) as refusal:
        SamplerTask(sampler)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_class_that_draws_what_it_does_not_say_is_refused():
    class Wide(Mixture):
        def draw(self, sequences, *, key):
            return InContextRegression(np.eye(3), self.context).draw(sequences, key=key)

    class Bare(Mixture):
        def draw(self, sequences, *, key) -> Any:
            return super().draw(sequences, key=key).tokens

    with pytest.raises(InvalidInput, match="Wide returned 2048 sequences, .* dimension 3"):
        Wide(ContextLengths(5)).sample(3, key=KEY)
    with pytest.raises(InvalidInput, match="it must return a Batch"):
        Bare(ContextLengths(5)).sample(3, key=KEY)


def test_moments_of_another_sampler_are_not_taken_over():
    class Gaussian(InContextRegression):
        def draw(self, sequences, *, key) -> Batch:
            return super().draw(sequences, key=jax.random.fold_in(key, 1))

    with pytest.raises(InvalidInput, match=r"draw\(\) of its own and the closed_form\(\) of InContextRegression"):
        kind: Any = Gaussian
        population_moments(kind(np.eye(2), 4))


class Signs(AbstractTask):
    """Inputs of ±1, with all attributes of a regression on Gaussian inputs: only the moments tell them apart."""

    context: ContextLengths
    dim: int = 3
    outputs: int = 1
    noise_variance: float = 0.0

    @property
    def covariance(self):
        return np.eye(self.dim)

    task_covariance = covariance

    def draw(self, sequences, *, key):
        inputs, vectors = jax.random.split(key)
        x = jax.random.rademacher(inputs, (sequences, self.context.tokens, self.dim), float)
        y = jnp.einsum("sni,si->sn", x, jax.random.normal(vectors, (sequences, self.dim)))[..., None]
        return assemble(x, y, y, self.context)

    def closed_form(self, normalization):
        (n,) = self.context.counts
        scale, one = n * attention_scale(normalization, n), np.eye(self.dim)
        return PopulationMoments(one, scale * one, scale**2 * (1 + (self.dim - 1) / n) * one, float(self.dim))


class Doubled(Signs):
    """Gaussian inputs, and queries whose labels are twice those of the context: the second moment is that of others."""

    def draw(self, sequences, *, key):
        inputs, vectors = jax.random.split(key)
        x = jax.random.normal(inputs, (sequences, self.context.tokens, self.dim))
        y = jnp.einsum("sni,si->sn", x, jax.random.normal(vectors, (sequences, self.dim)))[..., None]
        return assemble(x, y, 2 * y, self.context)

    def closed_form(self, normalization):
        (n,) = self.context.counts
        scale, one = n * attention_scale(normalization, n), np.eye(self.dim)
        return PopulationMoments(one, 2 * scale * one, scale**2 * (1 + (self.dim + 1) / n) * one, 4.0 * self.dim)


@pytest.mark.parametrize("kind", [Signs, Doubled])
def test_a_task_is_not_taken_for_gaussian_by_the_names_of_its_attributes(kind):
    task = kind(ContextLengths(5))
    check_moments(task, 20_000, key=KEY)
    run = flow(MODEL, Population(task), progress=False)
    np.testing.assert_allclose(run.loss[0, -1], theory.linear.levels(task)[-1], rtol=1e-6)
    with pytest.raises(InvalidInput, match=f"{kind.__name__} has no Gaussian inputs"):
        theory.linear.modes(task)
    with pytest.raises(InvalidInput, match=f"{kind.__name__} is not described by covariance"):
        sample_task(task, task.sample(50, key=KEY))


def test_merged_attention_on_inputs_that_are_not_gaussian_is_compared_without_predicted_times():
    signs = Signs(ContextLengths(5))
    model = MergedAttention.random(dim=3, heads=2, scale=0.05, key=KEY)
    comparison = compare(flow(model, Population(signs), progress=False), signs)
    assert comparison.table["status"].tolist() == ["measured"] and np.isnan(comparison.table["predicted"]).all()
    assert "Gaussian inputs" in "".join(comparison.remarks)


def test_tasks_of_the_package_that_the_theory_takes_for_gaussian_are():
    """What is compared of tasks of others when the theory reads them, and of ours here alone."""
    ours = [Experiment(task=name).build().task for name, kind in kinds("task").items() if kind.is_own]
    gaussian = [task for task in ours if isinstance(task, theory.RegressionTask) and task.closed_form is not None]
    assert any(isinstance(task, InContextRegression) for task in gaussian)
    for task in gaussian:
        described = theory.Regression(task.covariance, task.task_covariance, task.noise_variance, task.context)
        own = task.moments()
        np.testing.assert_allclose(own.second, theory.linear.moments(described).second, rtol=1e-12)
        np.testing.assert_allclose(own.cross, theory.linear.moments(described).cross, rtol=1e-12)
        np.testing.assert_allclose(own.label_power, theory.linear.moments(described).label_power, rtol=1e-12)
