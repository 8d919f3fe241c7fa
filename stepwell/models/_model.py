"""The contracts of everything that is trained."""

import abc
from typing import Any, ClassVar, Literal, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._arguments import checked
from stepwell._errors import InvalidInput

Self = TypeVar("Self", bound="AbstractModel")
Form = Literal["cubic", "attention", "separate", "spectral"]
"""Which formula gives a model's answers; `_forms.py` says what each means."""


class AbstractModel(eqx.Module):
    """A model acts on one example; `jax.vmap` makes the batch. Its array fields are its weights.

    `weight_dims` names the weights and their dimensions, which become the dimensions of a trajectory. `factors` is the
    number of weights multiplied together in a prediction of the linear model: 2 for merged, 3 for separate; it sets how
    weights and time change with the attention normalisation.

    A model that reads tokens gets one sequence (tokens, dim + outputs) at a time, the query last with its label zero,
    and answers with a vector of outputs: that is all that `Sampled` and `online` ask for. Other objectives compute the
    loss from the matrices of a model, without calling it. They take the classes of this package, and classes which
    declare by `declared_form`, in their own body, that a formula gives their answers (see `_forms.py`).
    """

    weight_dims: eqx.AbstractClassVar[dict[str, tuple[str, ...]]]
    factors: eqx.AbstractClassVar[int]
    declared_form: ClassVar[Form | None] = None

    @abc.abstractmethod
    def __call__(self, example: Any) -> Float[Array, " outputs"]:
        """The prediction for one example.

        **Arguments:**

        - `example`: one sequence of tokens, or one vector of cubic features, as the class reads them.

        **Returns:** the answer, a vector (outputs,).
        """

    def weights(self) -> dict[str, Array]:
        """The weights of the model.

        **Returns:** the arrays by name, in the order of `weight_dims`.
        """
        return {name: getattr(self, name) for name in self.weight_dims}

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
            if value.shape != getattr(self, name).shape:
                raise InvalidInput(f"{name} has shape {value.shape}; this model's has {getattr(self, name).shape}")
        return eqx.tree_at(lambda model: tuple(getattr(model, name) for name in names), self, new)

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
    """

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
