r"""Linear networks of three layers, a model of this figure's own, and what they do while all weights are small.

Then $\dot W_1 = W_2^\top W_3^\top S$, $\dot W_2 = W_3^\top S W_1^\top$, $\dot W_3 = S W_1^\top W_2^\top$ with
$S = E[y x^\top]$: of degree two, so that from weights of size ε the flow is ε times that from size one, and slower by
1/ε. It becomes infinite after a time T/ε, along one direction of each layer.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate
from jaxtyping import Array, Float

from stepwell.models import AbstractModel

STEP = 0.1
"""Of the time in which the fastest layer grows by a factor of e."""
LARGEST = 1e4  # Layers of this size, from ones of order one, are along one direction.
_MOST = 20_000  # steps


class DeepLinear(AbstractModel):
    """f(x) = W₃ W₂ W₁ x."""

    first: Float[Array, "unit dim"]
    second: Float[Array, "next unit"]
    third: Float[Array, "output next"]

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, " output"]:
        return self.third @ (self.second @ (self.first @ x))

    @classmethod
    def random(cls, *, dim: int, units: int, scale: float, key: Any) -> "DeepLinear":
        """Gaussian weights of the deviation `scale`."""
        shapes = (units, dim), (units, units), (dim, units)
        keys = jax.random.split(key, 3)
        return cls(*(scale * jax.random.normal(one, shape) for one, shape in zip(keys, shapes, strict=True)))


def singular_values(model: DeepLinear) -> Float[Array, " mode"]:
    """Of the map."""
    return jnp.linalg.svd(model.third @ model.second @ model.first, compute_uv=False)


def blow_up(layers: list[Float[np.ndarray, "network out in"]], cross: Float[np.ndarray, "output input"]) -> np.ndarray:
    """When small weights become infinite, for each of several networks: integrated, and then as of one mode."""
    strength = np.linalg.norm(cross, 2)
    state, time = list(layers), np.zeros(len(layers[0]))

    def velocity(at: list[np.ndarray]) -> list[np.ndarray]:
        one, two, three = (part.swapaxes(1, 2) for part in at)
        return [two @ three @ cross, three @ cross @ one, cross @ one @ two]

    def moved(by: list[np.ndarray], h: np.ndarray) -> list[np.ndarray]:
        return [part + h[:, None, None] * each for part, each in zip(state, by, strict=True)]

    def sizes(of: list[np.ndarray]) -> np.ndarray:
        return np.array([np.linalg.norm(part, axis=(1, 2)) for part in of])

    for _ in range(_MOST):
        a = velocity(state)
        size = sizes(state)
        h = np.where(size.min(axis=0) < LARGEST, STEP / (sizes(a) / size).max(axis=0), 0.0)
        if not h.any():
            break
        b = velocity(moved(a, h / 2))
        c = velocity(moved(b, h / 2))
        d = velocity(moved(c, h))
        state = moved([(p + 2 * q + 2 * r + s) / 6 for p, q, r, s in zip(a, b, c, d, strict=True)], h)
        time += h
    # The layers' product grows by dw/dt = s w² from here on.
    least = sizes(state).min(axis=0)
    return np.where(least >= LARGEST, time + 1 / (strength * least), np.inf)


def after_blow_up(strength: float) -> float:
    r"""How much later than the blow-up of small weights the loss of one mode is halfway down.

    Each layer has the entry w with $\dot w = w^2 (s - w^3)$, and the loss is halfway at $w^3 = s (1 - 1/\sqrt2)$:
    $\int_0^{w} (1/(w^2(s - w^3)) - 1/(s w^2))\, dw - 1/(s w)$.
    """
    half = (strength * (1 - np.sqrt(0.5))) ** (1 / 3)
    found: Any = scipy.integrate.quad(lambda w: w / (strength * (strength - w**3)), 0.0, half)
    return float(found[0]) - 1 / (strength * half)
