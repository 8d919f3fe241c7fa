"""The registry of fast forms: who is served, who serves itself, and that a registration is all it takes."""

import jax
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell._util.types import Activation
from stepwell.dynamics import Record, descend, flow
from stepwell.dynamics.fast import AbstractMultiStep, gradient_form, multi_step_form, stiff_form
from stepwell.models import SeparateAttention, SpectralAttention
from stepwell.objectives import AbstractObjective, Population, ReducedSampled, Sampled
from stepwell.tasks import InContextRegression, MultiTaskRegression

KEY = jax.random.key(0)
TASK = InContextRegression(np.diag([0.6, 0.4]), 6)
TASKS = MultiTaskRegression((3, 2), np.array([1.0, 0.5]), 7)
FORMS = {"gradient": gradient_form, "several steps": multi_step_form, "stiff": stiff_form}


def separate(activation: Activation = "linear"):
    return SeparateAttention.random(dim=2, heads=2, scale=0.4, activation=activation, key=KEY)


class ThirdOfPopulation(Population):
    def quadratic(self, coefficients):
        return super().quadratic(coefficients) / 3


class ThirdOfSampled(Sampled):
    def __call__(self, model):
        return super().__call__(model) / 3


class ThirdOfReduced(ReducedSampled):
    def __call__(self, model):
        return super().__call__(model) / 3


SPECTRAL = SpectralAttention.balanced(np.full((2, 2), 0.2), np.full((2, 2), 0.3), TASKS.dims)
BATCH = TASK.sample(20, key=KEY)
SUBCLASSES = {
    "population": (lambda: ThirdOfPopulation(TASK), lambda: Population(TASK), separate),  # pyright: ignore[reportCallIssue]
    "sampled": (lambda: ThirdOfSampled(BATCH), lambda: Sampled(BATCH), lambda: separate("softmax")),
    "reduced": (
        lambda: ThirdOfReduced(TASKS, 32, key=KEY),  # pyright: ignore[reportCallIssue]
        lambda: ReducedSampled(TASKS, 32, key=KEY),
        lambda: SPECTRAL,
    ),
}


@pytest.mark.parametrize("name", SUBCLASSES)
def test_an_objective_that_changes_the_loss_is_not_served_by_the_forms_of_its_base(name):
    build, base, start = SUBCLASSES[name]
    objective, plain, model = build(), base(), start()
    assert any(form(plain, model) is not plain for form in FORMS.values())
    for form in FORMS.values():
        assert form(objective, model) is objective
    # A third of the loss at three times the rate, or after three times the time, is the same path.
    third = descend(model, objective, rate=0.3, steps=20, progress=False)
    whole = descend(model, plain, rate=0.1, steps=20, progress=False)
    np.testing.assert_allclose(3 * third.loss, whole.loss, rtol=1e-10)
    third = flow(model, objective, until=6.0, record=Record(points=5), rtol=1e-9, progress=False)
    whole = flow(model, plain, until=2.0, record=Record(points=5), rtol=1e-9, progress=False)
    np.testing.assert_allclose(3 * third.loss, whole.loss, rtol=1e-6)


class Distance(AbstractObjective):
    """The squares of all weights."""

    def __call__(self, model):
        return sum(jax.numpy.sum(weight**2) for weight in model.weights().values())

    def check(self, model):
        pass

    def floor(self, model):
        return 0.0


class FastDistance(AbstractMultiStep):
    """All steps by the formula: a step of rate η multiplies weights by 1 - 2η."""

    def __call__(self, model):
        return Distance()(model)

    def multi_step(self, model, rate, steps):
        return self(model), jax.tree.map(lambda weight: weight * (1 - 2 * rate) ** steps, model)

    def check(self, model):
        pass

    def floor(self, model):
        return 0.0


class ServedDistance(Distance):
    pass


@multi_step_form.register
def _(objective: ServedDistance, model: SeparateAttention) -> AbstractObjective:
    return FastDistance()


def test_a_registration_is_all_that_a_new_form_takes(monkeypatch):
    calls, formula = [], FastDistance.multi_step
    monkeypatch.setattr(FastDistance, "multi_step", lambda *given: calls.append(1) or formula(*given))
    plain, fast = (
        descend(separate(), each, rate=0.1, steps=30, progress=False) for each in (Distance(), ServedDistance())
    )
    assert calls
    np.testing.assert_allclose(fast.loss, plain.loss, rtol=1e-12)
    np.testing.assert_allclose(plain.loss[0], float(plain.loss[0, 0]) * 0.64 ** np.arange(31), rtol=1e-12)


@pytest.mark.parametrize("form", [multi_step_form, stiff_form])
def test_a_form_of_the_population_is_an_objective_like_it(form):
    """Given to `flow` or `descend` itself: it refuses what the loss refuses, and knows the lowest loss."""
    objective, model = Population(TASK), separate()
    fast = form(objective, model)
    assert fast is not objective and fast.floor(model) == objective.floor(model)
    mixed = SeparateAttention.random(dim=2, heads=2, scale=0.4, label_blocks="random", key=KEY)
    with pytest.raises(InvalidInput, match="label blocks"):
        descend(mixed, fast, rate=0.1, steps=2, progress=False)
    assert flow(model, fast, progress=False).attrs["outcome"] == "converged"
