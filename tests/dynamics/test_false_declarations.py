"""Classes that keep their declaration at the start, or for some signs and types of weights, and not elsewhere."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble, Record, descend, flow, online
from stepwell.models import Form, MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import InContextRegression

TASK = InContextRegression(np.diag([0.6, 0.4]), 8)
BATCH = TASK.sample(20, key=jax.random.key(0))


class Unsigned(SeparateAttention):
    """Answers with the sizes of its queries: as the formula does, where all of them are positive."""

    declared_form: ClassVar[Form] = "separate"

    def __call__(self, example, length=None):
        plain = SeparateAttention(self.value, self.key, jnp.abs(self.query), activation=self.activation)
        return plain(example, length)


class Careful(SeparateAttention):
    """What it declares; but it keeps what is not a number out of its loss."""

    declared_form: ClassVar[Form] = "separate"

    def bilinear(self):
        return jnp.nan_to_num(jnp.einsum("hrw,hrd->hwd", self.key, self.query))

    def directions(self, query):
        return jnp.nan_to_num(jnp.einsum("hrw,hr->hw", self.key, self.query @ query))


class Drifting(MergedAttention):
    """Its label block is zero at the start, and not once its weights have moved."""

    declared_form: ClassVar[Form] = "attention"

    def bilinear(self):
        label = self.value[:, 0, -1:] * (self.key_query[:, 0] - 0.1)
        return self.key_query.at[:, -1].set(label)

    def directions(self, query):
        return self.bilinear() @ query


class NearlyTrue(SeparateAttention):
    """Two per cent more than the formula."""

    declared_form: ClassVar[Form] = "separate"

    def __call__(self, example, length=None):
        plain = SeparateAttention(self.value, self.key, self.query, activation=self.activation)
        return 1.02 * plain(example, length)


def made(kind: Any, *given: Any, **options: Any) -> Any:
    """Of a class whose constructor is inherited, which type checkers do not see."""
    return kind(*given, **options)


def random(kind: Any, seed: int = 0, activation: Any = "linear") -> Any:
    start = SeparateAttention.random(dim=2, heads=2, scale=0.3, activation=activation, key=jax.random.key(seed))
    return kind(start.value, start.key, start.query, activation=activation)


def positive():
    start = random(SeparateAttention)
    return made(Unsigned, start.value, start.key, jnp.abs(start.query))


RUNS = {
    "descend in population": lambda m: descend(m, Population(TASK), rate=0.01, steps=2, progress=False),
    "descend on moments": lambda m: descend(m, Moments.of_batch(BATCH), rate=0.01, steps=2, progress=False),
    "flow": lambda m: flow(m, Population(TASK), until=1.0, record=Record(points=3), progress=False),
}


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize(
    "model",
    [Ensemble.of([random(Unsigned, seed) for seed in range(2)]), positive(), random(NearlyTrue)],
    ids=["ensemble", "positive start", "two per cent"],
)
def test_refused(run, model):
    with pytest.raises(InvalidInput, match="has declared_form = 'separate', but .* differs"):
        run(model)


def test_an_ensemble_on_softmax_sequences_is_refused():
    models = Ensemble.of([random(Unsigned, seed, "softmax") for seed in range(2)])
    with pytest.raises(InvalidInput, match="differs"):
        descend(models, Sampled(BATCH), rate=0.1, steps=2, progress=False)
    with pytest.raises(InvalidInput, match="differs"):
        online(models, TASK, batch_size=8, rate=0.1, steps=2, progress=False, key=jax.random.key(0))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_low_precision_hides_nothing(dtype):
    start = random(NearlyTrue)
    model = made(NearlyTrue, *(weight.astype(dtype) for weight in (start.value, start.key, start.query)))
    with pytest.raises(InvalidInput, match="differs"):
        descend(model, Population(TASK), rate=0.01, steps=2, progress=False)


def test_single_precision_and_true_is_taken():
    class Single(SeparateAttention):
        declared_form: ClassVar[Form] = "separate"

    start = random(Single)
    model = made(Single, *(weight.astype(jnp.float32) for weight in (start.value, start.key, start.query)))
    descend(model, Population(TASK), rate=0.01, steps=2, progress=False)


@pytest.mark.parametrize("objective", [Population(TASK), Moments.of_batch(BATCH)], ids=["population", "moments"])
def test_a_stiff_flow_moves_what_hides_nans(objective):
    options = {"until": 5.0, "record": Record(points=4), "solver": "rodas5p", "progress": False}
    found, plain = (flow(random(kind), objective, **options) for kind in (Careful, SeparateAttention))
    np.testing.assert_allclose(found.loss, plain.loss, rtol=1e-8)
    assert float(found.loss[0, -1]) < float(found.loss[0, 0]) - 1e-3


def test_label_blocks_must_stay_zero():
    start = MergedAttention.random(dim=2, heads=1, scale=0.3, key=jax.random.key(0))
    key_query = start.key_query.at[:, 0].set(0.1)
    model = made(Drifting, start.value, key_query)
    for objective in (Population(TASK), Moments.of_batch(BATCH, features="cubic")):
        with pytest.raises(InvalidInput, match="are zero initially, but up to"):
            descend(model, objective, rate=0.01, steps=2, progress=False)


def test_a_class_changed_in_place_is_compared_anew():
    class Later(SeparateAttention):
        declared_form: ClassVar[Form] = "separate"

    descend(random(Later), Population(TASK), rate=0.01, steps=2, progress=False)
    Later.__call__ = lambda self, example, length=None: jnp.zeros(1)
    with pytest.raises(InvalidInput, match="differs"):
        descend(random(Later), Population(TASK), rate=0.01, steps=2, progress=False)


def test_tied_weights_that_cannot_reach_the_lowest_loss_of_their_rank_are_not_called_converged():
    class Tied(MergedAttention):
        declared_form: ClassVar[Form] = "attention"

        def bilinear(self):
            return self.key_query * np.array([0.0, 1.0])

        def directions(self, query):
            return self.bilinear() @ query

    start = MergedAttention.random(dim=2, heads=1, scale=0.3, key=jax.random.key(0))
    run = flow(made(Tied, start.value, start.key_query), Population(TASK), progress=False, throw=False)
    assert run.attrs["outcome"] in ("stuck", "solver failed")


def test_moments_of_other_sequences_are_refused():
    class Heavy(InContextRegression):
        def compose(self, inputs, tasks, noise, index, total):
            return super().compose(inputs**3, tasks, noise, index, total)

    with pytest.raises(
        InvalidInput, match=r"Heavy has a compose\(\) of its own and the closed_form\(\) of InContextReg"
    ):
        Population(made(Heavy, np.eye(2), 5))
    Population(TASK)
