"""Gradient flow against closed forms, conservation laws and the other solvers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._errors import InvalidInput
from stepwell.dynamics import Ensemble, descend, flow, flow_time
from stepwell.models import CubicMLP, MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import InContextRegression, covariance

KEY = jax.random.key(0)
TASK = InContextRegression(covariance([0.5, 0.3], key=jax.random.key(1)), 10)
OBJECTIVE = Population(TASK)


def separate(seed=0, scale=0.1, rank=1):
    return SeparateAttention.random(dim=2, heads=3, rank=rank, scale=scale, key=jax.random.key(seed))


def test_an_aligned_white_merged_start_follows_the_logistic_curve():
    dim, n, start = 3, 8, 1e-3
    task = InContextRegression(np.eye(dim), n)
    model = MergedAttention.aligned(jnp.eye(dim), heads=1, scale=start)
    found = flow(model, Population(task), until=12.0, save=60)
    growth = np.exp(2 * np.sqrt(dim) * found.time.values)
    sigma = growth / ((1 + (1 + dim) / n) * (growth - 1) + np.sqrt(dim) / start**2)
    measured = np.trace(found["key_query"][0, :, 0, :dim].values, axis1=1, axis2=2) * found["value"][0, :, 0, 0, dim]
    # The relative tolerance is 1e-6 a step; an error made on the plateau is carried through the exponential growth of
    # log(1/start²) ≈ 14, and the curve has slope of order √dim there.
    np.testing.assert_allclose(measured / dim, sigma, atol=1e-4)


@pytest.mark.parametrize("rank", [1, 2])
def test_the_flow_conserves_what_it_should(rank):
    found = flow(separate(rank=rank, scale=0.3), OBJECTIVE, until=200.0, save=50, rtol=1e-10, atol=1e-12)
    keys = np.einsum("thrw,thsw->thrs", found["key"][0], found["key"][0])
    queries = np.einsum("thrd,thsd->thrs", found["query"][0], found["query"][0])
    values = np.sum(found["value"][0].values ** 2, axis=(2, 3))
    for conserved in (keys - queries, values - np.trace(keys, axis1=2, axis2=3)):
        np.testing.assert_allclose(conserved, np.broadcast_to(conserved[:1], conserved.shape), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-2, 1e-6])
def test_the_flow_ends_at_the_floor_and_not_on_a_plateau(scale):
    model = separate(scale=scale)
    found = flow(model, OBJECTIVE)
    assert found.attrs["outcome"] == "converged"
    floor = OBJECTIVE.floor(model)
    assert floor is not None
    assert 0 <= float(found.loss[0, -1]) - floor <= 1e-8 * (float(found.loss[0, 0]) - floor) + 1e-14
    assert json.loads(found.attrs["configuration"])["work"]["steps"] < 3000


def test_descent_at_a_small_rate_tends_to_the_flow_at_first_order():
    model, end = separate(scale=0.4), 8.0
    exact = flow(model, OBJECTIVE, until=end, save=9, rtol=1e-10, atol=1e-12)
    errors = []
    for steps in (400, 800):
        rate = end / (2 * steps)
        euler = descend(model, OBJECTIVE, rate=rate, steps=steps)
        np.testing.assert_allclose(flow_time(steps, rate), end)
        sampled = euler.loss[0].values[:: steps // 8]
        errors.append(np.abs(sampled - exact.loss[0].values).max())
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.05)


def test_solvers_agree_and_an_ensemble_is_its_runs():
    models = [separate(seed, scale=0.3) for seed in range(2)]
    alone = [flow(model, OBJECTIVE, until=40.0, save=20, rtol=1e-9) for model in models]
    for solver in ("kvaerno5", "tsit5"):
        together = flow(Ensemble.of(models), OBJECTIVE, until=40.0, save=20, rtol=1e-9, solver=solver)
        np.testing.assert_allclose(together.time, alone[0].time, rtol=1e-14)
        for run, single in enumerate(alone):
            np.testing.assert_allclose(together.loss[run], single.loss[0], atol=1e-6)
            np.testing.assert_allclose(together["key"][run], single["key"][0], atol=1e-5)


def test_an_ensemble_with_its_own_objectives_runs_to_convergence():
    models = [MergedAttention.random(dim=2, heads=2, scale=0.1, key=jax.random.key(s)) for s in range(2)]
    objectives = [Moments.of_task(TASK, 200, features="cubic", key=jax.random.key(s)) for s in range(2)]
    found = flow(Ensemble.of(models), Ensemble.of(objectives), save=10)
    assert found.attrs["outcome"] == "converged"
    floors = [objective.floor(model) or np.nan for objective, model in zip(objectives, models, strict=True)]
    np.testing.assert_allclose(found.loss[:, -1], floors, rtol=1e-7)


@pytest.mark.parametrize("several", [False, True])
def test_a_start_that_leads_to_another_fixed_point_ends_as_stuck(several):
    """One head along the second eigenvector stays there, at the level of that component alone."""
    task = InContextRegression(np.diag([0.5, 0.3]), 10)
    model = SeparateAttention.aligned(jnp.array([[0.0, 1.0], [1.0, 0.0]]), heads=1, scale=0.1)
    found = flow(Ensemble.of([model, model]) if several else model, Population(task), save=5)
    assert found.attrs["outcome"] == "stuck" and "another fixed point" in found.attrs["message"]
    np.testing.assert_allclose(found.loss[0, -1], 0.8 - 0.3 / (1 + (1 + 0.8 / 0.3) / 10), rtol=1e-6)


def test_a_floor_that_cannot_be_reached_is_not_waited_for():
    task = InContextRegression(np.diag([0.5, 0.3]), 10, outputs=2)
    with pytest.raises(InvalidInput, match="give until= a time"):
        flow(CubicMLP.random(dim=2, heads=1, outputs=2, scale=0.1, key=KEY), Population(task))


def test_a_solver_that_fails_at_once_is_a_named_result():
    found = flow(separate(scale=1e100), OBJECTIVE, until=1.0, spacing="log")
    assert found.attrs["outcome"] == "solver failed" and found.sizes["time"] >= 1


def test_save_times_are_spaced_as_asked():
    model = separate(scale=0.3)
    linear = flow(model, OBJECTIVE, until=10.0, save=11)
    np.testing.assert_allclose(linear.time, np.arange(11.0))
    log = flow(model, OBJECTIVE, until=10.0, save=6, spacing="log")
    np.testing.assert_allclose(log.time, [0.0, *np.geomspace(1e-3, 10.0, 5)])
    given = flow(model, OBJECTIVE, until=10.0, save=np.array([1.0, 2.5]))
    np.testing.assert_allclose(given.time, [1.0, 2.5])
    np.testing.assert_allclose(given.loss[0, 0], linear.loss[0, 1], rtol=1e-9)


def test_an_interrupted_run_of_lsoda_keeps_what_was_done(monkeypatch):
    from stepwell.dynamics import _lsoda

    looks = []
    step = _lsoda.LSODA.step

    def interrupted(self):
        looks.append(1)
        if len(looks) == 100:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(_lsoda.LSODA, "step", interrupted)
    found = flow(separate(), OBJECTIVE, solver="lsoda")
    assert found.attrs["outcome"] == "interrupted" and np.all(np.isfinite(found.loss)) and found.sizes["time"] > 10


def test_an_interrupted_flow_keeps_what_was_done(monkeypatch):
    from stepwell.dynamics import _rodas

    class Pressed(_rodas.Interruptible):
        def __enter__(self):
            self.pressed = True
            return self

    whole = flow(separate(scale=1e-4), OBJECTIVE)
    monkeypatch.setattr(_rodas, "Interruptible", Pressed)
    found = flow(separate(scale=1e-4), OBJECTIVE)
    assert found.attrs["outcome"] == "interrupted" and "kept" in found.attrs["message"]
    assert 0 < found.time[-1] < whole.time[-1] and np.all(np.isfinite(found.loss))


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda: flow(separate(), Sampled(TASK.sample(20, key=KEY))), "give until= a time"),
        (lambda: flow(separate(), OBJECTIVE, until=-1.0), "until"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, save=10**11), "GiB"),
        (lambda: flow(separate(scale=1e160), OBJECTIVE), "not finite"),
        (lambda: flow(separate(scale=0.0), OBJECTIVE), "fixed point"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, save=np.array([2.0])), "after the end"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, save=np.array([0.5, 0.1])), "rising"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, rtol=0.0), "rtol"),
        (lambda: flow(Ensemble.of([separate(), separate(1)]), OBJECTIVE, until=1.0, solver="lsoda"), "kvaerno5"),
    ],
)
def test_bad_input_is_refused_in_one_line(run, words):
    with pytest.raises(InvalidInput) as refusal:
        run()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
