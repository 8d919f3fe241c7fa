"""How the eigenvalues of softmax attention move: flow, descent, ensembles, whole matrices, fresh data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Ensemble, Record, descend, flow, online
from stepwell.models import MultiHeadAttention, SpectralAttention, decomposable, decompose
from stepwell.objectives import AbstractObjective, Exact, ReducedSampled, Sampled, Spectral
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax
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


TWO = MultiTaskRegression((10, 10), context=100)
LEADS = np.array([[0.008, 0.004], [0.004, 0.0081]]), np.full((2, 2), 0.3)


def ended(model, **options):
    return flow(model, Spectral(TWO), until=400.0, record=Record(points=5), progress=False, **options)


def test_balanced_weights_end_where_the_theory_says_and_perturbed_ones_below():
    """An imbalance of 1e-8 ends below the limit of the flow; none is made by the solver, whatever its tolerance."""
    balanced = SpectralAttention.balanced(*LEADS, TWO.dims)
    limit = softmax.flow_limit_loss(TWO).sum()
    for rtol in (1e-4, 1e-6, 1e-8):
        run = ended(balanced, rtol=rtol)
        np.testing.assert_array_equal(np.abs(run["key"]), np.abs(run["query"]))
        np.testing.assert_array_equal(np.abs(run["value"]), np.abs(run["output"]))
        # What is left at this time of the tail t^-2, and not the solver's error.
        assert 0 < float(run["loss"][0, -1]) / limit - 1 < 1e-3
    perturbed = balanced.with_weights({**balanced.weights(), "value": (1 + 1e-8) * balanced.value})
    assert softmax.lower_bound(TWO, 2).sum() < float(ended(perturbed)["loss"][0, -1]) < 0.95 * limit


@pytest.mark.parametrize("solver", ["lsoda", "rodas5p", "kvaerno5", "tsit5"])
@pytest.mark.parametrize("signs", [[1.0, 1.0], [1.0, -1.0], [1.0, 0.0]], ids=str)
def test_solvers_follow_balanced_weights_of_any_sign(solver, signs):
    """Independent: the theory's integration of ω and μ themselves."""
    times = np.array([0.0, 10.0, 30.0, 60.0])
    omega, mu = (np.array(signs)[:, None] * each for each in LEADS)
    start = SpectralAttention.balanced(omega, mu, TWO.dims)
    record = Record(points=times)
    run = flow(start, Spectral(TWO), solver=solver, until=60.0, record=record, rtol=1e-7, progress=False)
    course = softmax.spectral_flow(TWO, omega, mu, times, loss_factor=1.0)
    np.testing.assert_allclose(run["loss"][0], course.loss.sum(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(run["key"][0, 0], start.key)
    np.testing.assert_array_equal(np.sign(run["value"] * run["output"])[0, -1], np.sign(mu))


def test_rounding_on_the_manifold_does_not_decide():
    rng, losses = np.random.default_rng(0), []
    for size in (0.0, 1e-15, 1e-15):
        omega, mu = (each * (1 + size * rng.normal(size=each.shape)) for each in LEADS)
        losses.append(float(ended(SpectralAttention.balanced(omega, mu, TWO.dims))["loss"][0, -1]))
    np.testing.assert_allclose(losses, losses[0], rtol=1e-9)


def test_ensembles_of_balanced_weights():
    one, other = (SpectralAttention.balanced(sign * LEADS[0], sign * LEADS[1], TWO.dims) for sign in (1.0, -1.0))
    both = flow(Ensemble.of([one, other]), Spectral(TWO), until=60.0, record=Record(points=2), progress=False)
    np.testing.assert_allclose(
        both["loss"][0], both["loss"][1], rtol=1e-12
    )  # the loss does not change with the sign of both ω and μ
    free = one.with_weights({**one.weights(), "key": 1.1 * one.key})
    with pytest.raises(InvalidInput, match="separate ensembles"):
        flow(Ensemble.of([one, free]), Spectral(TWO), until=60.0, progress=False)


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


class _Decayed(AbstractObjective):
    """A loss that reads each weight and not products alone."""

    inner: Spectral

    def __call__(self, model):
        return self.inner(model) + 0.01 * sum(jnp.sum(weight**2) for weight in model.weights().values())

    def check(self, model):
        self.inner.check(model)

    def floor(self, model):
        return None


def test_an_objective_that_reads_more_than_products_is_given_all_weights():
    model, objective = SpectralAttention.balanced(*LEADS, TWO.dims), _Decayed(Spectral(TWO))
    run = flow(model, objective, until=20.0, record=Record(points=3), progress=False)
    np.testing.assert_allclose(run["loss"][0, 0], objective(model), rtol=1e-12)
    np.testing.assert_allclose(run["loss"][0, -1], objective(model_at(run)), rtol=1e-9)


def test_pairs_of_zeros_are_balanced_with_others_or_not():
    """They do not move: an ensemble may have them in different places."""
    one = SpectralAttention.balanced(*LEADS, TWO.dims)
    key, query = np.array(one.key) * 1.1, np.array(one.query)
    models = []
    for place in range(2):
        kept = np.ones(key.shape)
        kept[place, 1] = 0.0
        models.append(one.with_weights({**one.weights(), "key": key * kept, "query": query * kept}))
    options: dict = {"until": 5.0, "rtol": 1e-10, "record": Record(points=3), "progress": False}
    together = flow(Ensemble.of(models), Spectral(TWO), **options)
    for number, model in enumerate(models):
        alone = flow(model, Spectral(TWO), **options)
        np.testing.assert_allclose(together["loss"][number], alone["loss"][0], rtol=1e-6)
