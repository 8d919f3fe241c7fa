"""The heads of one run for an implicit method, in terms of G.

What a head has learned is where G vanishes, by differences of large terms. If rounding there is that of G, it does not
change what the flow conserves, for as long as the head waits.
"""

import numpy as np
from jaxtyping import Float

from ._heads import Heads

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
