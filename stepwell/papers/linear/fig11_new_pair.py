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
from functools import cached_property, partial
from typing import Any, Literal

import jax.numpy as jnp
import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from stepwell.analysis import passage_time
from stepwell.analysis.style import BLACK, BLUE, GRAY, PALETTE, VERMILION, new_figure, styled
from stepwell.dynamics import Ensemble, Record, descend, flow, rate_for
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._low_rank import DIM, LANES
from ._low_rank import Settings as LowRankSettings
from ._runs import described, flow_at, labeled, passages, slope

RANK = 2


NEXT = 1  # the component, from 0, that is learned next
Newcomer = Literal["head", "pair"]
KINDS: tuple[Newcomer, Newcomer] = ("head", "pair")
LOW, HIGH = 0.05, 0.25  # a new head's law is fitted between these parts of its final value
PAIR_FROM, PAIR_TO = 3.0, 0.05  # a new pair's law is fitted from so many times its initial size to this size


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    eigenvalues: tuple[float, ...] = (0.4, 0.3, 0.2, 0.1)  # of the covariance of the two laws
    context: int = 31
    seeds: tuple[int, ...] = (100, 101, 102, 103, 104, 105)
    """Of the random initializations of the two laws."""
    runs: int = 24  # of Fig 4, as many as there, and the same
    init: float = 1e-4  # size of the random initial weights
    sizes: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)
    """Sizes of the aligned initial weights of which the wait is measured."""
    points: int = 200
    heads: int = 9  # of the runs of Fig 4, as the rest is
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
    """The size of the newcomer, v of a head, ½(k + q)·e of a pair, over the stretch in which its law is fitted.

    Starts beyond its beginning are left out; of one that does not grow to its end, all is nan.
    """
    dim, end, count = task.dim, theory.aligned_end(task, NEXT), settings.points
    rows: dict[str, list[Any]] = {name: [] for name in ("size", "value", "time", "left_out", "seed")}
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
        for name, made in zip(rows, (sizes, values, times, left_out(task, weights, low), seed), strict=True):
            rows[name].append(made)
    columns = {name: (("run", "point"), np.reshape(rows[name], (-1, count))) for name in ("size", "value", "time")}
    grown = xr.Dataset({**columns, "left_out": ("run", np.array(rows["left_out"], float))}, {"run": rows["seed"]})
    grown["time"].attrs["units"] = TIME_UNIT
    return grown


def _stretch(
    task: InContextRegression, model: SeparateAttention, kind: Newcomer, low: float, high: float, settings: Settings
) -> Float[np.ndarray, " point"]:
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
    dim, halfway = task.dim, theory.levels(task)[1:3].mean()
    weights = np.zeros(2 * dim + 1)
    weights[[0, 1 + NEXT, 1 + dim + NEXT]] = 1.0
    waited = {}
    for kind in KINDS:
        sizes = settings.sizes
        runs = [run(task, initial_model(task, kind, s * weights), _patience(task, kind, s) / 4) for s in sizes]
        times = [passages(each["time"].values, each["loss"].values, [halfway])[0, 0] for each in runs]
        waited[kind] = ("size", times, {"units": TIME_UNIT})
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
    hyperbola, even = 1 / np.linspace(1 / LOW, 1 / HIGH, 200)[None], np.linspace(0.0, 1.0, 200)[None]
    exponential = np.exp(-np.log(PAIR_TO / (PAIR_FROM * settings.init)) * even)
    # Whether the head of each drop but the first made one before.
    before = np.array([[row[m] in row[:m] for m in range(1, row.size)] for row in data["makers"]["head"].values])
    as_stated = (before == (np.arange(1, before.shape[1] + 1) % RANK != 0))[:, : settings.heads * RANK - 1]
    head_seeds, pair_seeds = head["run"].values, pair["run"].values
    head_times, pair_times = head["time"].values, pair["time"].values
    of_heads = Origin("theory", "theory.linear.new_head_time", explored=True)
    of_pairs = Origin("theory", "theory.linear.new_pair_time", explored=True)
    return [
        Origin("paper", "Section 5 and Fig 11", explored=True).fraction(
            "same-head",
            f"R = {RANK}: a drop is made by a head that has made one before exactly where R does not divide m: "
            "fraction of drops but the first, of all seeds, in which that is so",
            holds=labeled(as_stated, seed=data["makers"]["run"].values, drop=2 + np.arange(as_stated.shape[1])),
            basis="95 % of drops: two heads may be nearly tied, and exchanged",
            required=0.95,
            counted="drops",
        ),
        Origin("paper", "Equation 21, where v is small", explored=True).close(
            "head-rate",
            "A new head grows as τ dv/dt = λ₂²v²: slope of 1/v in time, over −λ₂²",
            predicted=1.0,
            measured=labeled(-_slopes(head_times, inverse) / rate, seed=head_seeds),
            tolerance=head_error,
            basis="(v/v_end)³ for the end of growth; at its beginning, what initial weights have in other directions",
        ),
        of_pairs.close(
            "pair-rate",
            "A new pair grows as τ du/dt = vλ₂²u: slope of ln u in time, over vλ₂²",
            predicted=1.0,
            measured=labeled(_slopes(pair_times, logarithm) / (value * rate), seed=pair_seeds),
            tolerance=pair_error,
            basis="share vu²/a₂ of the component learned at the end of the fit; initial size",
        ),
        of_heads.at_most(
            "head-hyperbolic",
            "Of a new head 1/v is a straight line in time and ln v is not: what a line leaves unexplained of 1/v, over "
            "that of ln v",
            measured=labeled(_bend(head_times, inverse) / _bend(head_times, -np.log(inverse)), seed=head_seeds),
            tolerance=head_error**2 / _bend(1 / hyperbola, np.log(hyperbola))[0],
            basis="square of the allowed change of slope, over what a line leaves of the logarithm of a hyperbola",
        ),
        of_pairs.at_most(
            "pair-exponential",
            "Of a new pair ln u is a straight line in time and 1/u is not: what a line leaves unexplained of ln u, "
            "over that of 1/u",
            measured=labeled(_bend(pair_times, logarithm) / _bend(pair_times, np.exp(-logarithm)), seed=pair_seeds),
            tolerance=float(pair_error**2 / _bend(even, exponential)[0]),
            basis="square of the allowed change of slope, over what a line leaves of the inverse of an exponential",
        ),
        *_wait_claims(waited, predictions),
    ]


def _wait_claims(waited: xr.Dataset, predictions: xr.Dataset) -> list[Claim]:
    """Of aligned newcomers, which keep their direction: the flow is then one scalar equation, solved in two ways."""
    rate, value, end = (float(predictions[key]) for key in ("driving", "value", "end"))
    small = waited["size"].values
    logs = np.log(small)
    single = "a slope needs two sizes" if np.unique(small).size < 2 else ""
    return [
        Origin("check", "theory.linear.new_head_time").close(
            "head-wait",
            "The wait for an aligned new head goes as 1/(its initial size): fitted exponent",
            unless=single,
            predicted=-1.0,
            measured=slope(logs, np.log(waited["head"].values)),
            # The law leaves out the rise itself, a few times 1/(λ₂² v_end), whatever the initial size.
            tolerance=3 * float(small.max()) / end,
            basis="time of the rise itself, 3/(λ₂² v_end), over the shortest wait",
        ),
        Origin("check", "theory.linear.new_pair_time").close(
            "pair-wait",
            "The wait for an aligned new pair goes as the logarithm: fitted slope in ln(1/size), over 1/(vλ₂²)",
            unless=single,
            predicted=1.0,
            measured=slope(-logs, waited["pair"].values) * value * rate,
            tolerance=small.max() ** 2 + 1e-4,
            basis="square of the largest initial size, over that of the value; interpolation between times 0.6 % apart",
        ),
    ]


def _slopes(time: Float[np.ndarray, "run point"], law: Float[np.ndarray, "run point"]) -> Float[np.ndarray, " run"]:
    return np.array([slope(t, y) for t, y in zip(time, law, strict=True)])


def _bend(time: Float[np.ndarray, "run point"], law: Float[np.ndarray, "run point"]) -> Float[np.ndarray, " run"]:
    """The part of the variance that a straight line does not explain."""
    away, off = (each - each.mean(axis=1, keepdims=True) for each in (time, law))
    return np.var(off - _slopes(time, law)[:, None] * away, axis=1) / np.var(law, axis=1)


def shown_run(settings: LowRankSettings) -> xr.Dataset:
    """Descent of the first seed as published, with `loss`, `value` and `pair`, sizes of every head."""
    every, (model,) = 20, settings.initial_models(RANK, settings.every_seed[:1])
    record = Record(every=every, snapshots=settings.steps // every + 1)
    options: Any = {"rate": rate_for(settings.step, 1), "steps": settings.steps, "progress": False}
    trajectory = descend(model, Population(settings.task), record=record, **options)
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


def makers(settings: LowRankSettings) -> Int[np.ndarray, "run component"]:
    """The head that makes each drop, of runs to the end by gradient flow."""
    models = settings.initial_models(RANK, settings.every_seed)
    parts = [models[first : first + LANES] for first in range(0, len(models), LANES)]
    record, objective = Record(points=2), Population(settings.task)
    runs = [flow(Ensemble.of(part), objective, record=record, progress=False).isel(time=-1) for part in parts]
    names = ("value", "key", "query")
    weights = [SeparateAttention.theory_weights({name: run[name].values for name in names}) for run in runs]
    return np.concatenate([np.einsum("sh,shrd,shrd->shd", *each.values()).argmax(axis=1) for each in weights])


GROWN = 0.3  # a head is colored if its value comes to be larger


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
    loss.set(ylabel="loss", ylim=(0.15, 1.05))
    loss.set_title(f"(a) A run of Fig 4, R = {RANK}; dashed: predicted levels, black where R divides m")
    grown = np.flatnonzero(run["value"].values[-1] > GROWN).tolist()
    for i in range(run.sizes["head"]):
        color = PALETTE[grown.index(i) % len(PALETTE)] if i in grown else "#B0B0B0"
        weights.plot(snapshot, run["value"][:, i], color=color, linewidth=2.6, alpha=0.6)
        for form, pair in zip(("--", ":"), run["pair"].values[:, i].T, strict=True):
            weights.plot(snapshot, pair, form, color=color, linewidth=1.3)
    weights.plot([], [], color=GRAY, linewidth=2.6, alpha=0.6, label="value $|v_i|$")
    weights.plot([], [], "--", color=GRAY, linewidth=1.3, label="first pair")
    weights.plot([], [], ":", color=GRAY, linewidth=1.3, label="second pair")
    weights.legend(loc="upper left", fontsize=8)
    weights.set(xlabel="training step", ylabel="size of weights", xlim=(0, step[-1]))
    weights.xaxis.set_major_formatter("{x:,.0f}")


def _draw_head(axes: Axes, head: xr.Dataset, rate: float) -> None:
    for i, (time, size) in enumerate(zip(head["time"].values, head["size"].values, strict=True)):
        axes.plot(time - time[0], 1 / size, color=PALETTE[i % 6], linewidth=3.0, alpha=0.5)
    if head.sizes["run"]:
        time = np.array([0.0, np.ptp(head["time"].values, axis=1).min()])
        line = 1 / head["size"].values[0, 0] - rate * time
        axes.plot(time, line, "--", color=BLACK, linewidth=1.1, label="theory: slope $-\\lambda_2^2$")
    axes.plot([], [], color=GRAY, linewidth=3.0, alpha=0.5, label=_seeds(head))
    axes.set(xlabel="time $t/\\tau$ from the first point", ylabel="$1/v$ of the new head")
    axes.set_title("(b) New head: hyperbolic")
    axes.legend(loc="upper right")


def _draw_pair(axes: Axes, pair: xr.Dataset, rate: float) -> None:
    for i, (time, size) in enumerate(zip(pair["time"].values, pair["size"].values, strict=True)):
        since, label = time - time[0], "theory: slope $v\\lambda_2^2$" if i == 0 else None
        axes.semilogy(since, size, color=PALETTE[i % 6], linewidth=3.0, alpha=0.5)
        axes.plot(since, size[0] * np.exp(rate * since), "--", color=BLACK, linewidth=1.1, label=label)
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
    caption=(
        "(a) A run of Fig 4 with R = 2, its initial weights, rate and number of steps: the loss, and below it the "
        "sizes of values |v| and of the two pairs (singular values of the key matrix) of every head, a color for each "
        "head that grows. Where R divides m a new head has to grow; elsewhere a new pair in a head whose value has "
        "grown, which is soon done. Below, ours: the laws of both, off the plateau on which the first of four "
        "components is learned (infinitely many sequences). (b) A new head must grow its value together with key and "
        "query: 1/v falls on a straight line of slope −λ₂². (c) A further pair of a head uses that head's value v: the "
        "logarithm of its size u rises on a straight line of slope vλ₂². Each seed has other random initial weights; "
        "time is counted from where the fit begins. Dashed, the slopes that theory predicts. (d) So the wait grows as "
        "one over the initial size for a new head, but only as its logarithm for a new pair."
    ),
    source="Fig 11",
    settings=Settings(),
    quick=Settings(seeds=(100,), runs=4, sizes=(1e-2, 1e-3, 1e-4), points=100),
    described=partial(
        described,
        rank=RANK,
        **{
            "runs of Fig 4": f"as there, R = {RANK}",
            "training for the two laws": "two heads of two pairs, gradient flow at infinitely many sequences from the "
            "fixed point with one component",
        },
    ),
    # Of the paper's figure no more is known than what its text says.
    seeds=Seeds(explored="others, not recorded which"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
