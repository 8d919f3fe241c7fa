"""The Chebyshev method that the benchmarks measure, against closed forms, SciPy and LSODA."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from benchmarks._chebyshev import SAFETY, Chebyshev, Memory, advance, spectral_radius
from benchmarks._counted import count
from stepwell.dynamics import flow
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression

STIFF = np.geomspace(0.1, 1e4, 30)
"""Rates of decay: an explicit method of few stages needs some thousand steps to time 1."""


def quartic(y):
    """The flow of a potential of fourth degree: the Jacobian changes along the way."""
    return -jnp.array([y[0] ** 3 + y[0] * y[1] ** 2 - 0.3, 2 * y[1] ** 3 + y[0] ** 2 * y[1] + 0.1 * y[0]])


DECAY = diffrax.ODETerm(lambda t, y, args: -jnp.asarray(STIFF) * (y - 1))
START = np.linspace(2.0, 3.0, STIFF.size)


def decayed(memory):
    """(state at time 1, steps)."""
    found = diffrax.diffeqsolve(
        DECAY,
        Chebyshev(),
        0.0,
        1.0,
        1e-3,
        jnp.asarray(START),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-8),
        solver_state=memory,
        max_steps=20_000,
    )
    assert found.ys is not None
    return found.ys[0], int(found.stats["num_steps"])


@pytest.mark.parametrize("stages", [2, 3, 7, 20])
def test_the_error_is_of_second_order_and_its_estimate_of_third(stages):
    start, end = np.array([1.0, -0.8]), 1.0
    exact = solve_ivp(lambda t, y: np.asarray(quartic(y)), (0, end), start, "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]

    @jax.jit
    def run(steps):
        h = end / steps

        def step(_, carry):
            y, largest = carry
            moved = advance(quartic, y, quartic(y), h, jnp.array(stages))
            estimate = 0.8 * (y - moved) + 0.4 * h * (quartic(y) + quartic(moved))
            return moved, jnp.maximum(largest, jnp.abs(estimate).max())

        return jax.lax.fori_loop(0, steps, step, (jnp.asarray(start), jnp.array(0.0)))

    errors, estimates = zip(
        *((np.abs(y - exact).max(), float(estimate)) for y, estimate in (run(80), run(160), run(320))), strict=True
    )
    # What is left of the next order halves with the step.
    orders, estimated = np.log2(np.divide(errors[:-1], errors[1:])), np.log2(np.divide(estimates[:-1], estimates[1:]))
    np.testing.assert_allclose(orders, 2.0, atol=0.1)
    np.testing.assert_allclose(estimated, 3.0, atol=0.1)
    assert abs(orders[1] - 2) < 0.7 * abs(orders[0] - 2)


@pytest.mark.parametrize("stages", [2, 5, 30, 200])
def test_it_is_stable_as_far_as_the_rule_for_its_stages_goes(stages):
    """On y' = -z y one step of length one is its stability polynomial: below one in size, and damped away from zero."""
    reach = (stages**2 - 1) / 1.54
    z = jnp.linspace(0.0, reach, 20_001)
    answers = np.asarray(advance(lambda y: -z * y, jnp.ones_like(z), -z, jnp.array(1.0), jnp.array(stages)))
    assert np.abs(answers[1:]).max() < 1
    assert np.abs(answers[z > 1]).max() < 0.97
    np.testing.assert_allclose(answers[1], 1 - z[1] + z[1] ** 2 / 2, atol=float(z[1]) ** 3)
    beyond = 1.1 * reach + 1
    outside = advance(lambda y: -beyond * y, jnp.ones(1), -beyond * jnp.ones(1), jnp.array(1.0), jnp.array(stages))
    assert abs(float(outside[0])) > 1


def test_a_stiff_decay_takes_few_steps_and_a_wrong_spectral_radius_is_found_out():
    """Ten thousand times too small: steps that it makes unstable fail the error test, and it is estimated anew."""
    right = Chebyshev().init(DECAY, 0.0, 1.0, jnp.asarray(START), None)
    wrong = right._replace(radius=jnp.array(1.0), age=jnp.array(-(10**6)), length=jnp.array(0.0))
    (first, steps), (second, more) = decayed(right), decayed(wrong)
    for found in (first, second):
        np.testing.assert_allclose(found, 1 + (START - 1) * np.exp(-STIFF), rtol=1e-3)
    assert steps < STIFF.max() / 25 and more < 2 * steps


def test_the_spectral_radius_is_raised_by_no_more_than_its_safety():
    rng = np.random.default_rng(0)
    vectors, _ = np.linalg.qr(rng.standard_normal((40, 40)))
    hessian = jnp.asarray(vectors * np.append(np.linspace(-1.0, 5.0, 39), 7.0) @ vectors.T)
    y = jnp.asarray(rng.standard_normal(40))
    memory = Memory(-hessian @ y, jnp.array(3.0), jnp.asarray(rng.standard_normal(40)), jnp.array(0), jnp.array(0.0))
    radius, direction = spectral_radius(lambda y: -hessian @ y, y, memory, jnp.array(True))
    assert 7.0 <= float(radius) <= SAFETY * 7.0 * (1 + 1e-6)
    assert abs(np.dot(direction / jnp.linalg.norm(direction), vectors[:, -1])) > 0.9
    kept, _ = spectral_radius(lambda y: -hessian @ y, y, memory, jnp.array(False))
    assert float(kept) == 3.0


def test_it_agrees_with_lsoda_on_a_flow_of_attention():
    objective = Population(InContextRegression(np.diag([0.5, 0.3]), 10))
    model = SeparateAttention.random(dim=2, heads=2, rank=1, scale=0.1, key=jax.random.key(0))
    times = np.linspace(0.0, 400.0, 21)
    exact = flow(model, objective, until=400.0, save=times, rtol=1e-10, atol=1e-12, progress=False)["loss"].values[0]
    found, finer = (count(model, objective, Chebyshev(), rtol, times) for rtol in (1e-5, 1e-8))
    errors = [float(np.abs(each.losses / exact - 1).max()) for each in (found, finer)]
    # The error of a method of second order goes with its tolerance to the power 2/3: a hundredth here.
    assert errors[0] < 0.05 and errors[1] < 0.02 * errors[0]
    assert exact[-1] < 0.7 * exact[0]
    assert finer.gradients >= 2 * finer.steps


def test_another_number_of_stages_compiles_nothing():
    step = jax.jit(lambda y, h, stages: advance(quartic, y, quartic(y), h, stages))
    for stages in (2, 9, 50):
        step(jnp.ones(2), jnp.array(0.1), jnp.array(stages))
    assert step._cache_size() == 1  # pyright: ignore[reportAttributeAccessIssue]
