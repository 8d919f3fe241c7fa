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
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ._principal import Principal

State = Float[np.ndarray, "head weights"]
"""A row for each head: v, then all x, then all y."""


def coordinates(basis: Principal) -> tuple[Float[np.ndarray, "dim component"], Float[np.ndarray, "dim component"]]:
    r"""$\hat w_d$, by which keys are multiplied, and $\hat z_d$, by which queries are."""
    return basis.keys / np.linalg.norm(basis.keys, axis=0), basis.queries / np.linalg.norm(basis.queries, axis=0)


class Heads:
    """Heads that have each learned the components `owned`, where others have learned `known`: lists for each head."""

    def __init__(self, basis: Principal, owned: Sequence[Sequence[int]], known: Sequence[Sequence[int]]):
        keys, queries = np.sum(basis.keys**2, axis=0), np.sum(basis.queries**2, axis=0)
        norms, dim = keys * np.sqrt(queries / keys), basis.sizes.size  # so that it cannot underflow
        own, free = np.zeros((len(owned), dim)), np.ones((len(owned), dim))
        for head, (mine, others) in enumerate(zip(owned, known, strict=True)):
            own[head, list(mine)] = 1.0
            free[head, list(others)] = 0.0
        self._free = free[:, None, :]
        self._driving = free[:, :, None] * np.diag(norms * basis.sizes)
        self._curvature = free[:, :, None] * free[:, None, :] * np.outer(basis.curvatures * keys, queries)
        self._beyond = (1 - own)[:, :, None] * self._driving
        self._learned = own[:, :, None] * np.diag(basis.sizes / (basis.curvatures * norms))
        self._overlaps = [_overlap(side) for side in coordinates(basis)]

    def gains(self, heads: State) -> Float[np.ndarray, " head"]:
        """What each head gains beyond the components that it has learned."""
        v, x, y = self._split(heads)
        z = v * (x.transpose(0, 2, 1) @ y)
        off = z - self._learned
        gained = 2 * np.einsum("hde,hde->h", self._beyond, z)
        return gained - np.einsum("hde,hde,hde->h", self._curvature, off, off)

    def velocity(self, heads: State) -> State:
        v, x, y = self._split(heads)
        product = x.transpose(0, 2, 1) @ y
        g = self._curvature * product
        g *= -v
        g += self._driving
        moved = np.empty_like(heads)
        np.einsum("hde,hde->h", product, g, out=moved[:, 0])
        _, dx, dy = self._split(moved)
        np.multiply(v, self._spread(y @ g.transpose(0, 2, 1), self._overlaps[0]), out=dx)
        np.multiply(v, self._spread(x @ g, self._overlaps[1]), out=dy)
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
        for part, overlap in zip((slice(1, 1 + half), slice(1 + half, None)), self._overlaps, strict=True):
            rows = np.swapaxes(second[:, part], 1, 2).reshape(count, -1, dim)
            second[:, part] = np.swapaxes(self._spread(rows, overlap).reshape(count, -1, half), 1, 2)
        return second

    def drift(self, before: State, after: State) -> float:
        """How far what the flow conserves is off at the end, relative to the squared weights there: by errors alone."""
        dim, free = self._free.shape[-1], self._free
        one = np.eye(dim)
        metrics = (one if overlap is None else overlap for overlap in self._overlaps)
        inverses = [np.linalg.inv(free * np.swapaxes(free, 1, 2) * metric + (1 - free) * one) for metric in metrics]

        def squares(heads: State):
            v, *sides = self._split(heads)
            parts = zip(sides, inverses, strict=True)
            return v[:, 0, 0] ** 2, np.stack([np.sum((p * free) @ inverse * p, axis=(1, 2)) for p, inverse in parts])

        (v0, p0), (v1, p1) = squares(before), squares(after)
        size = v1 + p1  # 0 where squares underflow
        return float(np.max(np.abs((v1 - p1) - (v0 - p0)) / np.where(size > 0, size, 1.0)))

    def _split(self, heads: State):
        pairs = heads[:, 1:].reshape(len(heads), 2, -1, self._free.shape[-1])
        return heads[:, 0, None, None], pairs[:, 0], pairs[:, 1]

    def _spread(
        self, rows: Float[np.ndarray, "head row dim"], overlap: Float[np.ndarray, "dim dim"] | None
    ) -> Float[np.ndarray, "head row dim"]:
        """Rows times N or N', on the components that others have not learned."""
        return rows if overlap is None else (rows @ overlap) * self._free


def _overlap(directions: Float[np.ndarray, "dim component"]) -> Float[np.ndarray, "component component"] | None:
    """The products of unit vectors with each other; None if they are orthogonal, up to rounding.

    Rounding would let what is fast drive what is slow.
    """
    overlap, dim = directions.T @ directions, directions.shape[1]
    return None if np.abs(overlap - np.eye(dim)).max() < 64 * dim * np.finfo(float).eps else overlap


def banded(blocks: Float[np.ndarray, "head weights weights"]) -> Float[np.ndarray, "band state"]:
    """A block-diagonal matrix in the packed form of SciPy: entry (i, j) is in row i - j + band of column j."""
    count, width, _ = blocks.shape
    packed = np.zeros((2 * width - 1, count, width))
    i, j = np.indices((width, width))
    packed[i - j + width - 1, :, j] = np.moveaxis(blocks, 0, 2)
    return packed.reshape(2 * width - 1, -1)
