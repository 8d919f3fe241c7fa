"""The weights of a recorded run of attention, whichever way it was trained."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell import _kinds
from stepwell._described import imported_class
from stepwell._errors import InvalidInput
from stepwell._kinds import KINDS, Kind
from stepwell.models import class_of
from stepwell.trajectory import model_settings


class Weights(NamedTuple):
    """Weights of a `kind` of attention by name, over (run, point, …), with the points of the `axis`, which is
    `snapshot` or `time`; their further dimensions are those of `weight_dims` of its class.
    """

    kind: Kind
    axis: str
    points: Float[np.ndarray, " point"]
    runs: np.ndarray
    dim: int
    by_name: dict[str, np.ndarray]

    @property
    def coordinates(self) -> dict[str, np.ndarray]:
        return {"run": self.runs, self.axis: self.points}

    def for_theory(self) -> dict[str, np.ndarray]:
        """What the theory of this kind reads of them, for one output, without label blocks."""
        outputs = self.by_name["value"].shape[-2]
        if outputs != 1:
            raise InvalidInput(f"the model has {outputs} outputs; this probe is for models with one output")
        return class_of(self.kind).theory_weights(self.by_name)


def weights_of(trajectory: xr.Dataset) -> Weights:
    """The weights in a trajectory of `descend` or `flow`; `InvalidInput` if it is not of an attention with a theory."""
    _require_form(trajectory)
    axis = "snapshot" if "snapshot" in trajectory.dims else "time"
    kinds = [KINDS[name] for name in _kinds.names(predicted=True)]
    for kind in kinds:
        orders = {name: ("run", axis, *dims) for name, dims in class_of(kind).weight_dims.items()}
        if all(name in trajectory and set(trajectory[name].dims) == set(order) for name, order in orders.items()):
            return Weights(
                kind,
                axis,
                trajectory[axis].values.astype(float),
                trajectory["run"].values,
                trajectory.sizes["dim"],
                {name: trajectory[name].transpose(*order).values for name, order in orders.items()},
            )
    described = _kinds.listed(kind.description for kind in reversed(kinds))
    raise InvalidInput(f"the trajectory has no weights of {described} attention over (run, snapshot or time)")


def _require_form(trajectory: xr.Dataset) -> None:
    """Weights of a class of one's own may have any names: what they mean is for the class to declare."""
    settings = model_settings(trajectory)
    if "module" not in settings:
        return
    owner = imported_class(settings)
    if owner is None or vars(owner).get("declared_form") != "separate":
        name = settings["class"]
        lacks = "declares no keys, queries and values (declared_form = 'separate')" if owner else "is not imported"
        raise InvalidInput(
            f"the run is of {name} of {settings['module']}, which {lacks}; this is for separate and merged attention, "
            "and classes with that declaration. The probes effective_map and winners take others"
        )
