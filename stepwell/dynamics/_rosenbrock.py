r"""Steps of a stiff solver without Newton iterations: Rodas5P, a Rosenbrock method of order 5 with eight stages.

For $\dot w = F(w)$ with Jacobian $J$ at the start of a step of length h, the stages solve

$\left(\tfrac{1}{\gamma h} - J\right) k_i = F\left(w + \sum_{j<i} a_{ij} k_j\right) + \tfrac1h \sum_{j<i} c_{ij} k_j$

with one matrix for all. The last stage is the difference between orders 5 and 4, which is the estimate of the error.
In between, it is of order 4:
$w(t + \theta h) = (1 - \theta)\, w + \theta \left(w' + (1 - \theta)(d_1 + \theta d_2 + \theta^2 d_3)\right)$
with $d = H k$. The method is L-stable: what decays fast takes no small steps.

The coefficients are those of G. Steinebach, BIT Numerical Mathematics 63:27 (2023), doi 10.1007/s10543-023-00967-x,
transformed so that no product with J is needed (Hairer and Wanner, Solving Ordinary Differential Equations II, IV.7).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .fast import Tableau

Vector = Float[Array, " weights"]


def _lower(*rows: tuple[float, ...]) -> Float[np.ndarray, "8 8"]:
    """The matrix with these rows below its diagonal."""
    return np.array([[*row, *(0.0,) * (len(rows) - len(row))] for row in rows])


_GAMMA = 0.21193756319429014
_LAST = (-7.502846399306121, 2.561846144803919, -11.627539656261098, -0.18268767659942256, 0.030198172008377946)
_A = _lower(
    (),
    (3.0,),
    (2.849394379747939, 0.45842242204463923),
    (-6.954028509809101, 2.489845061869568, -10.358996098473584),
    (2.8029986275628964, 0.5072464736228206, -0.3988312541770524, -0.04721187230404641),
    _LAST,
    (*_LAST, 1.0),
    (*_LAST, 1.0, 1.0),
)
_C = _lower(
    (),
    (-14.155112264123755,),
    (-17.97296035885952, -2.859693295451294),
    (147.12150275711716, -1.41221402718213, 71.68940251302358),
    (165.43517024871676, -0.4592823456491126, 42.90938336958603, -5.961986721573306),
    (24.854864614690072, -3.0009227002832186, 47.4931110020768, 5.5814197821558125, -0.6610691825249471),
    (
        *(30.91273214028599, -3.1208243349937974, 77.79954646070892, 34.28646028294783),
        *(-19.097331116725623, -28.087943162872662),
    ),
    (
        *(37.80277123390563, -3.2571969029072276, 112.26918849496327, 66.9347231244047),
        *(-40.06618937091002, -54.66780262877968, -9.48861652309627),
    ),
)
_H = np.array(
    (
        (
            *(25.948786856663858, -2.5579724845846235, 10.433815404888879, -2.3679251022685204),
            *(0.524948541321073, 1.1241088310450404, 0.4272876194431874, -0.17202221070155493),
        ),
        (
            *(-9.91568850695171, -0.9689944594115154, 3.0438037242978453, -24.495224566215796),
            *(20.176138334709044, 15.98066361424651, -6.789040303419874, -6.710236069923372),
        ),
        (
            *(11.419903575922262, 2.8879645146136994, 72.92137995996029, 80.12511834622643),
            *(-52.072871366152654, -59.78993625266729, -0.15582684282751913, 4.883087185713722),
        ),
    )
)
RODAS5P = Tableau(_GAMMA, _A, _C, _H)
_SAFETY, _LEAST_FACTOR, _MOST_FACTOR = 0.9, 0.2, 6.0
_LEAST_ERROR = 1e-3
"""Smaller errors of the step before are not believed when the trend is followed."""


class Pace(NamedTuple):
    """What the choice of the next step's length depends on."""

    length: Any
    before: Any
    """Length of the last accepted step."""
    error: Any
    """Error of that step, relative to the tolerance."""
    rejected: Any
    """Whether the last attempted step was rejected."""


class Step(NamedTuple):
    """The result of one attempted step."""

    after: Any
    """The weights after the step."""
    estimate: Any
    """The estimated error of the weights."""
    dense: Any
    """The dense-output coefficients d, by which `between` interpolates within a step."""


def next_pace(pace: Pace, length: Float[Array, ""], error: Float[Array, ""]) -> Pace:
    """After an attempted step of a length; it is accepted if the error is at most one.

    The error grows as the fifth power of the length. On the way off a saddle steps become shorter by the same factor
    again and again, so the trend of the last two accepted steps is followed too (Gustafsson's predictive control);
    without it every other step there is rejected.
    """
    accepted = error <= 1.0
    bounded = jnp.maximum(error, 1e-10)
    factor = _SAFETY * bounded**-0.2
    trend = _SAFETY * length / pace.before * (jnp.maximum(pace.error, _LEAST_ERROR) / bounded**2) ** 0.2
    factor = jnp.where(accepted, jnp.minimum(factor, trend), factor)
    factor = jnp.clip(factor, _LEAST_FACTOR, jnp.where(pace.rejected & accepted, 1.0, _MOST_FACTOR))
    before, error = (jnp.where(accepted, new, old) for new, old in ((length, pace.before), (bounded, pace.error)))
    return Pace(length * factor, before, error, ~accepted)


def step(
    velocity: Callable[[Vector], Vector],
    solve: Callable[[Vector], Vector],
    weights: Vector,
    first: Vector,
    length: Float[Array, ""],
) -> Step:
    r"""One step: `first` is F(w), and `solve(r)` is $(1/(\gamma h) - J)^{-1} r$."""

    def stage(number: Array, carry: tuple[Array, Vector]) -> tuple[Array, Vector]:
        stages, _ = carry
        place = weights + jnp.asarray(_A)[number] @ stages
        return stages.at[number].set(solve(velocity(place) + jnp.asarray(_C)[number] @ stages / length)), place

    # A loop, since the field is compiled once for it rather than once for each stage.
    stages = jnp.zeros((len(_A), weights.size)).at[0].set(solve(first))
    stages, place = jax.lax.fori_loop(1, len(_A), stage, (stages, weights))
    return Step(place + stages[-1], stages[-1], jnp.asarray(_H) @ stages)


def error_of(estimate: Vector, before: Vector, after: Vector, rtol: Array, atol: Array) -> Float[Array, ""]:
    """The estimated error over the tolerance, root mean square; infinite where it is not a number."""
    size = jnp.maximum(jnp.abs(before), jnp.abs(after))
    error = jnp.sqrt(jnp.mean((estimate / (atol + rtol * jnp.abs(size))) ** 2))
    return jnp.where(jnp.isfinite(error), error, jnp.inf)


def between(
    fraction: Float[np.ndarray, " time"],
    before: Float[np.ndarray, "time weights"],
    after: Float[np.ndarray, "time weights"],
    d: Float[np.ndarray, "time 3 weights"],
) -> Float[np.ndarray, "time weights"]:
    """The weights at fractions of steps, from the dense-output coefficients d."""
    theta = fraction[:, None]
    made = d[:, 2] * theta
    # In place: for many weights, arrays that are not kept would take most of the time.
    for term, factor in ((d[:, 1], theta), (d[:, 0], 1 - theta), (after, theta)):
        made += term
        made *= factor
    made += (1 - theta) * before
    return made
