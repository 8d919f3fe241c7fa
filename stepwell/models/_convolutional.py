"""Rank-one separate attention as a convolution over cubic features."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._util.arguments import check_fields, checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import remembered

from ._model import AbstractCubicModel, Form
from ._separate import SeparateAttention


class ConvolutionalAttention(AbstractCubicModel):
    r"""Separate attention of rank one and one output, written as a convolution over cubic features.

    $\hat y = \sum_i v_i\, q_i^\top K_i z$, $K_i = I_D \otimes k_i^\top$: kernel $k_i$ of width D, with stride D.

    z lists the columns of $\beta x_q^\top$ one after another, so each position of the kernel meets one
    $\beta\, x_{q,d}$. Cubic features come row by row (`Batch.cubic_features`), and are reordered here.

    **Arguments:**

    - `value`: $v_i$, (heads,).
    - `key`: the kernels $k_i$, (heads, dim).
    - `query`: $q_i$, (heads, dim).

    **Example:**

    The effective map of one head is $v k q^\top$:

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> value, key, query = jnp.array([3.0]), jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])
    >>> sw.models.ConvolutionalAttention(value, key, query).effective_map()[0, 0].tolist()
    [[0.0, 3.0], [0.0, 0.0]]
    """

    value: Float[Array, " head"]
    key: Float[Array, "head dim"]
    query: Float[Array, "head dim"]

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": ("head",),
        "key": ("head", "dim"),
        "query": ("head", "dim"),
    }
    factors: ClassVar[int] = 3
    declared_form: ClassVar[Form] = "cubic"

    def __check_init__(self):
        check_fields(self)

    @classmethod
    @checked
    @remembered
    def from_separate(cls, model: SeparateAttention) -> "ConvolutionalAttention":
        """The convolutional form of a separate attention.

        **Arguments:**

        - `model`: an attention of rank one with one output. Its label blocks are left out.

        **Returns:** the model with the same effective map.
        """
        if model.value.shape[1] != 1 or model.key.shape[1] != 1:
            raise InvalidInput(
                f"the attention has {model.value.shape[1]} outputs and rank {model.key.shape[1]}; "
                "the convolutional form is for one output and rank one"
            )
        dim = model.dim
        return cls(model.value[:, 0, dim], model.key[:, 0, :dim], model.query[:, 0])

    @checked
    def __call__(self, example: Float[Array, " features"]) -> Float[Array, " outputs"]:
        dim = self.key.shape[1]
        if example.shape[0] != dim * dim:
            raise InvalidInput(f"example has {example.shape[0]} features; in dimension {dim} it must have {dim * dim}")
        stops = example.reshape(dim, dim).T
        responses = stops @ self.key.T
        return jnp.einsum("h,hd,dh->", self.value, self.query, responses)[None]

    def head_maps(self) -> Float[Array, "head outputs labels dim dim"]:
        return jnp.einsum("h,hi,hj->hij", self.value, self.key, self.query)[:, None, None]

    def effective_map(self) -> Float[Array, "outputs labels dim dim"]:
        return jnp.einsum("h,hi,hj->ij", self.value, self.key, self.query)[None, None]

    def label_blocks(self) -> list[Array]:
        return []

    def map_rank(self) -> int | None:
        return min(self.key.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return 1, self.key.shape[1]
