r"""The flow of heads on a plateau, where they do not interact.

In the principal directions of the task (`_principal`), with $n_d = \|w_d\|^2$, $\hat w_d = w_d/\sqrt{n_d}$,
$x_{rd} = \hat w_d^\top k_r$, $y_{rd} = \hat w_d^\top q_r$, $P = \sum_r x_r y_r^\top$, $Z = vP$ and
$N_{de} = \hat w_d^\top\hat w_e$, a head moves by

$\tau\dot v = \langle P, G\rangle$, $\tau\dot x_r = vNGy_r$, $\tau\dot y_r = vNG^\top x_r$,
$G_{de} = n_ds_d\,\delta_{de} - T_{de}Z_{de}$, $T_{de} = t_dn_dn_e$,

over the components d, e that other heads have not learned, and gains $\sum_d 2n_ds_dZ_{dd} - \sum_{de}T_{de}Z_{de}^2$.
In the paper's case $x_{rd}$ and $y_{rd}$ are the coordinates of key and query along $e_d$, N = 1 and
$n_ds_d = \lambda_d^2$.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from ._principal import Principal

_AT_REST = 1e-6
"""A coefficient is at rest when it is this close to its end, relative to that or to the weights that it is made of."""

State = Float[np.ndarray, "head weights"]
"""A row for each head: v, then all x, then all y."""


def coordinates(basis: Principal) -> Float[np.ndarray, "dim component"]:
    r"""$\hat w_d$, by which keys and queries are multiplied."""
    return basis.inputs / np.linalg.norm(basis.inputs, axis=0)


class FreshHeads:
    """Heads that have learned nothing, where others have learned the components `known`."""

    def __init__(self, basis: Principal, known: Sequence[int]):
        norms = np.sum(basis.inputs**2, axis=0)
        free = np.ones(norms.size)
        free[list(known)] = 0.0
        both = np.outer(free, free)
        self.free = free
        self.norms = norms
        self.driving = both * np.diag(norms * basis.sizes)
        self.curvature = both * np.outer(basis.curvatures * norms, norms)
        overlap, one = coordinates(basis).T @ coordinates(basis), np.eye(free.size)
        # Rounding would let what is fast drive what is slow.
        self._overlap = None if np.abs(overlap - one).max() < 64 * free.size * np.finfo(float).eps else overlap

    def split(self, heads: State):
        pairs = heads[:, 1:].reshape(len(heads), 2, -1, self.free.size)
        return heads[:, 0, None, None], pairs[:, 0], pairs[:, 1]

    def gains(self, heads: State) -> Float[np.ndarray, " head"]:
        v, x, y = self.split(heads)
        z = v * (np.swapaxes(x, 1, 2) @ y)
        return np.sum(z * (2 * self.driving - self.curvature * z), axis=(1, 2))

    def velocity(self, heads: State) -> State:
        v, x, y = self.split(heads)
        product = np.swapaxes(x, 1, 2) @ y
        return self.driven(heads, product, self.driving - v * self.curvature * product)

    def driven(self, heads: State, product: np.ndarray, g: np.ndarray) -> State:
        """The velocity for a given P and G."""
        v, x, y = self.split(heads)
        moved = np.empty_like(heads)
        moved[:, 0] = np.sum(product * g, axis=(1, 2))
        _, dx, dy = self.split(moved)
        dx[:] = v * self.spread(y @ np.swapaxes(g, 1, 2))
        dy[:] = v * self.spread(x @ g)
        return moved

    def spread(self, rows: Float[np.ndarray, "... dim"]) -> Float[np.ndarray, "... dim"]:
        """Rows times N, on the components that others have not learned."""
        return rows if self._overlap is None else (rows @ self._overlap) * self.free


class GrownHead:
    r"""A head that has learned the components `owned`, some of whose coefficients $Z_{de}$ are at rest.

    For d learned $Z_{dd}$ tends to $s_d/(t_dn_d)$, and then all other $Z_{de}$ and $Z_{ed}$ to 0, at rates of the order
    of $n_ds_d$ and $n_es_d$. What has come to rest stays: G is zero there, but for the forces that keep it so. So the
    velocity is the one without them, projected onto the weights of which this is true. The head then has no rates but
    those at which something still changes. Followed as it is, it would have all of them to the end, and they differ by
    the squared ratio of eigenvalues: where that is beyond $10^{12}$, the rounding of what is fast drowns what is slow.
    """

    def __init__(
        self,
        basis: Principal,
        known: Sequence[int],
        owned: Sequence[int],
        resting: Bool[np.ndarray, "component component"],
    ):
        self._fresh = FreshHeads(basis, known)
        self._ends = basis.sizes / (basis.curvatures * self._fresh.norms)
        own = np.isin(np.arange(self._ends.size), owned)
        self._owned = np.flatnonzero(own)
        self._touched = (own[:, None] | own) & (np.outer(self._fresh.free, self._fresh.free) > 0)
        self.resting = resting & self._touched

    def coefficients(self, head: State) -> Float[np.ndarray, "component component"]:
        """Z, and for components that the head has, how far it is from their ends."""
        v, x, y = self._fresh.split(head)
        z = (v * (np.swapaxes(x, 1, 2) @ y))[0]
        z[self._owned, self._owned] -= self._ends[self._owned]
        return z

    def progress(self, head: State) -> float:
        """What the head gains beyond the components it has; of these, minus what they lack."""
        z = np.where(self.resting, 0.0, self.coefficients(head))
        driving = np.diagonal(self._fresh.driving).copy()
        driving[self._owned] = 0.0
        return float(2 * driving @ np.diagonal(z) - np.sum(self._fresh.curvature * z**2))

    def settled(self, head: State) -> State:
        """The head with all that has come to rest exactly there, and counted as such."""
        for _ in range(2):  # the ends first, then what waits for them
            self.resting = self.resting | (self._unrest(head) <= _AT_REST)
        for _ in range(3 if self.resting.any() else 0):
            head = head - self._forces(head, self.coefficients(head)[self.resting])
        return head

    def velocity(self, head: State) -> State:
        v, x, y = self._fresh.split(head)
        product = np.swapaxes(x, 1, 2) @ y
        g = np.where(self.resting, 0.0, self._fresh.driving - v * self._fresh.curvature * product)
        moved = self._fresh.driven(head, product, g)
        return moved - self._forces(head, self._slopes(head) @ moved[0]) if self.resting.any() else moved

    def _unrest(self, head: State) -> Float[np.ndarray, "component component"]:
        r"""How far from rest each coefficient is, relatively; infinite if it is so already, or not to come to rest.

        That is $|Z| + |\dot Z|/r$ with r the rate at which it would come to rest alone, so that it does not count as
        being at rest where it only passes zero. Other coefficients are driven to zero beside an end that is reached.
        """
        (v,), (x,), (y,) = self._fresh.split(head)
        (dv,), (dx,), (dy,) = self._fresh.split(self.velocity(head))
        ended = np.diagonal(self.resting)
        waiting = self._touched & ~self.resting & (np.eye(ended.size, dtype=bool) | ended[:, None] | ended)
        x_size, y_size = np.sum(x**2, axis=0)[:, None], np.sum(y**2, axis=0)
        rate = self._fresh.curvature * ((x.T @ y) ** 2 + v**2 * (x_size + y_size))
        moved = np.abs(dv * (x.T @ y) + v * (dx.T @ y + x.T @ dy))
        far = np.abs(self.coefficients(head)) + np.divide(moved, rate, out=np.zeros_like(moved), where=waiting)
        size = np.abs(v) * np.sqrt(x_size * y_size)
        size[self._owned, self._owned] = self._ends[self._owned]
        return np.where(waiting, np.divide(far, size, out=np.zeros_like(far), where=size > 0), np.inf)

    def _slopes(self, head: State) -> Float[np.ndarray, "resting weights"]:
        """The derivatives of what is at rest by the weights."""
        (v,), (x,), (y,) = self._fresh.split(head)
        rows, columns = np.nonzero(self.resting)
        slopes = np.zeros((rows.size, 1 + 2 * x.size))
        slopes[:, 0] = np.sum(x[:, rows] * y[:, columns], axis=0)
        pairs, places = slopes[:, 1:].reshape(rows.size, 2, *x.shape), np.arange(rows.size)
        pairs[places, 0, :, rows] = v[0] * y[:, columns].T
        pairs[places, 1, :, columns] = v[0] * x[:, rows].T
        return slopes

    def _forces(self, head: State, change: Float[np.ndarray, " resting"]) -> State:
        """The least change of the weights that changes what is at rest by so much."""
        slopes = self._slopes(head)
        spread = slopes.copy()
        pairs = spread[:, 1:].reshape(len(slopes), -1, self._ends.size)
        pairs[:] = self._fresh.spread(pairs)
        return (np.linalg.solve(slopes @ spread.T, change) @ spread)[None]
