"""Networks that linear attention is equal to: a convolution, and an MLP on cubic features."""

from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import check_fields, checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import remembered
from stepwell._util.types import RandomKey

from ._initialization import check_scale, gaussians
from ._merged import MergedAttention
from ._model import AbstractCubicModel, Form, Theory
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
        """Return the convolutional form of a separate attention of rank one with one output, label blocks left out."""
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


class CubicMLP(AbstractCubicModel):
    r"""MLP(z): $\hat y = W_2 W_1 z$ on cubic features $z = \mathrm{vec}(\beta x_q^\top)$ (see `Batch.cubic_features`).

    With one output, readout $w_2 = (v_i)$ and the rows of the hidden layer $\mathrm{vec}(U_i)$, it is ATTN_M with its
    label blocks held at zero, for any initialization and any optimizer.

    **Arguments:**

    - `readout`: $W_2$, (outputs, heads).
    - `hidden`: $W_1$, (heads, outputs · dim²), in the order of the cubic features.

    **Example:**

    >>> network = sw.models.CubicMLP(readout=jnp.array([[2.0]]), hidden=jnp.array([[1.0, 0.0, 0.0, 1.0]]))
    >>> network.effective_map()[0, 0].tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """

    readout: Float[Array, "outputs head"]
    hidden: Float[Array, "head features"]

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {"readout": ("output", "head"), "hidden": ("head", "feature")}
    factors: ClassVar[int] = 2
    declared_form: ClassVar[Form] = "cubic"
    theory: ClassVar[Theory] = "merged"

    @checked
    def __init__(self, readout: Float[Array, "outputs head"], hidden: Float[Array, "head features"]):
        self.readout = jnp.asarray(readout)
        self.hidden = jnp.asarray(hidden)
        outputs, heads = self.readout.shape
        features = self.hidden.shape[1]
        dim = round((features / outputs) ** 0.5)
        if self.hidden.shape[0] != heads or outputs * dim * dim != features:
            raise InvalidInput(
                f"readout has shape {self.readout.shape}, hidden {self.hidden.shape}; they must be "
                "(outputs, heads) and (heads, outputs * dim * dim)"
            )

    @classmethod
    @checked
    @remembered
    def random(cls, *, dim: int, heads: int, scale: float, outputs: int = 1, key: RandomKey) -> "CubicMLP":
        """Return a network with Gaussian weights.

        **Arguments:**

        - `dim`: the dimension of an input x; the network has outputs · dim² features.
        - `heads`: the number of hidden units, which are the heads of the equal merged attention.
        - `scale`: the standard deviation of every weight.
        - `outputs`: the number of labels of a token.
        - `key`: a JAX random key.
        """
        dim, heads, outputs = checks.whole("dim", dim), checks.whole("heads", heads), checks.whole("outputs", outputs)
        spread = check_scale(scale)
        return cls(*gaussians(((outputs, heads), (heads, outputs * dim * dim)), (spread, spread), key=key))

    @classmethod
    @checked
    @remembered
    def from_merged(cls, model: MergedAttention) -> "CubicMLP":
        """Return the network with the effective map of a merged attention with one output, label blocks left out."""
        if model.value.shape[1] != 1:
            raise InvalidInput(
                f"the merged attention has {model.value.shape[1]} outputs; the network equals it for one output only"
            )
        heads, dim = model.value.shape[0], model.dim
        return cls(model.value[:, 0, dim:].T, model.key_query[:, :dim].reshape(heads, -1))

    @staticmethod
    def theory_weights(weights: dict[str, Any]) -> dict[str, Any]:
        """Return `values` $v_i$ and `key_queries` $U_i$ of the equal merged attention, in the reduced equations of the
        theory, for the last output, from weights with any leading axes, as of time."""
        readout, hidden = weights["readout"], weights["hidden"]
        outputs = readout.shape[-2]
        dim = round((hidden.shape[-1] / outputs) ** 0.5)
        blocks = hidden.reshape(*hidden.shape[:-1], outputs, dim, dim)
        return {"values": readout[..., -1, :], "key_queries": blocks[..., -1, :, :]}

    @property
    def shape(self) -> tuple[int, int]:
        outputs = self.readout.shape[0]
        return outputs, round((self.hidden.shape[1] / outputs) ** 0.5)

    @checked
    def __call__(self, example: Float[Array, " features"]) -> Float[Array, " outputs"]:
        if example.shape[0] != self.hidden.shape[1]:
            raise InvalidInput(f"example has {example.shape[0]} features; the network reads {self.hidden.shape[1]}")
        return self.readout @ (self.hidden @ example)

    def head_maps(self) -> Float[Array, "head outputs labels dim dim"]:
        outputs, dim = self.shape
        return jnp.einsum("oh,hf->hof", self.readout, self.hidden).reshape(-1, outputs, outputs, dim, dim)

    def effective_map(self) -> Float[Array, "outputs labels dim dim"]:
        outputs, dim = self.shape
        return (self.readout @ self.hidden).reshape(outputs, outputs, dim, dim)

    def label_blocks(self) -> list[Array]:
        return []

    def map_rank(self) -> int | None:
        outputs, dim = self.shape
        return dim if self.readout.shape[1] >= outputs else None
