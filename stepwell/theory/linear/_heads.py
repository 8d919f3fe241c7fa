r"""Heads that are still small, on a plateau where others have settled: none feels another.

In the principal directions of the task (`_principal`), with $\hat w_d = w_d/\|w_d\|$, $\hat z_d = z_d/\|z_d\|$,
$x_{rd} = \hat w_d^\top k_r$, $y_{rd} = \hat z_d^\top q_r$, $P = \sum_r x_r y_r^\top$, $B = vP$,
$n_d = \|w_d\|\|z_d\|$, $N_{de} = \hat w_d^\top\hat w_e$ and $N'_{de} = \hat z_d^\top\hat z_e$, a head moves by

$\tau\dot v = \langle P, G\rangle$, $\tau\dot x_r = vNGy_r$, $\tau\dot y_r = vN'G^\top x_r$,
$G_{de} = n_ds_d\,\delta_{de} - T_{de}B_{de}$, $T_{de} = t_d\|w_d\|^2\|z_e\|^2$,

where G is zero if d or e is a component that others have learned: these answer any small change at once. It gains
$\sum_d 2n_ds_dB_{dd} - \sum_{de}T_{de}B_{de}^2$ over the rest. Conserved is $v^2 - \sum_r x_r^\top N^{-1}x_r$, and so
with y and $N'$. In the paper's case $x_{rd}$ and $y_{rd}$ are the coordinates of key and query along $e_d$,
N = N' = 1 and $n_ds_d = \lambda_d^2$.

Since $T_{de} = a_d b_e$ with $a_d = t_d\|w_d\|^2$ and $b_e = \|z_e\|^2$, products of pairs are enough: with
$X_{rq} = \sum_d a_d x_{rd}x_{qd}$ and $Y_{rq} = \sum_e b_e y_{re}y_{qe}$,

$\tau\dot v = \sum_{rd} n_ds_dx_{rd}y_{rd} - v\langle X, Y\rangle$,
$(Gy_r)_d = n_ds_dy_{rd} - v\,a_d\sum_q Y_{rq}x_{qd}$, $(G^\top x_r)_e = n_es_ex_{re} - v\,b_e\sum_q X_{rq}y_{qe}$,

and the gain is $2v\sum_{rd} n_ds_dx_{rd}y_{rd} - v^2\langle X, Y\rangle$.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from ._principal import Principal

Weights = Float[np.ndarray, "weights head run"]
"""Of each head v, then all x, then all y. Runs come last, so that all arithmetic is along them."""

PerHead = Float[np.ndarray, "head run"]


@dataclass(frozen=True)
class Directions:
    """The principal directions of each run, which differ where components of one size are rotated.

    `keys` and `queries` are $w_d$ and $z_d$, of shape (run, dim, component).
    """

    keys: Float[np.ndarray, "run dim component"]
    queries: Float[np.ndarray, "run dim component"]

    @classmethod
    def of(cls, basis: Principal, runs: int) -> "Directions":
        return cls(*(np.repeat(side[None], runs, axis=0) for side in (basis.keys, basis.queries)))

    def take(self, runs: np.ndarray) -> "Directions":
        return Directions(self.keys[runs], self.queries[runs])

    def norms(self) -> Float[np.ndarray, "2 run component"]:
        return np.stack([np.sqrt(np.einsum("rdc,rdc->rc", side, side)) for side in (self.keys, self.queries)])

    def rotated_within(self, group: slice, rotation: Float[np.ndarray, "run size size"]) -> "Directions":
        """The same with other directions for a group of components of one size, of which any will do."""
        sides = self.keys.copy(), self.queries.copy()
        for side in sides:
            side[:, :, group] = side[:, :, group] @ rotation
        return Directions(*sides)

    def coordinates(
        self, keys: Float[np.ndarray, "run head pair dim"], queries: Float[np.ndarray, "run head pair dim"]
    ) -> tuple[Float[np.ndarray, "run head pair component"], Float[np.ndarray, "run head pair component"]]:
        r"""$x = \hat w_d^\top k$ and $y = \hat z_d^\top q$."""
        norms = self.norms()[:, :, None, None]
        return keys @ self.keys[:, None] / norms[0], queries @ self.queries[:, None] / norms[1]

    def overlaps(self) -> Float[np.ndarray, "2 component component run"] | None:
        """N and N' of each run; None if the directions of all are orthogonal, up to rounding.

        Those of a run whose directions are orthogonal are exactly so: rounding would let what is fast drive what is
        slow.
        """
        dim = self.keys.shape[-1]
        units = np.stack([self.keys, self.queries]) / self.norms()[:, :, None]
        overlaps = np.swapaxes(units, 2, 3) @ units
        oblique = np.abs(overlaps - np.eye(dim)).max(axis=(2, 3)) >= 64 * dim * np.finfo(float).eps
        if not oblique.any():
            return None
        return np.moveaxis(np.where(oblique[..., None, None], overlaps, np.eye(dim)), 1, 3)


class Plateau:
    r"""What moves heads on the plateau of each run: of the components that are not learned, and 0 for the rest.

    - `driving`: $n_ds_d$.
    - `curvatures`: $a_d$ and $b_d$.
    - `overlaps`: N and N'; None where they are 1.
    """

    def __init__(
        self,
        driving: Float[np.ndarray, "component run"],
        curvatures: Float[np.ndarray, "2 component run"],
        overlaps: Float[np.ndarray, "2 component component run"] | None,
    ):
        self.driving, self.curvatures, self.overlaps = driving, curvatures, overlaps

    @classmethod
    def of(cls, basis: Principal, directions: Directions, known: Bool[np.ndarray, "component run"]) -> "Plateau":
        """The plateaus where the components `known` are learned."""
        keys, queries = np.moveaxis(directions.norms(), 1, 2)
        free = 1.0 - known
        curvatures = np.stack([basis.curvatures[:, None] * (keys * keys) * free, queries * queries * free])
        return cls(keys * queries * basis.sizes[:, None] * free, curvatures, directions.overlaps())

    def take(self, runs: np.ndarray) -> "Plateau":
        overlaps = None if self.overlaps is None else self.overlaps[..., runs]
        return Plateau(self.driving[..., runs], self.curvatures[..., runs], overlaps)


class Heads:
    """Heads of many runs, each alone on the plateau of its run."""

    def __init__(self, plateau: Plateau, heads: int):
        self._plateau, self.count = plateau, heads
        # Arrays of one shape, contiguous, with heads and runs as one axis: for few runs, what counts is how simple the
        # operations are.
        dim = len(plateau.driving)
        spread = np.repeat(np.stack([plateau.driving, *plateau.curvatures])[:, :, None], heads, axis=2)
        drive, *bends = spread.reshape(3, dim, -1)
        self._drives, self._bends = np.stack([drive, drive]), np.stack(bends)
        self._sum, self._sums = np.ones(dim), np.kron(np.eye(2), np.ones(dim))
        self._crossed = np.ascontiguousarray(self._sums[::-1].T)

    def take(self, runs: np.ndarray) -> "Heads":
        return Heads(self._plateau.take(runs), self.count)

    def gains(self, weights: Weights) -> PerHead:
        """What each head gains."""
        v, (_, _, work, squares) = weights[0].reshape(-1), self._terms(weights)
        product = squares[0] * squares[1]
        gains = v * (2 * work - v * (product if product.ndim == 1 else product.sum(axis=(0, 1))))
        return gains.reshape(weights.shape[1:])

    def move(self, weights: Weights, velocity: Weights) -> None:
        """Write the velocity."""
        v, (driven, bent, work, squares) = weights[0].reshape(-1), self._terms(weights)
        moved, drag = velocity[1:].reshape(bent.shape), v * squares
        if bent.ndim == 3:
            bent *= self._crossed.dot(drag).reshape(bent.shape)
            bound = drag[0] * squares[1]
        else:
            bent = np.einsum("srqc,sqdc->srdc", drag[::-1], bent)
            bound = np.einsum("rqc,rqc->c", drag[0], squares[1])
        np.subtract(driven[1], bent[0], out=moved[0])
        np.subtract(driven[0], bent[1], out=moved[1])
        if self._plateau.overlaps is not None:
            pairs = sides(velocity, len(self._plateau.driving))
            pairs[:] = np.einsum("sdeb,srehb->srdhb", self._plateau.overlaps, pairs)
        moved *= v
        np.subtract(work, bound, out=velocity[0].reshape(-1))

    def _terms(self, weights: Weights):
        r"""$n_ds_dx_{rd}$ and $n_ds_dy_{rd}$, $a_dx_{rd}$ and $b_dy_{rd}$, $\sum_{rd} n_ds_dx_{rd}y_{rd}$, X and Y.

        One pair of each head has no axis of pairs.
        """
        _, dim, columns = self._drives.shape
        if len(weights) == 1 + 2 * dim:
            pairs = weights[1:].reshape(2, dim, columns)
            driven, bent = self._drives * pairs, self._bends * pairs
            squares = self._sums.dot((bent * pairs).reshape(2 * dim, columns))
            return driven, bent, self._sum.dot(driven[0] * pairs[1]), squares
        pairs = weights[1:].reshape(2, -1, dim, columns)
        driven, bent = self._drives[:, None] * pairs, self._bends[:, None] * pairs
        work = np.einsum("rdc,rdc->c", driven[0], pairs[1])
        return driven, bent, work, np.einsum("srdc,sqdc->srqc", bent, pairs)

    def drift(self, before: Weights, after: Weights) -> Float[np.ndarray, " run"]:
        """How far what the flow conserves is off at the end, relative to the squared weights there: by errors alone."""
        (v0, p0), (v1, p1) = self._squares(before), self._squares(after)
        size = v1 + p1  # 0 where squares underflow
        return np.max(np.abs((v1 - p1) - (v0 - p0)) / np.where(size > 0, size, 1.0), axis=(0, 1))

    def _squares(self, weights: Weights) -> tuple[PerHead, Float[np.ndarray, "2 head run"]]:
        pairs = sides(weights, len(self._plateau.driving))
        if self._plateau.overlaps is None:
            return weights[0] ** 2, np.einsum("srdhb,srdhb->shb", pairs, pairs)
        inverses = np.linalg.inv(np.moveaxis(self._plateau.overlaps, 3, 1))
        return weights[0] ** 2, np.einsum("srdhb,sbde,srehb->shb", pairs, inverses, pairs)


def sides(weights: Weights, dim: int) -> Float[np.ndarray, "2 pair component head run"]:
    """x and y of each head, a view."""
    return weights[1:].reshape(2, -1, dim, *weights.shape[1:])
