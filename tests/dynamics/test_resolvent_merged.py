"""Linear systems along the flow of merged attention, against the whole Jacobian, and flows made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.dynamics import Ensemble, Record, flow
from stepwell.dynamics.fast import AbstractResolvent, ResolventMerged, stiff_form
from stepwell.models import MergedAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance


def task_of(dim, seed=0):
    """Its two covariances have no common eigenvectors."""
    return InContextRegression(
        covariance(np.linspace(1.0, 0.3, dim), key=jax.random.key(seed)),
        7 + seed,
        task_covariance=covariance(np.linspace(0.5, 2.0, dim), key=jax.random.key(seed + 50)),
        noise_variance=0.2,
    )


def model_of(dim, heads, scale=0.4, seed=0):
    return MergedAttention.random(dim=dim, heads=heads, scale=scale, key=jax.random.key(seed))


def velocity(objective, heads, dim):
    lam, drive, second = objective.matrices()

    def moved(flat):
        rows = flat.reshape(heads, -1)
        v, u = rows[:, 0], rows[:, 1:].reshape(heads, dim, dim)
        pull = drive - second @ jnp.einsum("h,hij->ij", v, u) @ lam
        on_value = jnp.einsum("hij,ij->h", u, pull)[:, None]
        return jnp.concatenate([on_value, (v[:, None, None] * pull).reshape(heads, -1)], axis=1).reshape(-1)

    return moved


@pytest.mark.parametrize(("dim", "heads"), [(1, 1), (2, 3), (4, 2), (5, 6)])
@pytest.mark.parametrize("shift", [0.3, 40.0])
def test_systems_are_those_of_the_whole_jacobian(dim, heads, shift):
    objective, model = Population(task_of(dim)), model_of(dim, heads)
    form = ResolventMerged.of(objective, model)
    weights = np.concatenate(
        [np.asarray(model.value)[:, 0, dim:], np.asarray(model.key_query)[:, :dim].reshape(heads, -1)], axis=1
    )
    jacobian = jax.jacfwd(velocity(objective, heads, dim))(weights.reshape(-1))
    matrix = shift * np.eye(weights.size) - np.asarray(jacobian)
    side = np.random.default_rng(0).normal(size=weights.shape)
    if form is None:  # more heads than entries of the map
        assert heads > dim**2
        return
    solution = np.asarray(form.resolvent(jnp.asarray(weights), jnp.asarray(shift))(jnp.asarray(side)))
    expected = np.linalg.solve(matrix, side.reshape(-1)).reshape(side.shape)
    # Rounding, times the condition of the matrix.
    tolerance = 100 * np.finfo(float).eps * np.linalg.cond(matrix)
    np.testing.assert_allclose(solution, expected, atol=tolerance * np.abs(expected).max())


def test_a_flow_is_that_by_lsoda():
    objective, model = Population(task_of(4)), model_of(4, 3, scale=0.03)
    assert isinstance(stiff_form(objective, model), AbstractResolvent)
    options = {"until": 60.0, "record": Record(points=20), "rtol": 1e-9, "atol": 1e-10, "progress": False}
    fast, plain = (flow(model, objective, solver=solver, **options) for solver in ("rodas5p", "lsoda"))
    # Each of some hundred steps has an error of its own.
    np.testing.assert_allclose(fast.loss, plain.loss, rtol=1e3 * 1e-9)
    assert float(fast.loss[0, -1]) < 0.9 * float(fast.loss[0, 0])


def test_an_ensemble_of_losses_is_its_runs():
    losses = [Population(task_of(2, seed)) for seed in (0, 1)]
    models = [model_of(2, 2, scale=0.1, seed=seed) for seed in (0, 1)]
    options = {"until": 20.0, "record": Record(points=5), "solver": "rodas5p", "progress": False}
    together = flow(Ensemble.of(models), Ensemble.of(losses), **options)
    for run, (model, loss) in enumerate(zip(models, losses, strict=True)):
        np.testing.assert_allclose(together.loss[run], flow(model, loss, **options).loss[0], rtol=1e-5)


def test_other_classes_and_other_losses_have_no_such_form():
    class Own(MergedAttention):
        pass

    model = model_of(2, 2)
    own = object.__new__(Own)
    for name in ("value", "key_query"):
        object.__setattr__(own, name, getattr(model, name))
    assert ResolventMerged.of(Population(task_of(2)), own) is None
    assert ResolventMerged.of(Population(task_of(2)), model_of(2, 5)) is None
