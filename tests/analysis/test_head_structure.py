"""The structure of heads, on heads that were made with it, of models of ours and of a user's."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.analysis import HeadStructure, effective_map, head_structure
from stepwell.dynamics import Record, online
from stepwell.models import Form, MultiHeadAttention
from stepwell.tasks import InContextRegression, OverlappingRegression
from stepwell.trajectory import model_at
from tests.own_models import Bounded, SilentHeads

KEY = jax.random.key(0)
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]


class OwnHeads(MultiHeadAttention):
    """A user's: scores of half the size."""

    declared_form: ClassVar[Form] = "attention"

    def bilinear(self):
        return super().bilinear() / 2

    def directions(self, query):
        return super().directions(query) / 2


def heads(blocks, readout, owner=MultiHeadAttention):
    """Heads with given scores of inputs (head, dim, dim) and readouts (head, output, dim + output).

    Labels have random scores, which never matter. Keys and queries are mixed by a matrix of their own in each head.
    """
    rng = np.random.default_rng(1)
    count, dim, _ = np.shape(blocks)
    outputs = np.shape(readout)[1]
    width = dim + outputs
    scores = np.concatenate([blocks, rng.normal(size=(count, outputs, dim))], axis=1)
    mixing = rng.normal(size=(count, width, width))
    query = np.linalg.solve(mixing.swapaxes(1, 2), scores)
    value = np.linalg.solve(mixing, np.broadcast_to(np.eye(width), mixing.shape))
    output = readout @ mixing
    return owner(*map(jnp.asarray, (query, mixing, value, output)), score_scale=1.0)


def test_two_signs_and_a_dummy_are_read_off_in_the_basis_where_scores_are_diagonal():
    omega, mu = np.array([0.2, -0.1, 0.3]), np.array([3.0, -2.0, 1e-3])
    spectrum = np.array([1.2, 1.0, 0.8])
    blocks = omega[:, None, None] * (TURN * spectrum @ TURN.T)
    readout = mu[:, None, None] * np.array([[[0.0, 0.0, 0.75, 1.0]]])
    model = heads(blocks, readout)
    found = HeadStructure.of(model, basis=TURN)
    np.testing.assert_allclose(found.omega, omega, rtol=1e-10)
    np.testing.assert_allclose(found.mu[:, 0], mu, rtol=1e-10)
    np.testing.assert_allclose(found.diagonality, 1.0, rtol=1e-10)
    np.testing.assert_allclose(found.label_share, 0.8, rtol=1e-10)
    assert found.sign.tolist() == [1, -1, 0]
    assert float(found.spread) == pytest.approx(0.05 / 0.15)
    assert float(found.imbalance[0]) == pytest.approx(1.001 / 5.001)
    np.testing.assert_allclose(found.preconditioner[0], np.diag((0.8 + 3e-4) * spectrum), atol=1e-10)
    plain = HeadStructure.of(model)
    turned = TURN * spectrum @ TURN.T
    expected = np.linalg.norm(np.diag(turned)) / np.linalg.norm(turned)
    np.testing.assert_allclose(plain.diagonality, expected, rtol=1e-10)
    np.testing.assert_allclose(plain.omega, omega, rtol=1e-10)  # a trace
    assert HeadStructure.of(model, least=1e-4).sign.tolist() == [1, -1, 1]


def test_heads_of_several_outputs_have_a_preconditioner_for_each():
    """Three heads for two tasks that share inputs, by superposition."""
    levels = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [-0.5, -1.0, -0.5]])
    readout = np.zeros((3, 2, 5))
    readout[:, 0, 3:], readout[:, 1, 3:] = [[1, 0], [-2, 0], [1, 0]], [[0, -2], [0, 1], [0, 1]]
    found = HeadStructure.of(heads(levels[:, :, None] * np.eye(3), readout))
    np.testing.assert_allclose(found.imbalance, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.preconditioner[0], np.diag([0.5, -1.0, -2.5]), atol=1e-12)
    np.testing.assert_allclose(found.preconditioner[1], np.diag([-2.5, -1.0, 0.5]), atol=1e-12)


def test_small_scores_with_readouts_of_sum_zero_predict_by_a_step_on_centered_inputs():
    """What the preconditioner is for: at scores of size ε the rest is O(ε), by calling the model alone."""
    rng = np.random.default_rng(2)
    task = OverlappingRegression([[0, 1, 2]], 1.0, 20, noise_variance=0.3)
    tokens = np.asarray(task.sample(50, key=KEY).tokens)
    x, y, query = tokens[:, :-1, :3], tokens[:, :-1, 3], tokens[:, -1, :3]
    blocks, mu = rng.normal(size=(3, 3, 3)), np.array([1.0, 1.5, -2.5])
    gaps = []
    for small in (1e-3, 1e-4):
        model = heads(small * blocks, mu[:, None, None] / small * np.array([[[0.0, 0.0, 0.0, 1.0]]]))
        model = MultiHeadAttention(
            model.query, model.key.at[:, :, 3:].set(0.0), model.value, model.output, score_scale=1
        )
        structure = HeadStructure.of(model)
        centered = x - x.mean(axis=1, keepdims=True)
        step = np.einsum("sl,sli,ij,sj->s", y, centered, np.asarray(structure.preconditioner[0]), query) / 20
        gaps.append(np.abs(np.asarray(jax.vmap(model)(jnp.asarray(tokens)))[:, 0] - step).max() / np.abs(step).max())
    assert gaps[0] < 0.1 and gaps[1] == pytest.approx(gaps[0] / 10, rel=0.1)


def test_along_a_run_it_is_that_of_the_model_at_each_point_and_can_be_watched():
    task = InContextRegression(np.diag([1.0, 0.5]), 8, noise_variance=0.1, target_noise=True)
    options = {"dim": 2, "outputs": 1, "heads": 2, "scale": 1.0, "scheme": "uniform", "key": KEY}
    made = MultiHeadAttention.random(**options)
    for model in (made, OwnHeads(**made.weights(), score_scale=made.score_scale)):
        watch = {"imbalance": lambda one: HeadStructure.of(one).imbalance[0]}
        record = Record(snapshots=3, every=10, observe=watch)
        settings = {"rate": 0.01, "steps": 20, "optimizer": "adam", "batch_size": 16}
        run = online(model, task, key=KEY, record=record, progress=False, **settings)
        found = head_structure(run)
        assert found["preconditioner"].dims == ("run", "snapshot", "output", "row", "column")
        np.testing.assert_allclose(found["preconditioner"][:, :, 0], effective_map(run), rtol=1e-12)
        for point in range(3):
            alone = HeadStructure.of(model_at(run, at=int(run["snapshot"][point])))
            for name, values in alone._asdict().items():
                np.testing.assert_allclose(found[name][0, point], values, rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(found["imbalance"][0, :, 0], run["imbalance"][0], rtol=1e-9)


def test_ratios_of_nothing_are_nan_and_such_heads_are_dummies():
    model = MultiHeadAttention.random(dim=2, outputs=1, heads=2, scale=0.0, key=KEY)
    found = HeadStructure.of(model)
    assert found.sign.tolist() == [0, 0]
    for name in ("diagonality", "label_share", "spread", "imbalance"):
        assert np.all(np.isnan(getattr(found, name)))


def test_what_has_no_known_heads_is_refused():
    options = {"dim": 2, "heads": 1, "scale": 0.1, "key": KEY}
    with pytest.raises(InvalidInput, match="write declared_form = 'attention'"):
        HeadStructure.of(SilentHeads.random(outputs=1, **options))
    assert HeadStructure.of(Bounded.random(**options)).omega.shape == (1,)
    model = MultiHeadAttention.random(outputs=1, **options)
    for basis in (np.ones((2, 2)), np.eye(3)):
        with pytest.raises(InvalidInput, match="2 orthonormal columns"):
            HeadStructure.of(model, basis=basis)
    with pytest.raises(InvalidInput, match="least"):
        HeadStructure.of(model, least=0.0)
