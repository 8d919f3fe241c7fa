"""A model of `__init__` and `__call__` alone: its weights are named, trained and recorded, its map measured."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import own_models as own
import pytest
from jaxtyping import Array, Float

from stepwell._util.errors import InvalidInput
from stepwell.analysis import effective_map as map_along
from stepwell.analysis import nearest_fixed_point, pcr_test
from stepwell.dynamics import Ensemble, Record, descend, flow, online
from stepwell.models import (
    AbstractModel,
    Form,
    MergedAttention,
    SeparateAttention,
    check_form,
    check_weights,
    effective_map,
    measured_map,
    similar,
)
from stepwell.objectives import Moments, Population, Sampled
from stepwell.tasks import InContextRegression
from stepwell.trajectory import load, model_at, save

KEY = jax.random.key(0)
TASK = InContextRegression(np.diag([0.6, 0.4]), 8, noise_variance=0.1)
BATCH = TASK.sample(40, key=KEY)


class Layered(AbstractModel):
    """Keys by a small network, and a scale: what it trains is inside of layers, and nothing is declared."""

    layers: list[eqx.nn.Linear]
    scale: Array
    floor: float = 0.1

    def __init__(self, *, key):
        first, second = jax.random.split(key)
        self.layers = [eqx.nn.Linear(2, 3, key=first), eqx.nn.Linear(3, 2, key=second)]
        self.scale = jnp.asarray(1.0)

    def __call__(self, tokens):
        x, y = tokens[:, :-1], tokens[:-1, -1]
        keys = jax.vmap(lambda each: self.layers[1](jnp.tanh(self.layers[0](each))))(x[:-1])
        return self.scale * (y @ keys @ x[-1])[None] / y.size


class Gated(AbstractModel):
    """Linear attention with gates, and an effective map that it declares."""

    scores: Float[Array, "head dim dim"]
    gate: Float[Array, " head"]
    declared_form: ClassVar[Form | None] = "linear"

    def __init__(self, heads=2, scale=0.3, *, key):
        self.scores = scale * jax.random.normal(key, (heads, 2, 2))
        self.gate = jnp.zeros(heads)

    def effective_map(self):
        return jnp.einsum("h,hij->ij", jax.nn.sigmoid(self.gate), self.scores)[None, None]

    def __call__(self, tokens):
        x, y = tokens[:, :-1], tokens[:-1, -1]
        scores = jnp.einsum("ni,hij,j->hn", x[:-1], self.scores, x[-1]) / y.size
        return (jax.nn.sigmoid(self.gate) @ scores @ y)[None]


class Overstated(Gated):
    """Its map leaves out that gates are squared: right at gates of one alone."""

    declared_form: ClassVar[Form | None] = "linear"

    def __call__(self, tokens):
        return super().__call__(tokens) * jax.nn.sigmoid(self.gate[0])


class Transposed(Gated):
    declared_form: ClassVar[Form | None] = "linear"

    def effective_map(self):
        return super().effective_map().swapaxes(2, 3)


class Matrix(Gated):
    declared_form: ClassVar[Form | None] = "linear"

    def effective_map(self):
        return super().effective_map()[0, 0]


class Mapless(own.GatedKeys):
    declared_form: ClassVar[Form | None] = "linear"


def test_weights_are_named_after_fields_and_annotations():
    assert Gated(key=KEY).weight_dims == {"scores": ("head", "dim", "dim_2"), "gate": ("head",)}
    model = Layered(key=KEY)
    names = ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias", "scale"]
    assert list(model.weight_dims) == list(model.weights()) == names
    assert model.weight_dims["layers.0.weight"] == ("layers.0.weight_0", "layers.0.weight_1")
    check_weights(model)
    doubled = model.with_weights({name: 2 * weight for name, weight in model.weights().items()})
    np.testing.assert_array_equal(doubled.layers[1].bias, model.scaled(2.0).layers[1].bias)
    np.testing.assert_array_equal(doubled.scale, model.scaled(2.0).scale)


def test_an_axis_of_two_sizes_or_of_a_trajectorys_name_is_called_after_the_weight():
    class Awkward(Gated):
        other: Float[Array, " head"]
        late: Float[Array, " time"]

        def __init__(self):
            super().__init__(key=KEY)
            self.other, self.late = jnp.zeros(5), jnp.zeros(2)

    model = Awkward()
    assert model.weight_dims["other"] == ("other_0",) and model.weight_dims["late"] == ("late_0",)
    check_weights(model)


@pytest.mark.parametrize("model", [Layered(key=KEY), Gated(key=KEY)], ids=lambda model: type(model).__name__)
def test_it_trains_in_every_way_and_is_saved_and_loaded(model, tmp_path):
    both = Ensemble.of([model, model.scaled(0.5)])
    runs = {
        "descend": descend(both, Sampled(BATCH), rate=0.1, steps=3, progress=False),
        "flow": flow(both, Sampled(BATCH), until=0.5, record=Record(points=3), progress=False),
        "online": online(both, TASK, batch_size=8, rate=0.1, steps=3, key=KEY, progress=False),
    }
    for name, run in runs.items():
        loaded = load(save(run, tmp_path / f"{name}.nc"))
        assert loaded.identical(run)
        first = model_at(loaded, model, run=1, at=0)
        for weight, expected in model.scaled(0.5).weights().items():
            np.testing.assert_allclose(first.weights()[weight], expected, rtol=1e-15)
        if name != "online":
            assert float(run.loss[1, -1]) == pytest.approx(float(Sampled(BATCH)(model_at(loaded, model, run=1))))


def test_a_declared_map_gives_the_population_and_its_gradient():
    """Beside attention that has the same map in every way that it can be computed."""
    model = Gated(key=KEY)
    same = MergedAttention(
        jnp.concatenate([jnp.zeros((2, 1, 2)), jax.nn.sigmoid(model.gate)[:, None, None]], axis=-1),
        jnp.concatenate([model.scores, jnp.zeros((2, 1, 2))], axis=1),
    )
    for objective in (Population(TASK), Moments.of_batch(BATCH, features="cubic")):
        objective.check(model)
        assert float(objective(model)) == pytest.approx(float(objective(same)), rel=1e-13)
        assert float(objective(model)) != pytest.approx(float(objective(model.scaled(2.0))), rel=1e-3)
    exact = flow(model, Population(TASK), until=5.0, record=Record(points=3), progress=False)
    measured = flow(
        model,
        Moments.of_task(TASK, 20_000, key=KEY, features="cubic", progress=False),
        until=5.0,
        record=Record(points=3),
        progress=False,
    )
    assert float(exact.loss[0, -1]) == pytest.approx(float(measured.loss[0, -1]), rel=0.05)
    for other in ("none", "1/tokens"):
        with pytest.raises(InvalidInput, match="declared for '1/N'"):
            Population(TASK, other).check(model)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Overstated, "its prediction differs from that formula's"),
        (Transposed, "its prediction differs from that formula's"),
        (Matrix, "A[None, None]"),
    ],
)
def test_a_false_map_is_refused_before_the_run(kind, words):
    for objective in (Population(TASK), Sampled(BATCH)):
        with pytest.raises(InvalidInput) as refusal:
            descend(kind(key=KEY), objective, rate=0.1, steps=1, progress=False)
        assert words in str(refusal.value) and kind.__name__ in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_declaration_without_its_map_is_refused():
    model = Mapless.random(dim=2, heads=2, scale=0.5, key=KEY)
    with pytest.raises(InvalidInput, match=r"Mapless declares no effective map; .*effective_map\(self\)"):
        Population(TASK).check(model)


def test_a_declaration_is_not_inherited_and_advised_where_it_helps():
    Heir: Any = type("Heir", (Gated,), {})
    with pytest.raises(InvalidInput, match="declared_form = 'linear'"):
        Population(TASK).check(Heir(key=KEY))
    check_form(Heir(key=KEY), length=5)  # declares nothing, so there is nothing to check
    with pytest.raises(InvalidInput, match="what it may declare is 'linear'"):

        class Presumptuous(own.GatedKeys):
            declared_form: ClassVar[Form | None] = "separate"

        Population(TASK).check(Presumptuous.random(dim=2, heads=1, scale=0.1, key=KEY))


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_measured_map_is_the_declared_one_where_both_are(outputs):
    batch = InContextRegression(np.diag([0.6, 0.4]), 8, outputs=outputs).sample(30, key=KEY)
    start = {"dim": 2, "heads": 3, "scale": 0.7, "outputs": outputs}
    for kind in (SeparateAttention, MergedAttention):
        model = kind.random(**start, key=jax.random.key(3))
        measured = measured_map(model, batch)
        np.testing.assert_allclose(measured.map, model.effective_map(), atol=1e-13)
        assert float(measured.unexplained) < 1e-24 and float(measured.curvature) < 1e-13


def test_a_measured_map_of_normalized_keys_is_the_nearest_one():
    """By the definition: no other map leaves less of the answers to queries of any direction."""
    model = own.GatedKeys.random(dim=2, heads=3, scale=0.7, key=KEY)
    measured = measured_map(model, BATCH)
    x, y = np.asarray(BATCH.tokens[:, :-1, :2]), np.asarray(BATCH.tokens[:, :-1, 2])
    beta = np.einsum("sn,sni->si", y, x) / 8
    slopes = np.stack(
        [jax.vmap(lambda z, e=e: model(z.at[-1, :2].set(e))[0])(BATCH.tokens) for e in jnp.eye(2)], axis=1
    )

    def left(matrix):
        return float(np.sum((slopes - beta @ matrix) ** 2) / np.sum(slopes**2))

    best = np.asarray(measured.map)[0, 0]
    assert left(best) == pytest.approx(float(measured.unexplained), rel=1e-10) and 1e-4 < left(best) < 0.3
    for change in np.eye(4).reshape(4, 2, 2):
        assert min(left(best + 1e-3 * change), left(best - 1e-3 * change)) > left(best)
    np.testing.assert_array_equal(effective_map(model, BATCH)[0, 0], best)


def test_what_is_not_linear_in_the_query_has_no_map():
    softmax = SeparateAttention.random(dim=2, heads=2, scale=0.9, activation="softmax", key=KEY)
    kind = type("Own", (SeparateAttention,), {})
    model = kind(*softmax.weights().values(), activation="softmax")
    with pytest.raises(InvalidInput, match="Own are not linear in the query"):
        effective_map(model, BATCH)
    with pytest.raises(InvalidInput, match="give sequences"):
        effective_map(own.GatedKeys.random(dim=2, heads=1, scale=0.1, key=KEY))
    with pytest.raises(InvalidInput, match="give more than 2"):
        effective_map(own.GatedKeys.random(dim=2, heads=1, scale=0.1, key=KEY), TASK.sample(2, key=KEY))


def test_probes_read_the_map_of_any_model():
    gated = Gated(key=KEY)
    run = flow(gated, Population(TASK), until=40.0, record=Record(points=4), progress=False)
    maps = map_along(run, gated)
    for place in (0, -1):
        expected = model_at(run, gated, at=run["time"].values[place]).effective_map()[0, 0]
        np.testing.assert_allclose(maps[0, place], expected, atol=1e-14)
    np.testing.assert_array_equal(nearest_fixed_point(run, TASK, gated)["learned"][0, [0, -1]], [0, 2])

    layered = Layered(key=KEY)
    run = flow(
        Ensemble.of([layered, layered.scaled(0.5)]), Sampled(BATCH), until=2.0, record=Record(points=3), progress=False
    )
    maps = map_along(run, layered, batch=BATCH)
    assert maps.dims == ("run", "time", "row", "column") and maps.unexplained.dims == ("run", "time")
    last = measured_map(model_at(run, layered, run=1), BATCH)
    np.testing.assert_allclose(maps[1, -1], last.map[0, 0], rtol=1e-10)
    np.testing.assert_allclose(maps.unexplained[1, -1], last.unexplained, rtol=1e-8)
    with pytest.raises(InvalidInput, match="Layered declares no effective map; give sequences"):
        map_along(run, layered)
    with pytest.raises(InvalidInput, match="Layered declares no effective map|give a template"):
        map_along(run)
    assert int(pcr_test(layered, BATCH, np.eye(2))["closest"]) in (0, 1, 2)


def test_similar_models_of_layers_are_made():
    assert all(isinstance(other, Layered) for other in similar(Layered(key=KEY)))
