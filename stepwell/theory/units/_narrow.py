r"""A narrow network of recruited units, integrated, and all others as particles that only feel its residual."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from stepwell._util import checks
from stepwell._util.errors import InvalidInput

from .._integrate import IntegrationFailed, Path, integrate

Units = Float[np.ndarray, "unit entry"]
"""Outer and inner weights, a unit a row."""
_SETTLED = 1e-8
"""A network has come to rest when its weights move by less than this part of their size in its own time."""
_NULL = 1e-12
"""Eigenvalues of the features' second moments below this part of the largest are directions without features."""
_CHUNKS = 40


@runtime_checkable
class FeatureMomentsLike(Protocol):
    r"""$E\,yz^\top$, $E\,zz^\top$ and $E|y|^2$ of labels and features."""

    @property
    def cross(self) -> Float[np.ndarray, "output feature"]: ...

    @property
    def gram(self) -> Float[np.ndarray, "feature feature"]: ...

    @property
    def label_power(self) -> float: ...


@runtime_checkable
class SupervisedTask(Protocol):
    """A task of inputs with labels, by the moments of labels and powers of the input."""

    @property
    def dim(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    def moments(self, degree: int = 1, patches: int = 1) -> FeatureMomentsLike: ...


@dataclass(frozen=True)
class Field:
    r"""The flow of units whose features are the powers of their inner weights, $\dot v_i = R\,u_i^{\otimes p}$.

    `heads` is the number of entries of v. Entries where `open` is zero stay as they are.
    """

    moments: FeatureMomentsLike
    heads: int
    degree: int = 1
    open: Units | float = field(default=1.0)

    @cached_property
    def floor(self) -> float:
        """The least loss of any coefficients."""
        values, vectors = np.linalg.eigh(self.moments.gram)
        kept = values > _NULL * values.max(initial=0.0)
        explained = np.sum((self.moments.cross @ vectors[:, kept]) ** 2 / values[kept])
        return max(float(self.moments.label_power - explained), 0.0)

    def powers(self, units: Units) -> tuple[Float[np.ndarray, "unit part"], Float[np.ndarray, "unit feature"]]:
        r"""$u^{\otimes(p - 1)}$ and $u^{\otimes p}$ of each unit."""
        inner = units[:, self.heads :]
        part = np.ones((len(units), 1))
        for _ in range(self.degree - 1):
            part = _products(inner, part)
        return part, _products(inner, part)

    def residual(self, units: Units) -> tuple[float, Float[np.ndarray, "head feature"]]:
        """The loss of a network, and the correlation of its error with the features."""
        return self._residual(units, self.powers(units)[1])

    def _residual(
        self, units: Units, whole: Float[np.ndarray, "unit feature"]
    ) -> tuple[float, Float[np.ndarray, "head feature"]]:
        cross = self.moments.cross
        theta = (units[:, : self.heads].T @ whole).reshape(cross.shape)
        image = theta @ self.moments.gram
        loss = self.moments.label_power + float(np.vdot(theta, image - 2 * cross))
        return loss, (cross - image).reshape(self.heads, -1)

    def velocity(self, units: Units, recruited: int) -> Units:
        """That of the first units as a network, and of the rest as particles."""
        part, whole = self.powers(units)
        residual = self._residual(units[:recruited], whole[:recruited])[1]
        pulled = (units[:, : self.heads] @ residual).reshape(len(units), units.shape[1] - self.heads, part.shape[1])
        moved = np.concatenate([whole @ residual.T, self.degree * (pulled @ part[:, :, None])[:, :, 0]], axis=1)
        return moved if isinstance(self.open, int | float) else moved * self.open[: len(units)]

    def gains(self, units: Units, residual: Float[np.ndarray, "head feature"]) -> Float[np.ndarray, " unit"]:
        """By how much each unit, added, lowers the loss at first order."""
        return 2 * np.sum((units[:, : self.heads] @ residual) * self.powers(units)[1], axis=1)

    def crowding(self, units: Units) -> float:
        """The part of the residual of zero that units, all together, take away."""
        first, left = (self.residual(each)[1] for each in (units[:0], units))
        return float(np.linalg.norm(left - first) / max(np.linalg.norm(first), 1e-300))

    def turned(self, order: Float[np.ndarray, "unit unit"]) -> "Field":
        """The same of units in another order."""
        return self if isinstance(self.open, int | float) else replace(self, open=order @ self.open)

    def course(self, units: Units, recruited: int, until: float, event=None) -> Path:
        """The path of the first units as a network and the rest as particles; `event` is of all of them."""
        shape = units.shape

        def derivative(state: np.ndarray) -> np.ndarray:
            return self.velocity(state.reshape(shape), recruited).ravel()

        wrapped = None if event is None else lambda state: event(state.reshape(shape))
        smallest = float(np.abs(units[recruited:]).max(initial=0.0)) or None
        # Particles depend on themselves and, weakly, on the network: the solver's Jacobian may leave that out.
        band = max(recruited, 1) * shape[1] - 1 if recruited < shape[0] else None
        return integrate(derivative, units.ravel(), until, event=wrapped, band=band, scale=smallest, shown=False)

    def drop(self, units: Units, level: float, grown: float, until: float) -> tuple[float, float, float]:
        """When the loss of a network is midway from a level to where it comes to rest, the loss there, and the size of
        the residual that is left.

        By the time `grown` it has left the last saddle on its way.
        """
        on_the_way = self.course(units, len(units), grown).state.reshape(units.shape)
        end, left = self._reduced_rank(len(units)) or self.residual(self._rest(on_the_way))
        end = max(end, self.floor)
        middle = (level + end) / 2
        begun = 0.0 if self.residual(on_the_way)[0] <= middle else grown
        start = on_the_way if begun else units
        path = self.course(start, len(units), until, lambda rows: middle - self.residual(rows)[0])
        return begun + path.time if path.crossed else np.inf, end, float(np.linalg.norm(left, 2))

    def _reduced_rank(self, rank: int) -> tuple[float, Float[np.ndarray, "head feature"]] | None:
        """Where a linear network of some units comes to rest (Baldi and Hornik), if patches, as outputs, are alike."""
        cross = self.moments.cross.reshape(self.heads, -1)
        patches = len(self.moments.gram) // cross.shape[1]
        block = self.moments.gram[: cross.shape[1], : cross.shape[1]]
        apart = np.abs(self.moments.gram - np.kron(np.eye(patches), block)).max()
        if self.degree > 1 or not isinstance(self.open, int | float) or apart > _NULL * np.abs(block).max():
            return None
        values, vectors = np.linalg.eigh(block)
        kept = values > _NULL * values.max()
        outputs, sizes, _ = np.linalg.svd(cross @ vectors[:, kept] / np.sqrt(values[kept]))
        learned = outputs[:, :rank]
        return float(self.moments.label_power - np.sum(sizes[:rank] ** 2)), cross - learned @ (learned.T @ cross)

    def _rest(self, rows: Units) -> Units:
        for _ in range(_CHUNKS):
            speed, size = (float(np.abs(each).max()) for each in (self.velocity(rows, len(rows)), rows))
            pace = float(np.abs(self.moments.cross).max()) * size ** (self.degree - 1)
            if speed <= _SETTLED * size * pace:
                return rows
            path = self.course(rows, len(rows), size / max(speed, 1e-3 * size * pace))
            rows = path.state.reshape(rows.shape)
        raise IntegrationFailed("the narrow network does not come to rest")


def _products(inner: np.ndarray, part: np.ndarray) -> np.ndarray:
    return (inner[:, :, None] * part[:, None]).reshape(len(inner), inner.shape[1] * part.shape[1])


def split_weights(
    task: SupervisedTask, outer: Float[np.ndarray, "unit output patch"], inner: Float[np.ndarray, "unit kernel"]
) -> Units:
    """A unit a row; `InvalidInput` if the weights are not of the task."""
    units, outputs, patches = outer.shape
    if len(inner) != units or outputs != task.outputs or patches * inner.shape[1] != task.dim:
        raise InvalidInput(
            f"outer has shape {outer.shape} and inner {inner.shape}; for a task of {task.outputs} outputs and inputs "
            f"of {task.dim} entries they must be (unit, {task.outputs}, patch) and (unit, {task.dim} / patch)"
        )
    outer, inner = checks.numbers_in("outer", outer), checks.numbers_in("inner", inner)
    return np.concatenate([outer.reshape(units, outputs * patches), inner], axis=1)
