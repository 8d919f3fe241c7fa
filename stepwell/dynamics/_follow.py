"""From what a caller gives to a march and its trajectory: what `descend` and `online` share."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from stepwell import _check
from stepwell._errors import InvalidInput
from stepwell.models import AbstractModel
from stepwell.trajectory import TIME_UNIT

from ._conversions import flow_time
from ._ensemble import Ensemble, skeleton_of
from ._march import AbstractRule, AbstractSource, ConstantRate, March, Observable, Optimiser, Transformation
from ._record import Steps
from ._train import train


def follow(
    model: AbstractModel | Ensemble,
    source: AbstractSource | Ensemble,
    about: dict[str, Any],
    *,
    rate,
    steps: int,
    optimiser: Transformation | None,
    record: Steps,
    snapshots: Steps,
    observe: dict[str, Observable] | None,
    start: int,
    progress: bool,
    configuration: dict[str, Any] | None,
) -> xr.Dataset:
    """Follow the gradients of a source. `about` says what the source is, for the provenance; see `descend`."""
    march = _march(model, source, _rule(model, rate, optimiser), observe)
    settings = {
        **about,
        "model": model,
        "rate": rate,
        "optimiser": None if optimiser is None else "given as an optax transformation",
        "steps": steps,
        "start": start,
        **(configuration or {}),
    }
    found = train(
        march,
        model,
        steps=steps,
        start=start,
        record=record,
        snapshots=snapshots,
        progress=progress,
        configuration=settings,
    )
    return _with_time(found, rate)


def _march(model: AbstractModel | Ensemble, source: Any, rule: Any, observe: dict[str, Observable] | None) -> March:
    """The march of a model or ensemble."""
    template = model.member(0) if isinstance(model, Ensemble) else model
    runs = model.size if isinstance(model, Ensemble) else None
    reserved = {"loss", *template.weight_dims}
    if observe and reserved & set(observe):
        raise InvalidInput(f"observed curves {sorted(reserved & set(observe))} have names that are taken; rename them")
    return March(skeleton_of(template), source, rule, dict(observe or {}), runs)


def _with_time(trajectory: xr.Dataset, rate) -> xr.Dataset:
    r"""Beside the step, the flow time $t/\tau = 2\eta\cdot$step, where all runs have one constant rate."""
    if rate is None or np.ndim(rate) > 0:
        return trajectory
    time = flow_time(trajectory["step"], float(rate))
    return trajectory.assign_coords(time=time.assign_attrs(units=TIME_UNIT))


def _rule(model: AbstractModel | Ensemble, rate, optimiser: Transformation | None) -> AbstractRule | Ensemble:
    if (rate is None) == (optimiser is None):
        raise InvalidInput("give either a rate, for plain gradient descent, or an optimiser")
    if optimiser is not None:
        return Optimiser(optimiser)
    if np.ndim(rate) == 0:
        return ConstantRate(jnp.asarray(_check.number("rate", rate, least=0.0, above=True)))
    rates = [_check.number("rate", value, least=0.0, above=True) for value in np.asarray(rate).tolist()]
    if not isinstance(model, Ensemble) or len(rates) != model.size:
        raise InvalidInput(f"{len(rates)} rates were given; give one number, or one for each run of an ensemble")
    return Ensemble.of([ConstantRate(jnp.asarray(value)) for value in rates])
