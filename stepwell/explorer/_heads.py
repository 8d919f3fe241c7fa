"""The view of multi-head attention with whole matrices: scores and readout of each head beside the loss."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
import xarray as xr
from jaxtyping import Array

from stepwell.analysis import HeadStructure
from stepwell.experiments import Built, Experiment
from stepwell.models import MultiHeadAttention, is_attention

from ._linear import curve_view, points_of, small
from ._view import View


def is_multi_head(built: Built) -> bool:
    return isinstance(built.model, MultiHeadAttention) and is_attention(built.model)


def run_view(experiment: Experiment, built: Built, run: xr.Dataset) -> View:
    points = points_of(run, built.model.weight_dims)
    omega, mu = map(np.asarray, _scores_and_readouts(built.model, points.weights))
    return curve_view(experiment, run, points) | {"kind": "heads", "omega": small(omega), "mu": small(mu)}


@eqx.filter_jit
def _scores_and_readouts(model: Any, weights: dict[str, Any]) -> tuple[Array, Array]:
    r"""$\omega_h$ and $\mu_h^o$ at every point."""
    found = jax.vmap(lambda each: HeadStructure.of(model.with_weights(each)))(weights)
    return found.omega, found.mu
