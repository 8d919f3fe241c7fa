"""Flows over softmax sequences by the native pass, which has first gradients only, against plain differentiation."""

import json

import equinox as eqx
import jax
import numpy as np
import pytest

from stepwell.dynamics import Ensemble, Record, flow
from stepwell.dynamics._ensemble import flatten, skeleton_of
from stepwell.dynamics._field import Field
from stepwell.dynamics.fast import FusedSampled
from stepwell.models import SeparateAttention
from stepwell.native import _kernels
from stepwell.objectives import Sampled
from stepwell.tasks import InContextRegression

TASK = InContextRegression(np.diag([0.6, 0.4]), 8)
RTOL = 1e-8


def separate(seed: int) -> SeparateAttention:
    return SeparateAttention.random(dim=2, heads=2, rank=1, scale=0.3, activation="softmax", key=jax.random.key(seed))


def test_a_flow_is_the_same_by_the_native_pass(monkeypatch: pytest.MonkeyPatch):
    models = [separate(seed) for seed in range(2)]
    objectives = [Sampled(TASK.sample(30, key=jax.random.key(seed))) for seed in range(2)]
    options = {"until": 1000.0, "record": Record(points=20), "rtol": RTOL, "progress": False}
    native = flow(models[0], objectives[0], **options)
    together = flow(Ensemble.of(models), Ensemble.of(objectives), solver="tsit5", **options)
    monkeypatch.setenv("STEPWELL_NATIVE", "off")
    _kernels.state.cache_clear()
    plain = flow(models[0], objectives[0], **options)
    _kernels.state.cache_clear()
    for found in (native, together):
        # Some hundred steps, each with an error of its own.
        np.testing.assert_allclose(found["loss"][0], plain["loss"][0], rtol=1e3 * RTOL)
    assert float(plain["loss"][0, -1]) < 0.8 * float(plain["loss"][0, 0])
    assert json.loads(native.attrs["configuration"])["work"]["jacobians"] > 0


def test_the_jacobian_by_differences():
    """Each column is the mean of the exact one along its step, but for the rounding of the field over the step."""
    model, batch = separate(0), TASK.sample(30, key=jax.random.key(0))
    objective, weights = Sampled(batch), np.asarray(flatten(model))
    plain = Field(objective, skeleton_of(model))
    exact = eqx.filter_jit(lambda field, places: jax.lax.map(field.jacobian, places))
    for precision in ("float64", "float32"):
        eps = float(np.finfo(precision).eps)
        steps = np.sqrt(eps) * (1 + np.abs(weights))
        first, *moved = np.asarray(exact(plain, weights + np.vstack([0 * steps, np.diag(steps)])))
        change = max(float(np.abs(each - first).max()) for each in moved)
        rounding = 8 * eps * float(objective(model)) / float(steps.min())
        assert change + rounding < 0.1 * np.abs(first).max()
        fast = FusedSampled.of(Sampled(batch, precision=precision), model)
        assert fast is not None
        found = eqx.filter_jit(Field.jacobian)(Field(fast, skeleton_of(model), has_hessian=False), flatten(model))
        np.testing.assert_allclose(found, first, rtol=0, atol=change + rounding)
