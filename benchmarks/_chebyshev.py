r"""The Runge-Kutta-Chebyshev method of second order, for flows that do not depend on time, as a solver of Diffrax.

With s stages it is stable on the negative axis up to $h\rho = 0.653\,(s^2 - 1)$, where ρ is the spectral radius of the
Jacobian: s grows as the root of the step. Sommeijer, Shampine, Verwer (1998), J. Comput. Appl. Math. 88, 315, eqs
2.2-2.9. With Chebyshev polynomials T_j at $w_0 = 1 + \epsilon/s^2$, $w_1 = T_s'/T_s''$, $b_j = T_j''/T_j'^2$:

$Y_1 = Y_0 + b_1 w_1 h F_0$

$Y_j = (1 - \mu_j - \nu_j) Y_0 + \mu_j Y_{j-1} + \nu_j Y_{j-2} + \tilde\mu_j h (F_{j-1} - a_{j-1} F_0)$

$\mu_j = 2 w_0 b_j/b_{j-1}, \quad \nu_j = -b_j/b_{j-2}, \quad \tilde\mu_j = 2 w_1 b_j/b_{j-1}, \quad a_j = 1 - b_j T_j$

The error estimate is $0.8 (Y_0 - Y_s) + 0.4 h (F_0 + F_s)$. F_s begins the next step, so that a step has s gradients.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

DAMPING = 2 / 13
"""ε of the method."""
STAGES = 2, 1000
"""The fewest and the most: with too few for its step, a step is unstable, fails the error test and is made shorter."""
SAFETY = 1.2
"""By which the estimated spectral radius is raised."""
SETTLED = 0.01
"""The power iteration ends when its estimate changes by less than this part of itself."""
ITERATIONS = 50
"""Of the power iteration at the most."""
REFRESH = 25
"""Steps after which the spectral radius is estimated anew."""

Field = Callable[[Float[Array, " weights"]], Float[Array, " weights"]]


class Memory(NamedTuple):
    """What one step leaves to the next."""

    slope: Float[Array, " weights"]
    """The field where the step ended."""
    radius: Float[Array, ""]
    """Spectral radius, raised by the safety factor."""
    direction: Float[Array, " weights"]
    """Its eigenvector."""
    age: Array
    """Steps since they were found."""
    length: Float[Array, ""]
    """Of the step."""


class Chebyshev(diffrax.AbstractAdaptiveSolver):
    """The spectral radius is found anew every 25 steps, and when a step is shorter than the last.

    Diffrax takes a solver's memory back when a step is rejected, and its controller never shortens a step after an
    accepted one but for the last. So a shorter step is what tells that one was rejected.
    """

    term_structure: ClassVar = diffrax.ODETerm
    interpolation_cls: ClassVar[Any] = diffrax.ThirdOrderHermitePolynomialInterpolation

    def order(self, terms: Any) -> int:
        return 2

    def error_order(self, terms: Any) -> int:
        return 3

    def init(self, terms: Any, t0: Any, t1: Any, y0: Array, args: Any) -> Memory:
        anywhere = jax.random.normal(jax.random.key(0), y0.shape)
        return Memory(terms.vf(t0, y0, args), jnp.array(0.0), anywhere, jnp.array(0), jnp.array(jnp.inf))

    def step(self, terms: Any, t0: Any, t1: Any, y0: Array, args: Any, solver_state: Memory, made_jump: Any) -> Any:
        def field(y: Array) -> Array:
            return terms.vf(t0, y, args)

        h, old = t1 - t0, solver_state
        due = (old.age >= REFRESH) | (h < 0.99 * old.length)
        radius, direction = spectral_radius(field, y0, old, due)
        needed = 1 + jnp.floor(jnp.sqrt(1 + 1.54 * h * radius))
        y1 = advance(field, y0, old.slope, h, jnp.clip(needed.astype(int), *STAGES))
        slope = field(y1)
        error = 0.8 * (y0 - y1) + 0.4 * h * (old.slope + slope)
        dense = {"y0": y0, "y1": y1, "k0": h * old.slope, "k1": h * slope}
        new = Memory(slope, radius, direction, jnp.where(due, 1, old.age + 1), h)
        return y1, error, dense, new, diffrax.RESULTS.successful

    def func(self, terms: Any, t0: Any, y0: Array, args: Any) -> Array:
        return terms.vf(t0, y0, args)


def spectral_radius(field: Field, y: Array, memory: Memory, due: Array) -> tuple[Array, Array]:
    """(radius, eigenvector) by power iteration on differences of the field, if due; else those of the memory."""
    size = jnp.finfo(y.dtype).eps ** 0.5 * (1 + jnp.linalg.norm(y))

    def unsettled(state: tuple[Array, ...]) -> Array:
        _, found, before, count = state
        return due & (count < ITERATIONS) & ((count < 2) | (jnp.abs(found - before) > SETTLED * found))

    def iterate(state: tuple[Array, ...]) -> tuple[Array, ...]:
        direction, found, _, count = state
        moved = (field(y + size * direction / jnp.linalg.norm(direction)) - memory.slope) / size
        length = jnp.linalg.norm(moved)
        return jnp.where(length > 0, moved, direction), length, found, count + 1

    nothing = jnp.zeros_like(memory.radius)
    direction, found, *_ = jax.lax.while_loop(unsettled, iterate, (memory.direction, nothing, nothing, jnp.array(0)))
    return jnp.where(due, SAFETY * found, memory.radius), direction


def advance(field: Field, y: Array, slope: Array, h: Array, stages: Array) -> Array:
    """One step of length h; the number of stages is a value, not a shape, and compiles nothing."""
    w0 = 1 + DAMPING / stages**2
    angle = stages * jnp.arccosh(w0)
    root = jnp.sqrt(w0**2 - 1)
    w1 = jnp.tanh(angle) * root**2 / (stages * root - w0 * jnp.tanh(angle))

    def stage(_: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        (before, at), (t_before, t), (d_before, d), (dd_before, dd), (b_before, b) = carry
        t_next = 2 * w0 * t - t_before
        d_next = 2 * w0 * d - d_before + 2 * t
        dd_next = 2 * w0 * dd - dd_before + 4 * d
        b_next = dd_next / d_next**2
        mu, nu = 2 * w0 * b_next / b, -b_next / b_before
        drift = h * mu * w1 / w0 * (field(at) - (1 - b * t) * slope)
        following = (1 - mu - nu) * y + mu * at + nu * before + drift
        return (at, following), (t, t_next), (d, d_next), (dd, dd_next), (b, b_next)

    one, zero = jnp.ones_like(w0), jnp.zeros_like(w0)
    b = 1 / (2 * w0) ** 2
    start = (y, y + h * b * w1 * slope), (one, w0), (zero, one), (zero, zero), (b, b)
    return jax.lax.fori_loop(2, stages + 1, stage, start)[0][1]
