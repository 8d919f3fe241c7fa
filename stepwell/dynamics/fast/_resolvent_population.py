"""Linear systems along the flow of separate attention at infinitely many sequences."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from stepwell.models import AbstractModel, is_separate
from stepwell.objectives import Population

from ._registry import AbstractResolvent
from ._shared import OfPopulation, applies

_DIMENSION = 64
"""The largest dimension for this form: the system has D⁴ entries, 128 MiB here."""
_WEIGHTS = 100
"""Up to so many, the whole matrix is factorized as fast, in a program that is compiled faster."""


class ResolventPopulation(OfPopulation, AbstractResolvent):
    r"""What `Population` computes, for separate attention; it solves systems with the Jacobian of its flow by itself.

    With $A = \sum_a v_a k_a q_a^\top$ and $S = C A \Lambda - M\Lambda$, the flow is $\dot v = -\sum_r k_r^\top S q_r$,
    $\dot k_r = -v S q_r$, $\dot q_r = -v S^\top k_r$ in every head, and minus its Jacobian is $\Theta^\top W \Theta$
    plus a block for each head, with $\Theta = \partial A/\partial w$ and $W: Y \mapsto C Y \Lambda$. In the basis of
    the singular vectors of $S = \sum_i s_i u_i w_i^\top$ a block, shifted by σ, has σ on its diagonal, and

    - $v s_i$ between entry i of a key and entry i of its query: two by two it is inverted by hand;
    - $s_i q_{r,i}$ and $s_i k_{r,i}$ between the value and those entries: an arrow, inverted by way of its tip.

    So $B^{-1}$, for all blocks together, costs no more than a product with the weights, and what is left to factorize
    has D² equations: $(B + \Theta^\top W \Theta)^{-1} = B^{-1} - B^{-1} \Theta^\top W (1 + \Theta B^{-1} \Theta^\top
    W)^{-1} \Theta B^{-1}$. With $N = \Theta B^{-1} \Theta^\top$, a head's part of it is

    $N_{ij,kl} = v^2 \big(\delta_{ik} a_i (Q^\top Q)_{jl} + \delta_{jl} a_j (K^\top K)_{ik} + \delta_{il} b_i
    (K^\top Q)_{kj} + \delta_{jk} b_j (K^\top Q)_{il}\big) + u_{ij} u_{kl} / \rho$

    where $a_i, b_i = \tfrac12 \big(\tfrac1{\sigma + v s_i} \pm \tfrac1{\sigma - v s_i}\big)$, $\rho$ is σ less what the
    tip of the arrow loses to the rest, and $u = \Theta$ times the block's solution for the tip.
    """

    @classmethod
    def of(cls, population: Population, model: AbstractModel) -> "ResolventPopulation | None":
        """Return this form of `population` for models like `model`; None where its systems are not these, or larger."""
        if not applies(population, model, _DIMENSION):
            return None
        assert is_separate(model)
        heads, rank, _ = model.key.shape
        weights = heads * (1 + 2 * rank * model.dim)
        return cls(population, population.matrices()) if weights > max(model.dim**2, _WEIGHTS) else None

    def resolvent(
        self, weights: Float[Array, "head weights"], shift: Float[Array, ""]
    ) -> Callable[[Float[Array, "head weights"]], Float[Array, "head weights"]]:
        lam, drive, second = self.moments
        dim = len(lam)
        given = _Heads.of(weights, dim)
        left, strengths, right = jnp.linalg.svd(second @ given.map() @ lam - drive)
        second, lam = left.T @ second @ left, right @ lam @ right.T
        blocks = _Blocks.of(given.rotated(left, right.T), strengths, shift)
        # N W, whose last two axes are those of a map.
        coupling = jnp.einsum("xkl,ln->xkn", blocks.coupling().reshape(-1, dim, dim), lam)
        coupling = jnp.einsum("xkn,km->xmn", coupling, second).reshape(dim**2, dim**2)
        factors, _, order = jax.lax.linalg.lu(jnp.eye(dim**2) + coupling)

        def solve(side: Float[Array, "head weights"]) -> Float[Array, "head weights"]:
            apart = blocks.solve(_Heads.of(side, dim).rotated(left, right.T))
            moved = blocks.heads.map_change(apart).sum(0).reshape(-1)
            half = solve_triangular(factors, moved[order], lower=True, unit_diagonal=True)
            excess = second @ solve_triangular(factors, half).reshape(dim, dim) @ lam
            together = blocks.solve(blocks.heads.pulled(excess))
            solution = jax.tree.map(jnp.subtract, apart, together)
            return solution.rotated(left.T, right).flat()

        return solve


class _Heads(NamedTuple):
    """Weights of all heads, or changes of them."""

    value: Float[Array, " head"]
    key: Float[Array, "head rank dim"]
    query: Float[Array, "head rank dim"]

    @classmethod
    def of(cls, weights: Float[Array, "head weights"], dim: int) -> "_Heads":
        pairs = weights[:, 1:].reshape(len(weights), 2, -1, dim)
        return cls(weights[:, 0], pairs[:, 0], pairs[:, 1])

    def flat(self) -> Float[Array, "head weights"]:
        return jnp.concatenate([part.reshape(len(self.value), -1) for part in self], axis=1)

    def rotated(self, keys: Float[Array, "dim dim"], queries: Float[Array, "dim dim"]) -> "_Heads":
        return _Heads(self.value, self.key @ keys, self.query @ queries)

    def map(self) -> Float[Array, "dim dim"]:
        """The effective map A."""
        return jnp.einsum("h,hri,hrj->ij", self.value, self.key, self.query)

    def map_change(self, change: "_Heads") -> Float[Array, "head dim dim"]:
        """Θ times a change, head by head."""
        value = self.value[:, None, None]
        by_key = jnp.einsum("hri,hrj->hij", change.value[:, None, None] * self.key + value * change.key, self.query)
        return by_key + jnp.einsum("hri,hrj->hij", value * self.key, change.query)

    def pulled(self, force: Float[Array, "dim dim"]) -> "_Heads":
        """Θ transposed, times a map."""
        value = self.value[:, None, None]
        on_key, on_query = self.query @ force.T, self.key @ force
        return _Heads(jnp.sum(self.key * on_key, axis=(1, 2)), value * on_key, value * on_query)


class _Blocks(NamedTuple):
    """B, in the basis of singular vectors."""

    heads: _Heads
    same: Float[Array, "head 1 dim"]
    """a."""
    other: Float[Array, "head 1 dim"]
    """b."""
    arrow: _Heads
    """What is between the value and the other weights; its own value is not used."""
    rest: _Heads
    """The block's solution for the tip of the arrow, times ρ."""
    tip: Float[Array, " head"]
    """ρ."""

    @classmethod
    def of(cls, heads: _Heads, strengths: Float[Array, " dim"], shift: Float[Array, ""]) -> "_Blocks":
        product = heads.value[:, None, None] * strengths
        plus, minus = 1 / (shift + product), 1 / (shift - product)
        same, other = (plus + minus) / 2, (plus - minus) / 2
        arrow = _Heads(heads.value, strengths * heads.query, strengths * heads.key)
        key, query = _by_pairs(same, other, arrow)
        rest = _Heads(jnp.ones_like(heads.value), -key, -query)
        return cls(heads, same, other, arrow, rest, shift - jnp.sum(arrow.key * key + arrow.query * query, axis=(1, 2)))

    def solve(self, side: _Heads) -> _Heads:
        key, query = _by_pairs(self.same, self.other, side)
        value = (side.value - jnp.sum(self.arrow.key * key + self.arrow.query * query, axis=(1, 2))) / self.tip
        scale = value[:, None, None]
        return _Heads(value, key + scale * self.rest.key, query + scale * self.rest.query)

    def coupling(self) -> Float[Array, "dim dim dim dim"]:
        """The sum over heads of N = Θ B⁻¹ Θᵀ, a D² × D² matrix."""
        heads, dim = self.heads, self.same.shape[-1]
        square = heads.value[:, None] ** 2
        same, other, unit = square * self.same[:, 0], square * self.other[:, 0], jnp.eye(dim)
        pairs = (heads.key, heads.key), (heads.query, heads.query), (heads.key, heads.query)
        keys, queries, crossed = (jnp.einsum("hri,hrj->hij", left, right) for left, right in pairs)
        by_rows = jnp.einsum("hi,hjl->ijl", same, queries)[:, :, None, :] * unit[:, None, :, None]
        by_columns = jnp.einsum("hj,hik->ijk", same, keys)[:, :, :, None] * unit[None, :, None, :]
        across = jnp.einsum("hi,hkj->ijk", other, crossed)[:, :, :, None] * unit[:, None, None, :]
        back = jnp.einsum("hj,hil->ijl", other, crossed)[:, :, None, :] * unit[None, :, :, None]
        tips = heads.map_change(self.rest).reshape(-1, dim**2)
        by_tips = (tips / self.tip[:, None]).T @ tips
        return by_rows + by_columns + across + back + by_tips.reshape(dim, dim, dim, dim)


def _by_pairs(same: Array, other: Array, side: _Heads) -> tuple[Array, Array]:
    """Keys and queries, two by two."""
    return same * side.key + other * side.query, other * side.key + same * side.query
