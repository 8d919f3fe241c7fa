"""The loss over infinitely many sequences, in closed form."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._types import Loss, Normalisation
from stepwell.models import AbstractCubicModel, AbstractModel
from stepwell.tasks import AbstractTask, population_moments

from ._abstract import AbstractObjective, require
from ._cubic import check_label_blocks, check_linear


class Population(AbstractObjective):
    r"""$L = \mathrm{tr}(\Omega\Lambda) - \tfrac2O \sum_o \mathrm{tr}(A_{oo}^\top M \Lambda)
    + \tfrac1O \sum_{op} \mathrm{tr}(A_{op}^\top C A_{op} \Lambda)$

    for linear attention with its label blocks at zero, where they stay. $A$ is the effective map, $M, C, \Lambda$ the
    task's moments (`population_moments`), O the number of outputs.
    """

    input: Float[Array, "dim dim"]
    cross: Float[Array, "dim dim"]
    second: Float[Array, "dim dim"]
    label_power: Float[Array, ""]
    outputs: int = eqx.field(static=True)
    normalisation: Normalisation = eqx.field(static=True)

    def __init__(self, task: AbstractTask, normalisation: Normalisation = "1/N"):
        moments = population_moments(task, normalisation)
        self.input = jax.device_put(moments.input)
        self.cross = jax.device_put(moments.cross)
        self.second = jax.device_put(moments.second)
        self.label_power = jax.device_put(moments.label_power)
        self.outputs = task.outputs
        self.normalisation = normalisation

    def __call__(self, model: AbstractModel) -> Loss:
        assert isinstance(model, AbstractCubicModel)
        maps = model.effective_map()
        own = jnp.einsum("ooij->ij", maps)
        linear = jnp.sum(own * (self.cross @ self.input))
        quadratic = jnp.sum(maps * (self.second @ maps @ self.input))
        return self.label_power + (quadratic - 2 * linear) / self.outputs

    def check(self, model: AbstractModel) -> None:
        check_linear(model, self.normalisation)
        assert isinstance(model, AbstractCubicModel)
        outputs, dim = model.shape
        require(
            (outputs, dim) == (self.outputs, self.input.shape[0]),
            f"the model has {outputs} outputs and dimension {dim}, the task {self.outputs} and {self.input.shape[0]}; "
            "they must agree",
        )
        check_label_blocks(model)

    def floor(self, model: AbstractModel) -> float | None:
        r"""With $B = C^{-1/2} M \Lambda^{1/2}$, $L = \|C^{1/2} A \Lambda^{1/2} - B\|_F^2 + \mathrm{tr}(\Omega\Lambda) -
        \|B\|_F^2$, so the best map of rank r leaves $\mathrm{tr}(\Omega\Lambda) - \sum_{i \le r} \sigma_i(B)^2$."""
        assert isinstance(model, AbstractCubicModel)
        rank = model.map_rank()
        if rank is None:
            return None
        lam, vectors = np.linalg.eigh(np.asarray(self.second))
        kept = lam > 1e-13 * lam.max()
        inverse_root = (vectors[:, kept] * lam[kept] ** -0.5) @ vectors[:, kept].T
        lam, vectors = np.linalg.eigh(np.asarray(self.input))
        root = (vectors * np.sqrt(np.clip(lam, 0.0, None))) @ vectors.T
        strengths = np.linalg.svd(inverse_root @ np.asarray(self.cross) @ root, compute_uv=False) ** 2
        return float(self.label_power) - float(strengths[:rank].sum())
