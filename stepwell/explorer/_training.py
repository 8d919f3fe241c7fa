"""The run of a state: set up, trained, and recorded at a few hundred points."""

import time as clock
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from stepwell.dynamics import descend, flow, flow_time
from stepwell.models import AbstractModel
from stepwell.published import run_in
from stepwell.published.training import Setup, objective, paper_time, set_up

from ._cancelled import Cancelled
from ._state import State

POINTS, _DRAFT_POINTS = 128, 80
"""Recorded points of a flow, and of its draft, which takes about as many steps."""
_EITHER = 100
"""Recorded steps of a descent: so many evenly spaced, and as many by their logarithm."""
SECONDS = 20.0
"""A view may take so long; what has been computed by then is shown."""
_DRAFT, _EXACT = 1e-2, 1e-6
"""Relative tolerance of the first answer, and of the last, which is that of `flow`."""
_PART = 0.5
"""Seconds of training on sequences after which a view is sent, and a newer state taken."""
_RECORDS = (1, 3, 7, 15)
"""Records of a part; each number is compiled."""
_WEIGHTS = "explorer_weights"

Share = Callable[[float, "Recorded"], None]


class Recorded(NamedTuple):
    """A run, as far as it came: loss and weights at the same points."""

    time: Float[np.ndarray, " point"]
    """t/τ as the run has it; `unit` times that is the time of the page."""
    steps: np.ndarray | None
    """Steps of a descent."""
    loss: Float[np.ndarray, " point"]
    weights: dict[str, np.ndarray]
    """By name, over (point, …)."""
    outcome: str
    message: str


def set_up_state(state: State) -> Setup:
    """Task, model and keys of a state."""
    run = run_in(state.run_fields())
    return set_up(run.flags, run.engine, run.beyond)


def unit_of(setup: Setup) -> float:
    """What the run's own time is multiplied by to be that of the page, which is that of `stepwell train`."""
    steps = 1 / (2 * setup.flags.lr)
    return float(paper_time(setup, steps))


def time_name(setup: Setup) -> str:
    """What the time of the page is: t/τ of τ dW/dt = -½ ∂L/∂W; of several regressions t of dW/dt = -∂L/∂W."""
    return "t" if setup.beyond.several else "t/τ"


def follow(setup: Setup, until: float | None, *, draft: bool = False) -> Recorded:
    """The flow up to a time of its own, or to its convergence (None). A draft is as good as the eye."""
    run = flow(
        setup.model,
        objective(setup),
        until="converged" if until is None else until,
        save=_DRAFT_POINTS if draft else POINTS,
        spacing="steps",
        solver="rodas5p",  # what would be chosen
        progress=False,
        rtol=_DRAFT if draft else _EXACT,
    )
    made = recorded_flow(setup, run)
    return made._replace(outcome="draft") if draft else made


def recorded_flow(setup: Setup, run: xr.Dataset) -> Recorded:
    """What `flow` returned."""
    weights = {name: run[name].values[0] for name in setup.model.weight_dims}
    return Recorded(
        run["time"].values, None, run["loss"].values[0], weights, run.attrs["outcome"], run.attrs["message"]
    )


def recorded_steps(steps: int) -> np.ndarray:
    """Steps that are recorded, from 0 to the last, dense early and late."""
    even, early = np.linspace(0, steps, _EITHER), np.geomspace(1, steps, _EITHER)
    return np.unique(np.concatenate([even, early]).round().astype(int))


def train(setup: Setup, model: AbstractModel | None = None, loss: Any = None) -> Recorded:
    """The whole descent, at once; of another model and loss if they are given."""
    steps = recorded_steps(setup.flags.epoch)
    run = _descended(setup, model or setup.model, objective(setup) if loss is None else loss, steps)
    return _recorded(setup, run)


def train_in_parts(setup: Setup, share: Share, stop: Callable[[], bool]) -> Recorded:
    """The same in parts, each of which is shared: for what takes longer than a moment.

    `Cancelled` is raised between two parts where `stop` says so. What does not end in time is cut off.
    """
    loss, steps, begun = objective(setup), recorded_steps(setup.flags.epoch), clock.monotonic()
    model, made, place, pace = setup.model, None, 0, np.inf
    while place < steps.size - 1:
        if stop():
            raise Cancelled
        if made is not None and clock.monotonic() - begun > SECONDS:
            return made._replace(
                outcome="cut off",
                message=f"after {SECONDS:.0f} s there are {steps[place]} of {steps[-1]} steps; take fewer sequences, "
                "heads or steps, or run it with the command below",
            )
        started, end = clock.monotonic(), _end_of_part(steps, place, pace)
        run = _descended(setup, model, loss, steps[place : end + 1] - steps[place])
        further = _recorded(setup, run, int(steps[place]))
        made = further if made is None else _joined(made, further)
        if made.outcome != "finished":
            return made
        model = setup.model.with_weights({name: values[-1] for name, values in further.weights.items()})
        pace = min(pace, (clock.monotonic() - started) / float(steps[end] - steps[place]))
        place = end
        if place < steps.size - 1:
            share(float(steps[place] / steps[-1]), made._replace(outcome=f"step {steps[place]} of {steps[-1]}"))
    assert made is not None
    return made


def _end_of_part(steps: np.ndarray, place: int, pace: float) -> int:
    """The record at which a part ends that begins at `place`, at so many seconds a step at the most."""
    allowed = [
        place + count
        for count in _RECORDS
        if place + count < steps.size and (steps[place + count] - steps[place]) * pace <= _PART
    ]
    left = steps.size - 1 - place
    return max([*allowed, place + min(_RECORDS[0], left)])


def _flat(model: AbstractModel) -> Float[Array, " weights"]:
    """All weights, as a curve: so they are recorded within a compiled call, where a snapshot ends one."""
    return jnp.concatenate([jnp.ravel(weight) for weight in model.weights().values()])


_OBSERVED = {_WEIGHTS: _flat}
"""One object for all runs, or each would be compiled anew."""


def _descended(setup: Setup, model: AbstractModel, loss: Any, steps: np.ndarray) -> xr.Dataset:
    return descend(
        model,
        loss,
        rate=setup.flags.lr,
        steps=int(steps[-1]),
        record=steps,
        snapshots=2,
        observe=_OBSERVED,
        progress=False,
        advice=False,
    )


def _recorded(setup: Setup, run: xr.Dataset, first: int = 0) -> Recorded:
    weights, flat, place = {}, run[_WEIGHTS].values[0], 0
    for name, weight in setup.model.weights().items():
        weights[name] = flat[:, place : place + weight.size].reshape(-1, *weight.shape)
        place += weight.size
    steps = first + run["step"].values
    time = np.asarray(flow_time(steps.astype(float), setup.flags.lr))
    return Recorded(time, steps, run["loss"].values[0], weights, run.attrs["outcome"], run.attrs["message"])


def _joined(first: Recorded, second: Recorded) -> Recorded:
    """Both, without the point that they share."""

    def joined(one: Any, other: Any) -> np.ndarray:
        return np.concatenate([one, other[1:]])

    return second._replace(
        time=joined(first.time, second.time),
        steps=joined(first.steps, second.steps),
        loss=joined(first.loss, second.loss),
        weights={name: joined(first.weights[name], second.weights[name]) for name in first.weights},
    )
