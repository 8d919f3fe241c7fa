r"""The networks of units of which the figures ask the same: $f(x) = \sum_i \phi(x; u_i)\, v_i$, on random data.

The weights of all units are one array, a row $(v_i, u_i)$ for each. A unit with $v = 0$ is invisible to the others, so
that a network of three units has the gradients of a narrower one too.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float

from stepwell.models import (
    AbstractModel,
    AbstractUnits,
    ActivationUnits,
    Nonlinearity,
    PolynomialUnits,
    SeparateAttention,
)

UNITS = 3
"""At most, of which gradients are computed."""
EXAMPLES = 30
CONTEXT = 6
DIM = 3
STATIONARY = 1e-11
"""Largest entry of the gradient at a fixed point of a narrow network."""
_ROWS = 8  # points of which the gradients are computed in one call, so that each network is compiled once
_TEACHERS = 5
_CALLS = 1500  # of the gradient, after which the search is given up
_NEWTON = 12


class Sigmoid(AbstractUnits):
    """Units whose function is not zero for zero weights."""

    outer: Float[Array, "unit outputs patch"]
    inner: Float[Array, "unit kernel"]

    def activate(self, score: Float[Array, "..."]) -> Float[Array, "..."]:
        return jax.nn.sigmoid(score)

    @property
    def smooth(self) -> bool:
        return True


class Network(NamedTuple):
    r"""A network of units, by what the theory asks of $\phi$.

    - `outputs`, `patches`: of an input; a unit has an outer weight for each pair of them.
    - `inner`: the number of entries of u.
    - `build`: makes the model of outer and inner weights.
    - `order`: that in which $v\phi(x; u)$ is small with its weights, one above the lowest degree in u; 0 if there is
      no u with $\phi = 0$.
    - `degree`: that in which $\phi$ is homogeneous in u, or 0; for `positive` factors alone, perhaps.
    - `parity`: 1 if $\phi(-u) = \phi(u)$, -1 if it is $-\phi(u)$, 0 otherwise.
    """

    outputs: int
    patches: int
    inner: int
    build: Callable[[Array, Array], AbstractModel]
    order: int
    degree: int = 0
    positive: bool = False
    parity: int = 0

    @property
    def outer(self) -> int:
        return self.outputs * self.patches

    @property
    def linear(self) -> bool:
        """Whether $\\phi$ is linear in u."""
        return self.degree == 1 and not self.positive

    @property
    def smooth(self) -> bool:
        """Whether $\\phi$ has derivatives everywhere."""
        return not self.positive

    @property
    def size(self) -> int:
        return self.outer + self.inner

    def model(self, weights: Float[Array, "unit size"]) -> AbstractModel:
        return self.build(weights[:, : self.outer].reshape(-1, self.outputs, self.patches), weights[:, self.outer :])


def _power(degree: int) -> Callable[[Array, Array], AbstractModel]:
    return lambda outer, inner: PolynomialUnits(outer, inner, degree)


def _activation(name: Nonlinearity) -> Callable[[Array, Array], AbstractModel]:
    return lambda outer, inner: ActivationUnits(outer, inner, name)


def _attention(activation) -> Callable[[Array, Array], AbstractModel]:
    def build(outer: Array, inner: Array) -> AbstractModel:
        value = jnp.pad(outer, ((0, 0), (0, 0), (DIM, 0)))
        key, query = jnp.pad(inner[:, None, :DIM], ((0, 0), (0, 0), (0, 1))), inner[:, None, DIM:]
        return SeparateAttention(value, key, query, activation=activation)

    return build


NETWORKS = {
    "linear": Network(3, 1, DIM, _power(1), 2, degree=1, parity=-1),
    "convolutional": Network(2, 2, DIM, _power(1), 2, degree=1, parity=-1),
    "ReLU": Network(3, 1, DIM, _activation("relu"), 2, degree=1, positive=True),
    "conv. ReLU": Network(2, 2, DIM, _activation("relu"), 2, degree=1, positive=True),
    "tanh": Network(3, 1, DIM, _activation("tanh"), 2, parity=-1),
    "sigmoid": Network(3, 1, DIM, Sigmoid, 0),
    "x tanh x": Network(3, 1, DIM, _activation("x-tanh"), 3, parity=1),
    "quadratic": Network(3, 1, DIM, _power(2), 3, degree=2, parity=1),
    "cubic": Network(3, 1, DIM, _power(3), 4, degree=3, parity=-1),
    "attention": Network(1, 1, 2 * DIM, _attention("linear"), 3, degree=2, parity=1),
    "softmax": Network(1, 1, 2 * DIM, _attention("softmax"), 0, parity=1),
}


def random_weights(network: Network, units: int, rng: np.random.Generator) -> Float[np.ndarray, "unit size"]:
    """Gaussian, of deviation 1/√2."""
    return rng.normal(size=(units, network.size)) / np.sqrt(2)


Examples = tuple[Float[Array, "example ..."], Float[Array, "example outputs"]]
"""Inputs and labels."""


def random_data(name: str, rng: np.random.Generator) -> Examples:
    """Gaussian inputs, or tokens with the label of the query zero, labeled by a wider network of the same kind."""
    network = NETWORKS[name]
    if network.inner > DIM:
        x = rng.normal(size=(EXAMPLES, CONTEXT + 1, DIM + 1))
        x[:, -1, -1] = 0.0
    else:
        x = rng.normal(size=(EXAMPLES, network.inner * network.patches))
    teacher = network.model(jnp.asarray(random_weights(network, _TEACHERS, rng)))
    return jnp.asarray(x), jax.vmap(teacher)(jnp.asarray(x))


@functools.cache
def _compiled(name: str) -> Callable[..., tuple[Array, Array]]:
    def loss(weights: Array, examples: Examples) -> Array:
        x, y = examples
        return jnp.mean(jnp.sum((jax.vmap(NETWORKS[name].model(weights))(x) - y) ** 2, axis=-1))

    return jax.jit(jax.vmap(jax.value_and_grad(loss), (0, None)))


class Landscape:
    """The loss of a kind of network on random data, and its gradient."""

    def __init__(self, name: str, rng: np.random.Generator):
        self.network, self._of, self.examples = NETWORKS[name], _compiled(name), random_data(name, rng)

    def __call__(
        self, weights: Float[np.ndarray, "point unit size"]
    ) -> tuple[Float[np.ndarray, " point"], Float[np.ndarray, "point unit size"]]:
        """Loss and gradient at each of some points, with up to three units."""
        points, units, size = weights.shape
        losses, gradients = np.empty(points), np.empty(weights.shape)
        for first in range(0, points, _ROWS):
            part = weights[first : first + _ROWS]
            padded = np.zeros((_ROWS, UNITS, size))
            padded[: len(part), :units] = part
            loss, gradient = self._of(padded, self.examples)
            losses[first : first + _ROWS] = np.asarray(loss)[: len(part)]
            gradients[first : first + _ROWS] = np.asarray(gradient)[: len(part), :units]
        return losses, gradients

    def hessian(self, weights: Float[np.ndarray, "unit size"], step: float = 1e-5) -> Float[np.ndarray, "entry entry"]:
        """Central differences of the gradient."""
        moves = step * np.eye(weights.size).reshape(-1, *weights.shape)
        _, gradients = self(np.concatenate([weights + moves, weights - moves]))
        ahead, behind = gradients.reshape(2, weights.size, -1)
        rows = (ahead - behind) / (2 * step)
        return (rows + rows.T) / 2

    def narrow_point(self, rng: np.random.Generator) -> Float[np.ndarray, "unit size"] | None:
        """A fixed point of two units, both in use; None if none is found.

        It is where a minimization ends, refined by Newton's method. With kinks, many end at one of them.
        """
        calls = 0
        while calls < _CALLS:
            start = random_weights(self.network, UNITS - 1, rng)
            options = {"maxiter": 200}
            found = scipy.optimize.minimize(self._flat, start.ravel(), jac=True, method="BFGS", options=options)
            calls += found.nfev
            weights = found.x.reshape(start.shape)
            for _ in range(_NEWTON):
                gradient = self(weights[None])[1][0]
                if np.abs(gradient).max() <= STATIONARY and self._in_use(weights):
                    return weights
                inverse = np.linalg.pinv(self.hessian(weights), rcond=1e-8, hermitian=True)
                weights = weights - (inverse @ gradient.ravel()).reshape(weights.shape)
        return None

    def _in_use(self, weights: Float[np.ndarray, "unit size"]) -> bool:
        """Whether the loss is higher without any one of the units, as it is not without one that is dead."""
        fewer = np.array(
            [weights] + [np.where(np.arange(len(weights))[:, None] == i, 0.0, weights) for i in range(len(weights))]
        )
        losses = self(fewer)[0]
        return bool(np.all(losses[1:] > 1.01 * losses[0]))

    def _flat(self, weights: Float[np.ndarray, " entry"]) -> tuple[float, Float[np.ndarray, " entry"]]:
        losses, gradients = self(weights.reshape(1, UNITS - 1, -1))
        return float(losses[0]), gradients.ravel()
