"""Gradient flow against closed forms, conservation laws and the other solvers."""

import json
import subprocess
import sys

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from stepwell._util.errors import InvalidInput
from stepwell.analysis import level_drops
from stepwell.dynamics import (
    LSODA,
    Diffrax,
    Ensemble,
    Interrupted,
    Record,
    Rodas5P,
    RunFailed,
    _diffrax,
    _plan,
    descend,
    flow,
    flow_time,
)
from stepwell.models import CubicMLP, MergedAttention, SeparateAttention
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear

KEY = jax.random.key(0)
TASK = InContextRegression(covariance([0.5, 0.3], key=jax.random.key(1)), 10)
OBJECTIVE = Population(TASK)


def separate(seed=0, scale=0.1, rank=1):
    return SeparateAttention.random(dim=2, heads=3, rank=rank, scale=scale, key=jax.random.key(seed))


def test_an_aligned_white_merged_start_follows_the_logistic_curve():
    dim, n, start = 3, 8, 1e-3
    task = InContextRegression(np.eye(dim), n)
    model = MergedAttention.aligned(jnp.eye(dim), heads=1, scale=start)
    found = flow(model, Population(task), until=12.0, record=Record(points=60))
    growth = np.exp(2 * np.sqrt(dim) * found.time.values)
    sigma = growth / ((1 + (1 + dim) / n) * (growth - 1) + np.sqrt(dim) / start**2)
    measured = np.trace(found["key_query"][0, :, 0, :dim].values, axis1=1, axis2=2) * found["value"][0, :, 0, 0, dim]
    # The relative tolerance is 1e-6 a step; an error made on the plateau is carried through the exponential growth of
    # log(1/start²) ≈ 14, and the curve has slope of order √dim there.
    np.testing.assert_allclose(measured / dim, sigma, atol=1e-4)


@pytest.mark.parametrize("rank", [1, 2])
def test_the_flow_conserves_what_it_should(rank):
    found = flow(
        separate(rank=rank, scale=0.3), OBJECTIVE, until=200.0, record=Record(points=50), rtol=1e-10, atol=1e-12
    )
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
    exact = flow(model, OBJECTIVE, until=end, record=Record(points=9), rtol=1e-10, atol=1e-12)
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
    alone = [flow(model, OBJECTIVE, until=40.0, record=Record(points=20), rtol=1e-9) for model in models]
    for solver in ("kvaerno5", "tsit5"):
        together = flow(Ensemble.of(models), OBJECTIVE, until=40.0, record=Record(points=20), rtol=1e-9, solver=solver)
        np.testing.assert_allclose(together.time, alone[0].time, rtol=1e-14)
        for run, single in enumerate(alone):
            np.testing.assert_allclose(together.loss[run], single.loss[0], atol=1e-6)
            np.testing.assert_allclose(together["key"][run], single["key"][0], atol=1e-5)


def test_an_ensemble_with_its_own_objectives_runs_to_convergence():
    models = [MergedAttention.random(dim=2, heads=2, scale=0.1, key=jax.random.key(s)) for s in range(2)]
    objectives = [Moments.of_task(TASK, 200, features="cubic", key=jax.random.key(s)) for s in range(2)]
    found = flow(Ensemble.of(models), Ensemble.of(objectives), record=Record(points=10))
    assert found.attrs["outcome"] == "converged"
    floors = [objective.floor(model) or np.nan for objective, model in zip(objectives, models, strict=True)]
    np.testing.assert_allclose(found.loss[:, -1], floors, rtol=1e-7)


@pytest.mark.parametrize("several", [False, True])
def test_a_start_that_leads_to_another_fixed_point_ends_as_stuck(several):
    """One head along the second eigenvector stays there, at the level of that component alone."""
    task = InContextRegression(np.diag([0.5, 0.3]), 10)
    model = SeparateAttention.aligned(jnp.array([[0.0, 1.0], [1.0, 0.0]]), heads=1, scale=0.1)
    with pytest.raises(RunFailed, match="stuck: at time") as failed:
        flow(Ensemble.of([model, model]) if several else model, Population(task), record=Record(points=5))
    found = failed.value.trajectory
    assert found.attrs["outcome"] == "stuck" and "another fixed point" in found.attrs["message"]
    np.testing.assert_allclose(found.loss[0, -1], 0.8 - 0.3 / (1 + (1 + 0.8 / 0.3) / 10), rtol=1e-6)


def test_a_floor_that_cannot_be_reached_is_not_waited_for():
    task = InContextRegression(np.diag([0.5, 0.3]), 10, outputs=2)
    with pytest.raises(InvalidInput, match="give until= a time"):
        flow(CubicMLP.random(dim=2, heads=1, outputs=2, scale=0.1, key=KEY), Population(task))


def test_a_solver_that_fails_at_once_is_a_named_result():
    found = flow(separate(scale=1e100), OBJECTIVE, until=1.0, record=Record(spacing="log"), throw=False)
    assert found.attrs["outcome"] == "solver failed" and found.sizes["time"] >= 1


def test_save_times_are_spaced_as_asked():
    model = separate(scale=0.3)
    linear = flow(model, OBJECTIVE, until=10.0, record=Record(points=11))
    np.testing.assert_allclose(linear.time, np.arange(11.0))
    log = flow(model, OBJECTIVE, until=10.0, record=Record(points=6, spacing="log"))
    np.testing.assert_allclose(log.time, [0.0, *np.geomspace(1e-3, 10.0, 5)])
    given = flow(model, OBJECTIVE, until=10.0, record=Record(points=np.array([1.0, 2.5])))
    np.testing.assert_allclose(given.time, [1.0, 2.5])
    np.testing.assert_allclose(given.loss[0, 0], linear.loss[0, 1], rtol=1e-9)


def test_an_interrupted_run_of_lsoda_keeps_what_was_done(monkeypatch):
    steps = []
    step = integrate.LSODA.step

    def interrupted(self):
        steps.append(1)
        if len(steps) == 100:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(integrate.LSODA, "step", interrupted)
    found = flow(separate(), OBJECTIVE, solver="lsoda", throw=False)
    assert found.attrs["outcome"] == "interrupted" and np.all(np.isfinite(found.loss)) and found.sizes["time"] > 10


@pytest.mark.parametrize(("solver", "scale"), [("rodas5p", 1e-4), ("tsit5", 1e-2)])
def test_an_interrupted_flow_keeps_what_was_done(monkeypatch, solver, scale):
    class Pressed(_plan.Interruptible):
        pressed = True  # pyright: ignore[reportAssignmentType]

    whole = flow(separate(scale=scale), OBJECTIVE, solver=solver)
    monkeypatch.setattr(_plan, "Interruptible", Pressed)
    with pytest.raises(Interrupted) as stopped:
        flow(separate(scale=scale), OBJECTIVE, solver=solver)
    found = stopped.value.trajectory
    assert found.attrs["outcome"] == "interrupted" and "kept" in found.attrs["message"]
    assert 0 < found.time[-1] < whole.time[-1] and np.all(np.isfinite(found.loss))


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        ("rodas5p", Rodas5P()),
        ("lsoda", LSODA()),
        ("kvaerno5", diffrax.Kvaerno5()),
        ("tsit5", Diffrax(diffrax.Tsit5())),
    ],
)
def test_a_solver_is_given_by_name_or_as_an_object(name, solver):
    by_name, by_object = (
        flow(separate(), OBJECTIVE, until=3.0, record=Record(points=5), solver=each) for each in (name, solver)
    )
    np.testing.assert_array_equal(by_object.loss, by_name.loss)
    assert json.loads(by_object.attrs["configuration"])["solver"] == name


@pytest.mark.parametrize("solver", [diffrax.Dopri8(), diffrax.Kvaerno3(), diffrax.HalfSolver(diffrax.Midpoint())])
def test_other_solvers_of_diffrax_follow_the_same_flow(solver):
    """Among them one that Diffrax makes adaptive, of second order: it takes many steps."""
    options = {"until": 20.0, "record": Record(points=7), "rtol": 1e-7, "atol": 1e-9}
    expected, found = (
        flow(separate(scale=0.3), OBJECTIVE, **options),
        flow(separate(scale=0.3), OBJECTIVE, solver=solver, **options),
    )
    np.testing.assert_allclose(found.loss, expected.loss, rtol=1e-4)


@pytest.mark.usefixtures("own_traces")
@pytest.mark.parametrize("solver", ["kvaerno5", "tsit5"])
def test_diffrax_ends_a_run_at_the_event_of_its_convergence(solver, monkeypatch):
    """The runs end at different times, in several segments; the path is that of another solver to the same time."""
    monkeypatch.setattr(_diffrax, "_STEPS", 64)
    models = [separate(seed, scale) for seed, scale in enumerate((0.3, 0.03))]
    found = flow(Ensemble.of(models), OBJECTIVE, solver=solver, record=Record(points=50), rtol=1e-8, atol=1e-9)
    assert found.attrs["outcome"] == "converged"
    for run, model in enumerate(models):
        exact = flow(model, OBJECTIVE, until=float(found.time[-1]), record=Record(points=50), rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(found.time, exact.time, rtol=1e-12)
        np.testing.assert_allclose(found.loss[run], exact.loss[0], atol=1e-4)
    excess = found.loss.values - OBJECTIVE.floor(models[0])
    assert np.all(excess[:, -1] <= 1e-8 * excess[:, 0])
    # The event is at the end of a step: not before the loss is reached, nor long after. The first run was there before.
    assert excess[1, -1] > 1e-11 * excess[1, 0] and np.all(excess[0, -10:] <= 1e-8 * excess[0, 0])


def test_an_ensemble_of_diffrax_ends_with_its_last_run():
    models = [separate(seed, scale) for seed, scale in enumerate((0.3, 0.03))]
    options = {"solver": "tsit5", "record": Record(points=2), "rtol": 1e-6, "atol": 1e-8}
    together, *alone = (flow(each, OBJECTIVE, **options).time[-1] for each in (Ensemble.of(models), *models))
    assert alone[0] < 0.5 * alone[1]
    # The event is at the end of a step, some units long; steps at the edge of stability amplify rounding.
    np.testing.assert_allclose(together, alone[1], atol=10.0)


def test_a_run_of_diffrax_that_rests_above_the_floor_is_stuck():
    task = InContextRegression(np.diag([0.5, 0.3]), 10)
    model = SeparateAttention.aligned(jnp.array([[0.0, 1.0], [1.0, 0.0]]), heads=1, scale=0.1)
    found = flow(model, Population(task), record=Record(points=5), solver="kvaerno5", throw=False)
    assert found.attrs["outcome"] == "stuck" and "another fixed point" in found.attrs["message"]
    np.testing.assert_allclose(found.loss[0, -1], 0.8 - 0.3 / (1 + (1 + 0.8 / 0.3) / 10), rtol=1e-6)


def test_a_run_of_diffrax_is_given_up_after_too_many_steps(monkeypatch):
    monkeypatch.setattr(_diffrax, "MOST_STEPS", 300)
    found = flow(separate(scale=1e-4), OBJECTIVE, solver="tsit5", record=Record(points=9), throw=False)
    assert found.attrs["outcome"] == "solver failed" and "steps did not lead to convergence" in found.attrs["message"]
    assert np.all(np.isfinite(found.loss)) and found.sizes["time"] == 9


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda: flow(separate(), Sampled(TASK.sample(20, key=KEY))), "give until= a time"),
        (lambda: flow(separate(), OBJECTIVE, until=-1.0), "until"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, record=Record(points=10**11)), "GiB"),
        (lambda: flow(separate(scale=1e160), OBJECTIVE), "not finite"),
        (lambda: flow(separate(scale=0.0), OBJECTIVE), "fixed point"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, record=Record(points=np.array([2.0]))), "after the end"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, record=Record(points=np.array([0.5, 0.1]))), "rising"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, rtol=0.0), "rtol"),
        (lambda: flow(Ensemble.of([separate(), separate(1)]), OBJECTIVE, until=1.0, solver="lsoda"), "kvaerno5"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, solver=diffrax.Euler()), "HalfSolver"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, solver=diffrax.KenCarp4()), "one term"),
        (lambda: flow(separate(), OBJECTIVE, until=1.0, solver=separate()), "Rodas5P()"),
    ],
)
def test_bad_input_is_refused_in_one_line(run, words):
    with pytest.raises(InvalidInput) as refusal:
        run()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_solvers_are_there_without_loading_what_they_stand_on():
    code = (
        "import sys; from stepwell.dynamics import LSODA, Diffrax, Rodas5P, flow; Rodas5P(), LSODA(); "
        "sys.exit(any(name in sys.modules for name in ('diffrax', 'scipy.integrate', 'optax')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("solver", ["rodas5p", "lsoda", "kvaerno5"])
def test_times_spaced_by_steps_resolve_early_and_late_drops(solver):
    """The first drop is over in a thousandth of the time of the last; evenly spaced times miss how it goes."""
    task = InContextRegression(np.diag([1.0, 0.05]), 31)
    model = SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.01)
    runs = {
        spacing: flow(
            model, Population(task), record=Record(points=201, spacing=spacing), solver=solver, progress=False
        )
        for spacing in ("linear", "steps")
    }
    levels = linear.levels(task)
    drops = {name: level_drops(run["time"].values, run["loss"].values[0], levels) for name, run in runs.items()}
    assert [drop.status for drop in drops["linear"]] == ["below resolution", "measured"]
    assert [drop.status for drop in drops["steps"]] == ["measured", "measured"]
    times = runs["steps"]["time"].values
    assert times.size == 201 and times[0] == 0 and np.all(np.diff(times) > 0)
    assert times[-1] == pytest.approx(runs["linear"]["time"].values[-1], rel=1e-12)
    np.testing.assert_allclose(
        runs["steps"]["loss"][0],
        flow(model, Population(task), until=times[-1], record=Record(points=times), solver=solver, progress=False)[
            "loss"
        ][0],
        rtol=1e-4,
    )
