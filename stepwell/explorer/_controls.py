"""What can be set on the page: each control declared once, as plain data, for the page, the address and the bounds.

Nothing here imports JAX.
"""

from dataclasses import dataclass
from typing import Literal

from stepwell._arguments import checked

Mode = Literal["linear", "softmax", "stored"]
MODES: tuple[Mode, ...] = ("linear", "softmax", "stored")
"""One regression, learned by linear attention; several, learned by softmax attention; what was computed before."""

Kind = Literal["choice", "integer", "number", "numbers", "integers", "name"]
Value = str | int | float | tuple[float, ...] | tuple[int, ...]
"""What a control holds: a choice or a name, a whole number, a number, or several of one kind."""

Alternative = tuple[tuple[str, tuple[str, ...]], ...]
"""Controls by name, and which values each must have."""


@dataclass(frozen=True)
class Control:
    """One control of the page, and the bounds of its value.

    - `name`: in the address; `label`: beside the control; `group`: the heading under which it stands.
    - `mode`: where it is shown. The same name may be a control of two modes, with other bounds.
    - `kind`: a choice of `choices`, a whole number, a number, several numbers or whole numbers (from `fewest` to
      `count` of them), or a name (a text of letters, digits and `-_./`, at most `most` long).
    - `default`, `least`, `most`: of the value, or of each of several. `step` is that of a slider, and `log` says that
      the slider is logarithmic; where `least` is 0 it begins at `log_least`, and 0 is a stop of its own.
    - `help`: one sentence; `glossary`: the word of docs/glossary.md that explains it, or empty; `unit`: or empty.
    - `when`: alternatives, in one of which every control named has one of the values given: there it is shown, and
      elsewhere it means nothing. Without alternatives it is always shown.
    """

    name: str
    label: str
    mode: Mode
    group: str
    kind: Kind
    default: Value
    help: str
    least: float = 0
    most: float = 0
    choices: tuple[tuple[str, str], ...] = ()
    """Values, and what the page calls them."""
    step: float = 1
    log: bool = False
    log_least: float = 0
    fewest: int = 0
    count: int = 0
    glossary: str = ""
    unit: str = ""
    when: "tuple[Alternative, ...]" = ()


MOST_DIM = 8
MOST_HEADS = 8
MOST_STEPS = 10_000
MOST_SEED = 2**32 - 1
_SEQUENCES = 4000

_TASK, _MODEL, _DYNAMICS, _STORE = "Task", "Model", "Dynamics", "Computed before"


def _where(**values: tuple[str, ...]) -> Alternative:
    return tuple(values.items())


_HAS_RANK = (_where(model=("separate", "softmax")),)
_DESCENDS = {
    "linear": (_where(dynamics=("descent",)), _where(model=("softmax",))),
    "softmax": (_where(dynamics=("descent",)), _where(loss=("sequences",))),
}
_FLOWS = {
    "linear": (_where(dynamics=("flow",), model=("separate", "merged")),),
    "softmax": (_where(dynamics=("flow",), loss=("closed",)),),
}

_SEED = {"label": "Seed", "group": _MODEL, "kind": "integer", "least": 0, "most": MOST_SEED}
_RATE = {"label": "Learning rate η", "group": _DYNAMICS, "kind": "number", "log": True, "step": 0.01}
_STEPS = {
    "name": "epoch",
    "label": "Steps",
    "group": _DYNAMICS,
    "kind": "integer",
    "least": 200,
    "log": True,
    "step": 0.01,
}
_END = {"name": "until", "label": "End of the flow", "group": _DYNAMICS, "kind": "number", "default": 0.0}
_END |= {"least": 0.0, "most": 1e6, "log": True, "log_least": 1.0, "step": 0.01}

_LINEAR: tuple[Control, ...] = (
    Control(
        "dim",
        "Dimension D",
        "linear",
        _TASK,
        "integer",
        4,
        "Dimension of an input x.",
        1,
        MOST_DIM,
    ),
    Control(
        "spectrum",
        "Spectrum",
        "linear",
        _TASK,
        "choice",
        "published",
        "Eigenvalues λ of the covariance of the inputs, of sum 1; or your own.",
        choices=(
            ("published", "the paper's"),
            ("power", "power law"),
            ("white", "white"),
            ("spiked", "spiked"),
            ("custom", "your own"),
        ),
    ),
    Control(
        "exponent",
        "Exponent",
        "linear",
        _TASK,
        "number",
        1.0,
        "λ_d is proportional to d to the power of minus this.",
        0.0,
        4.0,
        step=0.05,
        when=(_where(spectrum=("power",)),),
    ),
    Control(
        "ratio",
        "Height of the spike",
        "linear",
        _TASK,
        "number",
        4.0,
        "How many times as large the first eigenvalues are as the others.",
        1.0,
        100.0,
        step=0.01,
        log=True,
        when=(_where(spectrum=("spiked",)),),
    ),
    Control(
        "spikes",
        "Number of spikes",
        "linear",
        _TASK,
        "integer",
        1,
        "How many eigenvalues are large.",
        1,
        MOST_DIM - 1,
        when=(_where(spectrum=("spiked",)),),
    ),
    Control(
        "eigenvalues",
        "Eigenvalues λ",
        "linear",
        _TASK,
        "numbers",
        (),
        "One for each dimension; drag a bar.",
        0.01,
        2.0,
        step=0.01,
        count=MOST_DIM,
        when=(_where(spectrum=("custom",)),),
    ),
    Control(
        "context",
        "Context length N",
        "linear",
        _TASK,
        "integer",
        31,
        "Pairs of input and label before the query.",
        1,
        1000,
        step=0.01,
        log=True,
        glossary="Context length N",
    ),
    Control(
        "noise",
        "Label noise",
        "linear",
        _TASK,
        "number",
        0.0,
        "Variance of the noise on the labels.",
        0.0,
        2.0,
        step=0.01,
        unit="variance",
    ),
    Control(
        "task_eigenvalues",
        "Task covariance",
        "linear",
        _TASK,
        "numbers",
        (),
        "Eigenvalues of the covariance of task vectors, in the order of λ; none for 1 each.",
        0.0,
        4.0,
        step=0.05,
        count=MOST_DIM,
        glossary="Task vector",
    ),
    Control(
        "model",
        "Attention",
        "linear",
        _MODEL,
        "choice",
        "separate",
        "One matrix for key and query together, or a key and a query of rank R for each head; linear or softmax.",
        choices=(("separate", "separate key and query"), ("merged", "merged key and query"), ("softmax", "softmax")),
        glossary="Merged, separate (`attnM`, `attnS`)",
    ),
    Control(
        "heads",
        "Heads H",
        "linear",
        _MODEL,
        "integer",
        4,
        "Attention heads, whose answers add up.",
        1,
        MOST_HEADS,
    ),
    Control(
        "rank",
        "Rank R",
        "linear",
        _MODEL,
        "integer",
        1,
        "Pairs of key and query in a head.",
        1,
        MOST_DIM,
        glossary="Pair",
        when=_HAS_RANK,
    ),
    Control(
        "start",
        "Rule of the start",
        "linear",
        _MODEL,
        "choice",
        "plain",
        "How the scale becomes the standard deviation of a weight: as it is, or divided by the root of the entries of "
        "a head's keys, or of all heads'.",
        choices=(("plain", "plain"), ("per-head", "per head"), ("stacked", "stacked")),
        glossary="Start",
        when=_HAS_RANK,
    ),
    Control(
        "init",
        "Scale of the start",
        "linear",
        _MODEL,
        "number",
        0.01,
        "Standard deviation of the initial weights, attention divided by nothing.",
        1e-5,
        1.0,
        step=0.01,
        log=True,
        glossary="Start",
    ),
    Control(name="seed", mode="linear", default=21, help="Of the initial weights and the eigenvectors.", **_SEED),  # pyright: ignore
    Control(
        "dynamics",
        "Dynamics",
        "linear",
        _DYNAMICS,
        "choice",
        "flow",
        "Gradient flow, the limit of small rates; or gradient descent. Softmax attention descends.",
        choices=(("flow", "gradient flow"), ("descent", "gradient descent")),
        glossary="Flow, flow time t/τ",
        when=(_where(model=("separate", "merged")),),
    ),
    Control(
        mode="linear",
        help="Time at which the flow ends; 0: when it has converged.",
        when=_FLOWS["linear"],
        unit="t/τ",
        **_END,
    ),  # pyright: ignore
    Control(
        name="lr",
        mode="linear",
        default=0.003,
        least=1e-5,
        most=1.0,
        help="Of gradient descent.",
        when=_DESCENDS["linear"],
        **_RATE,  # pyright: ignore
    ),
    Control(
        mode="linear", default=6000, most=MOST_STEPS, help="Of gradient descent.", when=_DESCENDS["linear"], **_STEPS
    ),  # pyright: ignore
    Control(
        "sequences",
        "Sequences",
        "linear",
        _DYNAMICS,
        "integer",
        500,
        "Training sequences of softmax attention, for which no closed form of the loss is known.",
        32,
        _SEQUENCES,
        step=0.01,
        log=True,
        when=(_where(model=("softmax",)),),
    ),
)

_SOFTMAX: tuple[Control, ...] = (
    Control(
        "dims",
        "Dimensions d of the tasks",
        "softmax",
        _TASK,
        "integers",
        (10, 10, 10),
        "One regression for each, on coordinates of its own.",
        1,
        60,
        fewest=1,
        count=6,
        glossary="Task vector",
    ),
    Control(
        "strengths",
        "Strengths",
        "softmax",
        _TASK,
        "numbers",
        (1.0,),
        "Variance of a coordinate of the task vectors: one for all tasks, or one for each.",
        0.01,
        10.0,
        step=0.01,
        log=True,
        fewest=1,
        count=6,
    ),
    Control(
        "context",
        "Context length L",
        "softmax",
        _TASK,
        "integer",
        100,
        "Pairs of input and labels before the query.",
        5,
        500,
        step=0.01,
        log=True,
        glossary="Context length N",
    ),
    Control(
        "noise",
        "Label noise",
        "softmax",
        _TASK,
        "number",
        0.0,
        "Variance of the noise on the labels.",
        0.0,
        5.0,
        step=0.01,
        unit="variance",
    ),
    Control(
        "heads",
        "Heads H",
        "softmax",
        _MODEL,
        "integer",
        3,
        "Softmax heads, each with a score ω and an output μ for every task.",
        1,
        MOST_HEADS,
        glossary="Spectral model (ω, μ)",
    ),
    Control(
        "init",
        "Scale of the start",
        "softmax",
        _MODEL,
        "number",
        0.004,
        "ω of the strongest head of each task; the others are random below it.",
        1e-5,
        0.1,
        step=0.01,
        log=True,
        glossary="Start",
    ),
    Control(name="seed", mode="softmax", default=9, help="Of the initial weights, and of sequences.", **_SEED),  # pyright: ignore
    Control(
        "loss",
        "Loss",
        "softmax",
        _DYNAMICS,
        "choice",
        "closed",
        "In closed form, to leading order in d and L; or over random sequences, which takes longer.",
        choices=(("closed", "closed form"), ("sequences", "random sequences")),
        glossary="Objective",
    ),
    Control(
        "sequences",
        "Sequences",
        "softmax",
        _DYNAMICS,
        "integer",
        1000,
        "Training sequences.",
        32,
        _SEQUENCES,
        step=0.01,
        log=True,
        when=(_where(loss=("sequences",)),),
    ),
    Control(
        "dynamics",
        "Dynamics",
        "softmax",
        _DYNAMICS,
        "choice",
        "flow",
        "Gradient flow dW/dt = -∂L/∂W, the limit of small rates; or gradient descent, whose step s of rate η is at "
        "t = ηs. Over sequences it is descent.",
        choices=(("flow", "gradient flow"), ("descent", "gradient descent")),
        when=(_where(loss=("closed",)),),
    ),
    Control(
        mode="softmax",
        help="Time at which the flow ends; 0: well after the last predicted emergence.",
        when=_FLOWS["softmax"],
        unit="t",
        **_END,
    ),  # pyright: ignore
    Control(
        name="lr",
        mode="softmax",
        default=0.02,
        least=1e-4,
        most=1.0,
        help="Of gradient descent.",
        when=_DESCENDS["softmax"],
        **_RATE,  # pyright: ignore
    ),
    Control(
        mode="softmax", default=1000, most=MOST_STEPS, help="Of gradient descent.", when=_DESCENDS["softmax"], **_STEPS
    ),  # pyright: ignore
)

_STORED: tuple[Control, ...] = (
    Control("run", "Run", "stored", _STORE, "name", "", "A run of the store, by its name.", most=32),
    Control("figure", "Figure", "stored", _STORE, "name", "", "A figure of the reproduction.", most=64),
)

CONTROLS: tuple[Control, ...] = (*_LINEAR, *_SOFTMAX, *_STORED)


@checked
def controls(mode: Mode) -> dict[str, Control]:
    """The controls of a mode.

    **Arguments:**

    - `mode`: "linear", "softmax" or "stored".

    **Returns:** the controls by name, in the order of the page.

    **Example:**

    >>> from stepwell.explorer import controls
    >>> controls("linear")["heads"].default, controls("softmax")["heads"].default
    (4, 3)
    """
    return {control.name: control for control in CONTROLS if control.mode == mode}
