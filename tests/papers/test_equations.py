"""The paper's equations hold, and each claim fails when its equation is changed."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.models import MergedAttention, SeparateAttention
from stepwell.papers.linear import _equations_written as written
from stepwell.papers.linear import equations as figure
from stepwell.papers.linear._runs import weights_of
from stepwell.theory import linear as theory

FIGURE = "linear/equations"
QUICK = figure.FIGURE.at(quick=True)
ONE = replace(QUICK, seeds=QUICK.seeds[:1])
SEQUENCES = {"merged-sequences", "separate-sequences"}
INFINITE = {"merged-infinite", "separate-infinite"}


@pytest.mark.parametrize(
    ("changes", "unjudged"),
    [
        (
            {"seeds": "3", "heads": "3", "lengths": "200", "sizes": "1e-3", "white_sizes": "1e-2", "context": "7"},
            {"one-end", "value", "norms", "directions", "spare-exponent", "drops-exponent"},
        ),
        (
            {"seeds": "5,6", "heads": "4", "sizes": "1e-4", "white_sizes": "1e-3", "sequences": "100", "ranks": "4"},
            {"spare-exponent"},
        ),
    ],
)
def test_other_settings(survives, changes, unjudged):
    claims = survives({"samples": "5000", **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged
    assert {name for name, claim in claims.items() if not claim.passed} == unjudged


def test_the_moments_of_other_sequences_fail(data, failing, monkeypatch):
    other = figure.sequences_of(QUICK, 1)
    monkeypatch.setattr(figure, "means_of", lambda _: written.means_of(other))
    assert failing({**data, "gradients": figure.gradients(QUICK)}) == SEQUENCES


def test_moments_without_what_a_short_context_adds_fail(data, failing, monkeypatch):
    """Λ² in place of equation 15: by samples, and in the equations of both flows."""
    monkeypatch.setattr(written, "equation_fifteen", lambda lam, _: lam @ lam)
    monkeypatch.setattr(figure, "equation_fifteen", written.equation_fifteen)
    broken = {**data, "gradients": figure.gradients(QUICK), "moments": figure.second_moments(QUICK)}
    assert failing(broken) == {"second-moment", *INFINITE}


def test_moments_without_their_last_term_fail(data, failing, monkeypatch):
    """That with Λ²/N, of the two in 1/N the smaller."""
    monkeypatch.setattr(figure, "equation_fifteen", lambda lam, n: lam @ lam + np.trace(lam) * lam / n)
    assert failing({**data, "moments": figure.second_moments(QUICK)}) == {"second-moment"}


@pytest.mark.parametrize("kind", figure.KINDS)
def test_one_velocity_of_the_wrong_size_fails(data, failing, monkeypatch, kind):
    """That of the first value, twice what it should be."""
    right = figure.WRITTEN[kind]
    monkeypatch.setitem(figure.WRITTEN, kind, lambda model, means: right(model, means) * _twice_the_first(model))
    assert failing({**data, "gradients": figure.gradients(QUICK)}) == {f"{kind}-sequences", f"{kind}-infinite"}


def _twice_the_first(model) -> np.ndarray:
    factors = np.ones(sum(weight.size for weight in weights_of(model)))
    factors[0] = 2.0
    return factors


def test_keys_and_queries_exchanged_fail(data, failing, monkeypatch):
    """G in place of its transpose; on infinitely many sequences too, since no A is symmetric."""

    def exchanged(model: SeparateAttention, means):
        value, key, query = model.value, jnp.pad(model.query, ((0, 0), (0, 0), (0, 1))), model.key[..., :-1]
        velocity = written.equation_fourteen(SeparateAttention(value, key, query), means)
        values, keys, queries = np.split(velocity, [len(value), len(value) + query.size])
        return np.concatenate([values, queries, keys])

    monkeypatch.setitem(figure.WRITTEN, "separate", exchanged)
    assert failing({**data, "gradients": figure.gradients(QUICK)}) == {"separate-sequences", "separate-infinite"}


def test_the_gradient_of_another_context_length_fails(data, failing, monkeypatch):
    """The quadrature knows N; the written equations follow."""
    right = figure.means_at_infinity
    monkeypatch.setattr(figure, "means_at_infinity", lambda _: right(replace(QUICK, context=30).task))
    assert failing({**data, "gradients": figure.gradients(QUICK)}) == INFINITE


def test_pairs_with_values_of_their_own_fail(data, failing):
    def split(model: SeparateAttention) -> SeparateAttention:
        rank_one = figure.as_rank_one(model)
        return rank_one.with_weights({**rank_one.weights(), "value": jnp.roll(rank_one.value, 1, axis=0)})

    assert failing({**data, "pairs": figure.compare_pairs(QUICK, split)}) == {"shared-values"}


def test_one_head_too_few_fails(data, failing):
    maps = data["maps"]
    fewer = maps.assign_coords(heads=maps["heads"] + 1)
    assert failing({**data, "maps": fewer}) == {"every-map"}


def test_another_map_fails(data, failing):
    maps = data["maps"]
    assert failing({**data, "maps": maps.assign(merged=maps["merged"] + 1e-12)}) == {"every-map-merged"}


def test_the_map_of_infinitely_many_sequences_is_another(data, failing):
    """Equation 11 in closed form in place of the regression on these very sequences."""
    trained = data["trained"].copy(deep=True)
    trained["map"].loc[{"kind": "regression"}] = theory.minimizer(QUICK.task)
    assert failing({**data, "trained": trained}) == {"merged-regression"}


def test_regression_on_other_sequences_fails(data, failing):
    trained = data["trained"].copy(deep=True)
    trained["map"].loc[{"kind": "regression"}] = figure.regress(figure.sequences_of(QUICK, 1))
    assert failing({**data, "trained": trained}) == {"merged-regression"}


def test_fewer_heads_than_dimensions_end_elsewhere(data, failing):
    few = figure.train_on_sequences(replace(QUICK, heads=figure.DIM - 1))
    assert failing({**data, "trained": few}) == {"one-end"}


def test_training_cut_short_fails(data, failing, monkeypatch):
    """Before the weakest component is learned."""
    monkeypatch.setattr(figure.Settings, "until", lambda self, size: 1.0 / (min(figure.EIGENVALUES) ** 2 * size) / 4)
    short = {"trained": figure.train_on_sequences(QUICK), "heads": figure.final_heads(QUICK)}
    assert failing({**data, **short}) >= {"one-end", "value"}


def test_heads_without_the_context_length_fail(data, failing, monkeypatch):
    """λ^(−1/3) in place of equation 20a."""
    endless = replace(QUICK, context=10**6).task
    monkeypatch.setattr(figure, "equation_twenty", lambda _: written.equation_twenty(endless))
    assert failing(data) == {"value"}


def test_norms_that_differ_fail(data, failing):
    """By a ten-thousandth: more than the weights are unbalanced initially."""
    heads = data["heads"]
    assert failing({**data, "heads": heads.assign(key=heads["key"] * 1.0001)}) == {"norms"}


@pytest.mark.parametrize("name", figure.COSINES)
def test_heads_off_their_eigenvector_fail(data, failing, name):
    heads = data["heads"]
    assert failing({**data, "heads": heads.assign({name: 0.99 * heads[name]})}) == {"directions"}


def test_heads_are_read_against_other_axes(data, failing, monkeypatch):
    """Eigenvectors of another covariance."""
    modes = theory.modes(QUICK.task)
    turned = np.roll(modes.directions, 1, axis=1) @ np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    read = figure.read_heads
    monkeypatch.setattr(figure, "read_heads", lambda v, k, q, _: read(v, k, q, turned))
    assert failing({**data, "heads": figure.final_heads(QUICK)}) >= {"directions"}


@pytest.mark.parametrize("power", [0.0, 0.9])
def test_spare_heads_that_do_not_stay_small_fail(data, failing, power):
    heads = data["heads"]
    grown = heads["spare"] * heads["size"] ** (power - 1)
    assert failing({**data, "heads": heads.assign(spare=grown)}) == {"spare-exponent"}


def test_a_sigmoid_from_another_start_fails(data, failing, monkeypatch):
    """From weights a hundredth larger, and to the end without 1/N."""
    right = figure.equation_ten
    monkeypatch.setattr(figure, "equation_ten", lambda t, start, n: right(t, 1.01 * start, n))
    assert failing({**data, "white": figure.white_losses(QUICK)}) == {"white-loss"}
    monkeypatch.setattr(figure, "equation_ten", lambda t, start, n: right(t, start, 10**6))
    assert failing({**data, "white": figure.white_losses(QUICK)}) == {"white-loss"}


def with_falls(data, falls):
    """The data with other drops, over (length, seed, component)."""
    return {**data, "lengths": data["lengths"].assign(fall=(data["lengths"]["fall"].dims, falls))}


def test_drops_of_other_eigenvalues_fail(data, failing):
    assert failing(with_falls(data, data["lengths"]["fall"].values[..., ::-1])) == {"drops", "drops-exponent"}


@pytest.mark.parametrize(("power", "broken"), [(-0.5, {"drops", "drops-exponent"}), (-1.5, {"drops-exponent"})])
def test_another_power_of_the_context_length_fails(data, failing, power, broken):
    lengths, lam = data["lengths"]["length"].values, np.sort(figure.EIGENVALUES)[::-1]
    lacking = (lam - data["lengths"]["fall"].values[:1]) * (lengths / lengths[0])[:, None, None] ** power
    assert failing(with_falls(data, lam - lacking)) == broken


def test_plateaus_that_were_missed_fail(data, failing):
    """A run whose loss has not D + 1 plateaus."""
    lengths = data["lengths"]
    assert failing({**data, "lengths": lengths.assign(fall=lengths["fall"] * np.nan)}) == {"drops", "drops-exponent"}


def test_the_written_equations_with_loops():
    """Equation 14 over heads and sequences, one by one; equation 8 with the network's matrices."""
    batch = figure.sequences_of(replace(ONE, sequences=5), 2)
    beta, query, label = written.features_of(batch)
    separate, merged = (figure.model_of(kind, ONE, 1, 1.0) for kind in ("separate", "merged"))
    assert isinstance(separate, SeparateAttention) and isinstance(merged, MergedAttention)
    v, k, q = weights_of(separate)
    drive = np.zeros((4, 4))
    for b, x, y in zip(beta, query, label, strict=True):
        prediction = sum(v[i] * (b @ k[i, 0]) * (q[i, 0] @ x) for i in range(len(v)))
        drive += (y - prediction) * np.outer(b, x) / label.size
    wanted = [k[i, 0] @ drive @ q[i, 0] for i in range(len(v))]
    wanted += [number for i in range(len(v)) for number in v[i] * drive @ q[i, 0]]
    wanted += [number for i in range(len(v)) for number in v[i] * drive.T @ k[i, 0]]
    np.testing.assert_allclose(written.equation_fourteen(separate, written.means_of(batch)), wanted, rtol=1e-10)
    v, u = weights_of(merged)
    z = np.array([np.outer(b, x).ravel() for b, x in zip(beta, query, strict=True)])
    hidden = u.reshape(len(v), -1)
    residual = (label - z @ hidden.T @ v) @ z / label.size
    wanted = np.concatenate([hidden @ residual, np.outer(v, residual).ravel()])
    np.testing.assert_allclose(written.equation_eight(merged, written.means_of(batch)), wanted, rtol=1e-10)


def test_heads_made_from_a_map_have_it():
    matrix = np.random.default_rng(4).normal(size=(4, 4))
    for heads in (2, 4, 5):
        left, sizes, right = np.linalg.svd(matrix)
        sizes[heads:] = 0.0
        made = figure.with_map(matrix, heads).effective_map()[0, 0]
        np.testing.assert_allclose(made, left * sizes @ right, atol=1e-14)


def test_a_head_is_read_as_what_it_is():
    """One head along each axis, one of them doubled in key, and one head that is spare."""
    keys = np.concatenate([np.eye(4)[::-1], np.full((1, 4), 1e-3)])
    keys[0] *= 2.0
    found = figure.read_heads(np.array([1.0, -1.0, 1.0, 1.0, 1e-3]), keys, keys, np.eye(4))
    assert found["key"].tolist() == [1.0, 1.0, 1.0, 2.0] and found["value"].tolist() == [1.0] * 4
    np.testing.assert_allclose(found["cosine"], 1.0)
    np.testing.assert_allclose(found["spare"], [3e-3])


def test_the_drawing(data):
    panels = [axes.get_title(loc="left")[:3] for axes in figure.draw(data, QUICK).axes]
    assert [title for title in panels if title.startswith("(")] == [f"({letter})" for letter in "abcdefgh"]
