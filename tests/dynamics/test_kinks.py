"""Flows of networks whose units have kinks: the solver that is chosen, against SciPy's at a tight tolerance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from stepwell.dynamics import Ensemble, Record, flow
from stepwell.dynamics._flow import choose_solver
from stepwell.models import ActivationUnits, Nonlinearity
from stepwell.objectives import Sampled
from stepwell.tasks import FeatureBatch

X, Y = np.array([[-1.0, 2.0], [1.0, 0.5]]), np.array([1.0, -1.0])
LOSS = Sampled(FeatureBatch(jnp.asarray(X), jnp.asarray(Y[:, None])), "sum")
TIMES = tuple(np.linspace(0.0, 20.0, 41))


def network(seed: int, nonlinearity: Nonlinearity = "relu") -> ActivationUnits:
    return ActivationUnits.random(dim=2, units=20, nonlinearity=nonlinearity, scale=1e-3, key=jax.random.key(seed))


def reference(model: ActivationUnits) -> np.ndarray:
    """The loss along the flow, from its equations: v' = <e relu(u x)>, u' = v <e 1(u x > 0) x>."""
    first = np.concatenate([np.ravel(model.outer), np.ravel(model.inner)])

    def errors(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        v, u = weights[:20], weights[20:].reshape(20, 2)
        scores = u @ X.T
        return v, scores, Y - v @ np.maximum(scores, 0.0)

    def velocity(_: float, weights: np.ndarray) -> np.ndarray:
        v, scores, error = errors(weights)
        inner = v[:, None] * ((scores > 0) * error) @ X / 2
        return np.concatenate([np.maximum(scores, 0.0) @ error / 2, inner.ravel()])

    path = solve_ivp(velocity, (0.0, 20.0), first, "DOP853", TIMES, rtol=1e-10, atol=1e-13).y.T
    return np.array([np.mean(errors(weights)[2] ** 2) for weights in path])


def test_an_explicit_solver_is_chosen_where_there_are_kinks():
    assert choose_solver("auto", network(0), LOSS).name == "tsit5"
    assert choose_solver("auto", Ensemble.of([network(0), network(1)]), LOSS).name == "tsit5"
    assert choose_solver("auto", network(0, "tanh"), LOSS).name == "lsoda"
    assert choose_solver("lsoda", network(0), LOSS).name == "lsoda"


@pytest.mark.parametrize("several", [False, True])
def test_flows_of_relu_networks_are_those_of_scipy(several: bool):
    """To the tolerance, 1e-6, times what grows by it until a drop: a time ln(1/scale) of about 10."""
    models = [network(seed) for seed in range(2 if several else 1)]
    run = flow(
        Ensemble.of(models) if several else models[0], LOSS, until=20.0, record=Record(points=TIMES), progress=False
    )
    for found, model in zip(run["loss"].values, models, strict=True):
        np.testing.assert_allclose(found, reference(model), atol=1e-4)
