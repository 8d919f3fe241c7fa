"""A task of one's own: its moments in closed form where it has them, those of its samples always."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import descend, flow
from stepwell.dynamics.fast import FusedPopulation, multi_step_form
from stepwell.models import SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import (
    AbstractGaussianTask,
    Batch,
    ContextLengths,
    PopulationMoments,
    assemble,
    attention_scale,
    population_moments,
)

KEY = jax.random.key(0)
SCALES = np.array([0.9, 0.5, 0.3])


class Signs(AbstractGaussianTask):
    r"""Regression on inputs $x_d = \pm s_d$, $w \sim \mathcal N(0, I)$, $y = w^\top x$."""

    context: ContextLengths
    outputs: int = 1
    centered: bool = False
    whitened: bool = False

    @property
    def dim(self) -> int:
        return SCALES.size

    @property
    def noisy(self) -> bool:
        return False

    def compose(self, inputs, tasks, noise, index, total) -> Batch:
        x = jnp.sign(inputs) * jnp.asarray(SCALES)
        truth = jnp.einsum("sni,sio->sno", x, tasks)
        return assemble(x, truth, truth, self.context)


class SignsInClosedForm(Signs):
    r"""$\Lambda = \mathrm{diag}(s^2)$, $M = \Lambda$ and, as $|x|^2 = \mathrm{tr}\Lambda$ is the same for all x,
    $C = \Lambda^2 + \tfrac1n(\mathrm{tr}(\Lambda)\Lambda - \Lambda^2)$."""

    def closed_form(self, normalization) -> PopulationMoments:
        lam = np.diag(SCALES**2)
        power = float(np.trace(lam))
        cross, second = np.zeros_like(lam), np.zeros_like(lam)
        for n, probability in zip(self.context.counts, self.context.probabilities, strict=True):
            ratio = n * attention_scale(normalization, n)
            cross += probability * ratio * lam
            second += probability * ratio**2 * (lam @ lam + (power * lam - lam @ lam) / n)
        return PopulationMoments(lam, cross, second, power)


TASK = SignsInClosedForm(ContextLengths([4, 7], [0.4, 0.6]))


def model(**options) -> SeparateAttention:
    return SeparateAttention.random(dim=3, heads=2, scale=0.8, key=KEY, **options)


@pytest.mark.parametrize("normalization", ["1/N", "none"])
def test_the_population_is_that_of_many_samples(normalization):
    attention = model(normalization=normalization)
    batch = TASK.sample(20_000, key=KEY)
    counts = batch.context.counts
    answers = np.stack(
        [jax.vmap(lambda z, n=n: attention(z, n))(batch.tokens) for n in map(jnp.asarray, counts)], axis=1
    )
    errors = np.square(answers - np.asarray(batch.labels)[:, counts]).squeeze(-1) @ np.array(
        batch.context.probabilities
    )
    found = float(Population(TASK, normalization)(attention))
    assert abs(errors.mean() - found) < 5 * errors.std() / np.sqrt(errors.size)


def test_it_trains_in_population_as_any_other():
    objective = Population(TASK)
    assert isinstance(multi_step_form(objective, model()), FusedPopulation)
    slope = jax.grad(objective)
    moved = model()
    for _ in range(20):
        moved = jax.tree.map(lambda w, g: w - 0.3 * g, moved, slope(moved))
    run = descend(model(), objective, rate=0.3, steps=20, progress=False)
    np.testing.assert_allclose(float(run.loss[0, -1]), float(objective(moved)), rtol=1e-12)
    end = flow(SeparateAttention.random(dim=3, heads=3, scale=0.1, key=KEY), objective, progress=False)
    assert end.attrs["outcome"] == "converged"


def test_moments_of_its_samples_are_the_loss_over_them():
    """With or without a closed form."""
    for task in (TASK, Signs(TASK.context)):
        moments = Moments.of_task(task, 50, key=KEY, progress=False)
        expected = Sampled(task.sample(50, key=KEY))(model())
        np.testing.assert_allclose(moments(model()), expected, rtol=1e-12)


def test_a_task_without_moments_is_refused_with_what_to_do():
    for call in (Population, population_moments, lambda task: task.moments("1/N")):
        with pytest.raises(InvalidInput) as refusal:
            call(Signs(ContextLengths(4)))
        message = str(refusal.value)
        assert "Signs has no closed-form moments" in message and "Moments.of_task" in message and "\n" not in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda found: (found.input, found.cross), "returned a tuple"),
        (lambda found: PopulationMoments(np.eye(2), np.eye(2), np.eye(2), 1.0), "input of shape (2, 2)"),
        (lambda found: PopulationMoments(found.input, found.cross, found.second * np.nan, 1.0), "finite"),
        (lambda found: PopulationMoments(found.input, found.cross, np.triu(np.ones((3, 3))), 1.0), "not symmetric"),
        (lambda found: PopulationMoments(found.input, found.cross, found.second, -1.0), "label_power"),
    ],
)
def test_moments_that_cannot_be_are_refused_in_one_line(change, words):
    class Wrong(SignsInClosedForm):
        def closed_form(self, normalization: Any) -> Any:
            return change(super().closed_form(normalization))

    with pytest.raises(InvalidInput) as refusal:
        Population(Wrong(ContextLengths(4)))
    assert words in str(refusal.value) and "moments() of Wrong" in str(refusal.value) and "\n" not in str(refusal.value)
