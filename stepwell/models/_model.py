"""The contracts of everything that is trained."""

import abc
from typing import Any, ClassVar, Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._arguments import checked
from stepwell._errors import InvalidInput

from ._weight_names import default_dims, weight_at

Self = TypeVar("Self", bound="AbstractModel")
Form = Literal["linear", "cubic", "attention", "separate", "spectral"]
"""Which formula gives a model's answers; `_forms.py` says what each means."""


class AbstractModel(eqx.Module):
    r"""The base of every model: write `__init__` and `__call__`, and it can be trained.

    A model acts on one example; `jax.vmap` makes the batch. Its arrays are its weights, those of layers inside it
    included; what is to stay constant is a number, a tuple, or a static field.

    A model that reads tokens gets one sequence (tokens, dim + outputs) at a time, the query last with its label zero,
    and answers with a vector of outputs: that is all that `Sampled` and `online` ask for.

    Everything else is optional:

    - `weight_dims`, a class variable, names the weights and their dimensions, which become the dimensions of a
      trajectory. By default they are named after the fields and their annotations.
    - `declared_form` says which formula gives the answers. Other objectives compute the loss from the matrices of a
      model, without calling it: they take the classes of this package, and classes which declare, in their own body,
      that a formula gives their answers (see `_forms.py`), which is compared with `__call__` when training starts.
    - `effective_map()`, with `declared_form = "linear"`: the answers are $\beta^\top A x_q$, which `Population` and
      `Moments` with cubic features take.

    **Example:**

    Linear attention with a gate:

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
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

    @abc.abstractmethod
    def __call__(self, example: Any) -> Float[Array, " outputs"]:
        """The prediction for one example.

        **Arguments:**

        - `example`: one sequence of tokens, or one vector of cubic features, as the class reads them.

        **Returns:** the answer, a vector (outputs,).
        """

    @property
    def weight_dims(self) -> dict[str, tuple[str, ...]]:
        """The names of the weights, and of the dimensions of each; a class variable in classes that choose them."""
        return default_dims(self)

    def effective_map(self) -> Float[Array, "outputs labels dim dim"]:
        r"""The map A of the answers, $\hat y_o = \sum_p \beta_p^\top A_{op} x_q$, where the class declares one.

        **Returns:** $A_{op}$. A class that declares none raises `InvalidInput`.
        """
        raise InvalidInput(
            f"{type(self).__name__} declares no effective map; measure it by models.effective_map(model, batch), or "
            "write effective_map(self) in the class, with declared_form = 'linear'"
        )

    def label_blocks(self) -> list[Array]:
        """The weights that must be zero for the effective map to be all of the model: none by default."""
        return []

    def map_rank(self) -> int | None:
        """The highest rank r such that every map of rank r can be had, None where it is not known."""
        return None

    def weights(self) -> dict[str, Any]:
        """The weights of the model.

        **Returns:** the arrays by name, in the order of `weight_dims`.
        """
        return {name: weight_at(self, name) for name in self.weight_dims}

    @checked
    def with_weights(self: Self, weights: dict[str, Any]) -> Self:
        """The same model with other weights.

        **Arguments:**

        - `weights`: an array for each name in `weight_dims`, of the shape that the model's own has.

        **Returns:** the new model.
        """
        names = tuple(self.weight_dims)
        if set(weights) != set(names):
            raise InvalidInput(f"weights {sorted(weights)} were given; {type(self).__name__} has {sorted(names)}")
        new = tuple(jnp.asarray(weights[name]) for name in names)
        for name, value in zip(names, new, strict=True):
            if value.shape != weight_at(self, name).shape:
                raise InvalidInput(f"{name} has shape {value.shape}; this model's has {weight_at(self, name).shape}")
        return eqx.tree_at(lambda model: tuple(weight_at(model, name) for name in names), self, new)

    @checked
    def scaled(self: Self, factor: float) -> Self:
        """The same model with every weight multiplied by a number.

        **Arguments:**

        - `factor`: the number.

        **Returns:** the new model.
        """
        return self.with_weights({name: factor * value for name, value in self.weights().items()})


class AbstractCubicModel(AbstractModel):
    r"""A model with an *effective map*: linear, and with its label blocks at zero, it predicts

    $\hat y_o = \sum_p \beta_p^\top A_{op} x_q, \quad \beta_p = s_N \sum_n y_{n,p} x_n$

    from the cubic features $\beta_p x_q^\top$ alone.

    `factors` is the number of weights multiplied together in a prediction: 2 for merged, 3 for separate; it sets how
    weights and time change with the attention normalisation.
    """

    factors: eqx.AbstractClassVar[int]

    @abc.abstractmethod
    def effective_map(self) -> Float[Array, "outputs labels dim dim"]:
        """$A_{op}$, with p in `labels`."""

    @abc.abstractmethod
    def label_blocks(self) -> list[Array]:
        """The weights that must be zero for that: none where there are no others."""

    @abc.abstractmethod
    def map_rank(self) -> int | None:
        """The highest rank r such that every map of rank r, the same for each output and mixing none, can be had.

        None where not even rank one can, or where it is not known.
        """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """(outputs, dim)."""
