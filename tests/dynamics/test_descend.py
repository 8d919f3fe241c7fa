"""Gradient descent against a plain loop, ensembles against single runs, and what happens when things go wrong."""

import json
import re
import signal

import jax
import jax.numpy as jnp
import numpy as np
import numpy_descent
import optax
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble, Interrupted, Record, RunFailed, descend, online
from stepwell.dynamics import _divergence as divergence_module
from stepwell.dynamics import _host as host_module
from stepwell.models import CubicMLP, MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import InContextRegression
from stepwell.theory import linear
from stepwell.trajectory import model_at

KEY = jax.random.key(0)
TASK = InContextRegression(np.diag([0.6, 0.4]), 6)
OBJECTIVE = Population(TASK)


def separate(seed=0, scale=0.3):
    return SeparateAttention.random(dim=2, heads=2, scale=scale, key=jax.random.key(seed))


def test_descent_is_the_textbook_loop(with_and_without):
    """By the native pass and by the compiled loop; the loop beside them is NumPy's."""
    start = separate()
    weights = np.asarray(start.value)[:, 0, -1], np.asarray(start.key)[:, 0, :2], np.asarray(start.query)[:, 0]
    losses, models = numpy_descent.separate(OBJECTIVE, *weights, 0.1, 40)
    recorded = [0, 3, 4, 17, 40]
    runs = with_and_without(
        lambda: descend(start, OBJECTIVE, rate=0.1, steps=40, record=Record(points=recorded, snapshots=[4, 40]))
    )
    assert losses[-1] < 0.9 * losses[0]
    for found in runs:
        np.testing.assert_array_equal(found.step, recorded)
        np.testing.assert_array_equal(found.snapshot, [0, 4, 40])
        np.testing.assert_allclose(found.loss[0], losses[recorded], rtol=1e-13)
        np.testing.assert_allclose(found["query"].sel(snapshot=4)[0, :, 0], models[4][2], rtol=1e-12)
        np.testing.assert_allclose(model_at(found, start).key[:, 0, :2], models[40][1], rtol=1e-12)
        np.testing.assert_allclose(found["value"].sel(snapshot=40)[0, :, 0, -1], models[40][0], rtol=1e-12)
        assert found.attrs["outcome"] == "finished" and found.attrs["message"] == ""


@pytest.mark.parametrize("capacity", [4, 64])
def test_the_result_does_not_depend_on_how_the_run_is_cut_into_chunks(monkeypatch, capacity):
    whole = descend(separate(), OBJECTIVE, rate=0.1, steps=100)
    monkeypatch.setattr(host_module, "_CAPACITY", capacity)
    cut = descend(separate(), OBJECTIVE, rate=0.1, steps=100)
    np.testing.assert_array_equal(cut.loss, whole.loss)
    np.testing.assert_array_equal(cut["value"], whole["value"])


def test_an_ensemble_is_its_runs_side_by_side():
    models = [separate(seed) for seed in range(3)]
    rates = [0.1, 0.05, 0.2]
    objectives = [Moments.of_task(TASK, 50, key=jax.random.key(seed)) for seed in range(3)]
    together = descend(
        Ensemble.of(models), Ensemble.of(objectives), rate=rates, steps=50, record=Record(observe={"exact": OBJECTIVE})
    )
    for run, (model, objective, rate) in enumerate(zip(models, objectives, rates, strict=True)):
        alone = descend(model, objective, rate=rate, steps=50, record=Record(observe={"exact": OBJECTIVE}))
        np.testing.assert_allclose(together.loss[run], alone.loss[0], rtol=1e-10)
        np.testing.assert_allclose(together.exact[run], alone.exact[0], rtol=1e-10)
        np.testing.assert_allclose(together["key"][run], alone["key"][0], rtol=1e-8, atol=1e-12)


def test_any_optax_optimizer_runs_and_each_run_of_an_ensemble_has_its_own_state():
    models = [separate(seed) for seed in range(2)]
    optimizer = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(0.01))
    together = descend(Ensemble.of(models), OBJECTIVE, optimizer=optimizer, steps=30)
    gradient = jax.jit(jax.value_and_grad(OBJECTIVE))
    for run, model in enumerate(models):
        state, losses = optimizer.init(model), []  # pyright: ignore[reportArgumentType]
        for _ in range(30):
            loss, slope = gradient(model)
            updates, state = optimizer.update(slope, state)
            model = jax.tree.map(jnp.add, model, updates)
            losses.append(float(loss))
        np.testing.assert_allclose(together.loss[run, :30], losses, rtol=1e-9)
    assert "time" not in together.coords


def test_a_run_that_goes_on_from_another_is_the_same_run():
    whole = descend(separate(), OBJECTIVE, rate=0.1, steps=60)
    first = descend(separate(), OBJECTIVE, rate=0.1, steps=25)
    second = descend(model_at(first, separate()), OBJECTIVE, rate=0.1, steps=35, first_step=25)
    assert second.step[0] == 25 and second.step[-1] == 60
    np.testing.assert_array_equal(np.concatenate([first.loss[0, :-1], second.loss[0]]), whole.loss[0])


def test_the_time_axis_is_the_flow_time():
    found = descend(separate(), OBJECTIVE, rate=0.1, steps=10)
    np.testing.assert_allclose(found.time, 0.2 * np.arange(11))
    assert "tau" in found.time.attrs["units"]


def test_divergence_keeps_what_was_finite_and_names_a_rate_that_is_stable():
    with pytest.raises(RunFailed, match="diverged: the loss is not finite at step") as failed:
        descend(separate(scale=1.0), OBJECTIVE, rate=50.0, steps=500)
    found = failed.value.trajectory
    assert found.attrs["outcome"] == "diverged" and found.attrs["message"] in str(failed.value)
    assert np.all(np.isfinite(found.loss)) and 0 < found.sizes["step"] < 500
    step = int(re.search(r"step (\d+)", found.attrs["message"])[1])  # pyright: ignore[reportOptionalSubscript]
    assert step == int(found.step[-1]) + 1
    rate = float(re.search(r"a rate of ([\d.e-]+)", found.attrs["message"])[1])  # pyright: ignore[reportOptionalSubscript]
    again = descend(separate(scale=1.0), OBJECTIVE, rate=rate, steps=500)
    assert again.attrs["outcome"] == "finished" and again.loss[0, -1] < again.loss[0, 0]


def test_one_diverging_run_does_not_stop_the_others():
    with pytest.raises(RunFailed, match="partly diverged: the loss of run 0") as failed:
        descend(Ensemble.of([separate(0, 1.0), separate(1, 1.0)]), OBJECTIVE, rate=[50.0, 0.1], steps=200)
    found = failed.value.trajectory
    assert found.attrs["outcome"] == "partly diverged" and "run 0" in found.attrs["message"]
    assert "1 diverged, at rates from 50 on" in found.attrs["message"]
    alone = descend(separate(1, 1.0), OBJECTIVE, rate=0.1, steps=200)
    np.testing.assert_allclose(found.loss[1], alone.loss[0], rtol=1e-10)
    assert np.isnan(found.loss[0, -1])


def test_an_interrupt_keeps_what_was_done(monkeypatch):
    calls = []
    advance = host_module.advance

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(*arguments, **options)

    monkeypatch.setattr(host_module, "advance", interrupted)
    with pytest.raises(Interrupted, match="32 of 1001 records") as stopped:
        descend(separate(), OBJECTIVE, rate=0.1, steps=1000, record=Record(snapshots=2))
    monkeypatch.undo()
    found = stopped.value.trajectory
    whole = descend(separate(), OBJECTIVE, rate=0.1, steps=1000)
    assert found.attrs["outcome"] == "interrupted"
    done = found.sizes["step"]
    assert 0 < done < 1000
    np.testing.assert_array_equal(found.loss[0], whole.loss[0, :done])
    assert int(found.snapshot[-1]) == done  # the weights from which to go on: those of the next step
    rest = descend(model_at(found, separate()), OBJECTIVE, rate=0.1, steps=1000 - done, first_step=done)
    np.testing.assert_array_equal(rest.loss[0], whole.loss[0, done:])


def test_online_descent_follows_the_gradient_of_each_steps_own_sequences():
    model = MergedAttention.random(dim=2, heads=2, scale=0.3, activation="softmax", key=KEY)
    found = online(model, TASK, batch_size=16, rate=0.1, steps=5, key=KEY)
    gradient = jax.jit(lambda model, key: jax.value_and_grad(Sampled(TASK.draw(16, key=key)))(model))
    for step in range(6):
        loss, slope = gradient(model, jax.random.fold_in(KEY, step))
        np.testing.assert_allclose(found.loss[0, step], loss, rtol=1e-11)
        model = jax.tree.map(lambda w, g: w - 0.1 * g, model, slope)


def test_an_online_run_that_goes_on_from_another_sees_the_batches_that_follow():
    model = separate()
    whole = online(model, TASK, batch_size=8, rate=0.1, steps=10, key=KEY)
    first = online(model, TASK, batch_size=8, rate=0.1, steps=4, key=KEY)
    second = online(model_at(first, model), TASK, batch_size=8, rate=0.1, steps=6, first_step=4, key=KEY)
    np.testing.assert_array_equal(second.loss[0], whole.loss[0, 4:])


def test_an_interrupted_search_for_a_stable_rate_keeps_the_run(monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(divergence_module, "advance", interrupted)
    found = descend(separate(scale=1.0), OBJECTIVE, rate=50.0, steps=500, throw=False)
    assert found.attrs["outcome"] == "diverged" and "interrupted" in found.attrs["message"]
    assert np.all(np.isfinite(found["value"])) and int(found.snapshot[-1]) <= int(found.step[-1])


def test_a_rate_is_not_called_stable_if_there_was_no_time_to_try_it(monkeypatch):
    monkeypatch.setattr(divergence_module, "_SECONDS", 0.0)
    found = descend(separate(scale=1.0), OBJECTIVE, rate=50.0, steps=500, throw=False)
    assert "time to try" in found.attrs["message"] and "stayed stable" not in found.attrs["message"]


@pytest.mark.parametrize("rate", [1e30, 1e308])
def test_a_rate_that_is_far_too_large_is_named_as_the_cause(rate):
    found = descend(separate(), OBJECTIVE, rate=rate, steps=50, throw=False)
    told = found.attrs["message"]
    assert found.attrs["outcome"] == "diverged" and "initial weights" not in told
    stable = float(re.findall(r"rate of ([\d.e+-]+) stayed stable", told)[0])
    assert descend(separate(), OBJECTIVE, rate=stable, steps=500).attrs["outcome"] == "finished"


def test_a_rate_at_which_the_loss_jumps_for_ever_is_not_called_stable():
    task = InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    model = SeparateAttention.random(dim=4, heads=4, scale=0.3, key=jax.random.key(0))
    # At 2.5 the loss ends at .192 and .162 in turn; the lowest is .136.
    found = descend(model, Population(task), rate=20.0, steps=50, throw=False)
    stable = float(re.findall(r"rate of ([\d.e+-]+) stayed stable", found.attrs["message"])[0])
    losses = descend(model, Population(task), rate=stable, steps=4000).loss[0].values
    assert losses[-1] == pytest.approx(linear.minimal_loss(task), rel=1e-9)


def test_weights_that_are_far_too_large_are_named_as_the_cause():
    found = descend(separate(scale=1e40), OBJECTIVE, rate=1e-3, steps=50, throw=False)
    assert found.attrs["outcome"] == "diverged" and "make the initial weights smaller" in found.attrs["message"]


def test_the_trajectory_says_how_it_came_about():
    found = descend(separate(), OBJECTIVE, rate=0.1, steps=10, configuration={"seeds": {"data": 3}})
    told = json.loads(found.attrs["configuration"])
    assert told["rate"] == 0.1 and told["model"]["class"] == "SeparateAttention" and told["seeds"] == {"data": 3}
    assert "jax" in json.loads(found.attrs["versions"])


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda: descend(separate(), OBJECTIVE, steps=10), "either a rate"),
        (lambda: descend(separate(), OBJECTIVE, rate=-0.1, steps=10), "rate"),
        (lambda: descend(separate(), OBJECTIVE, rate=0.1, steps=0), "steps"),
        (lambda: descend(separate(), OBJECTIVE, rate=[0.1, 0.2], steps=5), "one for each run"),
        (lambda: descend(separate(), OBJECTIVE, rate=0.1, steps=5, record=Record(points=[7])), "from 0 to 5"),
        (
            lambda: descend(separate(), OBJECTIVE, rate=0.1, steps=5, record=Record(observe={"loss": OBJECTIVE})),
            "uses itself",
        ),
        (lambda: descend(separate(), Ensemble.of([OBJECTIVE] * 2), rate=0.1, steps=5), "as many models"),
        (lambda: descend(CubicMLP.random(dim=3, heads=1, scale=1.0, key=KEY), OBJECTIVE, rate=0.1, steps=5), "agree"),
        (lambda: Ensemble.of([separate(), SeparateAttention.random(dim=2, heads=3, scale=1.0, key=KEY)]), "one shape"),
        (lambda: Ensemble.of([]), "at least one"),
        (lambda: descend(separate(), OBJECTIVE, rate=0.1, steps=10**12), "GiB"),
        (lambda: online(separate(), TASK, batch_size=0, rate=0.1, steps=5, key=KEY), "batch_size"),
    ],
)
def test_bad_input_is_refused_in_one_line(run, words):
    with pytest.raises(InvalidInput) as refusal:
        run()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_ctrl_c_ends_a_run_between_two_chunks(monkeypatch):
    advance, calls = host_module.advance, []

    def pressed(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return advance(*arguments, **options)

    monkeypatch.setattr(host_module, "advance", pressed)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted) as stopped:
        descend(separate(), OBJECTIVE, rate=0.1, steps=1000, record=Record(snapshots=2))
    found = stopped.value.trajectory
    assert found.attrs["outcome"] == "interrupted" and len(calls) == 3  # the third chunk is finished and kept
    assert int(found.snapshot[-1]) == found.sizes["step"]
    assert signal.getsignal(signal.SIGINT) is before


def test_without_advice_no_smaller_rate_is_searched_for():
    task = InContextRegression(np.diag([1.0, 0.5]), 8)
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=1.0)
    options = {"rate": 1e3, "steps": 50, "progress": False, "throw": False}
    advised, plain = (descend(model, Population(task), advice=advice, **options) for advice in (True, False))
    assert advised.attrs["outcome"] == plain.attrs["outcome"] == "diverged"
    assert "stable" in advised.attrs["message"]
    assert plain.attrs["message"].endswith("lower the rate")
    np.testing.assert_array_equal(advised.loss, plain.loss)


def test_weights_that_are_not_finite_are_named_as_such():
    model = jax.tree.map(lambda weight: weight * jnp.nan, separate())
    for models in (model, Ensemble.of([separate(), model])):
        with pytest.raises(InvalidInput, match="^some initial weights are not finite; start from finite ones$"):
            descend(models, OBJECTIVE, rate=0.1, steps=2)
