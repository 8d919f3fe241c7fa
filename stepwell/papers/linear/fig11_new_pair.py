r"""Fig 11: off the same plateau, a new head grows hyperbolically, a new pair inside a grown head exponentially.

The paper's text says of this figure that a conspicuous plateau is one off which a new head grows, and a brief one that
off which a new pair grows in a head whose value has grown. That is shown and claimed for runs of Fig 4 with R = 2.

The two laws of growth are ours. One model of two heads with two pairs each, at infinitely many sequences, with the
first component learned by the first pair of the first head. What is given small random weights is either the second
head (its first pair) or the second pair of the first head; all else is zero, and stays so.

A head's part of component d is $v_i\sum_r (k_{i,r}\cdot e_d)(q_{i,r}\cdot e_d)$; the head with the largest part in the
end made that drop. Keys of a head can be rotated into each other without a change of its map, so that the sizes of its
pairs are the singular values of its key matrix.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, GRAY, PALETTE, VERMILION, new_figure, styled
from stepwell.dynamics import Ensemble, Record, descend, flow, rate_for
from stepwell.figures import Claim, Data, Figure, Origin
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._low_rank_theory import DIM, LANES
from ._low_rank_theory import Settings as LowRankSettings
from ._runs import described, flow_at

CAPTION = (
    "(a) A run of Fig 4 with R = 2, its initial weights, rate and number of steps: the loss, and below it the sizes "
    "of values |v| and of the two pairs (singular values of the key matrix) of every head, a color for each head that "
    "grows. Where R divides m a new head has to grow; elsewhere a new pair in a head whose value has grown, which is "
    "soon done. Below, ours: the laws of both, off the plateau on which the first of four components is learned "
    "(infinitely many sequences). (b) A new head must grow its value together with key and query: 1/v falls on a "
    "straight line of slope −λ₂². (c) A further pair of a head uses that head's value v: the logarithm of its size u "
    "rises on a straight line of slope vλ₂². Each seed has other random initial weights; time is counted from where "
    "the fit begins. Dashed, the slopes that theory predicts. (d) So the wait grows as one over the initial size for "
    "a new head, but only as its logarithm for a new pair."
)


NEXT = 1
"""The component, from 0, that is learned next."""
Newcomer = Literal["head", "pair"]
KINDS: tuple[Newcomer, Newcomer] = ("head", "pair")
LOW, HIGH = 0.05, 0.25
"""A new head's law is fitted between these parts of its final value."""
PAIR_FROM, PAIR_TO = 3.0, 0.05
"""A new pair's law is fitted from so many times its initial size to this size."""


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    eigenvalues: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)
    """Of the covariance of the two laws."""
    context: int = 31
    seeds: tuple[int, ...] = (100, 101, 102, 103, 104, 105)
    """Of the random initializations of the two laws; what is fitted was chosen on others."""
    runs: int = 24
    """Of Fig 4, as many as there, and the same."""
    init: float = 1e-4
    """Size of the random initial weights."""
    sizes: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)
    """Sizes of the aligned initial weights of which the wait is measured."""
    points: int = 200
    heads: int = 9
    """Of the runs of Fig 4, as the rest is."""
    rate: float = 0.02
    steps: int = 20_000
    first_seed: int = 200

    @cached_property
    def task(self) -> InContextRegression:
        return InContextRegression(covariance(self.eigenvalues), self.context)

    @cached_property
    def low_rank(self) -> LowRankSettings:
        """Of the runs of Fig 4."""
        training = {name: getattr(self, name) for name in ("context", "heads", "rate", "steps", "first_seed")}
        return LowRankSettings((RANK,), seeds=self.runs, **training)


def describe(settings: Settings) -> dict[str, Any]:
    laws = "two heads of two pairs, gradient flow at infinitely many sequences from the fixed point with one component"
    words = {"runs of Fig 4": f"as there, R = {RANK}", "training for the two laws": laws}
    return described(settings, dim=len(settings.eigenvalues), rank=RANK, **words)


def simulate(settings: Settings) -> Data:
    task, every = settings.task, settings.low_rank.every_seed
    return {
        "run": shown_run(settings.low_rank),
        "makers": xr.Dataset({"head": (("run", "component"), makers(settings.low_rank))}, {"run": list(every)}),
        **{f"new_{kind}": grow(task, kind, settings) for kind in KINDS},
        "waits": waits(task, settings),
        "theory": predict(task),
    }


def initial_model(
    task: InContextRegression, kind: Newcomer, weights: Float[np.ndarray, " weights"]
) -> SeparateAttention:
    """The fixed point with one component learned, and a newcomer's v, k and q; a pair does not need the v."""
    values, keys, queries = theory.aligned_weights(task, [0], heads=2, rank=2)
    dim, place = task.dim, (1, 0) if kind == "head" else (0, 1)
    if kind == "head":
        values[1] = weights[0]
    keys[place], queries[place] = weights[1 : dim + 1], weights[dim + 1 :]
    value = np.zeros((2, 1, dim + 1))
    value[:, 0, dim] = values
    wide = np.concatenate([keys, np.zeros((2, 2, 1))], axis=2)
    return SeparateAttention(jnp.asarray(value), jnp.asarray(wide), jnp.asarray(queries))


def grow(task: InContextRegression, kind: Newcomer, settings: Settings) -> xr.Dataset:
    """The size of the newcomer over the stretch in which its law is fitted: v of a head, ½(k + q)·e of a pair.

    Starts that are beyond its beginning are left out; of one that does not grow to its end, all is nan.
    """
    dim, end, count = task.dim, theory.aligned_end(task, NEXT), settings.points
    rows: dict[str, list[Any]] = {name: [] for name in ("size", "value", "time", "left_out")}
    for seed in settings.seeds:
        weights = settings.init * np.random.default_rng(seed).normal(size=2 * dim + 1)
        begun = abs(weights[0]) if kind == "head" else abs(weights[1 + NEXT] + weights[1 + dim + NEXT]) / 2
        low, high = (LOW * end, HIGH * end) if kind == "head" else (PAIR_FROM * begun, PAIR_TO)
        if not begun < low < high:
            continue
        model = initial_model(task, kind, weights)
        times = _stretch(task, model, kind, low, high, settings)
        sizes = values = times
        if np.isfinite(times).all():
            fine = run(task, model, times)
            sizes, values = size(fine, kind), fine["value"].values[0, :, 0, 0, dim]
        for name, made in zip(rows, (sizes, values, times, left_out(task, weights, low)), strict=True):
            rows[name].append(made)
    columns = {name: (("run", "point"), np.reshape(rows[name], (-1, count))) for name in ("size", "value", "time")}
    grown = xr.Dataset({**columns, "left_out": ("run", np.array(rows["left_out"], float))})
    grown["time"].attrs["units"] = TIME_UNIT
    return grown


def _stretch(
    task: InContextRegression, model: SeparateAttention, kind: Newcomer, low: float, high: float, settings: Settings
) -> Float[np.ndarray, " point"]:
    """Times between the two sizes, by runs that resolve them more and more finely."""
    trajectory = run(task, model, _patience(task, kind, settings.init))
    for _ in range(2):
        time, grown = trajectory["time"].values, size(trajectory, kind)
        if grown.max() <= high:
            return np.full(settings.points, np.nan)
        after = int(np.argmax(grown > high))
        before = max(int(np.argmax(grown > low)) - 1, 0)
        trajectory = run(task, model, np.linspace(time[before], time[after], 800))
    time, grown = trajectory["time"].values, size(trajectory, kind)
    first, last = (passage_time(time, -grown, -level) for level in (low, high))
    return np.linspace(first, last, settings.points)


def left_out(task: InContextRegression, weights: Float[np.ndarray, " weights"], value: float) -> float:
    r"""$|1 - \dot v/(\lambda_2^2 v^2)|$ of a new head when it has grown to `value`, from its initial weights.

    Off the end of growth, with $I = \int v\,dt$, sums $s_d = \tfrac12(k+q)\cdot e_d$ grow as $e^{g_d I}$ and
    differences $\delta_d$ as $e^{-g_d I}$, with $g_d$ the driving of what is not learned. So
    $\dot v = \sum_d g_d(s_d^2 - \delta_d^2)$ and $v^2 - \sum_d(s_d^2 + \delta_d^2)$ is conserved: the law holds once
    one $s_d$ outgrows all else. Where v reaches zero it changes sign, and sums change places with differences.
    """
    dim = task.dim
    rates = np.where(np.arange(dim) == 0, 0.0, theory.modes(task).driving)
    k, q = weights[1 : dim + 1], weights[dim + 1 :]
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


def waits(task: InContextRegression, settings: Settings) -> xr.Dataset:
    """When an aligned newcomer has brought the loss halfway down, for each initial size."""
    steps, dim = theory.levels(task), task.dim
    passage_times = {kind: [] for kind in KINDS}
    for small in settings.sizes:
        weights = np.zeros(2 * dim + 1)
        weights[[0, 1 + NEXT, 1 + dim + NEXT]] = small
        for kind in KINDS:
            trajectory = run(task, initial_model(task, kind, weights), _patience(task, kind, small) / 4)
            passage_times[kind].append(
                passage_time(trajectory["time"].values, trajectory["loss"].values[0], float(steps[1:3].mean()))
            )
    waited = {kind: ("size", np.array(times), {"units": TIME_UNIT}) for kind, times in passage_times.items()}
    return xr.Dataset(waited, {"size": list(settings.sizes)})


def run(task: InContextRegression, model: SeparateAttention, times: float | np.ndarray) -> xr.Dataset:
    """Gradient flow, saved at given times, or up to one, evenly in log time."""
    if not isinstance(times, np.ndarray):
        times = np.append(0.0, np.geomspace(times / 1e5, times, 2000))
    keys = np.abs(np.asarray(model.key))
    smallest = float(keys[keys > 0].min())
    return flow_at(model, Population(task), times, rtol=1e-8, atol=1e-6 * smallest)


def size(trajectory: xr.Dataset, kind: Newcomer) -> Float[np.ndarray, " time"]:
    if kind == "head":
        return abs(trajectory["value"].values[0, :, 1, 0, -1])
    return abs(trajectory["key"].values[0, :, 0, 1, NEXT] + trajectory["query"].values[0, :, 0, 1, NEXT]) / 2


def _patience(task: InContextRegression, kind: Newcomer, small: float) -> float:
    """Long enough for any but the most unfortunate initialization: some hundred times the wait of an aligned one."""
    rate = float(theory.modes(task).driving[NEXT])
    return 40 / (rate * small) if kind == "head" else 4 * max(np.log(1 / small), 1.0) / rate


def predict(task: InContextRegression) -> xr.Dataset:
    """The rates of the two laws, what they leave out, and the laws' waits."""
    modes = theory.modes(task)
    return xr.Dataset(
        {
            "driving": float(modes.driving[NEXT]),
            "value": theory.aligned_end(task, 0),
            "end": theory.aligned_end(task, NEXT),
            "map_end": float(modes.ends[NEXT]),
        }
    )


def claims(data: Data, settings: Settings) -> list[Claim]:
    head, pair, waited, predictions = (data[key] for key in ("new_head", "new_pair", "waits", "theory"))
    rate, value = float(predictions["driving"]), float(predictions["value"])
    inverse, logarithm = 1 / head["size"].values, np.log(pair["size"].values)
    saturation = value * PAIR_TO**2 / float(predictions["map_end"])
    head_error, pair_error = HIGH**3 + head["left_out"].values, saturation + settings.init
    hyperbola = 1 / np.linspace(1 / LOW, 1 / HIGH, 200)[None]
    of_heads: Origin = {"kind": "theory", "source": "theory.linear.new_head_time", "explored": True}
    of_pairs: Origin = {"kind": "theory", "source": "theory.linear.new_pair_time", "explored": True}
    return [
        Claim.fraction(
            "same-head",
            f"R = {RANK}: a drop is made by a head that has made one before exactly where R does not divide m: "
            "fraction of drops but the first, of all seeds, in which that is so",
            holds=_as_expected(data["makers"])[:, : settings.heads * RANK - 1].ravel(),
            basis="95 % of drops: two heads may be nearly tied, and exchanged",
            required=0.95,
            counted="drops",
            kind="paper",
            source="Section 5 and Fig 11",
            explored=True,
        ),
        Claim.over(
            "head-rate",
            "A new head grows as τ dv/dt = λ₂²v²: slope of 1/v in time, over −λ₂²",
            predicted=1.0,
            measured=-_slopes(head["time"].values, inverse) / rate,
            tolerance=head_error,
            basis="(v/v_end)³ for the end of growth; at its beginning, what initial weights have in other directions",
            kind="paper",
            source="Equation 21, where v is small",
            explored=True,
        ),
        Claim.over(
            "pair-rate",
            "A new pair grows as τ du/dt = vλ₂²u: slope of ln u in time, over vλ₂²",
            predicted=1.0,
            measured=_slopes(pair["time"].values, logarithm) / (value * rate),
            tolerance=pair_error,
            basis="share vu²/a₂ of the component learned at the end of the fit; initial size",
            **of_pairs,
        ),
        Claim.over(
            "head-hyperbolic",
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
            "pair-exponential",
            "Of a new pair ln u is a straight line in time and 1/u is not: what a line leaves unexplained of ln u, "
            "over that of 1/u",
            predicted=0.0,
            measured=_bend(pair["time"].values, logarithm) / _bend(pair["time"].values, 1 / pair["size"].values),
            tolerance=float(pair_error**2 / _bend_of_exponential(settings.init)[0]),
            basis="square of the allowed change of slope, over what a line leaves of the inverse of an exponential",
            relation="<=",
            **of_pairs,
        ),
        *_wait_claims(waited, predictions, of_heads, of_pairs),
    ]


def _wait_claims(waited: xr.Dataset, predictions: xr.Dataset, of_heads: Origin, of_pairs: Origin) -> list[Claim]:
    rate, value, end = (float(predictions[key]) for key in ("driving", "value", "end"))
    small = waited["size"].values
    logs = np.log(small)[None]
    head = ("head-wait", "The wait for a new head goes as 1/(its initial size): fitted exponent")
    pair = (
        "pair-wait",
        "The wait for a new pair goes as the logarithm: fitted slope in ln(1/size), over 1/(vλ₂²)",
    )
    if np.unique(small).size < 2:
        why = "a slope needs two sizes"
        return [Claim.cannot_be_judged(*head, why=why, **of_heads), Claim.cannot_be_judged(*pair, why=why, **of_pairs)]
    # The law leaves out the rise itself, a few times 1/(λ₂² v_end), whatever the initial size.
    rise = 3 * float(small.max()) / end
    return [
        Claim.close(
            *head,
            predicted=-1.0,
            measured=_slopes(logs, np.log(waited["head"].values)[None])[0],
            tolerance=rise,
            basis="time of the rise itself, 3/(λ₂² v_end), over the shortest wait",
            **of_heads,
        ),
        Claim.close(
            *pair,
            predicted=1.0,
            measured=_slopes(-logs, waited["pair"].values[None])[0] * value * rate,
            tolerance=small.max() ** 2 + 1e-4,
            basis="square of the largest initial size, over that of the value; interpolation between times 0.6 % apart",
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


def _slopes(time: Float[np.ndarray, "run point"], law: Float[np.ndarray, "run point"]) -> Float[np.ndarray, " run"]:
    """Of the straight lines through the points; nan if one of them is."""
    return np.array([line[0] for line in _lines(time, law)])


def _bend(time: Float[np.ndarray, "run point"], law: Float[np.ndarray, "run point"]) -> Float[np.ndarray, " run"]:
    """The part of the variance that a straight line does not explain."""
    explained = [np.polyval(line, t) for line, t in zip(_lines(time, law), time, strict=True)]
    return np.mean((law - np.reshape(explained, law.shape)) ** 2, axis=1) / np.var(law, axis=1)


def _lines(time: np.ndarray, law: np.ndarray) -> list[np.ndarray]:
    return [
        np.polyfit(t, y, 1) if np.isfinite(t + y).all() else np.full(2, np.nan) for t, y in zip(time, law, strict=True)
    ]


RANK = 2


def shown_run(settings: Settings) -> xr.Dataset:
    """Descent of the first seed as published, with `loss`, `value` and `pair`, sizes of every head."""
    every = 20
    trajectory = descend(
        settings.initial_models(RANK, settings.every_seed[:1])[0],
        Population(settings.task),
        rate=rate_for(settings.step, 1),
        steps=settings.steps,
        record=Record(every=every, snapshots=settings.steps // every + 1),
        progress=False,
    )
    pairs = np.linalg.svd(trajectory["key"].values[0], compute_uv=False)
    return xr.Dataset(
        {
            "loss": ("step", trajectory["loss"].values[0]),
            "value": (("snapshot", "head"), np.abs(trajectory["value"].values[0, :, :, 0, DIM])),
            "pair": (("snapshot", "head", "pair"), pairs),
        },
        {name: trajectory[name].values for name in ("step", "snapshot")},
        trajectory.attrs,
    )


def makers(settings: Settings) -> Int[np.ndarray, "run component"]:
    """The head that makes each drop, of runs to the end by gradient flow."""
    models = settings.initial_models(RANK, settings.every_seed)
    parts = [models[first : first + LANES] for first in range(0, len(models), LANES)]
    return np.concatenate([_some_makers(Ensemble.of(part), settings.task) for part in parts])


def _some_makers(models: Ensemble, task: InContextRegression) -> Int[np.ndarray, "run component"]:
    trajectory = flow(models, Population(task), record=Record(points=2), progress=False)
    value = trajectory["value"].values[:, -1, :, 0, DIM]
    key, query = trajectory["key"].values[:, -1, :, :, :DIM], trajectory["query"].values[:, -1]
    parts: Float[np.ndarray, "run head component"] = np.einsum("sh,shrd,shrd->shd", value, key, query)
    return np.argmax(parts, axis=1)


def used_before(makers: Int[np.ndarray, "run component"]) -> np.ndarray:
    """Whether the head of each drop but the first had made one before."""
    return np.array([[row[m] in row[:m] for m in range(1, row.size)] for row in makers])


GROWN = 0.3
"""A head is colored if its value comes to be larger."""


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    head, pair, waited, predictions = (data[key] for key in ("new_head", "new_pair", "waits", "theory"))
    with styled():
        figure = new_figure(11.5, 8.4)
        halves: Any = figure.subfigures(2, 1, height_ratios=(1.25, 1))
        loss, weights = halves[0].subplots(2, 1, sharex=True, height_ratios=(1, 1.1))
        _draw_run(loss, weights, data["run"], theory.levels(settings.low_rank.task))
        left, middle, right = halves[1].subplots(1, 3)
        _draw_head(left, head, float(predictions["driving"]))
        _draw_pair(middle, pair, float(predictions["driving"]) * float(predictions["value"]))
        _draw_waits(right, waited, predictions)
    return figure


def _draw_run(loss: Axes, weights: Axes, run: xr.Dataset, levels: np.ndarray) -> None:
    step, snapshot = run["step"].values, run["snapshot"].values
    for m, level in enumerate(levels):
        style: dict[str, Any] = {"color": BLACK if m % RANK == 0 else "#B0B0B0", "linewidth": 0.9}
        loss.axhline(level, linestyle="--", zorder=0, **style)
    loss.plot(step, run["loss"], color=BLACK, linewidth=1.8)
    loss.set_ylabel("loss")
    loss.set_ylim(0.15, 1.05)
    loss.set_title(f"(a) A run of Fig 4, R = {RANK}; dashed: predicted levels, black where R divides m")
    grown = np.flatnonzero(run["value"].values[-1] > GROWN).tolist()
    for i in range(run.sizes["head"]):
        color = PALETTE[grown.index(i) % len(PALETTE)] if i in grown else "#B0B0B0"
        weights.plot(snapshot, run["value"][:, i], color=color, linewidth=2.6, alpha=0.6)
        for r in range(run.sizes["pair"]):
            style = {"linewidth": 1.3, "linestyle": "--" if r == 0 else ":"}
            weights.plot(snapshot, run["pair"][:, i, r], color=color, **style)
    lines = [
        Line2D([], [], color=GRAY, linewidth=2.6, alpha=0.6, label="value $|v_i|$"),
        Line2D([], [], color=GRAY, linewidth=1.3, linestyle="--", label="first pair"),
        Line2D([], [], color=GRAY, linewidth=1.3, linestyle=":", label="second pair"),
    ]
    weights.legend(handles=lines, loc="center left", bbox_to_anchor=(1.0, 0.5))
    weights.set(xlabel="training step", ylabel="size of weights", xlim=(0, step[-1]))


def _draw_head(axes: Axes, head: xr.Dataset, rate: float) -> None:
    for i in range(head.sizes["run"]):
        time = head["time"].values[i] - head["time"].values[i, 0]
        axes.plot(time, 1 / head["size"].values[i], color=PALETTE[i % 6], linewidth=3.0, alpha=0.5)
    if head.sizes["run"]:
        time = np.array([0.0, np.ptp(head["time"].values, axis=1).min()])
        line = 1 / head["size"].values[0, 0] - rate * time
        axes.plot(time, line, "--", color=BLACK, linewidth=1.1, label="theory: slope $-\\lambda_2^2$")
    axes.plot([], [], color=GRAY, linewidth=3.0, alpha=0.5, label=_seeds(head))
    axes.set(xlabel="time $t/\\tau$ from the first point", ylabel="$1/v$ of the new head")
    axes.set_title("(b) New head: hyperbolic")
    axes.legend(loc="upper right")


def _draw_pair(axes: Axes, pair: xr.Dataset, rate: float) -> None:
    for i in range(pair.sizes["run"]):
        time = pair["time"].values[i] - pair["time"].values[i, 0]
        axes.semilogy(time, pair["size"].values[i], color=PALETTE[i % 6], linewidth=3.0, alpha=0.5)
        label = "theory: slope $v\\lambda_2^2$" if i == 0 else None
        line = pair["size"].values[i, 0] * np.exp(rate * time)
        axes.plot(time, line, "--", color=BLACK, linewidth=1.1, label=label)
    axes.plot([], [], color=GRAY, linewidth=3.0, alpha=0.5, label=_seeds(pair))
    axes.set(xlabel="time $t/\\tau$ from the first point", ylabel="size $u$ of the new pair (logarithmic)")
    axes.set_title("(c) New pair in a grown head: exponential")
    axes.legend(loc="lower right")


def _seeds(runs: xr.Dataset) -> str:
    count = runs.sizes["run"]
    return f"simulated, {count} seed" + ("" if count == 1 else "s")


def _draw_waits(axes: Axes, waited: xr.Dataset, predictions: xr.Dataset) -> None:
    rate, value = float(predictions["driving"]), float(predictions["value"])
    small = waited["size"].values
    fine = np.geomspace(small.min() / 2, small.max() * 2, 50)
    # Half of the component: v u² is half of its end, less where the gain is counted.
    half = ((1 - 0.5**0.5) * float(predictions["map_end"]) / value) ** 0.5
    laws = (
        ("head", 1 / (rate * fine), VERMILION, "new head", "$1/(\\lambda_2^2 s)$"),
        ("pair", np.log(half / fine) / (value * rate), BLUE, "new pair", "$\\ln(u/s)/(v\\lambda_2^2)$"),
    )
    for kind, law, color, words, formula in laws:
        axes.loglog(fine, law, "--", color=color, linewidth=1.2, label=f"theory: {formula}")
        axes.plot(small, waited[kind], "o", color=color, markersize=6, label=f"{words}, simulated")
    axes.set(xlabel="initial size $s$", ylabel="wait on the plateau $t/\\tau$")
    axes.invert_xaxis()
    axes.legend(loc="upper left", fontsize=8)
    axes.set_title("(d) How long the plateau lasts")


FIGURE = Figure(
    title="A new head escapes hyperbolically, a new pair inside a grown head exponentially",
    caption=CAPTION,
    source="Fig 11",
    settings=Settings(),
    quick=Settings(seeds=(100,), runs=4, sizes=(1e-2, 1e-3, 1e-4), points=100),
    described=describe,
    # Of the paper's figure no more is known than what its text says.
    simulate=simulate,
    claims=claims,
    draw=draw,
)
