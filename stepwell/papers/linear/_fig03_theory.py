"""Fig 3: its settings, what the theory says of it, flows saved finely at drops, and what is read there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np
import scipy
import xarray as xr
from jaxtyping import Bool, Float, Int

from stepwell.dynamics import flow_time, time_factor, weight_factor
from stepwell.experiments import Experiment
from stepwell.models import SeparateAttention
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._runs import DIM, EIGENVALUES, squared_errors, weights_of

NEAR_TIE = 10.0
"""Two drops of the schedule are a near tie if they are closer than this many time constants, 1/(λ²v_∞) of the later
drop. From 10 to 90 % a drop takes 2.2 of them."""
PLATEAU = 20.0
"""A level is read on plateaus of at least so many time constants: (2/20)³ of the next head's growth is then on it, 0.2
% of the next drop."""
AFTER = 0.9  # Keys are read just after a drop: when so much of it is done.
SETTLED = (
    5.0  # So many time constants after a drop e⁻¹⁵ of the way is left: its head nears its end at three a constant.
)
BEGUN = 0.1  # A drop has begun when so much of it is done: x³ = 5 % of the curvature is felt then.
STANDARD_ERRORS = 3.0
ANGLE = 30.0
"""Within so many degrees of an eigenvector a key or query has turned to it; of directions at random in four dimensions
6 % are so close."""
UNCHANGED = 0.2  # A head stays as it is during a drop if it changes by less than this part of what the learner does.
OFTEN = 0.9
"""Of what near ties are not left out, or is a matter of the size of the initial weights, so much must hold."""
MOST = 0.95
"""What follows from a small initialization must hold for so many drops: by chance a head may begin so far off its
eigenvector (ratios of Gaussian numbers have heavy tails) that its initial weights are not small enough."""


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    context: int = 31
    heads: tuple[int, ...] = (5, 4)
    """In the published command and in the picture, which is drawn; and in the caption."""
    init: float = 1e-2
    """Scale of the initial weights in the published convention (no 1/N). With 1/N it is N^(1/3) times as large."""
    steps: int = 10_000
    rate: float = 0.02
    seeds: tuple[int, ...] = tuple(range(500, 530))
    """Of the published command: covariance, sequences and initial weights."""
    sequences: int | None = 80_000  # None: infinitely many.
    record: int = 10
    shown: int = 6  # of so many seeds the loss is drawn, as in the paper
    flow_seeds: tuple[int, ...] = tuple(range(400, 412))
    """Initial weights on infinitely many sequences, the same draw at every size."""
    inits: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5)
    turned: int = 6
    """Data sets of the published size on which the key of the first head is compared with that on infinitely many
    sequences."""
    turned_init: float = 1e-4
    halving: tuple[float, ...] = (8 / 15, 4 / 15, 2 / 15, 1 / 15)
    """Eigenvalues with which every plateau is expected to be longer than the one before, as a control."""
    frames: int = 90  # of the animation

    @property
    def sampled(self) -> int:
        """Sequences of a data set, where there is one."""
        return self.sequences or 80_000

    @cached_property
    def experiment(self) -> Experiment:
        """What the command of the published README trains, from the initialization that the figure was made with:
        `python train.py --model attnS --head 5 --init 1e-2 --lr 0.02 --scheme paper`."""
        return Experiment(
            task={"dim": DIM, "context": self.context, "centered": True, "whitened": True},
            model={"heads": self.heads[0], "scale": self.init, "normalization": "none"},
            objective={"kind": "moments", "sequences": self.sampled},
            training={"kind": "descent", "rate": self.rate, "steps": self.steps},
        )

    @cached_property
    def task(self) -> InContextRegression:
        """Infinitely many sequences; the directions of the eigenvectors are as good as any."""
        return InContextRegression(covariance(EIGENVALUES, key=jax.random.key(0)), self.context)

    @property
    def paper_scale(self) -> float:
        """By which a weight of the published convention is multiplied to get the paper's, with 1/N."""
        return weight_factor("none", "1/N", length=self.context, factors=3)

    @property
    def time_scale(self) -> float:
        """By which a time of the published convention is multiplied to get the paper's."""
        return time_factor("none", "1/N", length=self.context, factors=3)

    @property
    def unit(self) -> float:
        """t/τ of one step, with attention divided by N."""
        return flow_time(1, self.rate) * self.time_scale


LOW, HIGH = 0.2, 0.9  # parts of its end between which the rise of a value weight is timed
_GROWN = (1 - 0.5**0.5) ** (1 / 3)  # x = v/v_∞ at half of a drop: the gain of a head is 1 - (1 - x³)².
_INDEPENDENT = 20_000  # sequences from which sampling errors are estimated; no run is trained on them


def initial_models(settings: Settings, init: float) -> list[SeparateAttention]:
    """The initialization of the figure, with 1/N: the same draw at every size."""
    scale = init * settings.paper_scale
    return [
        SeparateAttention.random(
            dim=DIM, heads=settings.heads[0], scale=scale, scheme="plain", key=jax.random.key(seed)
        )
        for seed in settings.flow_seeds
    ]


def levels(task: InContextRegression) -> xr.Dataset:
    """Levels, eigenvectors, time constants, and the course of an aligned head (eq. 21) about the half of its drop."""
    modes = theory.modes(task)
    height = np.concatenate([np.geomspace(0.01, 0.5, 60), 1 - np.geomspace(0.5, 1e-4, 60)[1:]])
    ends = modes.ends ** (1 / 3)
    courses, rises = [], []
    for d in range(DIM):
        low, high = theory.aligned_time(task, d, LOW * ends[d] / 2, ends[d] * np.array([LOW, HIGH]))
        rises.append(high - low)
        clock = theory.aligned_time(task, d, float(height[0] * ends[d]), ends[d] * np.append(height, _GROWN))
        courses.append(clock[:-1] - clock[-1])
    return xr.Dataset(
        {
            "level": ("plateau", theory.levels(task)),
            "level_error": ("plateau", level_errors(task)),
            "rate_error": ("component", rate_errors(task)),
            "end_error": ("component", end_errors(task)),
            "eigenvectors": (("dim", "component"), modes.directions),
            "value_end": ("component", ends),
            "map_end": ("component", modes.ends),
            "time_constant": ("component", 1 / (modes.driving * ends), {"units": TIME_UNIT}),
            "rise": ("component", np.array(rises), {"units": f"{TIME_UNIT}, from {LOW:.0%} to {HIGH:.0%} of the end"}),
            "course": (("component", "height"), np.array(courses), {"units": TIME_UNIT + ", from half the drop"}),
        },
        {"height": height},
    )


def level_errors(task: InContextRegression) -> Float[np.ndarray, " plateau"]:
    """Relative standard error of the loss over a single sequence at each level; over P it is 1/√P of that."""
    sampled = InContextRegression(task.covariance, task.context, centered=True, whitened=True)
    maps = [theory.fixed_point(task, range(learned)).effective_map for learned in range(DIM + 1)]
    losses = squared_errors(sampled, maps, _INDEPENDENT, key=jax.random.key(3))
    return losses.std(axis=1, ddof=1) / losses.mean(axis=1)


def rate_errors(task: InContextRegression) -> Float[np.ndarray, " component"]:
    r"""Standard error over a single sequence of the growth rate of each component, $\langle y_q\beta_d x_{q,d}\rangle$,
    over that of the first; over P it is 1/√P of that."""
    sampled = InContextRegression(task.covariance, task.context, centered=True, whitened=True)
    batch, modes = sampled.sample(_INDEPENDENT, key=jax.random.key(4)), theory.modes(task)
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)[:, -1]
    beta = np.einsum("sn,snd->sd", tokens[:, :-1, DIM], tokens[:, :-1, :DIM]) / task.context.longest
    rates = labels * (beta @ modes.directions) * (tokens[:, -1, :DIM] @ modes.directions) / modes.driving[0]
    return (rates - rates[:, :1] * modes.driving / modes.driving[0]).std(axis=0, ddof=1)


def end_errors(task: InContextRegression) -> Float[np.ndarray, " component"]:
    r"""Relative standard error over a single sequence of what regression on the features has for each component, by the
    scatter of $(y_q - \hat y_q)\,\beta_d x_{q,d}$; over P it is 1/√P of that."""
    sampled = InContextRegression(task.covariance, task.context, centered=True, whitened=True)
    batch, modes = sampled.sample(_INDEPENDENT, key=jax.random.key(5)), theory.modes(task)
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)[:, -1]
    beta = np.einsum("sn,snd->sd", tokens[:, :-1, DIM], tokens[:, :-1, :DIM]) / task.context.longest
    features = (beta @ modes.directions) * (tokens[:, -1, :DIM] @ modes.directions)
    left = labels - features @ modes.ends[:, None]
    return (left * features).std(axis=0, ddof=1) / (features**2).mean(axis=0) / modes.ends


def schedule(task: InContextRegression, model: SeparateAttention) -> theory.Schedules:
    """The schedule of drops from the initial weights of one run, in the paper's convention."""
    context = task.context.longest
    scale = weight_factor(model.normalization, "1/N", length=context, factors=3)
    plain = InContextRegression(task.covariance, context)
    return theory.drop_schedule(plain, *(scale * each[None] for each in weights_of(model)), trials=0)


def scheduled(
    runs: Iterable[tuple[InContextRegression, SeparateAttention]], constants: Float[np.ndarray, " drop"]
) -> dict[str, tuple[tuple[str, str], np.ndarray]]:
    """Of each run and drop the time, infinite where there are too few heads for it, the head, and whether it is
    clear."""
    schedules = [schedule(task, model) for task, model in runs]
    times = np.nan_to_num(np.concatenate([each.times for each in schedules]), nan=np.inf)
    columns = {
        "predicted": times,
        "predicted_head": np.concatenate([each.heads for each in schedules]),
        "clear": clear_drops(times, constants),
    }
    return {name: (("run", "drop"), values) for name, values in columns.items()}


def clear_drops(
    times: Float[np.ndarray, "run drop"], constants: Float[np.ndarray, " drop"]
) -> Bool[np.ndarray, "run drop"]:
    """Which scheduled drops are in no near tie with a neighbor; see `NEAR_TIE`."""
    wide = times[:, 1:] >= times[:, :-1] + NEAR_TIE * constants[1:]
    alone = np.ones((len(times), 1), bool)
    return np.concatenate([alone, wide], axis=1) & np.concatenate([wide, alone], axis=1)


def comparable(flows: xr.Dataset) -> Bool[np.ndarray, "... run drop"]:
    """Which drops of a run can be compared with those of its schedule: in no near tie, and scheduled at all."""
    return flows["clear"].values & np.isfinite(flows["predicted"].values)


def next_component(drop: int) -> int:
    """Along which eigenvector a key is farthest off, in the limit: the next to be learned, or of the last drop the
    last."""
    return drop + 1 if drop + 1 < DIM else drop - 1


def exponent(drop: int) -> float:
    r"""With which power of the initial size w the newest key's component off its eigenvector falls.

    On the plateau before drop m, $\tau\dot k_d = v\lambda_d^2 q_d$ and $\tau\dot q_d = v\lambda_d^2 k_d$: components
    grow as $e^{\lambda_d^2\Phi}$, $\Phi = \int v\,dt/\tau$. When the one along $e_m$ has grown from w to $v_\infty$,
    that along $e_{m+1}$ is of the order $w\,(v_\infty/w)^{(\lambda_{m+1}/\lambda_m)^2}$, so the ratio of the two falls
    as $w^{1 - (\lambda_{m+1}/\lambda_m)^2}$. Components that other heads have learned do not grow: the power is 1.
    """
    if drop + 1 == DIM:
        return 1.0
    return 1 - (EIGENVALUES[drop + 1] / EIGENVALUES[drop]) ** 2


def neglected(drop: int, size: float) -> float:
    r"""The largest term left out of that power law, relative to it, for the relative initial size $w/v_\infty$.

    Of $k_d$ the part that shrinks, $w^{2(\lambda_{m+1}/\lambda_m)^2}$ of the other, and the square of the ratio itself.
    """
    if drop + 1 == DIM:
        return size
    return max(size ** (2 * (1 - exponent(drop))), size ** (2 * exponent(drop)))


def schedule_error(drop: int, ends: Float[np.ndarray, " component"], size: float) -> float:
    r"""By how many of its time constants a drop may come sooner or later than scheduled, as the initial size w
    vanishes.

    The schedule takes a component as learned at the half of its drop. In truth it drives the other heads, by
    $\lambda_j^2(1 - x^3)$, for $\int[(1 - x^3) - 1_{t<t_{1/2}}]\,dt \approx \tfrac14$ time constants longer ($1/x_h - 1
    - \int_0^{x_h} x\,dx/(1 - x^3)$ at the half, $x_h = 0.66$). A head of value v, still small, that learns component m
    later, gains $\delta\ln v = \tfrac14\lambda_j^2 v\,\tau_j$ by that, and its wait of at most
    $\ln(v_\infty/w)/(\lambda_m^2 v)$ changes by this fraction: in its time constants by
    $\tfrac14\ln(v_\infty/w)\,v_{\infty,m}/v_{\infty,j}$ for every component j learned before. One more is allowed for
    the drop itself.
    """
    earlier = sum(float(ends[drop] / ends[j]) for j in range(drop))
    return 1 + max(np.log(float(ends[drop]) / size), 0.0) / 4 * earlier


WINDOW = 8.0  # about each drop a run is saved for so many time constants before and after
_SPACING = 1 / 8  # Of the save times there, in time constants: splines through them are good to 10⁻⁵ of one.
_PARTS = 40  # into so many parts an interval with a drop is divided at a time


def saved_at_drops(
    flow: Callable[[Float[np.ndarray, " time"]], xr.Dataset],
    times: Float[np.ndarray, " time"],
    thresholds: Float[np.ndarray, " drop"],
    constants: Float[np.ndarray, " drop"],
) -> xr.Dataset:
    """What `flow` makes of save times that are fine about every passage of a loss through a threshold.

    Any `times` that contain the passages are narrowed down, with a flow of all runs each time: a drop of the length
    `constants` may come after a wait of a million of them.
    """
    while True:
        run = flow(times)
        brackets = _brackets(run, thresholds)
        if not brackets:
            return run
        wide = [(a, b, d) for a, b, d in brackets if b - a > constants[d]]
        if not wide:
            break
        times = _union([np.linspace(a, b, _PARTS + 1) for a, b, _ in brackets])
    count = round(2 * WINDOW / _SPACING) + 1
    around = np.linspace(-WINDOW, WINDOW, count)
    return flow(_union([(a + b) / 2 + constants[d] * around for a, b, d in brackets]))


def _brackets(run: xr.Dataset, thresholds: Float[np.ndarray, " drop"]) -> list[tuple[float, float, int]]:
    """The saved times between which each run passes each threshold, with the threshold's number."""
    time, losses = run["time"].values, run["loss"].values
    crossings = []
    for loss in losses:
        for number, threshold in enumerate(thresholds):
            below = np.flatnonzero(loss < threshold)
            if below.size and below[0] > 0:
                crossings.append((float(time[below[0] - 1]), float(time[below[0]]), number))
    return crossings


def _union(parts: list[np.ndarray]) -> Float[np.ndarray, " time"]:
    """All times from 0 on, rising, none so close to the last that rounding makes them equal."""
    times = np.unique(np.concatenate(parts))
    times = times[times > 0]
    return np.concatenate([[0.0], times[np.diff(times, prepend=0.0) > 1e-12 * times]])


_AROUND = 6  # saved points on either side of a passage through which a spline is laid


def passage(
    time: Float[np.ndarray, " time"], loss: Float[np.ndarray, " time"], level: float
) -> tuple[float, slice] | None:
    """When a loss first comes down to a level, by a cubic spline, and the points about it; None if it does not."""
    below = np.flatnonzero(loss < level)
    if below.size == 0 or below[0] == 0:
        return None
    after = int(below[0])
    near = slice(max(after - _AROUND, 0), after + _AROUND)
    spline = scipy.interpolate.CubicSpline(time[near], loss[near] - level)
    return float(scipy.optimize.brentq(spline, time[after - 1], time[after])), near


def read_drops(run: xr.Dataset, predictions: xr.Dataset, vectors: Float[np.ndarray, "dim component"]) -> xr.Dataset:
    """Of each drop of one run, whose axis is `time`: its half, the newest head just after it, and that head's key.

    - `key`: along the eigenvectors, relative to the component that is learned.
    - `angle`: of key and query off the eigenvector, in degrees.
    - `map`: contributions of all heads to each component.
    - `others`: from its beginning until then, the largest change of the weights of another head, over that of this.
    - `idle`: just after it, the largest norm of a head that has learned nothing and does not learn next, over that of
      equation 20; not a number if there is none, or the next drop does not come.

    What does not come before the run's end is infinite, or not a number.
    """
    time, loss = run["time"].values, run["loss"].values
    steps = predictions["level"].values
    half, after = np.full(DIM, np.inf), np.full(DIM, np.inf)
    head, key = np.full(DIM, -1), np.full((DIM, DIM), np.nan)
    map_after, angle, others = np.full((DIM, DIM), np.nan), np.full((DIM, 2), np.nan), np.full(DIM, np.nan)
    sizes, idle = np.full((DIM, run.sizes["head"]), np.nan), np.full(DIM, np.nan)
    for d in range(DIM):
        before, level = float(steps[d]), float(steps[d + 1])
        begun, passed, done = (passage(time, loss, before - part * (before - level)) for part in (BEGUN, 0.5, AFTER))
        if passed is not None:
            half[d] = passed[0]
        if done is None:
            continue
        after[d], near = done
        weights = weights_at(run, near, after[d])
        share = shares(weights, vectors)
        head[d] = int(share[:, d].argmax())
        along = weights["key"][head[d]] @ vectors
        key[d], map_after[d] = along / along[d], share.sum(axis=0)
        whole = np.concatenate([weights[name].reshape(len(share), -1) for name in weights], axis=1)
        sizes[d] = np.linalg.norm(whole, axis=1) / (3**0.5 * float(predictions["value_end"][d]))
        both = np.stack([along, weights["query"][head[d]] @ vectors])
        angle[d] = np.degrees(np.arccos(np.minimum(abs(both[:, d]) / np.linalg.norm(both, axis=1), 1.0)))
        if begun is not None:
            earlier = weights_at(run, begun[1], begun[0])
            changes = [(weights[name] - earlier[name]).reshape(len(share), -1) for name in weights]
            moved = np.linalg.norm(np.concatenate(changes, axis=1), axis=1)
            others[d] = np.delete(moved, head[d]).max(initial=0.0) / moved[head[d]]
    for d in np.flatnonzero(head >= 0):
        learners = head[: d + 2]
        if learners.min() >= 0 and (left := np.delete(sizes[d], np.unique(learners))).size:
            idle[d] = left.max()
    return xr.Dataset(
        {
            "half": ("drop", half),
            "after": ("drop", after),
            "head": ("drop", head),
            "key": (("drop", "component"), key),
            "map": (("drop", "component"), map_after),
            "angle": (("drop", "part"), angle),
            "others": ("drop", others),
            "idle": ("drop", idle),
        },
        {"part": ["key", "query"]},
    )


def read_ends(run: xr.Dataset, predictions: xr.Dataset, reading: xr.Dataset) -> xr.DataArray:
    """Of each drop |v|, |k| and |q| of its head at the end of the run, over those of equation 20; not a number if the
    run ends sooner than `SETTLED` time constants after the drop."""
    rest = float(run["time"][-1]) - reading["after"].values
    over = rest >= SETTLED * predictions["time_constant"].values
    weights = run[["value", "key", "query"]].isel(time=-1)
    parts = weights["value"].values[:, 0, DIM:], weights["key"].values[:, 0, :DIM], weights["query"].values[:, 0]
    sizes = np.stack([np.linalg.norm(part, axis=1) for part in parts], axis=1)[reading["head"].values]
    ratio = np.where(over[:, None], sizes / predictions["value_end"].values[:, None], np.nan)
    return xr.DataArray(ratio, {"weight": ["value", "key", "query"]}, ["drop", "weight"])


def weights_at(run: xr.Dataset, near: slice, time: float) -> dict[str, Any]:
    """v, k and q of each head at a time, by cubic splines through saved points."""
    saved = run["time"].values[near]
    parts = {
        "value": run["value"].values[near, :, 0, DIM],
        "key": run["key"].values[near, :, 0, :DIM],
        "query": run["query"].values[near, :, 0],
    }
    return {name: scipy.interpolate.CubicSpline(saved, values)(time) for name, values in parts.items()}


def shares(weights: dict[str, Any], vectors: Float[np.ndarray, "dim component"]) -> Float[np.ndarray, "head component"]:
    r"""What each head contributes to each component of the map, $v_i (k_i^\top e_d)(q_i^\top e_d)$."""
    return weights["value"][:, None] * (weights["key"] @ vectors) * (weights["query"] @ vectors)


def in_order_of_learning(learners: Int[np.ndarray, " drop"], heads: int) -> list[int]:
    """Heads that learn, one for each drop that came, and then the others."""
    return [*(head for head in learners.tolist() if head >= 0), *(h for h in range(heads) if h not in learners)]


def aligned_keys(
    keys: Float[np.ndarray, "head dim"], one: xr.Dataset, ends: Float[np.ndarray, " component"]
) -> Float[np.ndarray, "component dim"]:
    """The eigenvectors of one run at their final lengths, with the signs of the `keys` of the heads that learn them."""
    vectors, learners = one["eigenvectors"].values.T, one["head"].values
    signs = np.where(learners >= 0, np.sign(np.sum(keys[learners] * vectors, axis=1)), 1.0)
    return signs[:, None] * vectors * ends[:, None]


def median(values: Float[np.ndarray, "..."]) -> float:
    """Of those that are numbers; if there are none, it is none."""
    numbers = values[~np.isnan(values)]
    return float(np.median(numbers)) if numbers.size else float("nan")


def rise(run: xr.Dataset, predictions: xr.Dataset, drop: int, head: int, half: float) -> float:
    """Measured over predicted time in which the value of a head goes from `LOW` to `HIGH` of its end, about a drop."""
    times = _rise_times(run, predictions, drop, head, half, WINDOW)
    return (times[1] - times[0]) / float(predictions["rise"][drop]) if times else float("nan")


def _rise_times(
    run: xr.Dataset, predictions: xr.Dataset, drop: int, head: int, half: float, window: float
) -> list[float]:
    """When the value of a head passes `LOW` and `HIGH` of its end; none if it does not, so many time constants about
    the half of the drop."""
    time = run["time"].values
    near = abs(time - half) < window * float(predictions["time_constant"][drop])
    value, end = abs(run["value"].values[near, head, 0, DIM]), float(predictions["value_end"][drop])
    crossed = [passage(time[near], -value, -part * end) for part in (LOW, HIGH)]
    return [each[0] for each in crossed if each is not None] if None not in crossed else []


_NODES, _CHANCES = (np.polynomial.legendre.leggauss(200) + np.array([[1.0], [0.0]])) / 2
_LONG = 30.0  # time constants about a drop within which rises of heads that are off their eigenvectors are over


def read_rises(
    run: xr.Dataset,
    predictions: xr.Dataset,
    vectors: Float[np.ndarray, "dim component"],
    reading: xr.Dataset,
    task: InContextRegression,
) -> xr.Dataset:
    r"""Of each drop the time in which the value of its head rises from `LOW` to `HIGH` of its end, over that of
    equation 21: `rise`, infinite if it has not by the end; and `off_axis`, what it should be from weights that are not
    small.

    Let key and query have components k and q along the eigenvector. Those along others hardly change while the value
    rises, so that $v^2 - k^2$ and $v^2 - q^2$ are conserved, and
    $\tau\dot v = (\lambda^2 - \lambda c\,(v k q + s))\,k q$, where s is what other heads contribute. Differences
    and s are read when v is at `LOW`; zero, they leave equation 21.
    """
    modes, time = theory.modes(task), run["time"].values
    found = np.full((2, DIM), np.nan)
    for d, head in enumerate(reading["head"].values.tolist()):
        if head < 0:
            continue
        times = _rise_times(run, predictions, d, head, float(reading["half"][d]), _LONG)
        if not times:
            found[0, d] = np.inf
            continue
        place, end = int(np.searchsorted(time, times[0])), float(predictions["value_end"][d])
        weights = weights_at(run, slice(max(place - _AROUND, 0), place + _AROUND), times[0])
        key, query = (weights[name][head] @ vectors[:, d] for name in ("key", "query"))
        off = weights["value"][head] ** 2 - np.array([key, query]) ** 2
        beside = np.delete(shares(weights, vectors)[:, d], head).sum()
        value = end * (LOW + (HIGH - LOW) * _NODES)
        along = np.sqrt(np.prod(value[:, None] ** 2 - off, axis=1))
        rate = (modes.driving[d] - modes.curvature[d] * (value * along + beside)) * along
        takes = end * (HIGH - LOW) * np.sum(_CHANCES / rate) if rate.min() > 0 else np.inf
        found[:, d] = np.array([times[1] - times[0], takes]) / float(predictions["rise"][d])
    return xr.Dataset({"rise": ("drop", found[0]), "off_axis": ("drop", found[1])})
