"""Two-layer networks of units: a sum over units of a function of the input, each with a readout."""

import abc
from typing import ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import check_fields, checked
from stepwell._util.errors import InvalidInput
from stepwell._util.recipes import remembered
from stepwell._util.types import RandomKey
from stepwell.tasks import MOST_DEGREE

from ._initialization import check_scale, gaussians
from ._model import AbstractModel, Form, Theory

Nonlinearity = Literal["relu", "tanh", "x-tanh"]


class AbstractUnits(AbstractModel):
    r"""A network of units, $f(x) = \sum_i \sum_p v_{ip}\, \phi(u_i^\top x_p)$.

    The input x is one patch, or several of equal size one after another, which all units read with the same inner
    weights $u_i$ (a convolution whose stride is its width). Units that are alike, or whose weights are zero, stay so:
    flows follow the fixed points and invariant manifolds of narrower networks.
    """

    outer: eqx.AbstractVar[Float[Array, "unit outputs patch"]]
    inner: eqx.AbstractVar[Float[Array, "unit kernel"]]

    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "outer": ("unit", "output", "patch"),
        "inner": ("unit", "kernel"),
    }

    @abc.abstractmethod
    def activate(self, score: Float[Array, "..."]) -> Float[Array, "..."]:
        r"""Return $\phi$ of each number."""

    @property
    @abc.abstractmethod
    def smooth(self) -> bool:
        r"""Whether $\phi$ has a derivative everywhere."""

    @property
    def patches(self) -> int:
        """How many patches an input has."""
        return self.outer.shape[2]

    @property
    def dim(self) -> int:
        """The dimension of an input."""
        return self.patches * self.inner.shape[1]

    @property
    def outputs(self) -> int:
        """The number of labels of an input."""
        return self.outer.shape[1]

    @checked
    def __call__(self, example: Float[Array, " dim"]) -> Float[Array, " outputs"]:
        if example.shape[0] != self.dim:
            raise InvalidInput(f"example has {example.shape[0]} entries; the network reads {self.dim}")
        scores = self.inner @ example.reshape(self.patches, -1).T
        return jnp.einsum("iop,ip->o", self.outer, self.activate(scores))


def _drawn(dim: int, units: int, outputs: int, patches: int, scale: float, key: RandomKey) -> tuple[Array, Array]:
    """Gaussian outer and inner weights."""
    sizes = {"dim": dim, "units": units, "outputs": outputs, "patches": patches}
    dim, units, outputs, patches = (checks.whole(name, size) for name, size in sizes.items())
    if dim % patches:
        raise InvalidInput(f"an input of {dim} entries cannot be cut into {patches} patches of one size")
    spread = check_scale(scale)
    outer, inner = gaussians(((units, outputs, patches), (units, dim // patches)), (spread, spread), key=key)
    return outer, inner


class PolynomialUnits(AbstractUnits):
    r"""Units that are powers, $\phi(s) = s^n$: linear, quadratic and cubic networks, with patches convolutional ones.

    They are linear in features of the input (`tasks.polynomial_features`), with the coefficients
    $\sum_i v_{ip}\, u_i^{\otimes n}$.

    **Arguments:**

    - `outer`: $v_{ip}$, (units, outputs, patches).
    - `inner`: $u_i$, (units, dim / patches).
    - `degree`: n.

    **Example:**

    >>> network = sw.models.PolynomialUnits(jnp.array([[[2.0]]]), jnp.array([[1.0, 3.0]]), degree=2)
    >>> network(jnp.array([1.0, -1.0])).tolist(), network.coefficients().tolist()
    ([8.0], [[2.0, 6.0, 6.0, 18.0]])
    """

    outer: Float[Array, "unit outputs patch"]
    inner: Float[Array, "unit kernel"]
    degree: int = eqx.field(static=True, default=1)

    declared_form: ClassVar[Form] = "polynomial"
    theory: ClassVar[Theory] = "units"

    def __check_init__(self):
        check_fields(self)
        checks.whole("degree", self.degree, most=MOST_DEGREE)

    @classmethod
    @checked
    @remembered
    def random(
        cls,
        *,
        dim: int,
        units: int,
        degree: int = 1,
        outputs: int = 1,
        patches: int = 1,
        scale: float,
        key: RandomKey,
    ) -> "PolynomialUnits":
        """Return a network with Gaussian weights.

        **Arguments:**

        - `dim`: the dimension of an input.
        - `units`: the number of units.
        - `degree`: the power that a unit takes.
        - `outputs`: the number of labels of an input.
        - `patches`: the number of patches of an input, which divides `dim`.
        - `scale`: the standard deviation of every weight.
        - `key`: a JAX random key.
        """
        return cls(*_drawn(dim, units, outputs, patches, scale, key), degree)

    def activate(self, score: Float[Array, "..."]) -> Float[Array, "..."]:
        return score**self.degree

    @property
    def smooth(self) -> bool:
        return True

    def coefficients(self) -> Float[Array, "outputs features"]:
        """Return the coefficients of the polynomial features, of which the predictions are sums."""
        powers = self.inner
        for _ in range(self.degree - 1):
            powers = (powers[:, :, None] * self.inner[:, None, :]).reshape(len(powers), -1)
        return jnp.einsum("iop,if->opf", self.outer, powers).reshape(self.outputs, -1)


class ActivationUnits(AbstractUnits):
    r"""Units with a nonlinearity: $\max(s, 0)$ (relu), $\tanh s$ or $s \tanh s$ (x-tanh), with patches convolutional.

    **Arguments:**

    - `outer`: $v_{ip}$, (units, outputs, patches).
    - `inner`: $u_i$, (units, dim / patches).
    - `nonlinearity`: "relu", "tanh" or "x-tanh".

    **Example:**

    >>> network = sw.models.ActivationUnits(jnp.array([[[2.0]]]), jnp.array([[1.0, 3.0]]), "relu")
    >>> network(jnp.array([1.0, -1.0])).tolist(), network(jnp.array([-1.0, 1.0])).tolist()
    ([0.0], [4.0])
    """

    outer: Float[Array, "unit outputs patch"]
    inner: Float[Array, "unit kernel"]
    nonlinearity: Nonlinearity = eqx.field(static=True, default="relu")

    theory: ClassVar[Theory] = "units"

    def __check_init__(self):
        check_fields(self)
        checks.one_of("nonlinearity", self.nonlinearity, get_args(Nonlinearity))

    @classmethod
    @checked
    @remembered
    def random(
        cls,
        *,
        dim: int,
        units: int,
        nonlinearity: Nonlinearity = "relu",
        outputs: int = 1,
        patches: int = 1,
        scale: float,
        key: RandomKey,
    ) -> "ActivationUnits":
        """Return a network with Gaussian weights.

        **Arguments:**

        - `dim`: the dimension of an input.
        - `units`: the number of units.
        - `nonlinearity`: "relu", "tanh" or "x-tanh".
        - `outputs`: the number of labels of an input.
        - `patches`: the number of patches of an input, which divides `dim`.
        - `scale`: the standard deviation of every weight.
        - `key`: a JAX random key.
        """
        return cls(*_drawn(dim, units, outputs, patches, scale, key), nonlinearity)

    def activate(self, score: Float[Array, "..."]) -> Float[Array, "..."]:
        if self.nonlinearity == "relu":
            return jax.nn.relu(score)
        return jnp.tanh(score) if self.nonlinearity == "tanh" else score * jnp.tanh(score)

    @property
    def smooth(self) -> bool:
        return self.nonlinearity != "relu"
