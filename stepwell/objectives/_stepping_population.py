"""Steps along the flow of separate attention in population, each in one native call."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell import native
from stepwell._types import Loss
from stepwell.models import AbstractModel

from ._abstract import AbstractStepping, Tableau
from ._fused_population import applies, whole_moments

if TYPE_CHECKING:
    from ._population import Population

_DIMENSION = 12
"""At the most: beyond, a run alone is faster with LAPACK, since the small system has D² equations."""


class SteppingPopulation(AbstractStepping):
    r"""What `Population` computes, for separate attention in a few dimensions; it takes steps of its flow by itself.

    With $A = \sum_a v_a k_a q_a^\top$ and $S = C A \Lambda - M\Lambda$, the flow is $\dot v = -\sum_r k_r^\top S q_r$,
    $\dot k_r = -v S q_r$, $\dot q_r = -v S^\top k_r$ in every head, and minus its Jacobian is $\Theta^\top W \Theta$
    plus a block for each head, with $\Theta = \partial A/\partial w$ and $W: Y \mapsto C Y \Lambda$. In the basis of
    the singular vectors of $S = \sum_i s_i u_i w_i^\top$ a block, shifted by σ, has σ on its diagonal, and

    - $v s_i$ between entry i of a key and entry i of its query: two by two it is inverted by hand;
    - $s_i q_{r,i}$ and $s_i k_{r,i}$ between the value and those entries: an arrow, inverted by way of its tip.

    So $B^{-1}$, for all blocks together, costs no more than a product with the weights, and what is left to factorise
    has D² equations: $(B + \Theta^\top W \Theta)^{-1} = B^{-1} - B^{-1} \Theta^\top W (1 + \Theta B^{-1} \Theta^\top
    W)^{-1} \Theta B^{-1}$. With $N = \Theta B^{-1} \Theta^\top$, a head's part of it is

    $N_{ij,kl} = v^2 \big(\delta_{ik} a_i (Q^\top Q)_{jl} + \delta_{jl} a_j (K^\top K)_{ik} + \delta_{il} b_i
    (K^\top Q)_{kj} + \delta_{jk} b_j (K^\top Q)_{il}\big) + u_{ij} u_{kl} / \rho$

    where $a_i, b_i = \tfrac12 \big(\tfrac1{\sigma + v s_i} \pm \tfrac1{\sigma - v s_i}\big)$, $\rho$ is σ less what the
    tip of the arrow loses to the rest, and $u = \Theta$ times the block's solution for the tip. The native pass takes
    as many runs at a time as a vector of the processor holds, and shares the runs among the cores.
    """

    population: "Population"
    moments: tuple[Float[Array, "*run dim dim"], Float[Array, "*run dim dim"], Float[Array, "*run dim dim"]]
    r"""$\Lambda$, $M\Lambda$ and $C$."""
    target: str = eqx.field(static=True)

    @classmethod
    def of(cls, population: "Population", model: AbstractModel) -> "SteppingPopulation | None":
        """For models like this one; None where the pass does not apply or cannot be built."""
        if not applies(population, model, _DIMENSION):
            return None
        kernel = native.kernel("population_step", "double")
        return None if kernel is None else cls(population, whole_moments(population), kernel.target)

    def rosenbrock(
        self, weights: Float[Array, "head weights"], length: Float[Array, ""], tableau: Tableau
    ) -> tuple[Loss, Float[Array, "results head weights"]]:
        shapes = (), (2 + len(tableau.d), *weights.shape)
        results = [jax.ShapeDtypeStruct(shape, np.float64) for shape in shapes]
        call = jax.ffi.ffi_call(self.target, results, vmap_method="expand_dims")
        loss, found = call(weights, *self.moments, self.population.label_power, length, *map(jnp.asarray, tableau))
        return loss, found

    def coefficients(self, model: AbstractModel) -> Float[Array, "outputs labels dim dim"]:
        return self.population.coefficients(model)

    def quadratic(self, coefficients: Float[Array, "outputs labels dim dim"]) -> Loss:
        return self.population.quadratic(coefficients)

    def check(self, model: AbstractModel) -> None:
        self.population.check(model)

    def floor(self, model: AbstractModel) -> float | None:
        return self.population.floor(model)
