"""How the eigenvalues of softmax attention move: flow, descent, ensembles, whole matrices, fresh data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from stepwell.dynamics import Ensemble, Record, descend, flow, online
from stepwell.models import MultiHeadAttention, SpectralAttention, decomposable, decompose
from stepwell.objectives import Exact, ReducedSampled, Sampled, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.trajectory import model_at

KEY = jax.random.key(0)
TASK = MultiTaskRegression((3, 4, 6, 2), (1.0, 2.0, 0.5, 1.5), 40, noise_variance=1.3)


def random_start(seed, heads, **options):
    """Positive weights, unbalanced."""
    rng = np.random.default_rng(seed)
    weights = (jnp.asarray(rng.uniform(0.3, 0.9, (heads, len(TASK.dims)))) for _ in range(4))
    return SpectralAttention(*weights, dims=TASK.dims, **options)


def eigenvalue_flow(start, task):
    r"""$\dot\omega$ and $\dot\mu$ of the flow of half the squared error, with $\delta_\omega, \delta_\mu$ conserved."""
    dims, lam = np.array(task.dims), np.array(task.strengths)
    context = task.context.longest
    phi = 1 + task.noise_variance / (lam * dims)
    # In single singular values k = key/√d: what is conserved is k² - q² and o² - v².
    key, query, value, output = (np.asarray(start.weights()[name]) for name in ("key", "query", "value", "output"))
    delta_omega = start.score_scale * (key**2 - query**2) / dims
    delta_mu = output**2 - value**2

    def velocity(_, state):
        omega, mu = state.reshape(2, *key.shape)
        grown = np.exp((omega * dims) @ omega.T)
        missing = 1 - np.sum(mu * omega, axis=0)
        power = (mu * lam * dims * phi) @ mu.T
        pull_omega = lam * mu * missing - (power * grown) @ omega / context
        pull_mu = lam * dims * (omega * missing - phi / context * (grown @ mu))
        d_omega = start.score_scale * np.sqrt(4 * omega**2 + delta_omega**2) * pull_omega
        return np.stack([d_omega, np.sqrt(4 * mu**2 + delta_mu**2) * pull_mu]).reshape(-1)

    return velocity


@pytest.mark.parametrize("options", [{}, {"embedding": 49}, {"score_scale": "token"}, {"score_scale": 1.0}])
def test_plain_flow_of_the_weights_is_the_flow_of_the_eigenvalues(options):
    start = random_start(1, 3, **options)
    times = np.linspace(0, 3, 13)
    found = flow(start, Spectral(TASK), until=3.0, record=Record(points=times), rtol=1e-9, atol=1e-11, progress=False)
    first = np.stack([np.asarray(start.omega()), np.asarray(start.mu())]).reshape(-1)
    expected = solve_ivp(eigenvalue_flow(start, TASK), (0, 3), first, t_eval=times, rtol=1e-10, atol=1e-12).y
    expected = expected.T.reshape(13, 2, 3, 4)
    omega = found["key"] * found["query"] * start.score_scale / np.array(TASK.dims)
    np.testing.assert_allclose(omega[0], expected[:, 0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose((found["value"] * found["output"])[0], expected[:, 1], rtol=1e-6, atol=1e-8)
    assert np.abs(omega[0, -1] - omega[0, 0]).max() > 0.05


def test_one_task_in_one_head_flows_to_its_floor_at_the_known_weights():
    task = MultiTaskRegression((10,), context=100)
    start = SpectralAttention.balanced(np.array([[0.01]]), np.array([[1.0]]), (10,), embedding=30)
    found = flow(start, Spectral(task), progress=False)
    assert found.attrs["outcome"] == "converged"
    rho = np.e * 10 / 100
    last = model_at(found, start)
    np.testing.assert_allclose(last.omega() * np.sqrt(10), 1.0, atol=1e-3)
    np.testing.assert_allclose(last.mu(), np.sqrt(10) / (1 + rho), rtol=1e-3)


def test_flow_of_the_exact_loss_ends_at_its_recorded_minimum():
    """ω√d = 1.007 and μ = 0.998 of the leading order, found by minimization in another program."""
    task = MultiTaskRegression((10,), context=100)
    start = SpectralAttention.balanced(np.array([[0.2]]), np.array([[2.0]]), (10,))
    last = model_at(flow(start, Exact(task), until=60.0, record=Record(points=3), progress=False), start)
    assert abs(float(last.omega()[0, 0]) * np.sqrt(10) - 1.007) < 1e-3
    assert abs(float(last.mu()[0, 0]) / (np.sqrt(10) / (1 + np.e / 10)) - 0.998) < 1e-3


def test_whole_matrices_descend_as_their_eigenvalues_do_and_stay_decomposable():
    task = MultiTaskRegression(
        (2, 3), (1.0, 2.0), 12, noise_variance=0.5, inputs_rotation="random", outputs_rotation="random", key=KEY
    )
    objective = ReducedSampled(task, 256, key=KEY)
    rng = np.random.default_rng(0)
    weights = (jnp.asarray(rng.uniform(0.3, 0.9, (2, 2))) for _ in range(4))
    spectral = SpectralAttention(*weights, dims=task.dims)
    whole = decomposable(spectral, task, embedding=7, key=KEY)
    runs = [descend(model, objective, rate=0.02, steps=50, progress=False) for model in (spectral, whole)]
    np.testing.assert_allclose(runs[0]["loss"], runs[1]["loss"], rtol=1e-9)
    assert float(runs[0]["loss"][0, -1]) < float(runs[0]["loss"][0, 0])
    found, expected = decompose(model_at(runs[1], whole), task), model_at(runs[0], spectral)
    np.testing.assert_allclose(found.omega, expected.omega(), rtol=1e-8)
    np.testing.assert_allclose(found.mu, expected.mu(), rtol=1e-8)
    assert all(float(value) < 1e-12 for value in found.departures().values())


@pytest.mark.parametrize("objective", [Spectral(TASK), ReducedSampled(TASK, 64, key=KEY)])
def test_an_ensemble_is_its_members(objective):
    members = [random_start(seed, 2) for seed in (1, 2)]
    together = descend(Ensemble.of(members), objective, rate=0.01, steps=20, progress=False)
    for number, member in enumerate(members):
        alone = descend(member, objective, rate=0.01, steps=20, progress=False)
        np.testing.assert_allclose(together["loss"][number], alone["loss"][0], rtol=1e-10)


def test_fresh_data_can_be_summed_over_outputs():
    task = MultiTaskRegression((2, 3), context=8)
    model = MultiHeadAttention.random(dim=5, outputs=2, heads=2, scale=0.3, key=KEY)
    summed = online(model, task, batch_size=16, reduce="sum", rate=0.01, steps=3, progress=False, key=KEY)
    batch = task.draw(16, key=jax.random.fold_in(KEY, 0))
    np.testing.assert_allclose(summed["loss"][0, 0], Sampled(batch, "sum")(model), rtol=1e-12)
    averaged = online(model, task, batch_size=16, rate=0.02, steps=3, progress=False, key=KEY)
    np.testing.assert_allclose(summed["loss"], 2 * averaged["loss"], rtol=1e-12)
