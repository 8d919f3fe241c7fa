"""Linear systems along the flow of merged attention at infinitely many sequences."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell.models import AbstractModel, MergedAttention
from stepwell.objectives import Population

from ._registry import AbstractResolvent
from ._shared import OfPopulation


class ResolventMerged(OfPopulation, AbstractResolvent):
    r"""What `Population` computes, for merged attention; it solves systems with the Jacobian of its flow by itself.

    With $A = \sum_h v_h U_h$ and $G = M\Lambda - C A \Lambda$ the flow is $\dot v_h = \langle U_h, G\rangle$,
    $\dot U_h = v_h G$, and its Jacobian, shifted by σ and with the sign turned, is $B + \Theta^\top W \Theta$, with
    $\Theta = \partial A/\partial w$, $W: Y \mapsto C Y \Lambda$ and the same block B in every head: σ on the diagonal,
    and $-G$ between the value and the other weights. So B is inverted by hand, and

    $\Theta B^{-1} \Theta^\top = \frac{\|v\|^2}{\sigma} + \frac{\sigma}{\sigma^2 - \|G\|^2} \sum_h p_h p_h^\top, \quad
    p_h = U_h + \frac{v_h}{\sigma} G$.

    In the basis of the eigenvectors of C and of Λ, W is diagonal. So what is left to factorize has as many equations as
    there are heads.
    """

    vectors: tuple[Float[Array, "*run dim dim"], Float[Array, "*run dim dim"]]
    r"""The eigenvectors of C and of $\Lambda$, as columns."""
    curvature: Float[Array, "*run dim dim"]
    """W, by row and column."""

    @classmethod
    def of(cls, population: Population, model: AbstractModel) -> "ResolventMerged | None":
        """Return this form of `population` for models like `model`; None where its systems are not these, or larger."""
        if type(population) is not Population or type(model) is not MergedAttention or population.outputs != 1:
            return None
        double = all(weight.dtype == np.float64 for weight in (model.value, model.key_query))
        if not double or model.value.shape[0] > model.dim**2:
            return None
        moments = population.matrices()
        (first, right), (second, left) = (np.linalg.eigh(np.asarray(moments[place])) for place in (0, 2))
        curvature = second[..., :, None] * first[..., None, :]
        return cls(population, moments, (jax.device_put(left), jax.device_put(right)), jax.device_put(curvature))

    def resolvent(
        self, weights: Float[Array, "head weights"], shift: Float[Array, ""]
    ) -> Callable[[Float[Array, "head weights"]], Float[Array, "head weights"]]:
        lam, drive, second = self.moments
        left, right = self.vectors
        dim = len(lam)
        given = _Heads.of(weights, dim)
        pull = drive - second @ jnp.einsum("h,hij->ij", given.value, given.key_query) @ lam
        heads, pull = given.rotated(left.T, right), left.T @ pull @ right
        determinant, curvature = shift**2 - jnp.sum(pull**2), self.curvature
        diagonal = 1 + jnp.sum(heads.value**2) / shift * curvature
        along = (heads.key_query + heads.value[:, None, None] / shift * pull).reshape(len(weights), -1)
        scaled = (curvature / diagonal).reshape(-1) * along
        small = jnp.linalg.inv(jnp.eye(len(weights)) + shift / determinant * scaled @ along.T)

        def alone(side: _Heads) -> _Heads:
            """B⁻¹ times weights."""
            value = (shift * side.value + jnp.einsum("hij,ij->h", side.key_query, pull)) / determinant
            return _Heads(value, (side.key_query + value[:, None, None] * pull) / shift)

        def solve(side: Float[Array, "head weights"]) -> Float[Array, "head weights"]:
            apart = alone(_Heads.of(side, dim).rotated(left.T, right))
            moved = jnp.einsum("h,hij->ij", apart.value, heads.key_query)
            moved += jnp.einsum("h,hij->ij", heads.value, apart.key_query)
            shares = shift / determinant * (small @ (scaled @ moved.reshape(-1)))
            excess = curvature / diagonal * (moved - (shares @ along).reshape(dim, dim))
            pulled = _Heads(jnp.einsum("hij,ij->h", heads.key_query, excess), heads.value[:, None, None] * excess)
            solution = jax.tree.map(jnp.subtract, apart, alone(pulled))
            return solution.rotated(left, right.T).flat()

        return solve


class _Heads(NamedTuple):
    """Weights of all heads, or changes of them."""

    value: Float[Array, " head"]
    key_query: Float[Array, "head dim dim"]

    @classmethod
    def of(cls, weights: Float[Array, "head weights"], dim: int) -> "_Heads":
        return cls(weights[:, 0], weights[:, 1:].reshape(-1, dim, dim))

    def flat(self) -> Float[Array, "head weights"]:
        return jnp.concatenate([self.value[:, None], self.key_query.reshape(len(self.value), -1)], axis=1)

    def rotated(self, left: Float[Array, "dim dim"], right: Float[Array, "dim dim"]) -> "_Heads":
        return _Heads(self.value, left @ self.key_query @ right)
