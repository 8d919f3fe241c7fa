"""Whether a class is what it declares to be: its weights, and its formula against its own `__call__`."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util import text
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import SequenceTokens, Tokens
from stepwell.tasks import attention_scale, polynomial_features, prefix

from ._attention import AbstractAttention
from ._forms import form_of, is_attention, is_polynomial, is_proved, is_separate, is_spectral, map_shape
from ._model import TAKEN, AbstractModel, array_names, declared_map, weight_at
from ._separate import SeparateAttention
from ._spectral_attention import SpectralAttention


@checked
def check_weights(model: AbstractModel) -> None:
    """Raise `InvalidInput` unless the arrays of a model are the weights that `weight_dims` names, as it names them.

    All arrays of a model are trained. One that is not named would be trained and not recorded; one whose dimensions are
    wrong would be noticed only after the run.

    **Arguments:**

    - `model`: the model to check.

    **Example:**

    A class of this package passes, and nothing is returned:

    >>> sw.models.check_weights(sw.models.CubicMLP.random(dim=2, heads=1, scale=0.1, key=jax.random.key(0)))
    """
    name = type(model).__name__
    sizes: dict[str, tuple[int, str]] = {}
    for weight, dims in model.weight_dims.items():
        try:
            value = weight_at(model, weight)
        except (AttributeError, KeyError, IndexError):
            fields = [field.name for field in dataclasses.fields(model)]
            raise InvalidInput(
                f"weight_dims of {name} names {weight!r}, which is no field; its fields are {fields}"
            ) from None
        if not eqx.is_inexact_array(value):
            kind = f"an array of {value.dtype}" if eqx.is_array(value) else f"a {type(value).__name__}"
            raise InvalidInput(
                f"the weight {weight} of {name} is {kind}; weights are arrays of floats, so keep "
                f"jnp.asarray({weight}, float)"
            )
        if jnp.iscomplexobj(value):
            raise InvalidInput(f"the weight {weight} of {name} is complex; keep its real and imaginary parts instead")
        if len(dims) != value.ndim or len(set(dims)) != len(dims):
            raise InvalidInput(
                f"weight_dims of {name} gives {weight} the dimensions {dims}, and its shape is {value.shape}; give one "
                "name for each dimension, all different"
            )
        taken = {weight, *dims} & set(TAKEN)
        if taken:
            raise InvalidInput(f"weight_dims of {name} uses {sorted(taken)}, as every trajectory does; rename them")
        for dim, size in zip(dims, value.shape, strict=True):
            known, where = sizes.setdefault(dim, (size, weight))
            if known != size:
                raise InvalidInput(
                    f"weight_dims of {name} has a dimension {dim!r} of size {known} in {where} and {size} in {weight}; "
                    "give them different names"
                )
    fields = {field.name: getattr(model, field.name, None) for field in dataclasses.fields(model)}
    others = [array for array in array_names(fields) if array not in model.weight_dims]
    if others:
        raise InvalidInput(
            f"{name} has arrays in {', '.join(others)}, which weight_dims does not name, and every array is trained; "
            "name weights there, or leave weight_dims out, and keep constants as tuples in static fields"
        )


_SEQUENCES = 4
"""How many sequences are predicted both by the model and by its formula."""
_TOLERANCE = 1.5e-8
"""Half of the digits: far more than rounding takes of those of the package's classes (tests/models/test_forms.py)."""
_SINGLE_TOLERANCE = 1e-5
"""For weights of a lower precision. They are compared in float64, but a model may round them to float32 by itself."""

_LIKE = ("weights like those given", "weights of order one")
Part = Callable[[Any], Array]
Claims = dict[str, tuple[Part, Part]]
"""What a form claims to be equal, by name: two functions of the model, what it has of its own and the formula's."""

Gaps = dict[str, tuple[Float[Array, ""], Float[Array, ""]]]
"""How far apart, relative to the larger of the two: in value, and in gradient by all weights."""


@checked
def check_form(model: AbstractModel, *, length: int, tokens: SequenceTokens | None = None) -> None:
    """Raise `InvalidInput` unless the predictions of a class that declares a form are those of its formula.

    Predictions and their gradients by all weights are compared on four sequences: at the weights given, at others like
    them, and at random weights. Classes of this package, and classes that declare no form, are not compared.

    **Arguments:**

    - `model`: the model to check.
    - `length`: the context length of random sequences, used where `tokens` is not given.
    - `tokens`: sequences to compare on, of which the first four are taken; by default random ones. Models of cubic
      features are always compared on random features.

    **Example:**

    A class of this package passes, and nothing is returned:

    >>> model = sw.models.SeparateAttention.random(dim=2, heads=1, scale=0.1, key=jax.random.key(0))
    >>> sw.models.check_form(model, length=5)
    """
    if is_proved(model) or form_of(model) is None:
        return
    declaration = f"{type(model).__name__} has declared_form = {form_of(model)!r}"
    check_weights(model)
    if is_separate(model) and set(model.weight_dims) != set(SeparateAttention.weight_dims):
        raise InvalidInput(
            f"{declaration} and weights {sorted(model.weight_dims)}; that form has "
            f"{sorted(SeparateAttention.weight_dims)} and no others, so remove the declaration"
        )
    double = all(weight.dtype == jnp.float64 for weight in model.weights().values())
    tolerance = _TOLERANCE if double else _SINGLE_TOLERANCE
    for which, weights in _points(model.weights()).items():
        try:
            gaps = form_gaps(model.with_weights(weights), _examples(model, length, tokens), _methods(type(model)))
        except Exception as error:
            raise InvalidInput(
                f"{declaration}, but cannot be compared with that formula ({text.error_line(error)}); correct it, or "
                "remove the declaration"
            ) from error
        for what, (value, gradient) in gaps.items():
            for kind, gap in (("", float(value)), ("the gradient of ", float(gradient))):
                if not gap <= tolerance:  # not a number is no agreement
                    raise InvalidInput(
                        f"{declaration}, but {kind}{what} differs from that formula's by {gap:.2g} of its size, at "
                        f"{which}; make them agree, or remove the declaration: then Sampled and online call the model "
                        "itself"
                    )


@checked
def similar(model: AbstractModel) -> list[AbstractModel]:
    """Return two models with other weights, zero wherever those of the model are.

    **Arguments:**

    - `model`: the model to vary.

    **Returns:** two models: every weight multiplied by a factor between 1/2 and 2; and the same after each array of
    weights is scaled to a root mean square of one.

    **Example:**

    >>> model = sw.models.MergedAttention.random(dim=2, heads=1, scale=0.1, key=jax.random.key(0))
    >>> [bool((other.value[..., :2] == 0).all()) for other in sw.models.similar(model)]
    [True, True]
    """
    points = _points(model.weights())
    return [model.with_weights(points[which]) for which in _LIKE]


def _methods(kind: type) -> tuple[int, ...]:
    """Which functions a class has now: one that was changed in place is compared anew."""
    return tuple(id(value) for parent in kind.__mro__ for value in vars(parent).values() if callable(value))


@eqx.filter_jit
def form_gaps(model: AbstractModel, examples: Float[Array, "sequences ..."], methods: tuple[int, ...] = ()) -> Gaps:
    """All that the form of a model's class claims, measured at its weights on these examples.

    `methods` is not used, but what was compiled for others is not used either.
    """

    def value_and_slope(part: Part) -> tuple[Array, Array]:
        value, pull = jax.vjp(lambda weights: part(model.with_weights(weights)), model.weights())
        # Of a random combination of all entries: where those gradients agree, so do the gradients of every entry.
        mix = np.random.default_rng(1).standard_normal(value.shape)
        return value, _flat(jax.tree.leaves(pull(jnp.asarray(mix, value.dtype))))

    gaps: Gaps = {}
    for what, parts in _claims(model, examples).items():
        (own, own_slope), (formula, slope) = map(value_and_slope, parts)
        if own.shape != formula.shape:
            raise InvalidInput(f"{what} has shape {own.shape}, the formula's {formula.shape}")
        gaps[what] = _gap(own, formula), _gap(own_slope, slope)
    return gaps


def _claims(model: AbstractModel, examples: Float[Array, "sequences ..."]) -> Claims:
    linear = form_of(model) == "linear"
    if is_polynomial(model):
        return {"its prediction": (lambda m: jax.vmap(m)(examples), lambda m: _polynomial(m, examples))}
    if not (is_attention(model) or linear):
        return {"its prediction": (lambda m: jax.vmap(m)(examples), lambda m: _map(m, examples))}
    _, dim = map_shape(model)

    def prediction(tokens: Array) -> tuple[Part, Part]:
        own = lambda m: jax.vmap(m)(tokens)  # noqa: E731
        if linear:
            return own, lambda m: _map(m, _cubic_features(tokens, dim))
        return own, lambda m: jax.vmap(lambda z: _attend(m, z))(tokens)

    claims: Claims = {
        "its prediction": prediction(prefix(examples, examples.shape[1] - 1, dim)),
        "its prediction to a shorter context": prediction(prefix(examples, examples.shape[1] // 2, dim)),
    }
    if linear:
        return claims
    claims["effective_map()"] = (
        lambda m: m.effective_map(),
        lambda m: jnp.einsum("hop,hij->opij", m.readout()[..., dim:], m.bilinear()[:, :dim]),
    )
    claims["label_blocks()"] = (
        lambda m: _flat(m.label_blocks()),
        lambda m: _flat([m.readout()[..., :dim], m.bilinear()[:, dim:]]),
    )
    if is_separate(model):
        claims["bilinear()"] = lambda m: m.bilinear(), lambda m: jnp.einsum("hrw,hrd->hwd", m.key, m.query)
        claims["readout()"] = lambda m: m.readout(), lambda m: m.value
    if is_spectral(model):
        claims["bilinear()"] = lambda m: m.bilinear(), _spectral_scores
        claims["readout()"] = lambda m: m.readout(), _spectral_readout
    return claims


def _cubic_features(tokens: Float[Array, "sequences tokens width"], dim: int) -> Float[Array, "sequences features"]:
    """$\\beta x_q^\\top$ of every sequence, by its definition."""
    context, query = tokens[:, :-1], tokens[:, -1, :dim]
    beta = jnp.einsum("sno,sni->soi", context[..., dim:], context[..., :dim]) / context.shape[1]
    return jnp.einsum("soi,sj->soij", beta, query).reshape(tokens.shape[0], -1)


def _map(model: AbstractModel, features: Float[Array, "sequences features"]) -> Float[Array, "sequences outputs"]:
    maps = declared_map(model)
    return features @ maps.reshape(maps.shape[0], -1).T


def _polynomial(model: Any, inputs: Float[Array, "examples dim"]) -> Float[Array, "examples outputs"]:
    return polynomial_features(inputs, model.degree, model.patches) @ model.coefficients().T


def _attend(model: AbstractAttention, tokens: Tokens) -> Float[Array, " outputs"]:
    """The formula of `AbstractAttention`, from nothing but W and U; the query is last."""
    attended = tokens if model.attends_query else tokens[:-1]
    scores = jnp.einsum("tw,hw->ht", attended, model.bilinear() @ tokens[-1, : model.dim])
    activations = {"linear": lambda score: score, "relu": jax.nn.relu, "softmax": jax.nn.softmax}
    attention = activations[model.activation](scores) * attention_scale(model.normalization, tokens.shape[0] - 1)
    return jnp.einsum("how,ht,tw->o", model.readout(), attention, attended)


def _spectral_scores(model: SpectralAttention) -> Float[Array, "head width dim"]:
    tasks = np.repeat(np.arange(len(model.dims)), model.dims)
    return jnp.pad(model.omega()[:, tasks, None] * np.eye(tasks.size), ((0, 0), (0, len(model.dims)), (0, 0)))


def _spectral_readout(model: SpectralAttention) -> Float[Array, "head outputs width"]:
    return jnp.pad(model.mu()[:, :, None] * np.eye(len(model.dims)), ((0, 0), (0, 0), (sum(model.dims), 0)))


def _points(weights: dict[str, Array]) -> dict[str, dict[str, np.ndarray]]:
    """Weights to compare at. Only random ones have other signs, and other numbers than zero where those given are
    zero; at the others, a gate that is zero shows in its gradient."""
    rng = np.random.default_rng(0)
    points: dict[str, dict[str, np.ndarray]] = {
        name: {} for name in ("the weights given", *_LIKE, "random weights", "other random weights")
    }
    for name, weight in weights.items():
        given = np.asarray(weight)
        size = float(np.sqrt(np.mean(np.square(given, dtype=np.float64))))
        unit = given / (size or 1.0)
        factors = rng.uniform(0.5, 2.0, given.shape)
        drawn = rng.standard_normal((2, *given.shape))
        tried = given, given * factors, unit * factors, drawn[0], drawn[1]
        for point, values in zip(points.values(), tried, strict=True):
            point[name] = np.asarray(values, np.float64)
    return points


def _examples(model: AbstractModel, length: int, tokens: SequenceTokens | None) -> Float[Array, "examples ..."]:
    reads_tokens = is_attention(model) or form_of(model) == "linear"
    if reads_tokens and tokens is not None:
        return tokens[:_SEQUENCES]
    if is_polynomial(model):
        return jnp.asarray(np.random.default_rng(2).standard_normal((_SEQUENCES, model.dim)))
    outputs, dim = map_shape(model)
    shape = (length + 1, dim + outputs) if reads_tokens else (outputs * dim * dim,)
    return jnp.asarray(np.random.default_rng(2).standard_normal((_SEQUENCES, *shape)))


def _gap(own: Array, formula: Array) -> Float[Array, ""]:
    """The largest difference relative to the largest entry; zero where both are zero."""
    size = jnp.maximum(jnp.max(jnp.abs(own), initial=0.0), jnp.max(jnp.abs(formula), initial=0.0))
    return jnp.max(jnp.abs(own - formula), initial=0.0) / jnp.where(size == 0, 1.0, size)


def _flat(parts: list[Array]) -> Float[Array, " entries"]:
    return jnp.concatenate([jnp.zeros(0), *(part.reshape(-1) for part in parts)])
