r"""Fig 11: off the same plateau, a new head grows hyperbolically, a new pair inside a grown head exponentially.

The paper's text says of this figure that a conspicuous plateau is one off which a new head grows, and a brief one that
off which a new pair grows in a head whose value has grown. That is shown and claimed for runs of Fig 4 with R = 2.

The two laws of growth are ours. One model of two heads with two pairs each, on infinite data, with the first component
learned by the first pair of the first head. What is given a small random start is either the second head (its first
pair) or the second pair of the first head; all else is zero, and stays so.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from stepwell.dynamics import flow
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.papers._claim import Claim, Origin
from stepwell.papers._completed import completed
from stepwell.papers._settings import changeable, setting
from stepwell.probes import passage_time
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT, provenance

from . import _low_rank_settings as low_rank
from ._described import described
from ._fig11_drawing import draw_figure
from ._fig11_heads import RANK, makers, shown_run, used_before

NAME = "linear/fig11"
TITLE = "A new head escapes hyperbolically, a new pair inside a grown head exponentially"
CAPTION = (
    "(a) A run of Fig 4 with R = 2, its start, rate and number of steps: the loss, and below it the sizes of values "
    "|v| and of the two pairs (singular values of the key matrix) of every head, a colour for each head that grows. "
    "Where R divides m a new head has to grow; elsewhere a new pair in a head whose value has grown, which is soon "
    "done. Below, ours: the laws of both, off the plateau on which the first of four components is learned (infinite "
    "data). (b) A new head must grow its value together with key and query: 1/v falls on a straight line of slope "
    "−λ₂². (c) A further pair of a head uses that head's value v: the logarithm of its size u rises on a straight "
    "line of slope vλ₂². Each seed is another random start; time is counted from where the fit begins. Dashed, the "
    "slopes that theory predicts. (d) So the wait grows as 1/size of the start for a new head, but only as its "
    "logarithm for a new pair."
)
PAPER_SETTINGS: dict[str, Any] = {}
"""Of the paper's figure no more is known than what its text says."""

EIGENVALUES = setting("eigenvalues", (0.4, 0.3, 0.2, 0.1))
DIM = len(EIGENVALUES)
CONTEXT = setting("context", 31)
NEXT = 1
"""The component, from 0, that is learned next."""

Newcomer = Literal["head", "pair"]
KINDS: tuple[Newcomer, Newcomer] = ("head", "pair")

LOW, HIGH = 0.05, 0.25
"""A new head's law is fitted between these parts of its final value."""
PAIR_FROM, PAIR_TO = 3.0, 0.05
"""A new pair's law is fitted from so many times its start to this size."""


@changeable
@dataclass(frozen=True)
class Settings:
    """What a quick run has less of."""

    seeds: tuple[int, ...] = (100, 101, 102, 103, 104, 105)
    """Of the random starts of the two laws; what is fitted was chosen on others."""
    runs: int = 24
    """Of Fig 4, as many as there, and the same."""
    init: float = 1e-4
    """Size of the random starts."""
    sizes: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)
    """Sizes of the aligned starts of which the wait is measured."""
    points: int = 200


FULL = Settings()
QUICK = Settings(seeds=(100,), runs=4, sizes=(1e-2, 1e-3, 1e-4), points=100)


def settings(quick: bool) -> dict[str, Any]:
    return {
        "runs of Fig 4": f"as there, R = {RANK}",
        **described(dim=DIM, context=CONTEXT, heads=2, rank=2, eigenvalues=EIGENVALUES),
        "training for the two laws": "gradient flow on infinite data, from the fixed point with one component learned",
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    task = InContextRegression(covariance(EIGENVALUES), CONTEXT)
    every = low_rank.FULL.every_seed()[: chosen.runs]
    growth = {f"new_{kind}": grow(task, kind, chosen) for kind in KINDS}
    return {
        "run": shown_run(every[0], {"figure": NAME, **asdict(chosen)}),
        "makers": xr.Dataset(
            {"head": (("run", "component"), makers(every))}, {"run": list(every)}, provenance({"figure": NAME})
        ),
        **growth,
        "waits": waits(task, chosen),
        "theory": predict(task),
    }


def start(task: InContextRegression, kind: Newcomer, weights: Float[np.ndarray, " weights"]) -> SeparateAttention:
    """The fixed point with one component learned, and a newcomer's v, k and q; a pair does not need the v."""
    values, keys, queries = theory.aligned_weights(task, [0], heads=2, rank=2)
    place = (1, 0) if kind == "head" else (0, 1)
    if kind == "head":
        values[1] = weights[0]
    keys[place], queries[place] = weights[1 : DIM + 1], weights[DIM + 1 :]
    value = np.zeros((2, 1, DIM + 1))
    value[:, 0, DIM] = values
    wide = np.concatenate([keys, np.zeros((2, 2, 1))], axis=2)
    return SeparateAttention(jnp.asarray(value), jnp.asarray(wide), jnp.asarray(queries))


def grow(task: InContextRegression, kind: Newcomer, chosen: Settings) -> xr.Dataset:
    """The size of the newcomer over the stretch in which its law is fitted: v of a head, ½(k + q)·e of a pair."""
    rows = []
    for seed in chosen.seeds:
        weights = chosen.init * np.random.default_rng(seed).normal(size=2 * DIM + 1)
        model = start(task, kind, weights)
        end = theory.aligned_end(task, NEXT)
        begun = abs(weights[1 + NEXT] + weights[1 + DIM + NEXT]) / 2
        low, high = (LOW * end, HIGH * end) if kind == "head" else (PAIR_FROM * begun, PAIR_TO)
        times = _stretch(task, model, kind, low, high, chosen)
        fine = run(task, model, times)
        rows.append(
            xr.Dataset(
                {
                    "size": ("point", size(fine, kind)),
                    "value": ("point", fine["value"].values[0, :, 0, 0, DIM]),
                    "time": ("point", times, {"units": TIME_UNIT}),
                    "left_out": left_out(task, weights, low),
                }
            )
        )
    return xr.concat(rows, dim="run").assign_attrs(provenance({"figure": NAME, "kind": kind, **asdict(chosen)}))


def _stretch(
    task: InContextRegression, model: SeparateAttention, kind: Newcomer, low: float, high: float, chosen: Settings
) -> Float[np.ndarray, " point"]:
    """Times between the two sizes, by runs that resolve them more and more finely."""
    trajectory = run(task, model, _patience(task, kind, chosen.init))
    for _ in range(2):
        time, grown = trajectory["time"].values, size(trajectory, kind)
        after = int(np.argmax(grown > high))
        before = max(int(np.argmax(grown > low)) - 1, 0)
        trajectory = run(task, model, np.linspace(time[before], time[after], 800))
    time, grown = trajectory["time"].values, size(trajectory, kind)
    first, last = (passage_time(time, -grown, -level) for level in (low, high))
    return np.linspace(first, last, chosen.points)


def left_out(task: InContextRegression, weights: Float[np.ndarray, " weights"], value: float) -> float:
    r"""$|1 - \dot v/(\lambda_2^2 v^2)|$ of a new head when it has grown to `value`, from its start.

    Off the end of growth, with $I = \int v\,dt$, sums $s_d = \tfrac12(k+q)\cdot e_d$ grow as $e^{g_d I}$ and
    differences $\delta_d$ as $e^{-g_d I}$, with $g_d$ the driving of what is not learned. So
    $\dot v = \sum_d g_d(s_d^2 - \delta_d^2)$ and $v^2 - \sum_d(s_d^2 + \delta_d^2)$ is conserved: the law holds once
    one $s_d$ outgrows all else. Where v reaches zero it changes sign, and sums change places with differences.
    """
    rates = np.where(np.arange(DIM) == 0, 0.0, theory.modes(task).driving)
    k, q = weights[1 : DIM + 1], weights[DIM + 1 :]
    sums, differences = ((k + q) / 2) ** 2, ((k - q) / 2) ** 2

    def square(integral: np.ndarray) -> np.ndarray:
        grown = np.exp(2 * np.multiply.outer(integral, rates))
        return weights[0] ** 2 + (grown - 1) @ sums + (1 / grown - 1) @ differences

    path = np.linspace(0.0, 200.0, 50_001) * np.sign(weights[0])
    if square(path).min() < 0:
        path = -path
    grown = np.exp(2 * path[np.argmax(square(path) >= value**2)] * rates)
    speed = abs(float(rates @ (grown * sums - differences / grown)))
    return abs(1 - speed / (float(rates[NEXT]) * value**2))


def waits(task: InContextRegression, chosen: Settings) -> xr.Dataset:
    """When an aligned newcomer has brought the loss halfway down, for each size of its start."""
    steps = theory.levels(task)
    passage_times = {kind: [] for kind in KINDS}
    for small in chosen.sizes:
        weights = np.zeros(2 * DIM + 1)
        weights[[0, 1 + NEXT, 1 + DIM + NEXT]] = small
        for kind in KINDS:
            trajectory = run(task, start(task, kind, weights), _patience(task, kind, small) / 4)
            passage_times[kind].append(
                passage_time(trajectory["time"].values, trajectory["loss"].values[0], float(steps[1:3].mean()))
            )
    waited = {kind: ("size", np.array(times), {"units": TIME_UNIT}) for kind, times in passage_times.items()}
    return xr.Dataset(waited, {"size": list(chosen.sizes)}, provenance({"figure": NAME, **asdict(chosen)}))


def run(task: InContextRegression, model: SeparateAttention, times: float | np.ndarray) -> xr.Dataset:
    """Gradient flow, saved at given times, or up to one, evenly in log time."""
    if not isinstance(times, np.ndarray):
        times = np.append(0.0, np.geomspace(times / 1e5, times, 2000))
    keys = np.abs(np.asarray(model.key))
    smallest = float(keys[keys > 0].min())
    options: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-6 * smallest, "progress": False}
    return completed(flow(model, Population(task), until=float(times[-1]), save=times, **options))


def size(trajectory: xr.Dataset, kind: Newcomer) -> Float[np.ndarray, " time"]:
    if kind == "head":
        return abs(trajectory["value"].values[0, :, 1, 0, DIM])
    return abs(trajectory["key"].values[0, :, 0, 1, NEXT] + trajectory["query"].values[0, :, 0, 1, NEXT]) / 2


def _patience(task: InContextRegression, kind: Newcomer, small: float) -> float:
    """Long enough for any but the most unfortunate start: some hundred times the wait of an aligned one."""
    rate = float(theory.modes(task).driving[NEXT])
    return 40 / (rate * small) if kind == "head" else 4 * np.log(1 / small) / rate


def predict(task: InContextRegression, *, context: int = CONTEXT) -> xr.Dataset:
    """The rates of the two laws, what they leave out, and the laws' waits."""
    theory_task = InContextRegression(task.covariance, context)
    modes = theory.modes(theory_task)
    return xr.Dataset(
        {
            "driving": float(modes.driving[NEXT]),
            "value": theory.aligned_end(theory_task, 0),
            "end": theory.aligned_end(theory_task, NEXT),
            "map_end": float(modes.ends[NEXT]),
        },
        attrs=provenance({"figure": NAME, "context": context}),
    )


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    head, pair, waited, predictions = (data[key] for key in ("new_head", "new_pair", "waits", "theory"))
    rate, value, end = (float(predictions[key]) for key in ("driving", "value", "end"))
    inverse, logarithm = 1 / head["size"].values, np.log(pair["size"].values)
    small = waited["size"].values
    saturation = value * PAIR_TO**2 / float(predictions["map_end"])
    # The law of a wait leaves out the rise itself, a few times 1/(λ₂² v_end), whatever the start.
    rise = 3 * float(small.max()) / end
    head_error, pair_error = HIGH**3 + head["left_out"].values, saturation + _init(pair)
    hyperbola = 1 / np.linspace(1 / LOW, 1 / HIGH, 200)[None]
    of_heads: Origin = {"kind": "theory", "source": "theory.linear.new_head_time", "explored": True}
    of_pairs: Origin = {"kind": "theory", "source": "theory.linear.new_pair_time", "explored": True}
    return [
        Claim.over(
            f"{NAME}/same-head",
            f"R = {RANK}: a drop is made by a head that has made one before exactly where R does not divide m: 1 where "
            "that is so, one for each drop but the first and each seed; 95 % must hold",
            predicted=1,
            measured=_as_expected(data["makers"]).ravel(),
            tolerance=0,
            basis="two heads may be nearly tied, and exchanged",
            required=0.95,
            counted="drops",
            kind="paper",
            source="Section 5 and Fig 11",
            explored=True,
        ),
        Claim.over(
            f"{NAME}/head-rate",
            "A new head grows as τ dv/dt = λ₂²v²: slope of 1/v in time, over −λ₂²",
            predicted=1.0,
            measured=-_slopes(head["time"].values, inverse) / rate,
            tolerance=head_error,
            basis="(v/v_end)³ for the end of growth; at its beginning, what the start has in other directions",
            kind="paper",
            source="Equation 21, where v is small",
            explored=True,
        ),
        Claim.over(
            f"{NAME}/pair-rate",
            "A new pair grows as τ du/dt = vλ₂²u: slope of ln u in time, over vλ₂²",
            predicted=1.0,
            measured=_slopes(pair["time"].values, logarithm) / (value * rate),
            tolerance=pair_error,
            basis="share vu²/a₂ of the component learned at the end of the fit; size of the start",
            **of_pairs,
        ),
        Claim.over(
            f"{NAME}/head-hyperbolic",
            "Of a new head 1/v is a straight line in time and ln v is not: what a line leaves unexplained of 1/v, over "
            "that of ln v",
            predicted=0.0,
            measured=_bend(head["time"].values, inverse) / _bend(head["time"].values, np.log(head["size"].values)),
            tolerance=head_error**2 / _bend(1 / hyperbola, np.log(hyperbola))[0],
            basis="square of the allowed change of slope, over what a line leaves of the logarithm of a hyperbola",
            relation="<=",
            **of_heads,
        ),
        Claim.over(
            f"{NAME}/pair-exponential",
            "Of a new pair ln u is a straight line in time and 1/u is not: what a line leaves unexplained of ln u, "
            "over that of 1/u",
            predicted=0.0,
            measured=_bend(pair["time"].values, logarithm) / _bend(pair["time"].values, 1 / pair["size"].values),
            tolerance=float(pair_error**2 / _bend_of_exponential(_init(pair))[0]),
            basis="square of the allowed change of slope, over what a line leaves of the inverse of an exponential",
            relation="<=",
            **of_pairs,
        ),
        Claim.close(
            f"{NAME}/head-wait",
            "The wait for a new head goes as 1/size of its start: fitted exponent",
            predicted=-1.0,
            measured=np.polyfit(np.log(small), np.log(waited["head"].values), 1)[0],
            tolerance=rise,
            basis="time of the rise itself, 3/(λ₂² v_end), over the shortest wait",
            **of_heads,
        ),
        Claim.close(
            f"{NAME}/pair-wait",
            "The wait for a new pair goes as the logarithm: fitted slope in ln(1/size), over 1/(vλ₂²)",
            predicted=1.0,
            measured=np.polyfit(-np.log(small), waited["pair"].values, 1)[0] * value * rate,
            tolerance=small.max() ** 2 + 1e-4,
            basis="square of the largest start, over that of the value; interpolation between times 0.6 % apart",
            **of_pairs,
        ),
    ]


def _as_expected(made: xr.Dataset) -> np.ndarray:
    """Whether the head of each drop but the first had made one before exactly where R does not divide m."""
    before = used_before(made["head"].values)
    return before == (np.arange(1, before.shape[1] + 1) % RANK != 0)


def _bend_of_exponential(init: float) -> Float[np.ndarray, " 1"]:
    """What a line leaves of 1/u, for an exponential u over the range of sizes that are fitted."""
    time = np.linspace(0.0, 1.0, 200)[None]
    return _bend(time, np.exp(-np.log(PAIR_TO / (PAIR_FROM * init)) * time))


def _init(trajectory: xr.Dataset) -> float:
    return float(json.loads(trajectory.attrs["configuration"])["init"])


def _slopes(time: Float[np.ndarray, "run point"], law: Float[np.ndarray, "run point"]) -> Float[np.ndarray, " run"]:
    return np.array([np.polyfit(t, y, 1)[0] for t, y in zip(time, law, strict=True)])


def _bend(time: Float[np.ndarray, "run point"], law: Float[np.ndarray, "run point"]) -> Float[np.ndarray, " run"]:
    """The part of the variance that a straight line does not explain."""
    lines = [np.polyval(np.polyfit(t, y, 1), t) for t, y in zip(time, law, strict=True)]
    return np.mean((law - np.array(lines)) ** 2, axis=1) / np.var(law, axis=1)


def draw(data: dict[str, xr.Dataset]) -> Figure:
    return draw_figure(data)
