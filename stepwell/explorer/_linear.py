"""One regression, learned by attention: the run, and what the theory says of it, as arrays for the page."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stepwell.published import flows, infinite
from stepwell.published.training import Setup
from stepwell.theory import linear

from ._cancelled import Cancelled
from ._drops import COLUMNS, Curve, levels_of, measure, predict, theory_values, theory_weights, weight_scale
from ._state import State
from ._training import Recorded, follow, set_up_state, time_name, train, train_in_parts, unit_of

View = dict[str, Any]

_LARGEST = 1e30
"""Numbers are cut off here, so that they fit into 32 bits: of what diverges."""
_DRAFT_FROM = 6
"""Dimension from which on a draft of the flow comes first: it takes half the time there."""
_LONG_FROM, _PAUSE = 100, 0.15
"""Weights from which on the rest takes so long that it waits, so many seconds, whether a newer state comes."""
_BEYOND = 4.0
"""Drops are predicted up to so many times the end of the run."""


def linear_view(state: State, report: Callable[[float, View], None], stop: Callable[[], bool]) -> View:
    """The run of a state, first alone and then with the theory."""
    setup = set_up_state(state)
    if state.on_sequences:
        recorded = train_in_parts(setup, lambda part, now: report(part, run_view(setup, now)), stop)
        return run_view(setup, recorded)
    if state.flows:
        until = None if state["until"] == 0 else state["until"] / unit_of(setup)
        if state["dim"] >= _DRAFT_FROM:
            report(0.3, run_view(setup, follow(setup, until, draft=True)))
            _give_way(setup, stop)
        recorded = follow(setup, until)
    else:
        recorded = train(setup)
    made = run_view(setup, recorded)
    report(0.6, made)
    _give_way(setup, stop)
    return made | theory_view(setup, recorded, made)


def _give_way(setup: Setup, stop: Callable[[], bool]) -> None:
    """Raise `Cancelled` if a newer state waits; before longer work, also if one comes within a moment."""
    weights = sum(weight.size for weight in setup.model.weights().values())
    end = time.monotonic() + (_PAUSE if weights > _LONG_FROM else 0.0)
    while not stop():
        if time.monotonic() >= end:
            return
        time.sleep(0.01)
    raise Cancelled


def small(values: np.ndarray) -> np.ndarray:
    """In 32 bits, which is enough for a picture."""
    return np.clip(np.nan_to_num(values, nan=np.nan, posinf=_LARGEST, neginf=-_LARGEST), -_LARGEST, _LARGEST).astype(
        np.float32
    )


def run_view(setup: Setup, recorded: Recorded) -> View:
    """What was recorded, in the eigenvectors of the task."""
    modes = linear.modes(setup.task)  # pyright: ignore
    basis, weights = modes.directions, theory_weights(setup, recorded.weights)
    made: View = {
        "mode": "linear",
        "time": unit_of(setup) * recorded.time,
        "time_name": time_name(setup),
        "loss": recorded.loss,
        "values": small(weights["values"]),
        "eigenvalues": modes.variances,
        "outcome": recorded.outcome,
        "message": recorded.message,
        "caption": _caption(setup, recorded),
        "problems": {},
        "levels": np.zeros(0),
        "level_names": [],
    }
    if recorded.steps is not None:
        made["steps"] = recorded.steps.astype(float)
    if "keys" in weights:
        keys, queries = weights["keys"] @ basis, weights["queries"] @ basis
        made |= {"keys": small(keys), "queries": small(queries)}
        heads = np.swapaxes(keys, 2, 3) @ queries
    else:
        heads = basis.T @ weights["key_queries"] @ basis
        made["merged"] = small(heads)
    if not setup.flags.softmax:
        learned, levels = levels_of(setup)
        made |= {
            "map": small(np.einsum("th,thij->tij", weights["values"], heads)),
            "target": np.diag(modes.ends) / weight_scale(setup) ** setup.model.factors,  # pyright: ignore
            "levels": levels,
            "level_names": [_level_name(number, setup.flags.in_dim) for number in learned],
        }
    return made | _no_theory(weights["values"].shape)


def _no_theory(shape: tuple[int, ...]) -> View:
    return {
        "values_theory": np.full(shape, np.nan, np.float32),
        "drop_times": np.zeros(0),
        "drop_names": [],
        "measured_times": np.zeros(0),
        "table": {"columns": list(COLUMNS), "rows": []},
        "remark": "",
    }


def theory_view(setup: Setup, recorded: Recorded, made: View, curve: Curve | None = None) -> View:
    """What the theory says of a run. Drops are measured on `curve`, if the loss was recorded at more points."""
    points = made["time"]
    theory, scale = predict(setup, _BEYOND * float(points[-1])), weight_scale(setup)
    weights = theory_weights(setup, recorded.weights)
    values = weights["values"][..., None, None] * scale**setup.model.factors  # pyright: ignore
    if "keys" in weights:
        maps = values * (np.swapaxes(weights["keys"], 2, 3) @ weights["queries"])
    else:
        maps = values * weights["key_queries"]
    measured = measure(theory, curve or Curve(points, recorded.loss), points, maps)
    missing = [np.nan] * (theory.levels.size - 1 - len(theory.drops))
    return {
        "values_theory": small(theory_values(theory, points, weights["values"][-1]) / scale),
        "drop_times": np.array([drop.time for drop in theory.drops] + missing),
        "drop_names": [_drop_name(drop) for drop in theory.drops] + [""] * len(missing),
        "measured_times": np.array([drop.time for drop in measured.drops]),
        "table": {"columns": list(COLUMNS), "rows": measured.rows},
        "remark": "; ".join(filter(None, (theory.reason, finite_remark(setup)))),
    }


def _drop_name(drop: linear.PredictedDrop) -> str:
    if drop.component is None or drop.head is None:
        return "all components, all heads"
    return f"component {drop.component + 1}, head {drop.head + 1}"


def _level_name(learned: int, dim: int) -> str:
    if learned == 0:
        return "nothing learned"
    return f"all {dim} learned" if learned == dim and dim > 1 else f"{learned} learned"


def training_words(setup: Setup) -> str:
    """How a run is trained."""
    how = "gradient flow" if flows(setup.engine) else f"gradient descent at rate {setup.flags.lr:g}"
    return f"{how} on {setup.flags.trainset_size} sequences" if _on_sequences(setup) else how


def finite_remark(setup: Setup) -> str:
    """What a run on finitely many sequences is compared with; empty for others."""
    if not _on_sequences(setup):
        return ""
    return f"predictions are for infinitely many sequences, and the run is on {setup.flags.trainset_size} of them"


def _on_sequences(setup: Setup) -> bool:
    return setup.engine == "sampled" if setup.beyond.several else not infinite(setup.engine)


def _caption(setup: Setup, recorded: Recorded) -> str:
    flags = setup.flags
    heads = f"{flags.head_num} head" + ("s" if flags.head_num > 1 else "")
    rank = f" of rank {flags.rank}" if flags.kind.has_rank else ""
    first, last = recorded.loss[0], recorded.loss[-1]
    name = "Softmax attention" if flags.softmax else f"{flags.kind.description.capitalize()} attention"
    how = training_words(setup)
    return (
        f"{name} with {heads}{rank}, D = {flags.in_dim}, N = {flags.context}: {how} takes the loss "
        f"from {first:.4g} to {last:.4g} ({recorded.outcome})."
    )
