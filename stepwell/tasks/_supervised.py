"""Supervised tasks: an input, a label, and no context; by data, or by moments of Gaussian inputs."""

import abc
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import check_fields, checked
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory
from stepwell._util.types import RandomKey

from ._batch import FeatureBatch

MOST_DEGREE = 8
"""The highest power of an input: its features number dim ** degree."""
_ROUNDING = 1e-9
"""Of second moments, over the largest: of sums over many examples, in any order."""


@checked
def polynomial_features(
    inputs: Float[Array, "*examples dim"], degree: int = 1, patches: int = 1
) -> Float[Array, "*examples features"]:
    r"""Return the products of entries of an input that a polynomial network of units is linear in.

    An input is `patches` patches $x_p$, one after another, and its features are $x_p^{\otimes \text{degree}}$.

    **Arguments:**

    - `inputs`: x, with any axes before that of its entries.
    - `degree`: how many entries are multiplied, at most 8.
    - `patches`: the number of patches, which divides the dimension.

    **Returns:** the features, those of a patch in row-major order, patch by patch.

    **Example:**

    >>> sw.tasks.polynomial_features(jnp.array([2.0, 3.0]), degree=2).tolist()
    [4.0, 6.0, 6.0, 9.0]
    """
    split = inputs.reshape(*inputs.shape[:-1], _patches(inputs.shape[-1], patches), -1)
    made, count = split, split.shape[-2] * split.shape[-1] ** checks.whole("degree", degree, most=MOST_DEGREE)
    require_memory(
        2 * 8 * inputs.size // max(inputs.shape[-1], 1) * count,
        what=f"{count} features of {inputs.size} numbers",
        instead="take a smaller dimension or degree, or fewer examples",
    )
    for _ in range(degree - 1):
        made = (made[..., None] * split[..., None, :]).reshape(*split.shape[:-1], -1)
    return made.reshape(*inputs.shape[:-1], -1)


class SupervisedMoments(eqx.Module):
    r"""Second moments of labels y and features z: all that the squared error of a model that is linear in z reads.

    **Arguments:**

    - `cross`: $\Sigma_{yz} = E[y z^\top]$, (outputs, features).
    - `gram`: $\Sigma_{zz} = E[z z^\top]$, (features, features).
    - `label_power`: $E|y|^2$, summed over outputs.
    - `degree`, `patches`: which `polynomial_features` of the input z is; by default the input itself.

    **Example:**

    The loss of least squares, $E|y|^2 - \mathrm{tr}(\Sigma_{yz} \Sigma_{zz}^{-1} \Sigma_{yz}^\top)$:

    >>> moments = sw.tasks.SupervisedMoments(cross=np.array([[1.0, 0.0]]), gram=np.eye(2), label_power=1.5)
    >>> explained = moments.cross @ np.linalg.solve(moments.gram, moments.cross.T)
    >>> float(moments.label_power - np.trace(explained))
    0.5
    """

    cross: Float[np.ndarray, "outputs features"]
    gram: Float[np.ndarray, "features features"]
    label_power: float
    degree: int = eqx.field(static=True, default=1)
    patches: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_fields(self)
        checks.whole("degree", self.degree, most=MOST_DEGREE)
        checks.whole("patches", self.patches)
        gram, power, size = self.gram, float(self.label_power), np.abs(self.gram).max(initial=0.0)
        if np.abs(gram - gram.T).max(initial=0.0) > _ROUNDING * size:
            raise InvalidInput("gram is not symmetric; give E[z zᵀ]")
        # |E[y z]|² is at most E|y|² E[z²], of every feature.
        beyond = np.sum(self.cross**2, axis=0) - power * np.diagonal(gram)
        if power < 0 or np.any(np.diagonal(gram) < 0) or beyond.max(initial=0.0) > _ROUNDING * power * size:
            raise InvalidInput(
                f"no labels and features have these second moments, with label_power = {power:g}; give E[y zᵀ], "
                "E[z zᵀ] and E|y|² of the same examples"
            )

    @classmethod
    @checked
    def of_examples(cls, examples: FeatureBatch, *, degree: int = 1, patches: int = 1) -> "SupervisedMoments":
        """Return the moments of given examples, whose features are the inputs."""
        root = np.sqrt(np.asarray(examples.weights))[:, None]
        z = np.asarray(polynomial_features(examples.features, degree, patches)) * root
        y = np.asarray(examples.labels) * root
        return cls(y.T @ z, z.T @ z, float(np.sum(y**2)), degree, patches)


class AbstractSupervisedTask(eqx.Module):
    """A distribution of inputs x and labels y, without a context; losses are sums over outputs."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """The dimension of an input."""

    @property
    @abc.abstractmethod
    def outputs(self) -> int:
        """The number of labels of an input."""

    @abc.abstractmethod
    def examples(self, count: int | None = None, *, key: RandomKey | None = None) -> FeatureBatch:
        """Return so many random examples; or None for all, where they are finitely many."""

    @abc.abstractmethod
    def moments(self, degree: int = 1, patches: int = 1) -> SupervisedMoments:
        """Return the moments of labels and `polynomial_features`, over all examples."""


class GivenExamples(AbstractSupervisedTask):
    """A finite data set.

    **Arguments:**

    - `batch`: the examples, whose features are the inputs.

    **Example:**

    >>> batch = sw.tasks.FeatureBatch(jnp.array([[1.0, 0.0], [0.0, 2.0]]), jnp.array([[1.0], [-1.0]]))
    >>> sw.tasks.GivenExamples(batch).moments().cross.round(6).tolist()
    [[0.5, -1.0]]
    """

    batch: FeatureBatch

    def __check_init__(self):
        check_fields(self)

    @property
    def dim(self) -> int:
        return self.batch.features.shape[1]

    @property
    def outputs(self) -> int:
        return self.batch.labels.shape[1]

    @checked
    def examples(self, count: int | None = None, *, key: RandomKey | None = None) -> FeatureBatch:
        if count is not None:
            raise InvalidInput(f"count is {count}; the data set has {self.batch.size} examples, so leave it out")
        return self.batch

    @checked
    def moments(self, degree: int = 1, patches: int = 1) -> SupervisedMoments:
        return SupervisedMoments.of_examples(self.batch, degree=degree, patches=patches)


class GaussianTeacher(AbstractSupervisedTask):
    r"""Gaussian inputs whose labels are powers of single entries.

    $x \sim \mathcal N(0, \Lambda)$ with a diagonal $\Lambda$, and $y_k = s_k x_k^{\,p}$, added up where there is one
    output. With patches, direction k is entry k of patch k.

    Linear networks learn the singular values $s_k \lambda_k$ of $\Sigma_{yx}$ one by one, and quadratic ones, with one
    output and $p = 2$, the $s_k$ of phase retrieval.

    **Arguments:**

    - `strengths`: $s_k$, at most as many as a patch has entries and, with several patches, as there are patches.
    - `variances`: the diagonal of $\Lambda$, for an input of as many entries.
    - `degree`: p.
    - `patches`: how many patches an input has.
    - `separate`: whether each direction has an output of its own.

    **Example:**

    >>> task = sw.tasks.GaussianTeacher([1.0, 0.5], [1.0, 2.0], separate=True)
    >>> task.moments().cross.tolist(), task.moments().label_power
    ([[1.0, 0.0], [0.0, 1.0]], 1.5)
    """

    strengths: Float[np.ndarray, " direction"]
    variances: Float[np.ndarray, " dim"]
    degree: int = eqx.field(static=True)
    patches: int = eqx.field(static=True)
    separate: bool = eqx.field(static=True)

    @checked
    def __init__(self, strengths, variances, *, degree: int = 1, patches: int = 1, separate: bool = False):
        self.strengths = np.atleast_1d(checks.numbers_in("strengths", strengths))
        self.variances = np.atleast_1d(checks.numbers_in("variances", variances))
        if self.variances.ndim > 1 or not np.all(self.variances > 0):
            raise InvalidInput(f"variances are {self.variances.tolist()}; give a list of numbers above 0")
        self.degree = checks.whole("degree", degree, most=MOST_DEGREE)
        self.patches, self.separate = _patches(self.dim, patches), separate
        room = self.dim if self.patches == 1 else min(self.patches, self.dim // self.patches)
        if self.strengths.ndim > 1 or not 1 <= self.strengths.size <= room:
            raise InvalidInput(
                f"there are {self.strengths.size} strengths; inputs of {self.dim} entries in {self.patches} patches "
                f"have from 1 to {room} directions"
            )

    @property
    def dim(self) -> int:
        return self.variances.size

    @property
    def outputs(self) -> int:
        return self.strengths.size if self.separate else 1

    @property
    def readout(self) -> Float[np.ndarray, "outputs direction"]:
        """The weight of each direction in each label."""
        return np.diag(self.strengths) if self.separate else self.strengths[None]

    @property
    def places(self) -> Int[np.ndarray, " direction"]:
        """Which entry of the input each direction is."""
        step = 1 if self.patches == 1 else self.dim // self.patches + 1
        return step * np.arange(self.strengths.size)

    @checked
    def examples(self, count: int | None = None, *, key: RandomKey | None = None) -> FeatureBatch:
        if count is None or key is None:
            raise InvalidInput("there are infinitely many examples; give count, how many are drawn, and a random key")
        require_memory(
            2 * 8 * count * (self.dim + self.outputs),
            what=f"{count} examples of dimension {self.dim}",
            instead="take fewer examples",
        )
        x = jnp.sqrt(self.variances) * jax.random.normal(key, (checks.whole("count", count), self.dim))
        return FeatureBatch(x, x[:, self.places] ** self.degree @ self.readout.T)

    @checked
    def moments(self, degree: int = 1, patches: int = 1) -> SupervisedMoments:
        kernel = self.dim // _patches(self.dim, patches)
        checks.whole("degree", degree, most=MOST_DEGREE)
        require_memory(
            4 * 8 * (patches * kernel**degree) ** 2,
            what=f"the moments of {patches * kernel**degree} features",
            instead="take a smaller dimension or degree",
        )
        entries = np.array(list(itertools.product(range(kernel), repeat=degree)))
        features = np.concatenate([_powers(entries + patch * kernel, self.dim) for patch in range(patches)])
        labels = self.degree * np.eye(self.dim, dtype=int)[self.places]
        power = np.einsum("oi,ij,oj->", self.readout, self._expected(labels, labels), self.readout)
        cross = self.readout @ self._expected(labels, features)
        return SupervisedMoments(cross, self._expected(features, features), float(power), degree, patches)

    def _expected(
        self, left: Int[np.ndarray, "left dim"], right: Int[np.ndarray, "right dim"]
    ) -> Float[np.ndarray, "left right"]:
        r"""$E[\prod_i x_i^{a_i + b_i}]$ of all pairs, with $E[x_i^{2n}] = (2n-1)!!\,\lambda_i^n$ and odd ones zero."""
        made = np.ones((len(left), len(right)))
        for variance, a, b in zip(self.variances, left.T, right.T, strict=True):
            table = np.zeros(a.max(initial=0) + b.max(initial=0) + 1)
            table[0] = 1.0
            for power in range(2, table.size, 2):
                table[power] = (power - 1) * variance * table[power - 2]
            made *= table[a[:, None] + b]
        return made


def _patches(dim: int, patches: int) -> int:
    if dim % checks.whole("patches", patches):
        raise InvalidInput(f"an input of {dim} entries cannot be cut into {patches} patches of one size")
    return patches


def _powers(entries: Int[np.ndarray, "features degree"], dim: int) -> Int[np.ndarray, "features dim"]:
    """How often each entry of the input is a factor of each feature."""
    return np.eye(dim, dtype=int)[entries].sum(axis=1)
