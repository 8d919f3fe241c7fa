"""The loss over infinitely many sequences, in closed form."""

from typing import ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.recipes import remember
from stepwell._util.types import Loss, Normalization
from stepwell.models import (
    AbstractModel,
    SeparateAttention,
    check_form,
    effective_map,
    is_separate,
    map_rank,
    map_shape,
)
from stepwell.tasks import AbstractTask, population_moments

from ._abstract_objective import AbstractQuadraticObjective, Stairs, require
from ._model_checks import as_cubic, check_label_blocks, check_linear

Basis = Literal["given", "eigen"]
Moment = Float[Array, " dim"] | Float[Array, "dim dim"]
"""A diagonal matrix by its diagonal, any other as it is."""
Matrix = Float[Array, "*run dim dim"]

_ROUNDING = 1e-13
"""In the eigenbasis, entries off the diagonal that are smaller, relative to the largest entry, are rounding errors."""

_SHOWN = 256 * float(np.finfo(float).eps)
"""Drops that are smaller, relative to the loss of zero weights, are lost in its rounding."""

_LARGE = 32
"""Dimension from which pairs are used. With eight of them, in the basis given, both ways take as long at D = 16."""


class Population(AbstractQuadraticObjective):
    r"""The loss over infinitely many sequences, in closed form, of linear attention with its label blocks at zero.

    $L = \mathrm{tr}(\Omega\Lambda) - \tfrac2O \sum_o \mathrm{tr}(A_{oo}^\top M \Lambda)
    + \tfrac1O \sum_{op} \mathrm{tr}(A_{op}^\top C A_{op} \Lambda)$

    Label blocks that are zero stay so. $A$ is the effective map, $M, C, \Lambda$ the task's moments
    (`population_moments`), O the number of outputs.

    Separate heads of rank R have $A_{op} = \sum_a v_{a,op} k_a q_a^\top$ over H·R pairs a. Where these are fewer than
    the dimension D, and that is large enough for it to matter, A is never formed:

    $\sum_{op} \mathrm{tr}(A_{op}^\top C A_{op} \Lambda) = \sum_{ab} \big(\sum_{op} v_{a,op} v_{b,op}\big)
    (k_a^\top C k_b)(q_a^\top \Lambda q_b)$

    takes of the order of (HR)² D operations, and to multiply all $k_a$ and $q_a$ by the moments HRD² of them.

    **Arguments:**

    - `task`: the distribution of sequences; it must have moments in closed form.
    - `normalization`: what attention is divided by, as in the model: "1/N" (the default), "none" or "1/tokens".
    - `basis`: "given", that of the task; or "eigen", that of the eigenvectors of $\Lambda$, the columns of
      `directions`. Then the loss is that of a model in this basis, and `rotated` brings a model there, once. If
      $\Omega$ commutes with $\Lambda$ all moments are diagonal in it, and products with them cost HRD. Descent and flow
      from a rotated model are those from the model itself, rotated. If all moments are diagonal already, nothing
      is rotated.

    **Example:**

    The loss of a model that has learned nothing, $\mathrm{tr}(\Omega\Lambda)$, and the lowest that two heads can reach.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> loss = sw.objectives.Population(task)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.0)
    >>> float(loss(model)), round(loss.floor(model), 3)
    (1.5, 0.132)
    """

    forms_stack: ClassVar[bool] = True

    input: Float[Array, "dim dim"]
    cross: Float[Array, "dim dim"]
    second: Float[Array, "dim dim"]
    label_power: Float[Array, ""]
    outputs: int = eqx.field(static=True)
    normalization: Normalization = eqx.field(static=True)
    basis: Basis = eqx.field(static=True)
    directions: Float[Array, "dim dim"] | None
    _input: Moment
    _drive: Moment
    _second: Moment
    _longest: Int[Array, ""]

    @checked
    def __init__(self, task: AbstractTask, normalization: Normalization = "1/N", *, basis: Basis = "given"):
        moments = population_moments(task, normalization)
        self.basis = checks.one_of("basis", basis, get_args(Basis))
        matrices = moments.input, moments.cross, moments.second
        products = moments.input, moments.cross @ moments.input, moments.second
        self.directions = None
        if basis == "eigen":
            vectors = _eigenvectors(moments.input, all(map(_is_diagonal, matrices)))
            matrices = [vectors.T @ moment @ vectors for moment in matrices]
            products = [_compact(vectors.T @ moment @ vectors) for moment in products]
            self.directions = jax.device_put(vectors)
        self.input, self.cross, self.second = (jax.device_put(moment) for moment in matrices)
        self._input, self._drive, self._second = (jax.device_put(moment) for moment in products)
        self.label_power = jax.device_put(moments.label_power)
        self.outputs = task.outputs
        self.normalization = normalization
        self._longest = jax.device_put(np.asarray(task.context.longest))
        remember(self, "Population", task=task, normalization=normalization, basis=basis)

    @checked
    def coefficients(self, model: AbstractModel) -> Float[Array, "outputs labels dim dim"]:
        """Return the effective map A."""
        return effective_map(as_cubic(model))

    @checked
    def quadratic(self, coefficients: Float[Array, "outputs labels dim dim"]) -> Loss:
        maps = coefficients
        own = jnp.einsum("ooij->ij", maps)
        own = jnp.diagonal(own) if self._drive.ndim == 1 else own
        products = maps * self._second[:, None] if self._second.ndim == 1 else self._second @ maps
        linear, quadratic = jnp.sum(own * self._drive), jnp.sum(maps * _times(products, self._input))
        return self.label_power + (quadratic - 2 * linear) / self.outputs

    def shortcut(self, model: AbstractModel) -> Loss | None:
        """Return the loss of separate attention in many dimensions, from its weights, without forming the map A."""
        if not is_separate(model) or not _LARGE <= model.dim > model.key.shape[0] * model.key.shape[1]:
            return None
        heads, rank, _ = model.key.shape
        dim = model.dim
        values = jnp.repeat(model.value[..., dim:], rank, axis=0)
        keys, queries = (part.reshape(heads * rank, -1)[:, :dim] for part in (model.key, model.query))
        linear = jnp.einsum("aoo,ad,ad->", values, _times(keys, self._drive), queries)
        flat = values.reshape(heads * rank, -1)
        grams = (_times(keys, self._second) @ keys.T) * (_times(queries, self._input) @ queries.T)
        return self.label_power + (jnp.sum(flat @ flat.T * grams) - 2 * linear) / self.outputs

    @checked
    def rotated(self, model: SeparateAttention, *, back: bool = False) -> SeparateAttention:
        r"""Return a model of the task's dimension in the basis of this objective, $k \to E^\top k$, $q \to E^\top q$;
        with `back` one from there in the basis of the task.

        Raises `InvalidInput` unless the objective has `basis="eigen"`.
        """
        require(
            self.directions is not None,
            "this objective is in the basis of the task itself; for that of the eigenvectors give basis='eigen'",
        )
        require(
            is_separate(model) and model.dim == self.input.shape[0],
            f"{type(model).__name__} cannot be rotated; give a SeparateAttention of dimension {self.input.shape[0]}",
        )
        vectors = np.asarray(self.directions)
        vectors = vectors.T if back else vectors
        weights = {name: np.array(weight) for name, weight in model.weights().items()}
        for weight in weights.values():
            weight[..., : model.dim] = weight[..., : model.dim] @ vectors
        return model.with_weights(weights)

    def matrices(self) -> tuple[Matrix, Matrix, Matrix]:
        r"""Return $\Lambda$, $M\Lambda$ and $C$, diagonal where the loss has them so: rounding would lead off a saddle.

        Where this is a stack of losses, each has the first axis of their arrays.
        """

        def whole(moment: np.ndarray) -> Matrix:
            diagonal = moment.ndim == self.label_power.ndim + 1
            return jax.device_put(moment[..., None] * np.eye(moment.shape[-1]) if diagonal else moment)

        return whole(np.asarray(self._input)), whole(np.asarray(self._drive)), whole(np.asarray(self._second))

    @checked
    def check(self, model: AbstractModel) -> None:
        check_linear(model, self.normalization)
        outputs, dim = map_shape(as_cubic(model))
        require(
            (outputs, dim) == (self.outputs, self.input.shape[0]),
            f"the model has {outputs} outputs and dimension {dim}, the task {self.outputs} and {self.input.shape[0]}; "
            "they must agree",
        )
        check_label_blocks(as_cubic(model))
        check_form(model, length=int(self._longest))

    @checked
    def floor(self, model: AbstractModel) -> float | None:
        r"""Return the loss of the best map of the model's rank r.

        It is $\mathrm{tr}(\Omega\Lambda) - \sum_{i \le r} \sigma_i(B)^2$, since with $B = C^{-1/2} M \Lambda^{1/2}$,
        $L = \|C^{1/2} A \Lambda^{1/2} - B\|_F^2 + \mathrm{tr}(\Omega\Lambda) - \|B\|_F^2$.
        """
        gains = self._gains(model)
        return None if gains is None else float(self.label_power) - float(gains.sum())

    def stairs(self, model: AbstractModel) -> Stairs | None:
        r"""Return the stairs: from $\mathrm{tr}(\Omega\Lambda)$ heads take $\sigma_i(B)^2$, $i \le r$, one by one."""
        gains = self._gains(model)
        return None if gains is None else Stairs(top := float(self.label_power), gains[gains > _SHOWN * top])

    def _gains(self, model: AbstractModel) -> Float[np.ndarray, " rank"] | None:
        r"""$\sigma_i(B)^2$, falling, for the ranks that the model's map can have; None where that is not known."""
        rank = map_rank(model)
        if rank is None:
            return None
        lam, vectors = np.linalg.eigh(np.asarray(self.second))
        kept = lam > 1e-13 * lam.max()
        inverse_root = (vectors[:, kept] * lam[kept] ** -0.5) @ vectors[:, kept].T
        lam, vectors = np.linalg.eigh(np.asarray(self.input))
        root = (vectors * np.sqrt(np.clip(lam, 0.0, None))) @ vectors.T
        return np.linalg.svd(inverse_root @ np.asarray(self.cross) @ root, compute_uv=False)[:rank] ** 2


def _times(rows: Float[Array, "... dim"], moment: Moment) -> Float[Array, "... dim"]:
    """Every row times a moment."""
    return rows * moment if moment.ndim == 1 else rows @ moment


def _is_diagonal(moment: Float[np.ndarray, "dim dim"], tolerance: float = 0.0) -> bool:
    return bool(np.abs(moment - np.diag(np.diag(moment))).max() <= tolerance * np.abs(moment).max())


def _compact(moment: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, " dim"] | Float[np.ndarray, "dim dim"]:
    return np.diag(moment).copy() if _is_diagonal(moment, _ROUNDING) else moment


def _eigenvectors(matrix: Float[np.ndarray, "dim dim"], diagonal: bool) -> Float[np.ndarray, "dim dim"]:
    """Eigenvectors as columns, the largest eigenvalue first; the axes as they are if all is diagonal already."""
    return np.eye(matrix.shape[0]) if diagonal else np.linalg.eigh(matrix)[1][:, ::-1]
