"""The contracts of everything that is trained."""

import abc
import dataclasses
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import AbstractArray, Array, Float

from stepwell._util import text
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import Remembering, remembered

TAKEN = ("run", "step", "snapshot", "time", "loss")
"""Names that a trajectory uses itself."""


def array_names(model: Any) -> list[str]:
    """The names of all arrays of a model or a dictionary: `gate`, or `layers.0.weight` of a part of it."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(model)
    return [".".join(map(_step, path)) for path, leaf in leaves if _is_array(leaf)]


def weight_at(model: Any, name: str) -> Any:
    """What is under a name, `layers.0.weight` being `model.layers[0].weight`."""
    for step in name.split("."):
        if isinstance(model, dict):
            model = model[step]
        elif isinstance(model, list | tuple) and step.isdigit():
            model = model[int(step)]
        else:
            model = getattr(model, step)
    return model


def default_dims(model: eqx.Module) -> dict[str, tuple[str, ...]]:
    """Names for the dimensions of all arrays of a model.

    They are those of the field's annotation, `Float[Array, "head dim dim"]` becoming (head, dim, dim_2); where it has
    none, or one that is taken or stands for two sizes, the dimension is called after the weight: `gate_0`.
    """
    hints = {field.name: field.type for field in dataclasses.fields(model)}
    sizes: dict[str, int] = {}
    dims: dict[str, tuple[str, ...]] = {}
    for name in array_names(model):
        shape = weight_at(model, name).shape
        annotated = _annotated(hints.get(name), len(shape))
        dims[name] = tuple(
            axis if axis and sizes.setdefault(axis, size) == size else f"{name}_{place}"
            for place, (axis, size) in enumerate(zip(annotated, shape, strict=True))
        )
    return dims


def _annotated(hint: Any, count: int) -> list[str | None]:
    """The name of each axis in an annotation, repeated ones numbered; None where there is none to use."""
    axes = hint.dim_str.split() if isinstance(hint, type) and issubclass(hint, AbstractArray) else []
    if len(axes) != count:
        return [None] * count
    numbered = [f"{axis}_{axes[: place + 1].count(axis)}" for place, axis in enumerate(axes)]
    names = [axis if number.endswith("_1") else number for axis, number in zip(axes, numbered, strict=True)]
    return [name if name.isidentifier() and name not in TAKEN else None for name in names]


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def _step(key: Any) -> str:
    """One step of a path in a tree: the name of a field, the key of a dictionary, or the place in a list."""
    if isinstance(key, jax.tree_util.GetAttrKey):
        return key.name
    return str(key.key if isinstance(key, jax.tree_util.DictKey) else key.idx)


Self = TypeVar("Self", bound="AbstractModel")
Form = Literal["linear", "cubic", "attention", "separate", "spectral", "polynomial"]
"""Which formula gives a model's predictions; `_forms.py` says what each means."""
Theory = Literal["separate", "merged", "units"]
"""The reduced equations that a model follows: a name in `theory.linear.PREDICTORS`, or "units" of `theory.units`."""


class AbstractModel(Remembering):
    r"""The base of every model: write `__init__` and `__call__`, and it can be trained.

    A model acts on one example; `jax.vmap` makes the batch. Its arrays are its weights, those of layers inside it
    included; what is to stay constant is a number, a tuple, or a static field.

    A model that reads tokens gets one sequence (tokens, dim + outputs) at a time, the query last with its label zero,
    and returns a vector of outputs: that is all that `Sampled` and `online` ask for.

    Everything else is optional:

    - `weight_dims`, a class variable, names the weights and their dimensions, which become the dimensions of a
      trajectory. By default they are named after the fields and their annotations.
    - `declared_form` says which formula gives the predictions. Other objectives compute the loss from the matrices of a
      model, without calling it: they take the classes of this package, and classes which declare, in their own body,
      that a formula gives their predictions (see `_forms.py`), which is compared with `__call__` when training starts.
    - `effective_map()`, with `declared_form = "linear"`: the predictions are $\beta^\top A x_q$, which `Population` and
      `Moments` with cubic features take.
    - `head_maps()` beside it: the part of each head in that map, which the probe `winners` reads.
    - `theory`, with a static method `theory_weights` for attention: the reduced equations that training follows. A
      class of the form "separate" has it by that.

    **Example:**

    Linear attention with a gate:

    >>> class Gated(sw.models.AbstractModel):
    ...     scores: jnp.ndarray
    ...     gate: jnp.ndarray
    ...     def __init__(self, dim):
    ...         self.scores, self.gate = 0.1 * jnp.eye(dim), jnp.zeros(())
    ...     def __call__(self, tokens):
    ...         x, y = tokens[:, :-1], tokens[:-1, -1:]
    ...         attention = x[:-1] @ self.scores @ x[-1] / y.shape[0]
    ...         return jnp.tanh(1.0 + self.gate) * attention @ y
    >>> Gated(2).weight_dims
    {'scores': ('scores_0', 'scores_1'), 'gate': ()}
    """

    declared_form: ClassVar[Form | None] = None
    theory: ClassVar[Theory | None] = None

    @abc.abstractmethod
    def __call__(self, example: Any) -> Float[Array, " outputs"]:
        """The prediction for one example: a sequence of tokens, or a vector of cubic features, as the class reads."""

    @property
    def weight_dims(self) -> dict[str, tuple[str, ...]]:
        """The names of the weights, and of the dimensions of each; a class variable in classes that choose them."""
        return default_dims(self)

    @checked
    def predict(
        self,
        inputs: Float[Array, "*prompts pairs dim"],
        labels: Float[Array, "..."],
        query: Float[Array, "*prompts dim"],
    ) -> Float[Array, "..."]:
        """Return the prediction for one prompt, or each of a batch: pairs of input and label, and a query.

        **Arguments:**

        - `inputs`: the inputs of the context, (pairs, dim), or (prompts, pairs, dim).
        - `labels`: their labels, (pairs,) or (pairs, outputs), with prompts in front if the inputs have.
        - `query`: the input that is asked about, (dim,), or (prompts, dim).

        **Returns:** the predictions, with as many axes as `labels` without that of pairs: for one prompt with labels
        (pairs,) a number.
        """
        if inputs.ndim not in (2, 3):
            raise InvalidInput(
                f"inputs have shape {inputs.shape}; give (pairs, dim) for one prompt, or (prompts, pairs, dim)"
            )
        pairs = inputs.shape[:-1]
        if labels.shape[: len(pairs)] != pairs or labels.ndim > len(pairs) + 1:
            raise InvalidInput(
                f"labels have shape {labels.shape} beside inputs of shape {inputs.shape}; give one label for each "
                f"input, {pairs}, or several, {(*pairs, 'outputs')}"
            )
        single = labels.ndim == len(pairs)
        shown = labels[..., None] if single else labels
        last = jnp.concatenate([query, jnp.zeros((*query.shape[:-1], shown.shape[-1]))], axis=-1)
        tokens = jnp.concatenate([jnp.concatenate([inputs, shown], axis=-1), last[..., None, :]], axis=-2)
        try:
            predictions = (jax.vmap(self) if tokens.ndim == 3 else self)(tokens)
        except InvalidInput:
            raise
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"{type(self).__name__} does not take {tokens.shape[-2]} tokens of width {tokens.shape[-1]}, for "
                f"inputs of dimension {inputs.shape[-1]} with {shown.shape[-1]} labels ({str(error).splitlines()[0]})"
            ) from None
        return predictions[..., 0] if single else predictions

    def __repr__(self) -> str:
        return text.one_line(self, self._facts())

    def _repr_html_(self) -> str:
        return text.html_table(self, self._facts())

    def _facts(self) -> dict[str, Any]:
        """The shape of each weight, and the settings."""
        shapes = {name: getattr(weight, "shape", None) for name, weight in self.weights().items()}
        sized = {
            name: "×".join(f"{size} {dim}" for size, dim in zip(shape, self.weight_dims[name], strict=True))
            if shape is not None and len(shape) == len(self.weight_dims[name])
            else shape
            for name, shape in shapes.items()
        }
        return {**sized, **text.plain_fields(self, but=tuple(self.weight_dims))}

    def weights(self) -> dict[str, Any]:
        """Return the weights of the model by name, in the order of `weight_dims`."""
        return {name: weight_at(self, name) for name in self.weight_dims}

    @checked
    def with_weights(self: Self, weights: dict[str, Any]) -> Self:
        """Return the same model with other weights: an array for each name in `weight_dims`, of its own's shape."""
        names = tuple(self.weight_dims)
        if set(weights) != set(names):
            raise InvalidInput(f"weights {sorted(weights)} were given; {type(self).__name__} has {sorted(names)}")
        new = tuple(jnp.asarray(weights[name]) for name in names)
        for name, value in zip(names, new, strict=True):
            if value.shape != weight_at(self, name).shape:
                raise InvalidInput(f"{name} has shape {value.shape}; this model's has {weight_at(self, name).shape}")
        return eqx.tree_at(lambda model: tuple(weight_at(model, name) for name in names), self, new)

    @checked
    @remembered
    def scaled(self: Self, factor: float) -> Self:
        """Return the same model with every weight multiplied by a number."""
        return self.with_weights({name: factor * value for name, value in self.weights().items()})


class AbstractCubicModel(AbstractModel):
    r"""A model with an *effective map*: linear, and with its label blocks at zero, it predicts

    $\hat y_o = \sum_p \beta_p^\top A_{op} x_q, \quad \beta_p = s_N \sum_n y_{n,p} x_n$

    from the cubic features $\beta_p x_q^\top$ alone.

    `factors` is the number of weights multiplied together in a prediction: 2 for merged, 3 for separate; it sets how
    weights and time change with the attention normalization.
    """

    factors: eqx.AbstractClassVar[int]

    @abc.abstractmethod
    def effective_map(self) -> Float[Array, "outputs labels dim dim"]:
        """Return the effective map $A_{op}$, with p in `labels`."""

    @abc.abstractmethod
    def label_blocks(self) -> list[Array]:
        """Return the weights that must be zero for the effective map to give the predictions; often none."""

    @abc.abstractmethod
    def map_rank(self) -> int | None:
        """Return the highest rank r such that every map of rank r, the same for each output, is possible.

        None where not even rank one can, or where it is not known.
        """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """(outputs, dim)."""


@runtime_checkable
class _Mapped(Protocol):
    def effective_map(self) -> Array: ...


@runtime_checkable
class _Headed(Protocol):
    def head_maps(self) -> Float[Array, "head outputs labels dim dim"]: ...


def declared_map(model: AbstractModel) -> Array:
    """The effective map that the class of a model has, of any shape; `InvalidInput` where it has none."""
    if isinstance(model, _Mapped):
        return model.effective_map()
    raise InvalidInput(
        f"{type(model).__name__} declares no effective map; measure it by models.effective_map(model, batch), or write "
        "effective_map(self) in the class, with declared_form = 'linear'"
    )


@checked
def head_maps(model: AbstractModel) -> Float[Array, "head outputs labels dim dim"]:
    r"""Return the effective map of each head of a model whose class declares heads.

    **Arguments:**

    - `model`: a model whose class has a method `head_maps`, such as any attention of this package.

    **Returns:** $A_{h,op}$; the sum over heads is the effective map. A class that declares none raises `InvalidInput`.

    **Example:**

    >>> sw.models.head_maps(sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=2.0)).shape
    (2, 1, 1, 2, 2)
    """
    if isinstance(model, _Headed):
        return model.head_maps()
    raise InvalidInput(
        f"{type(model).__name__} declares no heads; write head_maps(self) in the class, which returns the effective "
        "map of each head, (heads, outputs, outputs, dim, dim), beside effective_map(self), their sum"
    )
