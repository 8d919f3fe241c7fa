"""The state of the page: what every control is set to, checked and bounded, as the address has it.

Nothing here imports JAX. In linear and softmax mode a state is a run of `stepwell train`: `State.run_fields` are its
flags by name.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from stepwell._arguments import checked
from stepwell._errors import InvalidInput
from stepwell._text import nearest, shown

from ._controls import MODES, Control, Mode, Value, controls

Problems = dict[str, str]
"""Messages, by the control that caused each."""

PREFIXES = ("", "b.", "c.", "d.")
"""Of the words of up to four configurations in one address."""
_LONGEST = 400
"""Characters of one value."""
_MOST_WORDS = 200
"""Words of an address that are read."""
_NUMBERS = 2_000_000
"""Numbers in all sequences that are trained on, at the most."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class State:
    """What is set in one mode.

    **Arguments:**

    - `mode`: "linear", "softmax" or "stored".
    - `fields`: a value for each control of the mode.

    **Example:**

    >>> from stepwell.explorer import State
    >>> state, problems = State.read({"dim": "3", "init": "1e-4", "heads": "many"})
    >>> state.query(), problems
    ({'dim': '3', 'init': '0.0001'}, {'heads': "Heads H is 'many'; it must be a whole number from 1 to 8"})
    """

    mode: Mode
    fields: Mapping[str, Value]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))

    def __hash__(self) -> int:
        return hash((self.mode, tuple(self.fields.items())))

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    @classmethod
    @checked
    def default(cls, mode: Mode = "linear") -> "State":
        """The state of a page without an address.

        **Arguments:**

        - `mode`: "linear", "softmax" or "stored".

        **Returns:** the state, every control at its default.
        """
        return cls(mode, {name: control.default for name, control in controls(mode).items()})

    @classmethod
    @checked
    def read(cls, words: Mapping[str, str]) -> "tuple[State, Problems]":
        """The state that an address describes, and what was wrong with it.

        **Arguments:**

        - `words`: texts by the names of controls, and `mode`.

        **Returns:** the state, and messages by the control that caused each. A value that is not allowed is left at its
        default, or brought within its bounds, and reported under the name of its control.
        """
        problems: Problems = {}
        mode = words.get("mode", MODES[0])
        if mode not in MODES:
            problems["mode"] = f"mode is {shown(mode)}; it must be one of {', '.join(MODES)}"
            mode = MODES[0]
        known = controls(mode)
        fields = {name: control.default for name, control in known.items()}
        for number, (name, text) in enumerate(words.items()):
            if number >= _MOST_WORDS:
                problems["mode"] = f"the address has {len(words)} words; the first {_MOST_WORDS} are read"
                break
            if name == "mode":
                continue
            if name not in known:
                problems[str(name)[:_LONGEST]] = f"there is no control {shown(name)}: {nearest(name, list(known))}"
                continue
            try:
                fields[name] = _parsed(known[name], text)
            except _NotAllowed as error:
                problems[name] = str(error)
        _fit(mode, fields, problems)
        return cls(mode, fields), problems

    def query(self) -> dict[str, str]:
        """The words of an address that make this state.

        **Returns:** texts by name: the mode, and what differs from its defaults. `State.read` reads them back exactly.
        """
        known = controls(self.mode)
        words = {} if self.mode == MODES[0] else {"mode": self.mode}
        changed = {name: value for name, value in self.fields.items() if value != known[name].default}
        return words | {name: _text(value) for name, value in changed.items()}

    @checked
    def shows(self, name: str) -> bool:
        """Whether a control means anything, and is shown, as the others are set.

        **Arguments:**

        - `name`: of the control.

        **Returns:** whether it is.
        """
        alternatives = controls(self.mode)[name].when
        return not alternatives or any(
            all(self.fields[other] in values for other, values in alternative) for alternative in alternatives
        )

    @property
    def flows(self) -> bool:
        """Whether it is gradient flow, rather than descent."""
        return self.mode != "stored" and self.shows("until")

    @property
    def on_sequences(self) -> bool:
        """Whether it is trained on random sequences, which takes longer than a moment."""
        return self.mode != "stored" and self.shows("sequences")

    def run_fields(self) -> dict[str, Any]:
        """The flags of `stepwell train` that describe the run.

        **Returns:** values by the names of flags; the end of a flow is not among them.
        """
        if self.mode == "stored":
            raise ValueError("a stored run is not described by controls")
        fields = _linear_fields(self) if self.mode == "linear" else _softmax_fields(self)
        fields |= {name: self[name] for name in ("context", "noise", "heads", "init", "seed")}
        if not self.flows:
            fields |= {"lr": self["lr"], "epoch": self["epoch"]}
        if self.on_sequences:
            fields["trainset_size"] = self["sequences"]
        return fields


@checked
def read_all(words: Mapping[str, str]) -> tuple[list[State], list[Problems]]:
    """Up to four configurations of one address.

    The words of the second to the fourth begin with `b.`, `c.`, `d.`; what they do not say is as in the first. A
    configuration is there if any word of its own is, `b.=` at the least.

    **Arguments:**

    - `words`: texts by name.

    **Returns:** the states, and for each the messages by control.

    **Example:**

    >>> from stepwell.explorer import read_all
    >>> states, problems = read_all({"dim": "2", "b.init": "0.1"})
    >>> [(state["dim"], state["init"]) for state in states]
    [(2, 0.01), (2, 0.1)]
    """
    own = {name: text for name, text in words.items() if not name.startswith(PREFIXES[1:])}
    first, problems = State.read(own)
    states, all_problems = [first], [problems]
    for prefix in PREFIXES[1:]:
        further = {name.removeprefix(prefix): text for name, text in words.items() if name.startswith(prefix)}
        if not further:
            continue
        further.pop("", None)
        basis = first.query() if further.get("mode", first.mode) == first.mode else {}
        state, problems = State.read({**basis, **further})
        states.append(state)
        all_problems.append({name: message for name, message in problems.items() if name in further or name not in own})
    return states, all_problems


@checked
def query_all(states: Sequence[State]) -> dict[str, str]:
    """The words of an address that make these configurations: the inverse of `read_all`.

    **Arguments:**

    - `states`: one to four of them.

    **Returns:** texts by name.

    **Example:**

    >>> from stepwell.explorer import State, query_all
    >>> query_all([State.default(), State.read({"init": "0.1"})[0]])
    {'b.init': '0.1'}
    """
    if not 1 <= len(states) <= len(PREFIXES):
        raise InvalidInput(f"there are {len(states)} states; give from 1 to {len(PREFIXES)}")
    first = states[0]
    words = first.query()
    for prefix, state in zip(PREFIXES[1:], states[1:], strict=False):
        if state.mode != first.mode:
            own = {"mode": state.mode, **state.query()}
        else:
            own = {name: _text(value) for name, value in state.fields.items() if value != first.fields[name]}
        words |= {prefix + name: text for name, text in own.items()} or {prefix: ""}
    return words


class _NotAllowed(Exception):
    """A value that a control cannot have; the message says what it can."""


def _parsed(control: Control, text: Any) -> Value:
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise _NotAllowed(f"{control.label}: this is not a text of at most {_LONGEST} characters")
    if control.kind == "choice":
        values = [value for value, _ in control.choices]
        if text not in values:
            raise _NotAllowed(f"{control.label} is {shown(text)}; it must be one of {', '.join(values)}")
        return text
    if control.kind == "name":
        if text and (_NAME.fullmatch(text) is None or len(text) > control.most or ".." in text):
            raise _NotAllowed(f"{control.label} is {shown(text)}; it must be a name from the list")
        return text
    if control.kind in ("numbers", "integers"):
        parts = [part.strip() for part in text.split(",")] if text.strip() else []
        if not control.fewest <= len(parts) <= control.count:
            raise _NotAllowed(
                f"{control.label} has {len(parts)} values; it must have from {control.fewest} to {control.count}, "
                "with commas between them"
            )
        return tuple(_number(control, part, whole=control.kind == "integers") for part in parts)  # pyright: ignore
    return _number(control, text.strip(), whole=control.kind == "integer")


def _number(control: Control, text: str, *, whole: bool) -> int | float:
    allowed = f"it must be a {'whole ' if whole else ''}number from {control.least:g} to {_largest(control)}"
    # Not `float` alone, which takes nan, 1_000 and the digits of every script.
    if not text.isascii() or (_WHOLE if whole else _NUMBER).fullmatch(text) is None:
        raise _NotAllowed(f"{control.label} is {shown(text)}; {allowed}")
    value = int(text) if whole else float(text) + 0.0  # no -0
    if not math.isfinite(value) or not control.least <= value <= control.most:
        raise _NotAllowed(f"{control.label} is {shown(text)}; {allowed}")
    return value


def _largest(control: Control) -> str:
    return f"{control.most:g}" if control.most < 1e6 else f"{control.most:,.0f}".replace(",", " ")


def _text(value: Value) -> str:
    """A value as the address has it: as short as reads back the same."""
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    if isinstance(value, float):
        text = repr(value)
        return text.removesuffix(".0").replace("e-0", "e-").replace("e+", "e")
    return str(value)


def _fit(mode: Mode, fields: dict[str, Value], problems: Problems) -> None:
    """What values must be to each other: the later of two that do not fit is brought within its bounds."""
    values: dict[str, Any] = fields
    if mode != "stored":
        _fit_sequences(mode, values, problems)
    if mode == "linear":
        dim = values["dim"]
        if values["rank"] > dim:
            if values["model"] != "merged":
                problems["rank"] = f"Rank R is {values['rank']}; in dimension {dim} it must be a number from 1 to {dim}"
            fields["rank"] = dim
        if values["spikes"] > max(dim - 1, 1):
            if values["spectrum"] == "spiked":
                problems["spikes"] = (
                    f"Number of spikes is {values['spikes']}; in dimension {dim} it must be a number from 1 to "
                    f"{max(dim - 1, 1)}"
                )
            fields["spikes"] = max(dim - 1, 1)
        for name in ("eigenvalues", "task_eigenvalues"):
            given = values[name]
            if given and len(given) != dim:
                label = controls(mode)[name].label
                problems[name] = f"{label} has {len(given)} values in dimension {dim}; give one for each, or none"
                fields[name] = ()
        if values["task_eigenvalues"] and not any(values["task_eigenvalues"]):
            problems["task_eigenvalues"] = "Task covariance is all 0, so there is nothing to learn; give one above 0"
            fields["task_eigenvalues"] = ()
    if mode == "softmax" and len(values["strengths"]) not in (1, len(values["dims"])):
        tasks = len(values["dims"])
        problems["strengths"] = (
            f"Strengths has {len(values['strengths'])} values for {tasks} tasks; give one for all, or one for each"
        )
        fields["strengths"] = (1.0,)


def _fit_sequences(mode: Mode, fields: dict[str, Any], problems: Problems) -> None:
    """So many sequences at the most as a request may hold in memory."""
    shown = fields["model"] == "softmax" if mode == "linear" else fields["loss"] == "sequences"
    width = fields["dim"] + 1 if mode == "linear" else len(fields["dims"]) + fields["heads"]
    most = _NUMBERS // ((fields["context"] + 1) * width)
    if fields["sequences"] > most:
        if shown:
            problems["sequences"] = (
                f"Sequences is {fields['sequences']}; with sequences of this length it must be a number from "
                f"{controls(mode)['sequences'].least:g} to {most}"
            )
        fields["sequences"] = most


_MODELS = {"separate": "attnS", "merged": "attnM", "softmax": "attnS"}


def _linear_fields(state: State) -> dict[str, Any]:
    fields: dict[str, Any] = {"model": _MODELS[state["model"]]}
    spectrum, dim = state["spectrum"], state["dim"]
    if spectrum == "custom" and state["eigenvalues"]:
        fields["eigenvalues"] = list(state["eigenvalues"])
    elif spectrum == "spiked" and dim > 1:
        fields |= {"spectrum": f"spiked:{_text(state['ratio'])},{state['spikes']}", "dim": dim}
    elif spectrum == "power":
        fields |= {"spectrum": f"power:{_text(state['exponent'])}", "dim": dim}
    else:
        fields |= {"spectrum": "white" if spectrum == "white" else "published", "dim": dim}
    if state["task_eigenvalues"]:
        fields["task-eigenvalues"] = list(state["task_eigenvalues"])
    if state["model"] != "merged":
        fields |= {"rank": state["rank"], "start": state["start"]}
    if state["model"] == "softmax":
        return fields | {"softmax": True, "engine": "sampled"}
    return fields | {"engine": "population-flow" if state.flows else "population"}


def _softmax_fields(state: State) -> dict[str, Any]:
    engine = "sampled" if state.on_sequences else "flow" if state.flows else "population"
    return {"dims": list(state["dims"]), "strengths": list(state["strengths"]), "engine": engine}
