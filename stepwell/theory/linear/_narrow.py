r"""The narrow network: the heads that count, in full, with the others of their run as test particles.

In the coordinates of `_heads`, every head h moves by

$\tau\dot v_h = \langle P_h, G\rangle$, $\tau\dot x_{hr} = v_hNG\,y_{hr}$, $\tau\dot y_{hr} = v_hN'G^\top x_{hr}$,
$G_{de} = n_ds_d\,\delta_{de} - T_{de}\sum_i B_{i,de}$,

with the sum over the members i of the network alone: a head that is none feels it, and adds nothing. With the sum over
all heads it would be the flow. The loss is above its least by $\sum_{de} G_{de}^2/T_{de}$.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .._runge_kutta import Field
from ._heads import PerHead, Plateau, Weights, sides

Maps = Float[np.ndarray, "component component run"]


@dataclass
class Narrow:
    """Networks of many runs, on what their `plateau` leaves free. `members` is 1 for heads that are part, else 0."""

    plateau: Plateau
    members: PerHead

    def __post_init__(self):
        a, b = self.plateau.curvatures
        self.dim, self.curvature = len(a), a[:, None] * b[None]
        self._drive = self.plateau.driving[None] * np.eye(self.dim)[..., None]
        self._count = int(np.max(np.flatnonzero(self.members.any(axis=1)), initial=-1)) + 1  # heads up to the last

    def take(self, runs: np.ndarray) -> "Narrow":
        return Narrow(self.plateau.take(runs), self.members[:, runs])

    def residual(self, weights: Weights) -> Maps:
        """G."""
        weights, members = weights[:, : self._count], self.members[: self._count]
        x, y = sides(weights, self.dim)
        return self._drive - self.curvature * np.einsum("rdhb,rehb->deb", x * (weights[0] * members), y)

    def excess(self, residual: Maps) -> Float[np.ndarray, " run"]:
        """By how much the loss is above its least."""
        parts = np.divide(residual, self.curvature, out=np.zeros_like(residual), where=self.curvature > 0)
        return np.einsum("deb,deb->b", residual, parts)

    def field(self, shape: tuple[int, int]) -> Field:
        r"""The velocity of flat states; `shape` is that of the weights of a run.

        $T\circ B_i$ is a sum of products: with $X_i = v_i a\circ x_i$ and $Y_i = b\circ y_i$,
        $Gy = ns\circ y - \sum_i X_i(Y_i^\top y)$ and $G^\top x = ns\circ x - \sum_i Y_i(X_i^\top x)$.
        """
        drive, bends = self.plateau.driving[:, None], self.plateau.curvatures[:, None, :, None]
        count, members = self._count, self.members[: self._count]

        def field(states: np.ndarray, slopes: np.ndarray) -> None:
            weights, velocity = states.reshape(*shape, -1), slopes.reshape(*shape, -1)
            pairs, moved = sides(weights, self.dim), sides(velocity, self.dim)
            pushed = drive * pairs
            if count:
                factors = bends * pairs[..., :count, :]
                factors[0] *= weights[0, :count] * members
                along = np.einsum("sqdmb,srdhb->sqmrhb", factors, pairs)
                pushed -= np.einsum("sqdmb,sqmrhb->srdhb", factors[::-1], along)
            np.einsum("rdhb,rdhb->hb", pairs[0], pushed[1], out=velocity[0])
            np.multiply(weights[0], pushed[::-1], out=moved)
            if self.plateau.overlaps is not None:
                moved[:] = np.einsum("sdeb,srehb->srdhb", self.plateau.overlaps, moved)

        return field

    def nudge(self, weights: Weights, kick: Maps) -> Weights:
        """By how much weights change, to first order, where G has this integral over time."""
        change = np.empty_like(weights)
        x, y = sides(weights, self.dim)
        moved = sides(change, self.dim)
        pushed = np.einsum("deb,rehb->rdhb", kick, y), np.einsum("deb,rdhb->rehb", kick, x)
        np.einsum("rdhb,rdhb->hb", x, pushed[0], out=change[0])
        np.multiply(weights[0], np.stack(pushed), out=moved)
        if self.plateau.overlaps is not None:
            moved[:] = np.einsum("sdeb,srehb->srdhb", self.plateau.overlaps, moved)
        return change

    def field_by_length(self, shape: tuple[int, int]) -> Field:
        r"""The derivatives of flat states and, in their last row, of time, by s with $dt/\tau = ds/\|W\|$.

        Heads grow from w to order one as $1/(t_* - t)$. By s growth is exponential, at about the rate $\rho$ of the
        plateau, so that a step is a factor in the weights, and not only a part of the time left.
        """
        velocity = self.field(shape)

        def field(states: np.ndarray, slopes: np.ndarray) -> None:
            velocity(states[:-1], slopes[:-1])
            slopes[-1] = 1 / np.sqrt(np.einsum("wb,wb->b", states[:-1], states[:-1]))
            slopes[:-1] *= slopes[-1]

        return field

    def jacobian(self, weights: Float[np.ndarray, "weights head 1"]) -> Float[np.ndarray, "state state"]:
        r"""The derivative of the velocity of the only run.

        $B_h$ is trilinear, and the velocity the product of G with its derivative $D_h$; so it is the product of G with
        the second derivative in each head, and $-\sum_{de} D_{h,de}T_{de}D_{i,de}$ by the members i.
        """
        count, heads, _ = weights.shape
        v, (x, y), g = weights[0, :, 0], sides(weights, self.dim)[..., 0], self.residual(weights)[..., 0]
        pairs, each = np.arange(x.shape[0]), np.arange(self.dim)
        first = np.zeros((count, heads, self.dim, self.dim))
        first[0] = np.einsum("rdh,reh->hde", x, y)
        by_pair = first[1:].reshape(2, pairs.size, self.dim, heads, self.dim, self.dim)
        by_pair[0][:, each, :, each] = np.einsum("h,reh->rhe", v, y)
        by_pair[1][:, each, :, :, each] = np.einsum("h,rdh->rhd", v, x)
        matrix = -np.einsum("whde,de,zide->whzi", first, self.curvature[..., 0], first * self.members[:, :, None])
        for head in range(heads):
            block = np.zeros((count, count))
            block[0, 1:] = np.concatenate([y[..., head] @ g.T, x[..., head] @ g]).ravel()
            second = block[1:, 1:].reshape(2, pairs.size, self.dim, 2, pairs.size, self.dim)
            for pair in pairs:
                second[0, pair, :, 1, pair] = v[head] * g
            block += block.T
            matrix[:, head, :, head] += block
        if self.plateau.overlaps is not None:
            rows = matrix[1:].reshape(2, pairs.size, self.dim, -1)
            rows[:] = np.einsum("sde,srew->srdw", self.plateau.overlaps[..., 0], rows)
        return matrix.reshape(count * heads, -1)
