r"""The flow of heads on a plateau, where they do not interact.

In the principal directions of the task (`_principal`), with $\hat w_d = w_d/\|w_d\|$, $\hat z_d = z_d/\|z_d\|$,
$x_{rd} = \hat w_d^\top k_r$, $y_{rd} = \hat z_d^\top q_r$, $P = \sum_r x_r y_r^\top$, $B = vP$,
$n_d = \|w_d\|\|z_d\|$, $N_{de} = \hat w_d^\top\hat w_e$ and $N'_{de} = \hat z_d^\top\hat z_e$, a head moves by

$\tau\dot v = \langle P, G\rangle$, $\tau\dot x_r = vNGy_r$, $\tau\dot y_r = vN'G^\top x_r$,
$G_{de} = n_ds_d\,\delta_{de} - T_{de}B_{de}$, $T_{de} = t_d\|w_d\|^2\|z_e\|^2$,

over the components d, e that other heads have not learned. Beyond the components S that it has learned itself, where
$B^S_{dd} = s_d/(t_dn_d)$, it gains $\sum_{d\notin S} 2n_ds_dB_{dd} - \sum_{de}T_{de}(B_{de} - B^S_{de})^2$.
With the components that it does not follow left out, $v^2 - \sum_r x_r^\top N^{-1}x_r$ is conserved, and so with y and
$N'$. In the paper's case $x_{rd}$ and $y_{rd}$ are the coordinates of key and query along $e_d$, N = N' = 1 and
$n_ds_d = \lambda_d^2$.

Since $T_{de} = a_d b_e$ with $a_d = t_d\|w_d\|^2$ and $b_e = \|z_e\|^2$, products of pairs are enough: with
$X_{rq} = \sum_d a_d x_{rd}x_{qd}$ and $Y_{rq} = \sum_e b_e y_{re}y_{qe}$,

$\tau\dot v = \sum_{rd} n_ds_dx_{rd}y_{rd} - v\langle X, Y\rangle$,
$(Gy_r)_d = n_ds_dy_{rd} - v\,a_d\sum_q Y_{rq}x_{qd}$, $(G^\top x_r)_e = n_es_ex_{re} - v\,b_e\sum_q X_{rq}y_{qe}$,

and a head that has learned nothing gains $2v\sum_{rd} n_ds_dx_{rd}y_{rd} - v^2\langle X, Y\rangle$.
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


class Heads:
    r"""How heads move that have each learned some components, where others have learned others.

    - `free`: 1 for the components that others have not learned, 0 for the rest.
    - `driving`: $n_ds_d$; `curvatures`: $a_d$ and $b_d$; both 0 where `free` is.
    - `ends`: $s_d/(t_dn_d)$ for the components that the head has learned itself, 0 for the rest.
    - `overlaps`: N and N'; None where they are 1.
    """

    def __init__(
        self,
        free: Float[np.ndarray, "component head run"],
        driving: Float[np.ndarray, "component head run"],
        curvatures: Float[np.ndarray, "2 component head run"],
        ends: Float[np.ndarray, "component head run"],
        overlaps: Float[np.ndarray, "2 component component run"] | None,
    ):
        self.free, self.driving, self.curvatures, self.ends, self.overlaps = free, driving, curvatures, ends, overlaps
        # Arrays of one shape, contiguous, with heads and runs as one axis: for few runs, what counts is how simple the
        # operations are.
        dim = len(free)
        self._drives = np.stack([driving, driving]).reshape(2, dim, -1)
        self._bends = np.ascontiguousarray(curvatures).reshape(2, dim, -1)
        self._sum, self._sums = np.ones(dim), np.kron(np.eye(2), np.ones(dim))
        self._crossed = np.ascontiguousarray(self._sums[::-1].T)
        self._fresh = not ends.any()

    @classmethod
    def of(
        cls,
        basis: Principal,
        directions: Directions,
        own: Bool[np.ndarray, "component head run"],
        known: Bool[np.ndarray, "component head run"],
    ) -> "Heads":
        """Heads that have learned the components `own`, where others have learned `known`."""
        keys, queries = np.moveaxis(directions.norms(), 1, 2)[:, :, None]
        free = 1.0 - known
        curvatures = np.stack([basis.curvatures[:, None, None] * (keys * keys) * free, queries * queries * free])
        driving = keys * queries * basis.sizes[:, None, None] * free
        ends = np.where(own, basis.sizes[:, None, None] / (basis.curvatures[:, None, None] * keys * queries), 0.0)
        return cls(free, driving, curvatures, ends, directions.overlaps())

    def take(self, runs: np.ndarray) -> "Heads":
        overlaps = None if self.overlaps is None else self.overlaps[..., runs]
        free, driving, ends = self.free[..., runs], self.driving[..., runs], self.ends[..., runs]
        return Heads(free, driving, self.curvatures[..., runs], ends, overlaps)

    def gains(self, weights: Weights) -> PerHead:
        """What each head gains beyond the components that it has learned."""
        if self._fresh:
            v, (_, _, work, squares) = weights[0].reshape(-1), self._terms(weights)
            product = squares[0] * squares[1]
            gains = v * (2 * work - v * (product if product.ndim == 1 else product.sum(axis=(0, 1))))
            return gains.reshape(weights.shape[1:])
        # What has been learned is large, and what is gained beyond it may be far smaller.
        v, (x, y) = self._split(weights)
        off = v * np.einsum("rdhb,rehb->dehb", x, y)
        each = np.arange(len(self.free))
        driven = np.einsum("dhb,dhb->hb", np.where(self.ends > 0, 0.0, self.driving), off[each, each])
        off[each, each] -= self.ends
        return 2 * driven - np.einsum("dhb,dehb,ehb->hb", self.curvatures[0], off * off, self.curvatures[1])

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
        if self.overlaps is not None:
            pairs = self._split(velocity)[1]
            pairs[:] = np.einsum("sdeb,srehb->srdhb", self.overlaps, pairs) * self.free
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
        v, pairs = self._split(weights)
        pairs = pairs * self.free
        if self.overlaps is None:
            return v**2, np.einsum("srdhb,srdhb->shb", pairs, pairs)
        one, free = np.eye(len(self.free)), np.moveaxis(self.free, 0, 2)[..., None]  # (head, run, component, 1)
        metrics = np.moveaxis(self.overlaps, 3, 1)[:, None]
        inverses = np.linalg.inv(free * np.swapaxes(free, 2, 3) * metrics + (1 - free) * one)
        return v**2, np.einsum("srdhb,shbde,srehb->shb", pairs, inverses, pairs)

    def _split(self, weights: Weights) -> tuple[PerHead, Float[np.ndarray, "2 pair component head run"]]:
        return weights[0], weights[1:].reshape(2, -1, *self.free.shape)


State = Float[np.ndarray, "head weights"]
"""A row for each head: v, then all x, then all y."""


class StiffHeads:
    """The only run of `heads`."""

    def __init__(self, heads: Heads):
        dim = len(heads.free)
        a, b = np.swapaxes(heads.curvatures[..., 0], 1, 2)
        self._free = heads.free[..., 0].T[:, None]
        self._driving = heads.driving[..., 0].T[:, :, None] * np.eye(dim)
        self._curvature = a[:, :, None] * b[:, None, :]
        self._overlaps = None if heads.overlaps is None else heads.overlaps[..., 0]

    def velocity(self, heads: State) -> State:
        v, x, y = self._split(heads)
        product = np.swapaxes(x, 1, 2) @ y
        g = self._driving - v * self._curvature * product
        moved = np.empty_like(heads)
        np.einsum("hde,hde->h", product, g, out=moved[:, 0])
        _, *sides = self._split(moved)
        for number, (side, by) in enumerate(zip(sides, (y @ np.swapaxes(g, 1, 2), x @ g), strict=True)):
            np.multiply(v, by if self._overlaps is None else by @ self._overlaps[number] * self._free, out=side)
        return moved

    def jacobian(self, heads: State) -> Float[np.ndarray, "head weights weights"]:
        """The derivatives of the velocity of each head by its own weights; those by other heads' are zero."""
        v, x, y = self._split(heads)
        count, pairs, dim = x.shape
        product, t = np.swapaxes(x, 1, 2) @ y, self._curvature
        g = self._driving - v * t * product
        by_value = g - v * t * product
        second = np.zeros((count, heads.shape[1], heads.shape[1]))
        second[:, 0, 0] = -np.sum(t * product**2, axis=(1, 2))
        half = pairs * dim
        second[:, 0, 1 : 1 + half] = (y @ np.swapaxes(by_value, 1, 2)).reshape(count, -1)
        second[:, 0, 1 + half :] = (x @ by_value).reshape(count, -1)
        second[:, 1:, 0] = second[:, 0, 1:]
        blocks = second[:, 1:, 1:].reshape(count, 2, pairs, dim, 2, pairs, dim)
        square, diagonal, each = (v * v)[..., None], np.arange(dim), np.arange(pairs)
        keys = -square * np.einsum("hde,hre,hse->hdrs", t, y, y)
        queries = -square * np.einsum("hde,hrd,hsd->hers", t, x, x)
        # Two index arrays with a slice between them put what they index in front.
        blocks[:, 0, :, diagonal, 0, :, diagonal] = np.moveaxis(keys, 1, 0)
        blocks[:, 1, :, diagonal, 1, :, diagonal] = np.moveaxis(queries, 1, 0)
        mixed = -square[..., None] * np.einsum("hde,hsd,hre->hrdse", t, x, y)
        mixed[:, each, :, each, :] += v * g
        blocks[:, 0, :, :, 1] = mixed
        blocks[:, 1, :, :, 0] = np.transpose(mixed, (0, 3, 4, 1, 2))
        second[:, 1:, 1:] = blocks.reshape(count, 2 * half, 2 * half)
        if self._overlaps is not None:
            rows = second[:, 1:].reshape(count, 2, pairs, dim, -1)
            spread = np.einsum("sde,hsrew->hsrdw", self._overlaps, rows) * self._free[:, None, ..., None]
            second[:, 1:] = spread.reshape(count, 2 * half, -1)
        return second

    def _split(self, heads: State):
        pairs = heads[:, 1:].reshape(len(heads), 2, -1, self._free.shape[-1])
        return heads[:, 0, None, None], pairs[:, 0], pairs[:, 1]


def banded(blocks: Float[np.ndarray, "head weights weights"]) -> Float[np.ndarray, "band state"]:
    """A block-diagonal matrix in the packed form of SciPy: entry (i, j) is in row i - j + band of column j."""
    count, width, _ = blocks.shape
    packed = np.zeros((2 * width - 1, count, width))
    i, j = np.indices((width, width))
    packed[i - j + width - 1, :, j] = np.moveaxis(blocks, 0, 2)
    return packed.reshape(2 * width - 1, -1)
