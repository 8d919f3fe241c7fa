"""Training is that of the model's own `__call__`, for any model, objective and dynamics, natively or not."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import own_models as own
import pytest
import scipy.integrate
from jaxtyping import Array

from stepwell._util.errors import InvalidInput, WouldNotFit
from stepwell.dynamics import Ensemble, Record, descend, flow, online, renormalized
from stepwell.dynamics.fast import (
    FusedPopulation,
    FusedSampled,
    SteppingPopulation,
    gradient_form,
    multi_step_form,
    stiff_form,
)
from stepwell.models import (
    AbstractModel,
    Form,
    MergedAttention,
    MultiHeadAttention,
    SeparateAttention,
    SpectralAttention,
    decomposable,
)
from stepwell.objectives import Exact, Moments, Population, ReducedSampled, Sampled, Spectral
from stepwell.tasks import Batch, ContextLengths, FeatureBatch, InContextRegression, MultiTaskRegression
from stepwell.trajectory import model_at

KEY = jax.random.key(0)
TASK = InContextRegression(np.diag([0.6, 0.4]), 8, noise_variance=0.1)
BATCH = TASK.sample(20, key=KEY)
VARIED = InContextRegression(np.diag([0.6, 0.4]), ContextLengths([2, 5, 6], [0.5, 0.3, 0.2]))
RATE, STEPS = 0.1, 6
QUIET: Any = {"progress": False}

TASKS = MultiTaskRegression((2, 3), context=8)
DECOMPOSABLE = decomposable(SpectralAttention.balanced(np.full((2, 2), 0.1), np.eye(2), TASKS.dims), TASKS)


def separate(seed: int = 0, **options) -> SeparateAttention:
    return SeparateAttention.random(dim=2, heads=2, scale=0.4, key=jax.random.key(seed), **options)


def made(kind: Any, model: AbstractModel, **options) -> Any:
    """A model of another class, with the same weights."""
    return kind(*model.weights().values(), **options)


def gated(seed: int = 0) -> own.GatedKeys:
    return own.GatedKeys.random(dim=2, heads=3, scale=0.7, key=jax.random.key(seed))


def loss_by_hand(model: AbstractModel, batch: Batch) -> Array:
    """By the definition: every context length with its probability, every sequence, one call each."""
    total = jnp.zeros(())
    for n, probability in zip(batch.context.counts, batch.context.probabilities, strict=True):
        tokens = batch.tokens[:, : n + 1].at[:, n, batch.dim :].set(0.0)
        total += probability * jnp.mean((jax.vmap(model)(tokens) - batch.labels[:, n]) ** 2)
    return total


def descent_by_hand(model: Any, batch_at: Callable[[int], Batch], steps: int = STEPS) -> tuple[np.ndarray, Any]:
    """(losses before each step and after the last, the model after them), by the textbook loop."""
    slope = jax.jit(
        lambda weights, batch: jax.value_and_grad(lambda w: loss_by_hand(model.with_weights(w), batch))(weights)
    )
    weights, losses = model.weights(), []
    for step in range(steps + 1):
        loss, gradient = slope(weights, batch_at(step))
        losses.append(float(loss))
        if step < steps:
            weights = jax.tree.map(lambda w, g: w - RATE * g, weights, gradient)
    return np.array(losses), model.with_weights(weights)


def flow_by_hand(model: Any, batch: Batch, until: float) -> Any:
    """The model at a time, by SciPy's Runge-Kutta method of order eight."""
    names, shapes = zip(*((name, weight.shape) for name, weight in model.weights().items()), strict=True)
    cuts = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]

    def unravel(vector):
        parts = jnp.split(vector, cuts)
        return model.with_weights({n: p.reshape(s) for n, p, s in zip(names, parts, shapes, strict=True)})

    slope = jax.jit(jax.grad(lambda vector: loss_by_hand(unravel(vector), batch)))
    start = np.concatenate([np.ravel(weight) for weight in model.weights().values()])
    found = scipy.integrate.solve_ivp(
        lambda _, w: -0.5 * np.asarray(slope(w)), (0.0, until), start, method="DOP853", rtol=1e-11, atol=1e-12
    )
    return unravel(jnp.asarray(found.y[:, -1]))


def fresh(task: InContextRegression, size: int = 16) -> Callable[[int], Batch]:
    return lambda step: task.draw(size, key=jax.random.fold_in(KEY, step))


def assert_same_weights(found: Any, expected: Any, **tolerance) -> None:
    for name, value in expected.weights().items():
        np.testing.assert_allclose(getattr(found, name), value, err_msg=name, **tolerance)


# Everything that trains by sequences, as (model or ensemble) -> trajectory.
TRAININGS: dict[str, Callable[[Any], Any]] = {
    "descend": lambda model: descend(model, Sampled(BATCH), rate=RATE, steps=STEPS, **QUIET),
    "online": lambda model: online(model, TASK, batch_size=16, rate=RATE, steps=STEPS, key=KEY, **QUIET),
    "flow": lambda model: flow(model, Sampled(BATCH), until=2.0, record=Record(points=3), **QUIET),
    "rodas5p": lambda model: flow(model, Sampled(BATCH), until=2.0, record=Record(points=3), solver="rodas5p", **QUIET),
    "tsit5": lambda model: flow(model, Sampled(BATCH), until=2.0, record=Record(points=3), solver="tsit5", **QUIET),
}


@pytest.mark.parametrize("training", TRAININGS)
@pytest.mark.parametrize("activation", ["linear", "softmax"])
def test_a_model_that_answers_nothing_stays_where_it_is(training, activation, with_and_without):
    model = made(own.Silent, separate(), activation=activation)
    for run in with_and_without(lambda: TRAININGS[training](model)):
        batches = [fresh(TASK)(step) for step in range(STEPS + 1)] if training == "online" else [BATCH]
        powers = [float(np.mean(np.square(batch.labels[:, -1]))) for batch in batches]
        np.testing.assert_allclose(run.loss[0], np.broadcast_to(powers, run.loss[0].shape), rtol=1e-13)
        assert_same_weights(model_at(run, model), model, rtol=0, atol=0)


@pytest.mark.parametrize("training", ["descend", "online", "flow"])
def test_an_ensemble_of_them_stays_too(training, with_and_without):
    models = [made(own.Silent, separate(seed), activation="softmax") for seed in range(2)]
    for run in with_and_without(lambda: TRAININGS[training](Ensemble.of(models))):
        for number, model in enumerate(models):
            # Diffrax puts weights between steps together from those before and after, to rounding.
            assert_same_weights(model_at(run, model, run=number), model, rtol=1e-15 if training == "flow" else 0)


# Losses that are computed from matrices, with a model whose `__call__` is not that of its matrices.
BY_MATRICES: dict[str, tuple[Callable[[], Any], Any]] = {
    "population": (lambda: Population(TASK), made(own.Silent, separate())),
    "population, eigenbasis": (lambda: Population(TASK, basis="eigen"), made(own.Silent, separate())),
    "moments": (lambda: Moments.of_batch(BATCH), made(own.Silent, separate())),
    "cubic moments": (lambda: Moments.of_batch(BATCH, features="cubic"), made(own.Silent, separate())),
    "reduced": (lambda: ReducedSampled(TASKS, 32, key=KEY), made(own.SilentHeads, DECOMPOSABLE)),
    "spectral": (lambda: Spectral(TASKS), made(own.SilentHeads, DECOMPOSABLE)),
    "exact": (lambda: Exact(TASKS), made(own.SilentHeads, DECOMPOSABLE)),
}
RUNS: dict[str, Callable[[Any, Any], Any]] = {
    "descend": lambda model, objective: descend(model, objective, rate=RATE, steps=STEPS, **QUIET),
    "flow": lambda model, objective: flow(model, objective, until=1.0, record=Record(points=3), **QUIET),
    "lsoda": lambda model, objective: flow(
        model, objective, until=1.0, record=Record(points=3), solver="lsoda", **QUIET
    ),
    "ensemble": lambda model, objective: descend(Ensemble.of([model] * 2), objective, rate=RATE, steps=STEPS, **QUIET),
    "own objectives": lambda model, objective: flow(
        Ensemble.of([model] * 2), Ensemble.of([objective] * 2), until=1.0, record=Record(points=3), **QUIET
    ),
    "observed": lambda model, objective: descend(
        made(own.Silent, separate()),
        Sampled(BATCH),
        rate=RATE,
        steps=1,
        record=Record(observe={"it": lambda _: objective(model)}),
        **QUIET,
    ),
    "value": lambda model, objective: objective(model),
    "for descent": lambda model, objective: gradient_form(objective, model)(model),
    "for several steps": lambda model, objective: multi_step_form(objective, model)(model),
    "for stiff steps": lambda model, objective: stiff_form(objective, model)(model),
}


@pytest.mark.parametrize("objective", BY_MATRICES)
def test_a_loss_from_matrices_refuses_a_class_that_is_more_than_they_are(objective, with_and_without):
    build, model = BY_MATRICES[objective]

    def refusals() -> dict[str, str]:
        loss, messages = build(), {}
        for name, run in RUNS.items():
            with pytest.raises(InvalidInput) as refused:
                run(model, loss)
            messages[name] = str(refused.value)
        return messages

    form = "separate" if isinstance(model, own.Silent) else "attention"
    for messages in with_and_without(refusals):
        for name, message in messages.items():
            assert type(model).__name__ in message and "use Sampled or online" in message, name
            assert f"declared_form = {form!r}" in message and "\n" not in message, name


@pytest.mark.parametrize("activation", ["linear", "softmax"])
def test_a_changed_answer_is_what_is_trained(activation, with_and_without):
    model = made(own.Doubled, separate(), activation=activation)
    for run in with_and_without(lambda: TRAININGS["descend"](model)):
        losses, end = descent_by_hand(model, lambda _: BATCH)
        np.testing.assert_allclose(run.loss[0], losses, rtol=1e-12)
        assert_same_weights(model_at(run, model), end, rtol=1e-11)
    for run in with_and_without(lambda: TRAININGS["online"](model)):
        losses, end = descent_by_hand(model, fresh(TASK))
        np.testing.assert_allclose(run.loss[0], losses, rtol=1e-12)
        assert_same_weights(model_at(run, model), end, rtol=1e-11)


@pytest.mark.parametrize("solver", ["lsoda", "rodas5p", "tsit5", "kvaerno5"])
def test_a_changed_answer_is_what_flows(solver, with_and_without):
    model = made(own.Doubled, separate(), activation="softmax")
    expected = flow_by_hand(model, BATCH, 2.0)

    def run_it():
        return flow(
            model, Sampled(BATCH), until=2.0, record=Record(points=3), solver=solver, rtol=1e-8, atol=1e-9, **QUIET
        )

    for run in with_and_without(run_it):
        assert_same_weights(model_at(run, model), expected, rtol=0, atol=1e-6)


# What a true declaration brings: (declared model, the same of our class, objective, its fast form).
SOFTMAX = separate(activation="softmax")
DECLARED: dict[str, tuple[Any, Any, Callable[[], Any], Callable[[Any, Any], Any], type]] = {
    "softmax": (
        made(own.Truthful, SOFTMAX, activation="softmax"),
        SOFTMAX,
        lambda: Sampled(BATCH),
        gradient_form,
        FusedSampled,
    ),
    "descent in population": (
        made(own.Truthful, separate()),
        separate(),
        lambda: Population(TASK),
        multi_step_form,
        FusedPopulation,
    ),
    "flow in population": (
        made(own.Truthful, separate()),
        separate(),
        lambda: Population(TASK),
        stiff_form,
        SteppingPopulation,
    ),
    "moments": (
        made(own.Truthful, separate()),
        separate(),
        lambda: Moments.of_batch(BATCH),
        lambda objective, model: objective,
        Moments,
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_a_class_that_says_what_it_is_trains_as_fast_as_ours(case, with_and_without):
    declared, plain, build, fast, kind = DECLARED[case]
    assert isinstance(fast(build(), declared), kind)
    run = RUNS["flow" if case == "flow in population" else "descend"]
    for found, expected in with_and_without(lambda: (run(declared, build()), run(plain, build()))):
        # The same arithmetic; only the compiler may order the sums of two programs differently.
        np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-13)
        assert_same_weights(model_at(found, declared), model_at(expected, plain), rtol=1e-12)


@pytest.mark.parametrize("dim", [2, 40])
def test_a_declaration_brings_what_it_says_and_no_more(dim, with_and_without):
    """Keys are not those of `SeparateAttention`, and heads meet: neither native steps nor pairs of weights apply."""
    task = InContextRegression(np.diag(np.linspace(1.0, 0.5, dim) / dim), 8)
    moments = task.moments()
    lam, cross, second = moments.input, moments.cross, moments.second

    def loss(model) -> Array:
        a = jnp.einsum("h,hij->ij", model.value[:, 0, dim], model.bilinear()[:, :dim])
        return moments.label_power - 2 * jnp.trace(a.T @ cross @ lam) + jnp.trace(a.T @ second @ a @ lam)

    start = made(own.Bounded, SeparateAttention.random(dim=dim, heads=2, scale=0.4, key=KEY))
    slope, end = jax.jit(jax.value_and_grad(loss)), start
    for _ in range(STEPS):
        end = jax.tree.map(lambda w, g: w - RATE * g, end, slope(end)[1])
    for run in with_and_without(lambda: RUNS["descend"](start, Population(task))):
        assert_same_weights(model_at(run, start), end, rtol=0, atol=1e-12)
    if dim == 2:
        flat, unravel = jax.flatten_util.ravel_pytree(start)
        field = jax.jit(lambda w: -0.5 * jax.grad(lambda w: loss(unravel(w)))(w))
        solved = scipy.integrate.solve_ivp(
            lambda _, w: np.asarray(field(w)), (0.0, 2.0), np.asarray(flat), method="DOP853", rtol=1e-11, atol=1e-12
        )
        for run in with_and_without(
            lambda: flow(start, Population(task), until=2.0, record=Record(points=3), rtol=1e-8, **QUIET)
        ):
            assert_same_weights(model_at(run, start), unravel(jnp.asarray(solved.y[:, -1])), rtol=0, atol=1e-6)


class TrueHeads(MultiHeadAttention):
    declared_form: ClassVar[Form] = "attention"


class TrueSpectrum(SpectralAttention):
    declared_form: ClassVar[Form] = "spectral"


@pytest.mark.parametrize("objective", ["reduced", "spectral", "exact"])
def test_eigenvalues_of_a_class_that_says_what_it_is(objective):
    loss = BY_MATRICES[objective][0]()
    plain = SpectralAttention.balanced(np.full((2, 2), 0.1), np.eye(2), TASKS.dims)
    spectrum = made(TrueSpectrum, plain, dims=plain.dims)
    heads = made(TrueHeads, DECOMPOSABLE, score_scale=DECOMPOSABLE.score_scale)
    expected = RUNS["descend"](plain, loss).loss
    np.testing.assert_allclose(RUNS["descend"](spectrum, loss).loss, expected, rtol=1e-13)
    np.testing.assert_allclose(RUNS["descend"](heads, loss).loss, expected, rtol=1e-9)


MERGED = MergedAttention.random(dim=2, heads=2, scale=0.4, key=KEY)
GATED = own.GatedAttention(MERGED.value, MERGED.key_query, jnp.zeros(1))
LIES = {
    "silent": made(own.FalselySilent, separate()),
    "gate at zero": GATED,
    "clipped": made(own.Clipped, separate()),
    "other directions": made(own.OtherDirections, MERGED),
    "other map": made(own.OtherMap, MERGED),
}


class FalseSpectrum(SpectralAttention):
    """Its eigenvalues are not those that it predicts by."""

    declared_form: ClassVar[Form] = "spectral"

    def mu(self):
        return self.value * self.output + 0.1 * self.value

    def readout(self):
        return jnp.pad((self.value * self.output)[:, :, None] * np.eye(2), ((0, 0), (0, 0), (self.dim, 0)))


@pytest.mark.parametrize("run", ["descend", "flow", "ensemble"])
@pytest.mark.parametrize("objective", ["population", "moments", "cubic moments", "sampled"])
@pytest.mark.parametrize("lie", LIES)
def test_a_class_that_says_what_it_is_not_is_refused(lie, objective, run):
    loss = Sampled(BATCH) if objective == "sampled" else BY_MATRICES[objective][0]()
    with pytest.raises(InvalidInput, match=f"{type(LIES[lie]).__name__} has declared_form .* remove the declaration"):
        RUNS[run](LIES[lie], loss)


def test_a_class_that_says_what_it_is_not_is_refused_elsewhere():
    for training in ("online", "rodas5p"):
        with pytest.raises(InvalidInput, match="gradient of its prediction .* remove the declaration"):
            TRAININGS[training](GATED)
    spectrum = SpectralAttention.balanced(np.full((2, 2), 0.1), np.eye(2), TASKS.dims)
    for objective in ("reduced", "spectral", "exact"):
        with pytest.raises(InvalidInput, match=r"readout\(\) differs .* remove the declaration"):
            RUNS["descend"](made(FalseSpectrum, spectrum, dims=TASKS.dims), BY_MATRICES[objective][0]())


def test_what_is_compared_is_as_long_as_what_is_trained_on():
    """`Windowed` sees nine tokens: all of a context of eight, and not of nine."""
    model = made(own.Windowed, separate())
    longer = InContextRegression(np.diag([0.6, 0.4]), 9)
    for task, refused in ((TASK, False), (longer, True)):
        batch = task.sample(20, key=KEY)
        for objective in (Population(task), Moments.of_task(task, 20, key=KEY, progress=False), Sampled(batch)):
            if refused:
                with pytest.raises(InvalidInput, match="its prediction differs"):
                    objective.check(model)
            else:
                objective.check(model)


def test_a_model_from_the_ground_up_descends(with_and_without):
    for run in with_and_without(lambda: TRAININGS["descend"](gated())):
        losses, end = descent_by_hand(gated(), lambda _: BATCH)
        np.testing.assert_allclose(run.loss[0], losses, rtol=1e-12)
        assert_same_weights(model_at(run, gated()), end, rtol=1e-11)
        assert run.key.dims == ("run", "snapshot", "head", "key_dim", "dim") and run.attrs["outcome"] == "finished"


def test_a_model_from_the_ground_up_flows():
    expected = flow_by_hand(gated(), BATCH, 2.0)
    for solver in ("lsoda", "rodas5p"):
        run = flow(
            gated(), Sampled(BATCH), until=2.0, record=Record(points=3), solver=solver, rtol=1e-8, atol=1e-9, **QUIET
        )
        assert_same_weights(model_at(run, gated()), expected, rtol=0, atol=1e-6)


def test_an_ensemble_from_the_ground_up_with_data_of_its_own():
    models, batches = (
        [gated(seed) for seed in range(3)],
        [TASK.sample(20, key=jax.random.key(seed)) for seed in range(3)],
    )
    run = RUNS["descend"](Ensemble.of(models), Ensemble.of([Sampled(batch) for batch in batches]))
    for number, (model, batch) in enumerate(zip(models, batches, strict=True)):
        losses, end = descent_by_hand(model, lambda _, batch=batch: batch)
        np.testing.assert_allclose(run.loss[number], losses, rtol=1e-12)
        assert_same_weights(model_at(run, model, run=number), end, rtol=1e-11)


@pytest.mark.parametrize("make", [gated, lambda: made(own.Doubled, separate()), lambda: made(own.Truthful, separate())])
def test_several_context_lengths_are_several_calls(make):
    batch = VARIED.sample(20, key=KEY)
    run = RUNS["descend"](make(), Sampled(batch))
    losses, end = descent_by_hand(make(), lambda _: batch)
    np.testing.assert_allclose(run.loss[0], losses, rtol=1e-12)
    assert_same_weights(model_at(run, make()), end, rtol=1e-11)
    run = online(make(), VARIED, batch_size=16, rate=RATE, steps=STEPS, key=KEY, **QUIET)
    np.testing.assert_allclose(run.loss[0], descent_by_hand(make(), fresh(VARIED))[0], rtol=1e-12)


def test_tokens_beyond_the_context_and_the_label_of_the_query_are_not_shown():
    """Or a model could read off what it is asked for."""

    class Cheat(own.GatedKeys):
        def __call__(self, example):
            return example[-1, 2:] + 0.0 * self.value[0]

    whole = Batch(jnp.concatenate([BATCH.tokens[..., :2], BATCH.labels], axis=-1), BATCH.labels)
    short = Batch(whole.tokens, whole.labels, ContextLengths(5))
    model = Cheat.random(dim=2, heads=1, scale=0.1, key=KEY)
    for batch, last in ((whole, 8), (short, 5)):
        np.testing.assert_allclose(Sampled(batch)(model), np.mean(np.square(batch.labels[:, last])), rtol=1e-13)


def test_a_weight_that_hides_what_is_not_a_number_moves():
    """A Rosenbrock step finds out which weights are read by putting no number in their place."""

    class Rectified(own.GatedKeys):
        def __call__(self, example):
            gate = jnp.where(self.gate[0] > 0, self.gate[0], 0.0)
            attention = example[:-1, :2] @ self.key[0] @ example[-1, :2]
            return gate * attention @ example[:-1, 2:] / attention.size

    model = Rectified.random(dim=2, heads=2, scale=0.7, key=KEY)
    model = model.with_weights(model.weights() | {"gate": jnp.array([0.6, 0.2])})
    run = flow(
        model, Sampled(BATCH), until=2.0, record=Record(points=3), solver="rodas5p", rtol=1e-8, atol=1e-9, **QUIET
    )
    assert_same_weights(model_at(run, model), flow_by_hand(model, BATCH, 2.0), rtol=0, atol=1e-6)


def test_a_class_of_no_known_form_is_not_renormalized():
    with pytest.raises(InvalidInput, match="Doubled is not known .*declared_form"):
        renormalized(made(own.Doubled, separate()), "none", length=8)
    changed = renormalized(made(own.Truthful, separate()), "none", length=8)
    np.testing.assert_allclose(changed.value, 8 ** (-1 / 3) * separate().value, rtol=1e-15)


def test_members_of_an_ensemble_share_their_numbers():
    one, other = gated(0), gated(1)
    assert Ensemble.of([one, other]).stacked.floor == one.floor  # not a weight
    object.__setattr__(other, "floor", 0.5)
    with pytest.raises(InvalidInput, match="the same settings"):
        Ensemble.of([one, other])


class Scalar(own.GatedKeys):
    def __call__(self, example):
        return super().__call__(example)[0]


class Whole(own.GatedKeys):
    def __call__(self, example):
        return jnp.round(super().__call__(example)).astype(int)


class Loud(own.GatedKeys):
    def __call__(self, example):
        if self.value[0] > 0:  # not a thing that JAX can trace
            return super().__call__(example)
        return jnp.zeros(1)


class Forward(own.GatedKeys):
    """It cannot be differentiated backwards."""

    def __call__(self, example):
        return jax.lax.while_loop(lambda x: x[0] > 1, lambda x: x / 2, super().__call__(example))


class Wide(own.GatedKeys):
    """What it keeps for the gradient is far more than its tokens."""

    def __call__(self, example):
        return super().__call__(example) * jnp.mean(jnp.sin(self.value[0] * jnp.arange(2.0**36)))


FEATURES: FeatureBatch = BATCH.cubic_features()


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (Scalar, BATCH, ["shape (9, 3)", "shape ()", "the data ask for (1,)"]),
        (Whole, BATCH, ["int64", "of floats"]),
        (Loud, BATCH, ["cannot be called", "TracerBoolConversionError"]),
        (Forward, BATCH, ["differentiated", "ValueError"]),
        (own.GatedKeys, FEATURES, ["feature vector of shape (4,)", "give the Batch itself"]),
    ],
)
def test_a_call_that_does_not_fit_is_refused_in_one_line(kind, data, words):
    with pytest.raises(InvalidInput) as refusal:
        descend(kind.random(dim=2, heads=2, scale=0.1, key=KEY), Sampled(data), rate=RATE, steps=1, **QUIET)
    message = str(refusal.value)
    assert all(word in message for word in (*words, kind.__name__)) and "\n" not in message


def test_a_gradient_that_would_not_fit_is_refused_with_the_estimate():
    with pytest.raises(WouldNotFit, match=r"20 examples of Wide needs about \d+"):
        Sampled(BATCH).check(Wide.random(dim=2, heads=2, scale=0.1, key=KEY))


def test_weights_that_cannot_be_recorded_are_refused_before_the_run():
    class Misnamed(own.GatedKeys):
        weight_dims: ClassVar[dict[str, tuple[str, ...]]] = own.GatedKeys.weight_dims | {"gate": ("dim",)}

    with pytest.raises(InvalidInput, match="different names"):
        TRAININGS["descend"](Misnamed.random(dim=2, heads=3, scale=0.1, key=KEY))
