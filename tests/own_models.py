"""Models that the package did not write, as a user of it might: honest, mistaken, and new from the ground up."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell.models import AbstractModel, Form, MergedAttention, MultiHeadAttention, SeparateAttention


def attend(model, tokens):
    """Attention by hand: from weights as `SeparateAttention` has them, to the last token, whose label is zero."""
    scores = jnp.einsum("tw,hrw,hrd,d->ht", tokens, model.key, model.query, tokens[-1, : model.query.shape[-1]])
    attention = jax.nn.softmax(scores) if model.activation == "softmax" else scores / (tokens.shape[0] - 1)
    return jnp.einsum("how,ht,tw->o", model.value, attention, tokens)


class Silent(SeparateAttention):
    """Has all that `SeparateAttention` has, and answers nothing."""

    def __call__(self, example, length=None):
        return jnp.zeros(self.value.shape[1])


class SilentHeads(MultiHeadAttention):
    """The same of another class."""

    def __call__(self, example, length=None):
        return jnp.zeros(self.output.shape[1])


class Doubled(SeparateAttention):
    """Twice the answer."""

    def __call__(self, example, length=None):
        return 2 * attend(self, example)


class Unchanged(SeparateAttention):
    """Nothing is different, and nothing is said about that."""


class Truthful(SeparateAttention):
    """Computes the same in its own way, and says so."""

    declared_form: ClassVar[Form] = "separate"

    def __call__(self, example, length=None):
        return attend(self, example)


class Bounded(SeparateAttention):
    """Attention by the formula of all, but not by that of `SeparateAttention`: bounded keys, and heads that meet."""

    declared_form: ClassVar[Form] = "attention"

    def _keys(self):
        return jnp.tanh(self.key) + 0.1 * jnp.mean(self.key, axis=0)

    def bilinear(self):
        return jnp.einsum("hrw,hrd->hwd", self._keys(), self.query)

    def directions(self, query):
        return jnp.einsum("hrw,hr->hw", self._keys(), self.query @ query)


class Heir(Truthful):
    """A declaration is not inherited."""

    def __call__(self, example, length=None):
        return jnp.zeros(self.value.shape[1])


class FalselySilent(SeparateAttention):
    declared_form: ClassVar[Form] = "separate"

    def __call__(self, example, length=None):
        return jnp.zeros(self.value.shape[1])


class Windowed(SeparateAttention):
    """Sees the last few tokens only: the formula in short contexts."""

    declared_form: ClassVar[Form] = "separate"

    def __call__(self, example, length=None):
        place = jnp.arange(example.shape[0])[:, None]
        return attend(self, jnp.where(place >= example.shape[0] - 9, example, 0.0))


class Clipped(SeparateAttention):
    """The formula while answers are small, as they are when training starts."""

    declared_form: ClassVar[Form] = "separate"

    def __call__(self, example, length=None):
        return jnp.clip(attend(self, example), -0.5, 0.5)


class GatedAttention(MergedAttention):
    """The formula while its gate is zero, as it is when training starts."""

    gate: Float[Array, " output"]
    declared_form: ClassVar[Form] = "attention"
    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = MergedAttention.weight_dims | {"gate": ("output",)}

    def __init__(self, value, key_query, gate, **options):
        super().__init__(value, key_query, **options)
        self.gate = jnp.asarray(gate)

    def __call__(self, example, length=None):
        return super().__call__(example) + self.gate * jnp.mean(example[:, -1])


class OtherReadout(MergedAttention):
    """`readout` is not what `__call__` reads by."""

    declared_form: ClassVar[Form] = "attention"

    def readout(self):
        return 2 * self.value

    def __call__(self, example, length=None):
        return MergedAttention(self.value, self.key_query, activation=self.activation)(example)


class OtherDirections(MergedAttention):
    """`directions`, which the formula of the base class reads, are not those of `bilinear`."""

    declared_form: ClassVar[Form] = "attention"

    def directions(self, query):
        return jnp.tanh(self.key_query @ query)


class OtherMap(MergedAttention):
    """`effective_map` is not what the readout and the scores make."""

    declared_form: ClassVar[Form] = "attention"

    def effective_map(self):
        return 0.5 * super().effective_map()


class OtherBlocks(MergedAttention):
    """`label_blocks` leaves them out, so that a loss without them would be taken for that of the model."""

    declared_form: ClassVar[Form] = "attention"

    def label_blocks(self):
        return []


class GatedKeys(AbstractModel):
    r"""A model from the ground up: linear attention with keys of unit length and a gate a head,

    $\hat y = \sum_h g_h v_h \sum_n y_n \hat k_{hn} \cdot x_q / N$, $\hat k_{hn} = K_h x_n/|K_h x_n|$, $g = \sigma(a)$.

    `floor`, a constant, keeps the length from zero.
    """

    key: Float[Array, "head dim dim"]
    value: Float[Array, " head"]
    gate: Float[Array, " head"]
    floor: float
    outputs: int = eqx.field(static=True)

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "value": ("head",),
        "gate": ("head",),
        "key": ("head", "key_dim", "dim"),
    }
    factors: ClassVar[int] = 2

    def __init__(self, key, value, gate, outputs=1):
        self.key, self.value, self.gate = jnp.asarray(key), jnp.asarray(value), jnp.asarray(gate)
        self.floor = 1e-3
        self.outputs = outputs

    @classmethod
    def random(cls, *, dim, heads, scale, outputs=1, key):
        shapes = (heads, dim, dim), (heads,), (heads,)
        keys = jax.random.split(key, 3)
        weights = [scale * jax.random.normal(k, shape) for k, shape in zip(keys, shapes, strict=True)]
        return cls(weights[0], weights[1], weights[2], outputs)

    def __call__(self, example):
        dim = self.key.shape[-1]
        context, query = example[:-1], example[-1, :dim]
        keys = jnp.einsum("hij,nj->hni", self.key, context[:, :dim])
        keys = keys / jnp.sqrt(jnp.sum(keys**2, axis=-1, keepdims=True) + self.floor)
        weights = jax.nn.sigmoid(self.gate) * self.value
        return jnp.einsum("h,hni,i,no->o", weights, keys, query, context[:, dim:]) / context.shape[0]
