"""Heads: where their keys and queries point, which have grown and when, and which task each serves."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float, Int

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell.models import AbstractModel, effective_map, form_of, head_maps

from ._recorded import recorded, weights_of
from ._staircase import passage_time

_ROUNDING = 1e-9
"""By which the sum of the heads' maps may differ from the map of the model, relative to it."""


@checked
def alignment(trajectory: xr.Dataset, eigenvectors: Float[np.ndarray, "dim component"]) -> xr.Dataset:
    """Return the squared cosine of every key and query with every eigenvector, at every recorded point.

    **Arguments:**

    - `trajectory`: a run of separate attention, from `descend`, `online` or `flow`.
    - `eigenvectors`: orthonormal vectors, one a column: shape (dim, component).

    **Returns:** a data set with `key` and `query` over (run, snapshot or time, head, pair, component). With all
    eigenvectors they add up to one over the components. A vector of zeros has nan. Label entries of keys are left out.

    **Example:** a head is initially between the two eigenvectors, and its key turns to the first.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention([[[0.0, 0.0, 0.1]]], [[[0.1, 0.1, 0.0]]], [[[0.1, 0.1]]])
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), until=100.0, progress=False)
    >>> sw.analysis.alignment(trajectory, np.eye(2))["key"].values[0, [0, -1], 0, 0].round(3).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    weights = weights_of(trajectory)
    vectors = weights.model.theory_weights(weights.by_name)
    if "keys" not in vectors:
        raise InvalidInput(
            f"{weights.theory} attention has no keys and queries of its own; take its effective_map instead"
        )
    gap = float(np.abs(eigenvectors.T @ eigenvectors - np.eye(eigenvectors.shape[1])).max())
    dim = vectors["keys"].shape[-1]
    if eigenvectors.shape[0] != dim or gap > 1e-8:
        raise InvalidInput(f"eigenvectors must be orthonormal columns of length {dim}; take numpy.linalg.eigh's")
    dims = ("run", weights.axis, "head", "pair", "component")
    cosines = {
        "key": _squared_cosines(vectors["keys"], eigenvectors),
        "query": _squared_cosines(vectors["queries"], eigenvectors),
    }
    coordinates = {**weights.coordinates, "component": np.arange(1, eigenvectors.shape[1] + 1)}
    return xr.Dataset({name: (dims, values) for name, values in cosines.items()}, coordinates)


def _squared_cosines(vectors: np.ndarray, directions: np.ndarray) -> np.ndarray:
    # Scaled first: the squares of tiny weights would underflow.
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        scaled = vectors / largest
        return (scaled @ directions) ** 2 / np.sum(scaled**2, axis=-1, keepdims=True)


@checked
def winners(trajectory: xr.Dataset, model: AbstractModel | None = None, *, least: float = 1e-3) -> xr.Dataset:
    r"""Return which heads have grown, and when each first passes half its final size.

    The size of a head is the Frobenius norm of its part of the effective map, $\|A_h\|$; for separate heads of rank
    one $|v_h| |k_h| |q_h|$. A head has grown if in the end that is at least the fraction `least` of the largest there.

    **Arguments:**

    - `trajectory`: a run of attention, or of another model that declares `head_maps()`.
    - `model`: a model of the class and shape that was trained; by default one of the class that the trajectory names.
    - `least`: the fraction of the largest size that a head must reach; above 0, up to 1.

    **Returns:** a data set over (run, head): `grown`; `final`, the last $\|A_h\|$; `half`, a point of `snapshot` or
    `time`, interpolated, nan for a head that has not grown; and `order`, 0 for the first head to grow, -1 for one that
    has not.

    **Example:**

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned([[1.0, 0.0], [0.0, 1.0]], heads=2, scale=0.1)
    >>> trajectory = sw.dynamics.flow(model, sw.objectives.Population(task), progress=False)
    >>> heads = sw.analysis.winners(trajectory)
    >>> heads["order"].values[0].tolist(), heads["half"].values[0].round().tolist()
    ([0, 1], [9.0, 37.0])
    """
    least = checks.number("least", least, least=0.0, most=1.0, above=True)
    along = recorded(trajectory, model)
    if form_of(along.template) is None:
        name = type(along.template).__name__
        raise InvalidInput(
            f"{name} declares no structure, so that nothing is known of its heads; if its head_maps() and their sum, "
            "its effective_map(), give its predictions, write declared_form = 'linear' in the class"
        )
    maps, whole = along.over(_maps)
    gap = np.abs(maps.sum(axis=2) - whole).max(initial=0.0)
    if not gap <= _ROUNDING * np.abs(whole).max(initial=0.0):
        raise InvalidInput(
            f"head_maps() of {type(along.template).__name__} do not add up to its effective_map(): they differ by "
            f"{gap:.2g}; correct either"
        )
    size, points = np.sqrt(np.sum(maps**2, axis=(3, 4, 5, 6))), along.coordinates[along.axis]
    final = size[:, -1]
    grown = (final >= least * final.max(axis=1, keepdims=True)) & (final > 0)
    half, order = np.full(final.shape, np.nan), np.full(final.shape, -1)
    for run, head in zip(*np.nonzero(grown), strict=True):
        half[run, head] = passage_time(points, -size[run, :, head], -float(final[run, head]) / 2)
    for run in range(len(half)):
        sequence = np.argsort(half[run], kind="stable")[: grown[run].sum()]
        order[run, sequence] = np.arange(sequence.size)
    dims = ("run", "head")
    made = xr.Dataset(
        {"grown": (dims, grown), "final": (dims, final), "half": (dims, half), "order": (dims, order)},
        {"run": along.coordinates["run"]},
    )
    made["half"].attrs["units"] = trajectory[along.axis].attrs.get("units", along.axis)
    return made


def _maps(model: AbstractModel) -> tuple[Array, Array]:
    return head_maps(model), effective_map(model)


class Allocation(NamedTuple):
    """Of each task: the `head` that serves it, counting from 0, or -1; and that head's `share` of the prediction.

    `heads_used` is how many heads serve a task, and `one_to_one` whether each task is served by a head of its own.
    """

    head: Int[np.ndarray, "*lead task"]
    share: Float[np.ndarray, "*lead task"]
    heads_used: Int[np.ndarray, "*lead"]
    one_to_one: Bool[np.ndarray, "*lead"]


@checked
def head_task_allocation(
    omega: Float[np.ndarray, "..."], mu: Float[np.ndarray, "..."], *, least: float = 0.1
) -> Allocation:
    r"""Return which head serves which task, from the eigenvalues of attention, at one point or along runs.

    Of the prediction for task i head h gives $\mu_i^h\omega_i^h$; all together they give $c_i$, which is 1 for the
    right one. A task is served by the head that gives most, once the heads give at least the part `least` of the
    prediction; before, by none. The eigenvalues are those of `stepwell.models.SpectralAttention`, or of `decompose`.

    **Arguments:**

    - `omega`: $\omega_i^h$, of shape (…, head, task), with any leading axes, such as run and time.
    - `mu`: $\mu_i^h$, of the same shape.
    - `least`: the part of the prediction, in absolute values over all heads, from which on a task is served; up to 1.

    **Returns:** an `Allocation` of arrays with the same leading axes: of each task the `head` that serves it (-1 for
    none) and that head's `share` of the prediction, both over (…, task); `heads_used`, how many heads serve a task; and
    `one_to_one`, whether each task is served by a head of its own.

    **Example:**

    >>> omega, mu = np.array([[0.5, 0.0], [0.1, 0.4]]), np.array([[1.8, 0.0], [0.5, 2.0]])
    >>> allocation = sw.analysis.head_task_allocation(omega, mu)
    >>> allocation.head.tolist(), allocation.share.round(2).tolist(), bool(allocation.one_to_one)
    ([0, 1], [0.95, 1.0], True)
    """
    least = checks.number("least", least, least=0.0, most=1.0, above=True)
    if omega.ndim < 2 or omega.shape != mu.shape:
        raise InvalidInput(f"omega has shape {omega.shape} and mu {mu.shape}; both must be (…, heads, tasks)")
    given = np.abs(omega * mu)
    total = given.sum(axis=-2)
    served = total >= least
    head = np.where(served, given.argmax(axis=-2), -1)
    share = np.where(served, given.max(axis=-2) / np.where(served, total, 1.0), 0.0)
    used = (head[..., None, :] == np.arange(omega.shape[-2])[:, None]).any(axis=-1).sum(axis=-1)
    return Allocation(head, share, used, served.all(axis=-1) & (used == omega.shape[-1]))
