"""The run of a state as `stepwell train` makes it: its flags, command, script, trajectory, and its place in a store."""

import functools
import shlex
from typing import Any

import xarray as xr

from stepwell._errors import InvalidInput
from stepwell.published import Run, run_in
from stepwell.published.training import Setup, set_up
from stepwell.published.training import train as train_whole
from stepwell.runs import Record, Store, configuration_of, run_name, save_run

from ._softmax import end_of
from ._state import State
from ._training import follow, set_up_state, unit_of
from ._view import kept_view

FLOW_STEPS = 1000
"""Recorded steps of a flow, as `stepwell train` counts them."""
_LARGEST = 2**24
"""Numbers that the weights of a recorded flow take up, at the most: 128 MiB."""


@functools.lru_cache(maxsize=64)
def command_fields(state: State) -> tuple[tuple[str, Any], ...]:
    """The flags of `stepwell train` that make the run of a state, by name.

    A flow has a rate too: it is recorded at the times of so many steps, up to the end that the page shows.
    """
    fields = state.run_fields()
    if state.flows:
        fields |= {"lr": _flow_end(state) / (2 * FLOW_STEPS), "epoch": FLOW_STEPS}
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in fields.items())


def _flow_end(state: State) -> float:
    """When the flow ends, in its own time."""
    setup = set_up_state(state)
    if state.mode == "softmax":
        return end_of(state, setup) / unit_of(setup)
    if state["until"] > 0:
        return state["until"] / unit_of(setup)
    return float(follow(setup, None).time[-1])


def _described(state: State) -> tuple[Run, Setup]:
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in command_fields(state)}
    run = run_in(fields)
    return run, set_up(run.flags, run.engine, run.beyond)


def command(state: State) -> str:
    """The command that makes the run of a state."""
    words = ["stepwell", "train"]
    for name, value in command_fields(state):
        if value is True:
            words.append(f"--{name}")
        else:
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{name}", *(one if isinstance(one, str) else repr(one) for one in values)]
    return shlex.join(words)


_SCRIPT = '''"""{caption}"""

import stepwell as sw
from stepwell.published import run_in, training

fields = {fields}
run = run_in(fields)  # the flags of `stepwell train`
setup = training.set_up(run.flags, run.engine, run.beyond)  # task, initial model, random keys
{call}
print(f"final loss {{float(trajectory['loss'][0, -1]):.10g}}")
{more}'''

_FLOW = """trajectory = sw.flow(
    setup.model, training.objective(setup), until={until!r}, save=200, spacing="steps"{solver}
)"""
_DESCENT = """trajectory = sw.descend(
    setup.model, training.objective(setup), rate=setup.flags.lr, steps=setup.flags.epoch
)"""


def script(state: State) -> str:
    """A Python script that makes the run of a state, prints its last loss and draws it."""
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in command_fields(state)}
    listed = "{\n" + "".join(f"    {name!r}: {value!r},\n" for name, value in fields.items()) + "}"
    call = _DESCENT
    if state.flows:
        solver = ', solver="rodas5p"' if state.mode == "softmax" else ""
        call = _FLOW.format(until=2 * FLOW_STEPS * fields["lr"], solver=solver)
    more = 'trajectory.stepwell.plot(log=True).savefig("run.png")\n'
    if state.mode == "linear" and state["model"] != "softmax":
        more = (
            "print(sw.compare(trajectory, setup.task))  # drops, predicted and measured\n"
            'trajectory.stepwell.plot(setup.task, log=True).savefig("run.png")\n'
        )
    caption = f"A run of the explorer: {state.mode} mode."
    return _SCRIPT.format(caption=caption, fields=listed, call=call, more=more)


def trajectory(state: State) -> tuple[Run, Setup, xr.Dataset]:
    """The run of a state as `stepwell train` records it: every loss, and weights at up to 101 snapshots.

    `InvalidInput` is raised for what the page itself does not finish in time.
    """
    if state.on_sequences and (shown := kept_view(state))["outcome"] == "cut off":
        raise InvalidInput(shown["message"])
    run, setup = _described(state)
    weights = sum(weight.size for weight in setup.model.weights().values())
    if state.flows and weights * (FLOW_STEPS + 1) > _LARGEST:
        raise InvalidInput(f"a flow of {weights} weights is too large to be recorded here; run the command instead")
    return run, setup, train_whole(setup, None)


def store_run(state: State, store: Store) -> str:
    """Put the run of a state into a store; the name by which the store knows it."""
    run, setup, made = trajectory(state)
    if made.attrs["outcome"] != "finished":
        raise InvalidInput(f"the run ended as {made.attrs['outcome']}, and is not stored: {made.attrs['message']}")
    save_run(store, setup, made)
    record = Record(made.sizes["step"], "linear", made.sizes["snapshot"])
    return run_name(configuration_of(run, record, single=True))
