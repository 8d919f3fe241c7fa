"""The loss of a polynomial network of units, from moments of labels and features."""

from typing import get_args

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.types import Loss
from stepwell.models import AbstractModel, PolynomialUnits, check_form, form_advice, is_polynomial
from stepwell.tasks import SupervisedMoments

from ._abstract_objective import AbstractQuadraticObjective, Stairs, require
from ._sampled import Reduce

_NULL = 1e-13
"""Eigenvalues of the inputs' second moment below this part of the largest are directions without inputs."""
_SHOWN = 256 * float(np.finfo(float).eps)
"""Drops below this part of the loss of zero weights are lost in its rounding."""
_SAME = 1e-12
"""How far the moments of two patches, relative to the largest, may differ and count as the same."""


class FeatureMoments(AbstractQuadraticObjective):
    r"""The squared error of a polynomial network of units, from moments: what `Sampled` computes of all examples.

    $L = E|y|^2 + \mathrm{tr}(\Theta \Sigma_{zz} \Theta^\top - 2\, \Sigma_{yz} \Theta^\top)$

    with the coefficients $\Theta$ of the features z. It is a sum over outputs, as in the literature on such networks.

    **Arguments:**

    - `moments`: $\Sigma_{yz}$, $\Sigma_{zz}$ and $E|y|^2$; those of a task are `task.moments(degree, patches)`.
    - `reduce`: "sum" over the outputs, or "mean", as in other losses of this package.

    **Example:**

    The plateaus of a linear network: $E|y|^2$, less one eigenvalue of
    $\Sigma_{yx}\Sigma_{xx}^{-1}\Sigma_{yx}^\top$ after the other.

    >>> task = sw.tasks.GaussianTeacher([1.0, 0.5], [1.0, 1.0], separate=True)
    >>> loss = sw.objectives.FeatureMoments(task.moments())
    >>> model = sw.models.PolynomialUnits.random(dim=2, units=3, outputs=2, scale=1e-3, key=jax.random.key(0))
    >>> loss.plateaus(model).round(6).tolist()
    [1.25, 0.25, 0.0]
    """

    gram: Float[Array, "features features"]
    cross: Float[Array, "outputs features"]
    label_power: Float[Array, ""]
    degree: int = eqx.field(static=True)
    patches: int = eqx.field(static=True)
    reduce: Reduce = eqx.field(static=True)

    @checked
    def __init__(self, moments: SupervisedMoments, *, reduce: Reduce = "sum"):
        self.gram, self.cross = jnp.asarray(moments.gram), jnp.asarray(moments.cross)
        self.label_power = jnp.asarray(moments.label_power, dtype=float)
        self.degree, self.patches = moments.degree, moments.patches
        self.reduce = checks.one_of("reduce", reduce, get_args(Reduce))

    @property
    def _scale(self) -> float:
        return 1.0 if self.reduce == "sum" else 1.0 / self.cross.shape[0]

    @checked
    def coefficients(self, model: AbstractModel) -> Float[Array, "outputs features"]:
        return _as_polynomial(model).coefficients()

    @checked
    def quadratic(self, coefficients: Float[Array, "outputs features"]) -> Loss:
        theta = coefficients
        return self._scale * (self.label_power + jnp.sum(theta * (theta @ self.gram - 2 * self.cross)))

    @checked
    def check(self, model: AbstractModel) -> None:
        units = _as_polynomial(model)
        own = units.degree, units.patches, units.outputs, units.patches * units.inner.shape[1] ** units.degree
        wanted = self.degree, self.patches, *self.cross.shape
        words = "degree {}, {} patches, {} outputs and {} features"
        require(
            own == wanted,
            f"the model has {words.format(*own)}, the moments {words.format(*wanted)}; they must agree",
        )
        check_form(model, length=1)

    @checked
    def floor(self, model: AbstractModel) -> float | None:
        """Return the last of the plateaus, where they are known."""
        stairs = self.stairs(model)
        return None if stairs is None else stairs.top - float(stairs.drops.sum())

    def stairs(self, model: AbstractModel) -> Stairs | None:
        r"""Return the stairs of a linear network: of rank r the loss is at least (Baldi and Hornik, 1989)

        $L_r = E|y|^2 - \sum_{k \le r} \mu_k$, with $\mu_k$ the eigenvalues of
        $\Sigma_{yx}\Sigma_{xx}^{-1}\Sigma_{yx}^\top$, falling.

        Patches count as outputs, if they are uncorrelated and their second moments are the same. Otherwise, and of
        powers of the input, the levels are not known in closed form.
        """
        kernel = self.gram.shape[0] // self.patches
        gram = np.asarray(self.gram)
        block = gram[:kernel, :kernel]
        apart = np.abs(gram - np.kron(np.eye(self.patches), block)).max() <= _SAME * np.abs(gram).max()
        if self.degree > 1 or not apart:
            return None
        values, vectors = np.linalg.eigh(block)
        kept = values > _NULL * values.max()
        cross = np.asarray(self.cross).reshape(-1, kernel) @ (vectors[:, kept] * values[kept] ** -0.5)
        drops = np.linalg.svd(cross, compute_uv=False)[: _as_polynomial(model).inner.shape[0]] ** 2
        top = float(self.label_power)
        return Stairs(self._scale * top, self._scale * drops[drops > _SHOWN * top])


def _as_polynomial(model: AbstractModel) -> PolynomialUnits:
    """The model, if its coefficients may be used in its place."""
    if is_polynomial(model):
        return model
    raise InvalidInput(
        f"{type(model).__name__} is not known to be a polynomial of its input, which this loss is for; "
        f"{form_advice(model)}"
    )
