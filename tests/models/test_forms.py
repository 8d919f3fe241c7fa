"""What a class may be taken for: the forms of our own are proved here, those of others are compared at the start."""

import inspect
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import own_models as own
import pytest

from stepwell import models
from stepwell._util.errors import InvalidInput
from stepwell.models import (
    AbstractCubicModel,
    AbstractModel,
    ConvolutionalAttention,
    CubicMLP,
    Form,
    MergedAttention,
    MultiHeadAttention,
    PolynomialUnits,
    SeparateAttention,
    SpectralAttention,
    check_form,
    form_of,
    is_attention,
    is_polynomial,
    is_proved,
)
from stepwell.models._check_form import form_gaps
from stepwell.objectives import Population, Sampled
from stepwell.tasks import ContextLengths, InContextRegression

KEY = jax.random.key(0)
SHAPE: Any = {"dim": 3, "heads": 2, "scale": 0.7}
OPTIONS = (("linear", "1/N"), ("softmax", "none"), ("relu", "1/tokens"))


def made(kind: Any, model: AbstractModel, **options) -> Any:
    """A model of another class, with the same weights."""
    return kind(*model.weights().values(), **options)


CLASSES = [each for each in vars(models).values() if isinstance(each, type) and issubclass(each, AbstractModel)]
WITH_LABEL_BLOCKS: list[Any] = [
    each
    for each in CLASSES
    if vars(each).get("declared_form")
    and "label_blocks" in inspect.signature(getattr(each, "random", lambda: None)).parameters
]
"""Classes whose random weights are all of the formula of attention, label blocks included."""


def ours():
    """Models of every class of the package that has a form, with every option of the formula, and no weight at zero."""
    shape: Any = SHAPE | {"outputs": 2, "key": KEY}
    yield CubicMLP.random(**shape)
    units: Any = {"dim": 6, "units": 2, "patches": 2, "outputs": 2, "scale": 0.7, "key": KEY}
    yield from (PolynomialUnits.random(**units, degree=degree) for degree in (1, 2, 3))
    yield ConvolutionalAttention.from_separate(SeparateAttention.random(**SHAPE, key=KEY))
    for activation, normalization in OPTIONS:
        options: Any = {"activation": activation, "normalization": normalization}
        for attends_query in (False, True):
            settings = options | {"attends_query": attends_query}
            for kind in WITH_LABEL_BLOCKS:
                rank = {"rank": 2} if "rank" in inspect.signature(kind.random).parameters else {}
                yield made(kind, kind.random(**shape, **rank, label_blocks="random"), **settings)
            heads = MultiHeadAttention.random(**shape, embedding=4)
            yield made(MultiHeadAttention, heads, score_scale="token", **settings)
        spectrum = np.random.default_rng(0).normal(size=(4, 2, 2))
        yield SpectralAttention(*map(jnp.asarray, spectrum), dims=(2, 3), **options)


def examples(model):
    if is_polynomial(model):
        return jax.random.normal(jax.random.key(1), (5, model.dim))
    outputs, dim = model.shape
    shape = (12, dim + outputs) if is_attention(model) else (outputs * dim * dim,)
    return jax.random.normal(jax.random.key(1), (5, *shape))


def test_every_class_of_ours_is_of_its_form():
    """To rounding: the formula adds up the same few hundred terms in another order."""
    seen = set()
    for model in ours():
        seen.add(type(model))
        for what, gaps in form_gaps(model, examples(model)).items():
            assert max(map(float, gaps)) < 1e-12, (model, what)
    assert all(map(is_proved, ours()))
    missing = {kind.__name__ for kind in CLASSES if vars(kind).get("declared_form")} - {kind.__name__ for kind in seen}
    assert not missing, f"yield models of {sorted(missing)} in ours(): they declare a form"


def test_the_maps_of_heads_add_up():
    for model in ours():
        if isinstance(model, PolynomialUnits):
            continue
        np.testing.assert_allclose(model.head_maps().sum(axis=0), model.effective_map(), atol=1e-12)


def test_a_class_of_ours_without_a_form_is_called():
    """As any other model is: that it belongs to the package proves nothing."""

    class Formless(own.GatedKeys):
        __module__ = models.__name__ + "._gated"

    model = Formless.random(dim=3, heads=2, scale=0.5, key=KEY)
    batch = InContextRegression(np.eye(3), ContextLengths([3, 5])).sample(10, key=KEY)
    sampled = Sampled(batch)
    sampled.check(model)
    assert not is_proved(model)
    same = own.GatedKeys(model.key, model.value, model.gate)
    assert float(sampled(model)) == float(sampled(same))
    with pytest.raises(InvalidInput, match="use Sampled or online"):
        Population(InContextRegression(np.eye(3), 5)).check(model)


def test_a_form_is_of_exactly_the_class_that_declares_it():
    model = SeparateAttention.random(**SHAPE, key=KEY)
    assert form_of(model) == "separate"
    assert form_of(made(own.Truthful, model)) == "separate" and not is_proved(made(own.Truthful, model))
    for kind in (own.Unchanged, own.Silent, own.Heir):
        assert form_of(made(kind, model)) is None


class Misspelt(SeparateAttention):
    declared_form: ClassVar[str] = "seperate"


class Presumptuous(MergedAttention):
    declared_form: ClassVar[Form] = "separate"


class Features(MergedAttention):
    """It reads tokens, so this form is not for it."""

    declared_form: ClassVar[Form] = "cubic"


@pytest.mark.parametrize(
    ("kind", "words"),
    [(Misspelt, "'separate'"), (Presumptuous, "subclasses of SeparateAttention"), (Features, "'attention'")],
)
def test_a_declaration_that_cannot_be_is_refused(kind, words):
    with pytest.raises(InvalidInput) as refusal:
        form_of(kind.random(**SHAPE, key=KEY))
    assert words in str(refusal.value) and kind.__name__ in str(refusal.value) and "\n" not in str(refusal.value)


class Squared(AbstractCubicModel):
    """From the ground up, on cubic features: a symmetric positive map."""

    root: jax.Array
    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {"root": ("row", "dim")}
    factors: ClassVar[int] = 2
    declared_form: ClassVar[Form] = "cubic"
    sign: float = 1.0

    def __call__(self, example):
        dim = self.root.shape[0]
        return self.sign * jnp.sum((self.root @ example.reshape(dim, dim)) * self.root)[None]

    def effective_map(self):
        return (self.root.T @ self.root)[None, None]

    def label_blocks(self):
        return []

    def map_rank(self):
        return None

    @property
    def shape(self):
        return 1, self.root.shape[0]


MERGED = MergedAttention.random(**SHAPE, key=KEY)
SMALL = SeparateAttention.random(dim=3, heads=2, scale=1e-3, key=KEY)
SINGLE = SMALL.with_weights({name: weight.astype(jnp.float32) for name, weight in SMALL.weights().items()})


@pytest.mark.parametrize(
    "model",
    [
        made(own.Truthful, SMALL),
        made(own.Truthful, SINGLE),
        made(own.Truthful, SMALL, activation="softmax"),
        Squared(jax.random.normal(KEY, (3, 3))),
        made(own.Unchanged, SMALL),  # declares nothing: there is nothing to check
    ],
)
def test_a_class_that_keeps_to_its_form_passes(model):
    check_form(model, length=20)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            made(own.FalselySilent, SMALL),
            "its prediction differs from that formula's by 1 of its size, at the weights given",
        ),
        (made(own.Windowed, SMALL), "its prediction differs"),
        (made(own.Clipped, SMALL), "at weights of order one"),
        (
            own.GatedAttention(MERGED.value, MERGED.key_query, jnp.zeros(1)),
            "the gradient of its prediction differs",
        ),
        (made(own.OtherReadout, MERGED, activation="softmax"), "its prediction differs"),
        (made(own.OtherDirections, MERGED), "its prediction differs"),
        (made(own.OtherMap, MERGED), "effective_map() differs"),
        (made(own.OtherBlocks, MERGED), "label_blocks() has shape"),
        (Squared(jax.random.normal(KEY, (3, 3)), sign=-1.0), "by 2 of its size"),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_class_that_breaks_its_word_is_refused(model, words):
    with pytest.raises(InvalidInput) as refusal:
        check_form(model, length=20)
    message = str(refusal.value)
    assert words in message and type(model).__name__ in message and "remove the declaration" in message
    assert "\n" not in message


def test_a_comparison_is_as_long_as_the_context():
    """Within the window the formula holds; `Windowed` is found out where its window ends, and not before."""
    check_form(made(own.Windowed, SMALL), length=8)
    with pytest.raises(InvalidInput, match="its prediction differs"):
        check_form(made(own.Windowed, SMALL), length=9)


def test_a_class_that_cannot_be_compared_is_refused():
    class Broken(SeparateAttention):
        declared_form: ClassVar[Form] = "attention"

        def __call__(self, example, length=None):
            return example @ self.value

    with pytest.raises(InvalidInput, match="cannot be compared .* remove the declaration"):
        check_form(made(Broken, SMALL), length=4)


def test_a_separate_attention_with_further_weights_is_refused():
    """The native passes move three weights, and would leave a fourth behind."""

    class Biased(SeparateAttention):
        bias: jax.Array
        declared_form = "separate"
        weight_dims: ClassVar[dict[str, tuple[str, ...]]] = SeparateAttention.weight_dims | {"bias": ("head",)}

        def __init__(self, value, key, query):
            super().__init__(value, key, query)
            self.bias = jnp.zeros(2)

    with pytest.raises(InvalidInput, match="'bias'.* and no others"):
        check_form(made(Biased, SMALL), length=4)


def with_dims(**changes):
    """`GatedKeys` with another `weight_dims`."""

    class Changed(own.GatedKeys):
        weight_dims: ClassVar[dict[str, tuple[str, ...]]] = own.GatedKeys.weight_dims | changes

    return Changed.random(dim=3, heads=2, scale=0.1, key=KEY)


class Nested(own.GatedKeys):
    inner: SeparateAttention = SMALL


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (with_dims(scale=("head",)), "no field"),
        (with_dims(key=("head", "dim")), "one name for each dimension"),
        (with_dims(key=("head", "dim", "dim")), "all different"),
        (with_dims(gate=("run",)), "'run'"),
        (with_dims(gate=("dim",)), "of size 2 in gate and 3 in key"),
        (Nested.random(dim=3, heads=2, scale=0.1, key=KEY), "arrays in inner"),
        (own.GatedKeys(np.ones((2, 3, 3)), np.ones(2), np.ones(2, dtype=int)), "of int64"),
        (own.GatedKeys(np.ones((2, 3, 3)), np.ones(2), np.ones(2, dtype=complex)), "complex"),
    ],
    ids=lambda given: given if isinstance(given, str) else "model",
)
def test_weights_that_would_not_be_recorded_are_refused(model, words):
    with pytest.raises(InvalidInput) as refusal:
        models.check_weights(model)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
