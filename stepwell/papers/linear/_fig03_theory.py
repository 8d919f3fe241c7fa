r"""Fig 3: what the theory says of it: levels, scalar equation, schedule, how keys are off eigenvectors."""

from collections.abc import Iterable

import jax
import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from stepwell.dynamics import weight_factor
from stepwell.models import SeparateAttention
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._fig03_settings import NEAR_TIE, Settings
from ._rank_one import DIM, EIGENVALUES

LOW, HIGH = 0.2, 0.9
"""Parts of its end between which the rise of a value weight is timed."""
_GROWN = (1 - 0.5**0.5) ** (1 / 3)
"""x = v/v_∞ at half of a drop: the gain of a head is 1 - (1 - x³)²."""
_INDEPENDENT = 20_000
"""Sequences from which sampling errors are estimated; no run is trained on them."""


def initial_models(settings: Settings, init: float) -> list[SeparateAttention]:
    """The initialization of the figure, with 1/N: the same draw at every size."""
    scale = init * settings.paper_scale
    return [
        SeparateAttention.random(dim=DIM, heads=settings.heads, scale=scale, init="plain", key=jax.random.key(seed))
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
    batch = sampled.sample(_INDEPENDENT, key=jax.random.key(3))
    tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)[:, -1, 0]
    context = tokens.shape[1] - 1
    beta = np.einsum("sn,snd->sd", tokens[:, :-1, DIM], tokens[:, :-1, :DIM]) / context
    errors = []
    for learned in range(DIM + 1):
        answers = np.einsum("sa,ab,sb->s", beta, theory.fixed_point(task, range(learned)), tokens[:, -1, :DIM])
        losses = (labels - answers) ** 2
        errors.append(losses.std(ddof=1) / losses.mean())
    return np.array(errors)


def schedule(task: InContextRegression, model: SeparateAttention) -> theory.Schedules:
    """The schedule of drops from the initial weights of one run, in the paper's convention."""
    context = task.context.longest
    scale = weight_factor(model.normalization, "1/N", length=context, factors=3)
    weights = (model.value[:, 0, DIM], model.key[:, :, :DIM], model.query)
    return theory.drop_schedule(
        InContextRegression(task.covariance, context), *(scale * np.asarray(each)[None] for each in weights)
    )


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
