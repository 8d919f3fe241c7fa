"""Sequences spread over the devices that JAX sees; weights are on all of them."""

from dataclasses import replace
from typing import TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from stepwell._util.types import Loss
from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective, Sampled
from stepwell.tasks import Batch, FeatureBatch

from ._ensemble import Ensemble
from .fast import AbstractForm, multi_step_form

Tree = TypeVar("Tree")

_AXIS = "sequences"


class Divided(AbstractForm):
    r"""What `Sampled` computes, $L = s\, L_\text{even} + (1 - s)\, L_\text{rest}$, with `even` on all devices.

    `even` has as many sequences as divide by the number of devices, the fraction s of them; each device has its part,
    and the compiler adds up their results. The `rest`, fewer than there are devices, is computed on every device.
    Feature vectors carry their weights in the mean, so there both `fractions` are 1.
    """

    even: Sampled
    rest: Sampled | None
    fractions: tuple[float, float] = eqx.field(static=True)

    @classmethod
    def of(cls, objective: Sampled) -> "Divided":
        """The loss of `objective`, cut into an even part and a rest; `placed` spreads the even part over devices."""
        size, devices = objective.batch.size, jax.local_device_count()
        cut = size - size % devices
        rest = None if cut == size else replace(objective, batch=_rows(objective.batch, slice(cut, size)))
        even = cut / size
        fractions = (1.0, 1.0) if isinstance(objective.batch, FeatureBatch) else (even, 1 - even)
        return cls(replace(objective, batch=_rows(objective.batch, slice(0, cut))), rest, fractions)

    def __call__(self, model: AbstractModel) -> Loss:
        even = self.fractions[0] * self.even(model)
        return even if self.rest is None else even + self.fractions[1] * self.rest(model)


def divides(size: int) -> bool:
    """Whether `size` sequences are spread over devices: there are several, and not more of them than sequences."""
    return 1 < jax.local_device_count() <= size


def for_devices(objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
    """The form in which an objective is descended. The fastest is for one device; sequences go to several."""
    if isinstance(objective, Sampled) and divides(objective.batch.size):
        return Divided.of(objective)
    return multi_step_form(objective, model)


def placed(tree: Tree) -> Tree:
    """The tree with the even parts of all divided objectives spread over the devices, also those in an ensemble."""
    axis = 1 if isinstance(tree, Ensemble) else 0

    def put(node):
        if not isinstance(node, Divided):
            return node
        return eqx.tree_at(lambda node: node.even, node, jax.tree.map(lambda part: _spread(part, axis), node.even))

    return jax.tree.map(put, tree, is_leaf=lambda node: isinstance(node, Divided))


def everywhere(tree: Tree) -> Tree:
    """The tree with every array on every device."""
    return jax.device_put(tree, NamedSharding(_mesh(), PartitionSpec()))


def beside(source: eqx.Module, tree: Tree) -> Tree:
    """The tree with every array where those of `source` are: on every device, if any of them is on several."""
    arrays = [leaf for leaf in jax.tree.leaves(source) if isinstance(leaf, jax.Array)]
    return everywhere(tree) if any(len(array.sharding.device_set) > 1 for array in arrays) else tree


def _mesh() -> Mesh:
    return Mesh(np.array(jax.local_devices()), (_AXIS,))


def _spread(array: Array, axis: int) -> Array:
    sharding = NamedSharding(_mesh(), PartitionSpec(*(None,) * axis, _AXIS))
    if isinstance(array, Tracer):
        return jax.lax.with_sharding_constraint(array, sharding)
    return jax.device_put(array, sharding)


def _rows(batch: Batch | FeatureBatch, rows: slice) -> Batch | FeatureBatch:
    if isinstance(batch, Batch):
        return Batch(batch.tokens[rows], batch.labels[rows], batch.context)
    return FeatureBatch(batch.features[rows], batch.labels[rows], batch.weights[rows])
