r"""The six architectures of Fig 1, each on data with two things to learn.

The data of the paper are not public. Those of attention and the quadratic network are the plainest that there are; the
others are chosen such that levels and sizes of weights are those of the author's animations. All are at infinitely many
examples, or are all the examples that there are, and $E|y|^2 = 1$.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from stepwell.analysis import Relation
from stepwell.models import AbstractModel, ActivationUnits, PolynomialUnits, SeparateAttention
from stepwell.objectives import AbstractObjective, FeatureMoments, Population, Sampled
from stepwell.tasks import FeatureBatch, GaussianTeacher, InContextRegression
from stepwell.theory import linear as theory

CONTEXT = 31
LINEAR = np.array([0.43, 1.13])
"""Singular values of the linear teacher, in the order in which they are learned."""
CONVOLUTIONAL = np.sqrt(0.4)
WIDE, NARROW = 2.3, 1.93
"""Sizes of the patches of the convolutional ReLU network."""


class Network(NamedTuple):
    r"""One architecture and its data.

    - `make`: the model, from the standard deviation of its weights and a random key.
    - `objective`: the loss.
    - `scale`: the standard deviation with which the drops come about when they do in the author's animation.
    - `relation`: what its units are like on the plateau; `stricter`: relations that would be more, and are not met.
    - `levels`: the losses with nothing, one and both learned.
    - `gram`: the eigenvalues of $\sum_i u_i u_i^\top$ on the plateau and at the end, of the first-layer weights.
    - `approach`: the power of `scale` that the distance to the narrower network has on the plateau.
    - `inner`: the name of the first-layer weights.
    """

    make: Callable[[float, Any], AbstractModel]
    objective: AbstractObjective
    scale: float
    relation: Relation
    stricter: tuple[Relation, ...]
    levels: tuple[float, float, float]
    gram: tuple[tuple[float, float], tuple[float, float]]
    approach: float = 1.0
    inner: str = "inner"


def _approach(first: float, second: float) -> float:
    """Between drops of these rates, linear units come so close to the saddle (`simplicity/directions`)."""
    return 2 * (first - second) / (2 * first + second)


def _examples(inputs: Any, labels: Any) -> Sampled:
    return Sampled(FeatureBatch(jnp.asarray(inputs, float), jnp.asarray(labels, float)[:, None]), reduce="sum")


def _linear() -> Network:
    """Two inputs of unequal variances: the first mode, of the smaller singular value, is seen more of."""
    shares = np.array([0.506, 0.494])
    task = GaussianTeacher(LINEAR, shares / LINEAR**2, separate=True)

    def make(scale: float, key: Any) -> AbstractModel:
        return PolynomialUnits.random(dim=2, units=50, outputs=2, scale=scale, key=key)

    gram = ((0.0, LINEAR[0]), (LINEAR[0], LINEAR[1]))
    levels = (1.0, shares[1], 0.0)
    objective, approach = FeatureMoments(task.moments()), _approach(*shares / LINEAR)
    return Network(make, objective, 1e-6, "dependent", ("proportional", "zero"), levels, gram, approach)


def _convolutional() -> Network:
    """Two patches; the label is the first entry of the first and the second of the second."""
    s = CONVOLUTIONAL
    task = GaussianTeacher([s, s], [1.5, 1.0, 1.5, 1.0], patches=2)

    def make(scale: float, key: Any) -> AbstractModel:
        return PolynomialUnits.random(dim=4, units=50, patches=2, scale=scale, key=key)

    objective, approach = FeatureMoments(task.moments(1, 2)), _approach(1.5, 1.0)
    gram = ((0.0, s), (s, s))
    return Network(make, objective, 3e-7, "dependent", ("proportional", "zero"), (1.0, 0.4, 0.0), gram, approach)


def _relu() -> Network:
    """Two orthogonal inputs, one twice as long, with labels of opposite signs."""
    objective = _examples([[-1.0, 2.0], [1.0, 0.5]], [1.0, -1.0])

    def make(scale: float, key: Any) -> AbstractModel:
        return ActivationUnits.random(dim=2, units=50, scale=scale, key=key)

    sizes = 1 / np.sqrt([5.0, 1.25])  # |y| / |x|
    gram, approach = ((0.0, sizes[0]), (sizes[0], sizes[1])), _approach(2.0, 1.0)
    return Network(make, objective, 1e-6, "proportional", ("zero",), (1.0, 0.5, 0.0), gram, approach)


def _conv_relu() -> Network:
    """One patch of two has a feature, along an axis, wherever it is; labels of the two features have opposite signs."""
    labels = np.sqrt([1.2, 0.8])
    inputs = np.zeros((4, 2, 2))
    inputs[[0, 1], [0, 1], 0], inputs[[2, 3], [0, 1], 1] = WIDE, NARROW
    objective = _examples(inputs.reshape(4, 4), np.repeat([labels[0], -labels[1]], 2))

    def make(scale: float, key: Any) -> AbstractModel:
        return ActivationUnits.random(dim=4, units=50, patches=2, scale=scale, key=key)

    sizes = np.sqrt(2) * labels / (WIDE, NARROW)  # both patches have the same outer weight
    gram = ((0.0, sizes[0]), (sizes[1], sizes[0]))
    approach = _approach(labels[0] * WIDE, labels[1] * NARROW)
    return Network(make, objective, 3e-7, "proportional", ("zero",), (1.0, 0.4, 0.0), gram, approach)


def _attention() -> Network:
    """Two white dimensions, heads of rank one, and attention that is divided by nothing."""
    task = InContextRegression(np.eye(2) / 2, CONTEXT)

    def make(scale: float, key: Any) -> AbstractModel:
        return SeparateAttention.random(dim=2, heads=10, scale=scale, normalization="none", key=key)

    size = (theory.minimizer(task)[0, 0] / CONTEXT) ** (2 / 3)  # v = |k| = |q|, and their product is the map's entry
    levels = theory.levels(task).tolist()
    gram = ((0.0, size), (size, size))
    return Network(make, Population(task, "none"), 0.008, "zero", (), tuple(levels), gram, inner="key")


def _quadratic() -> Network:
    """The sum of two squares."""
    task = GaussianTeacher(np.full(2, 8**-0.5), np.ones(2), degree=2)

    def make(scale: float, key: Any) -> AbstractModel:
        return PolynomialUnits.random(dim=2, units=10, degree=2, scale=scale, key=key)

    # The coefficient m of a learned direction is (1 + 1/3)/√8 beside one that is not, and |u|² = (√2 m)^(2/3).
    alone, both = ((np.sqrt(2) * m / np.sqrt(8)) ** (2 / 3) for m in (4 / 3, 1.0))
    gram = ((0.0, alone), (both, both))
    return Network(make, FeatureMoments(task.moments(2)), 0.015, "zero", (), (1.0, 1 / 3, 0.0), gram)


MAKERS: dict[str, Callable[[], Network]] = {
    "linear": _linear,
    "convolutional": _convolutional,
    "ReLU": _relu,
    "conv. ReLU": _conv_relu,
    "attention": _attention,
    "quadratic": _quadratic,
}
NAMES = tuple(MAKERS)


@cache
def network(name: str) -> Network:
    """One of the six, by its name in `NAMES`."""
    return MAKERS[name]()
