r"""The weights of heads in the principal directions of a task, and what moves them.

In the principal directions (`_principal`), with $\hat w_d = w_d/\|w_d\|$, $\hat z_d = z_d/\|z_d\|$,
$x_{rd} = \hat w_d^\top k_r$, $y_{rd} = \hat z_d^\top q_r$, $P = \sum_r x_r y_r^\top$, $B = vP$,
$n_d = \|w_d\|\|z_d\|$, $N_{de} = \hat w_d^\top\hat w_e$ and $N'_{de} = \hat z_d^\top\hat z_e$, a head moves by

$\tau\dot v = \langle P, G\rangle$, $\tau\dot x_r = vNGy_r$, $\tau\dot y_r = vN'G^\top x_r$,
$G_{de} = n_ds_d\,\delta_{de} - T_{de}\sum_i B_{i,de}$, $T_{de} = t_d\|w_d\|^2\|z_e\|^2 = a_d b_e$,

where G is zero if d or e is a component that others have learned: these answer any small change at once. Whatever G is,
$v^2 - \sum_r x_r^\top N^{-1}x_r$ is conserved, and so with y and $N'$. In the paper's case $x_{rd}$ and $y_{rd}$ are
the coordinates of key and query along $e_d$, N = N' = 1 and $n_ds_d = \lambda_d^2$. A head alone gains
$\sum_d 2n_ds_dB_{dd} - \sum_{de}T_{de}B_{de}^2$ over the components that are not learned.
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

    def overlaps(self) -> Float[np.ndarray, "2 component component run"]:
        """N and N' of each run.

        Directions that are orthogonal up to rounding are exactly so: rounding would let what is fast drive what is
        slow.
        """
        dim = self.keys.shape[-1]
        units = np.stack([self.keys, self.queries]) / self.norms()[:, :, None]
        overlaps = np.swapaxes(units, 2, 3) @ units
        oblique = np.abs(overlaps - np.eye(dim)).max(axis=(2, 3)) >= 64 * dim * np.finfo(float).eps
        return np.moveaxis(np.where(oblique[..., None, None], overlaps, np.eye(dim)), 1, 3)


class Plateau:
    r"""What moves heads on the plateau of each run: of the components that are not learned, and 0 for the rest.

    - `driving`: $n_ds_d$.
    - `curvatures`: $a_d$ and $b_d$.
    - `overlaps`: N and N'; None where they are 1 for all runs.
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

    def oblique(self) -> Bool[np.ndarray, " run"]:
        """Whether the directions of a run are not orthogonal."""
        if self.overlaps is None:
            return np.zeros(self.driving.shape[1], bool)
        return np.any(self.overlaps != np.eye(len(self.driving))[..., None], axis=(0, 1, 2))

    def take(self, runs: np.ndarray, first: int = 0) -> "Plateau":
        """Those of some runs, from the component `first` on."""
        overlaps = None if self.overlaps is None else self.overlaps[:, first:, first:, runs]
        part = Plateau(self.driving[first:, runs], self.curvatures[:, first:, runs], overlaps)
        return part if part.oblique().any() else Plateau(part.driving, part.curvatures, None)


def sides(weights: Weights, dim: int) -> Float[np.ndarray, "2 pair component head run"]:
    """x and y of each head, a view."""
    return weights[1:].reshape(2, -1, dim, *weights.shape[1:])


def gains(plateau: Plateau, weights: Weights) -> PerHead:
    """What each head would gain alone."""
    pairs = sides(weights, len(plateau.driving))
    work = np.einsum("db,rdhb,rdhb->hb", plateau.driving, *pairs)
    squares = np.einsum("sdb,srdhb,sqdhb->srqhb", plateau.curvatures, pairs, pairs)
    return weights[0] * (2 * work - weights[0] * np.sum(squares[0] * squares[1], axis=(0, 1)))


def drift(plateau: Plateau, before: Weights, after: Weights) -> Float[np.ndarray, " run"]:
    """How far what the flow conserves is off at the end, relative to the squared weights there: by errors alone."""
    (v0, p0), (v1, p1) = _squares(plateau, before), _squares(plateau, after)
    size = v1 + p1  # 0 where squares underflow
    return np.max(np.abs((v1 - p1) - (v0 - p0)) / np.where(size > 0, size, 1.0), axis=(0, 1))


def _squares(plateau: Plateau, weights: Weights) -> tuple[PerHead, Float[np.ndarray, "2 head run"]]:
    pairs = sides(weights, len(plateau.driving))
    if plateau.overlaps is None:
        return weights[0] ** 2, np.einsum("srdhb,srdhb->shb", pairs, pairs)
    inverses = np.linalg.inv(np.moveaxis(plateau.overlaps, 3, 1))
    return weights[0] ** 2, np.einsum("srdhb,sbde,srehb->shb", pairs, inverses, pairs)
