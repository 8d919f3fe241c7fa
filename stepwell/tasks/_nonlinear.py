"""In-context regression on a nonlinear function of one direction."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.polynomial import hermite_e

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput

from ._abstract_task import assemble
from ._batch import Batch
from ._context_lengths import ContextLengths, as_lengths
from ._gaussian import AbstractGaussianTask, Inputs, Labels, Places, TaskVectors, Total

_DEGREE = 30
"""The highest of a link given by coefficients: beyond, powers of the argument cancel too many digits."""


class SingleIndexRegression(AbstractGaussianTask):
    r"""Sequences of pairs (x, y) with a nonlinear function of one direction of the input.

    $y_l = f(u \cdot x_l) + \varepsilon_l$, $x_l \sim \mathcal N(0, I)$, $|u| = 1$,
    $\varepsilon_l \sim \mathcal N(0, \sigma^2)$; the target $y_q = f(u \cdot x_q)$ has no noise.

    **Arguments:**

    - `dim`: the dimension of x.
    - `link`: f, as coefficients $c_0, c_1, …$ of $f = \sum_k c_k \mathrm{he}_k$ in normalized Hermite polynomials
      $\mathrm{he}_k = \mathrm{He}_k/\sqrt{k!}$ (so $\mathbb E f^2 = \sum_k c_k^2$), at most 31 of them; or a function
      that JAX can trace, which is applied to arrays elementwise.
    - `context`: the number N of context pairs, or a `ContextLengths` distribution.
    - `direction`: u, a unit vector, if it is the same in all sequences; by default it is drawn anew for each, uniformly
      from the sphere.
    - `noise_variance`: $\sigma^2$.

    **Example:**

    The second Hermite polynomial, $(t^2 - 1)/\sqrt2$, by its coefficients:

    >>> task = sw.tasks.SingleIndexRegression(5, link=(0.0, 0.0, 1.0), context=20)
    >>> np.round(np.asarray(task.response(jnp.array([0.0, 1.0, 2.0]))), 3).tolist()
    [-0.707, 0.0, 2.121]
    """

    dimension: int = eqx.field(static=True)
    link: tuple[float, ...] | Callable = eqx.field(static=True)
    direction: Float[np.ndarray, " dim"] | None
    noise_variance: float = eqx.field(static=True)
    context: ContextLengths
    outputs: int = eqx.field(static=True)
    centered: bool = eqx.field(static=True)
    whitened: bool = eqx.field(static=True)

    @checked
    def __init__(
        self,
        dim: int,
        link: Sequence[float] | Callable,
        context: int | ContextLengths = 100,
        *,
        direction: Any = None,
        noise_variance: float = 0.0,
    ):
        self.dimension = checks.whole("dim", dim)
        if callable(link):
            self.link = link
        else:
            self.link = tuple(checks.number("Hermite coefficient", c) for c in link)
            if not 1 <= len(self.link) <= _DEGREE + 1:
                raise InvalidInput(
                    f"link has {len(self.link)} coefficients; give 1 to {_DEGREE + 1}, those of he_0, he_1, …, for "
                    "instance (0, 1), or a function"
                )
        self.direction = None if direction is None else _unit(direction, self.dimension)
        self.noise_variance = checks.number("noise_variance", noise_variance, least=0.0)
        self.context = as_lengths(context)
        self.outputs = 1
        self.centered = False
        self.whitened = False

    @property
    def dim(self) -> int:
        return self.dimension

    @property
    def noisy(self) -> bool:
        return self.noise_variance > 0

    @checked
    def response(self, index: Float[Array, "*any"]) -> Float[Array, "*any"]:
        r"""Return the link f at given values of $u \cdot x$."""
        if callable(self.link):
            return self.link(index)
        scales = np.sqrt([math.factorial(k) for k in range(len(self.link))])
        return jnp.polyval(jnp.asarray(hermite_e.herme2poly(np.array(self.link) / scales)[::-1]), index)

    @checked
    def compose(self, inputs: Inputs, tasks: TaskVectors, noise: Labels, index: Places, total: Total) -> Batch:
        if self.direction is None:
            u = tasks[..., 0] / jnp.linalg.norm(tasks[..., 0], axis=1, keepdims=True)
        else:
            u = jnp.broadcast_to(self.direction, tasks.shape[:2])
        truth = self.response(jnp.einsum("sni,si->sn", inputs, u))[..., None]
        shown = truth + self.noise_variance**0.5 * noise if self.noisy else truth
        return assemble(inputs, shown, truth, self.context)


def _unit(direction: Any, dim: int) -> Float[np.ndarray, " dim"]:
    vector = checks.numbers_in("direction", direction, instead=f"a vector of {dim} numbers")
    if vector.shape != (dim,):
        raise InvalidInput(f"direction has shape {vector.shape}; it must be ({dim},)")
    length = float(np.linalg.norm(vector))
    if not abs(length - 1) < 1e-8:
        raise InvalidInput(f"direction has length {length:.6g}; it must be 1, so divide by its norm")
    return vector
