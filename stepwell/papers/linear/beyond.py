r"""Beyond the paper: correlated task vectors and noisy labels. Levels, order and drop times are predicted all the same.

Two tasks, of one input covariance Λ and label noise. In one the covariance Ω of the task vectors commutes with Λ, but
puts the components in another order; in the other it does not commute, and components are eigenvectors of neither.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis import effective_map, passage_time, staircase, winners
from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled
from stepwell.figures import Claim, Data, Figure
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance, random_rotation
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._runs import DIM, EIGENVALUES, HEADS, described, flow_at, initial_models, schedules

RTOL = 1e-9
NAMES = {"commuting": "Ω commutes with Λ", "rotated": "Ω does not commute with Λ"}


@dataclass(frozen=True)
class Settings:
    """What can be changed. Settings were chosen on seeds 0 to 11."""

    context: int = 31
    task_eigenvalues: tuple[float, ...] = (1.0, 0.6, 1.5, 0.8)
    noise: float = 0.1
    seeds: tuple[int, ...] = (90, 91, 92, 93, 94, 95)
    init: float = 1e-6
    points: int = 400
    steps: int = 500
    """A flow takes at least so many steps, whose errors of relative size RTOL add up."""

    @cached_property
    def tasks(self) -> dict[str, InContextRegression]:
        turn = random_rotation(DIM, key=jax.random.key(0))
        other = random_rotation(DIM, key=jax.random.key(1))
        inputs = covariance(EIGENVALUES, turn)
        return {
            name: InContextRegression(
                inputs,
                self.context,
                task_covariance=covariance(self.task_eigenvalues, vectors),
                noise_variance=self.noise,
            )
            for name, vectors in (("commuting", turn), ("rotated", other))
        }


CAPTION = (
    "Linear attention with separate keys and queries of rank one, on tasks the paper does not have: the task vectors "
    "have a covariance Ω other than the identity, and labels in the context are noisy. Above, the loss under gradient "
    "flow at infinitely many sequences (lines, one a seed) and the staircase predicted from the task and the initial "
    "weights (dashed); nothing is fitted. Left, Ω shares the eigenvectors of the input covariance Λ and changes the "
    "order in which they are learned; right, it does not share them. Below, the relative error of every drop time "
    "(points) and a bound from theory (dashes): heads need a time of order ln(1/init) to pass a strict saddle, which "
    "the schedule neglects. All of this is ours."
)


def describe(settings: Settings) -> dict[str, Any]:
    initial = "Gaussian; settings were chosen on seeds 0 to 11"
    words = {"training": "gradient flow at infinitely many sequences", "initial": initial}
    return described(settings, dim=DIM, heads=HEADS, rank=1, eigenvalues=EIGENVALUES, **words)


def simulate(settings: Settings) -> Data:
    return {name: run(task, settings) for name, task in settings.tasks.items()}


def run(task: InContextRegression, settings: Settings, *, theory_task: InContextRegression | None = None) -> xr.Dataset:
    """Flows on `task` from each seed's weights, and what theory predicts from them for the task `theory_task`."""
    theory_task = task if theory_task is None else theory_task
    models = initial_models(settings.seeds, settings.init)
    predicted = schedules(theory_task, models)
    times = save_times(theory_task, predicted.times, settings.points)
    flows = flow_at(models, Population(task), times, rtol=RTOL, atol=1e-6 * settings.init)
    flows = flows.assign_coords(run=list(settings.seeds))
    results = xr.Dataset(
        {
            "loss": flows["loss"],
            "staircase": (
                ("run", "time"),
                np.array([theory.predicted_staircase(theory_task, each, times) for each in predicted]),
            ),
            "level": ("plateau", predicted.levels),
            "predicted_time": (("run", "drop"), predicted.times, {"units": TIME_UNIT}),
            "allowed": (("run", "drop"), drop_time_errors(theory_task, settings, predicted.times)),
            "predicted_head": (("run", "drop"), predicted.heads),
            "head_order": winners(flows)["order"],
        }
    )
    return results.merge(_read(theory_task, flows, results, settings.init))


def save_times(task: InContextRegression, expected: np.ndarray, points: int) -> np.ndarray:
    """Evenly spaced in log time, and ever finer towards each predicted drop, down to a fraction of its duration."""
    even = np.geomspace(expected.min() / 5, 3 * expected.max(), points)
    duration = 1 / float(theory.escape_rates(task)[0])
    away = np.concatenate([[0.0], duration * np.geomspace(0.2, 0.03 * expected.max() / duration, 40)])
    times = np.unique(
        np.concatenate([even, *(np.add.outer(expected.ravel(), sign * away).ravel() for sign in (1, -1))])
    )
    return times[(times > 0) & (times <= even[-1]) & (np.diff(times, prepend=-1.0) > 1e-9 * times)]


def settling_rate(task: InContextRegression) -> float:
    """The rate s at which the slowest strict saddle is left: minus half the lowest eigenvalue of its Hessian."""
    sets = (point.learned for point in theory.fixed_points(task))
    strict = [learned for learned in sets if learned != tuple(range(len(learned)))]
    points = (theory.fixed_point_landscape(task, learned, heads=HEADS) for learned in strict)
    return min((-point.eigenvalues[0] / 2 for point in points), default=np.inf)


def settling_time(task: InContextRegression, init: float) -> float:
    """In which a strict saddle is left from weights of the initial size."""
    return max(np.log(1 / init), 0.0) / settling_rate(task)


def drop_time_errors(task: InContextRegression, settings: Settings, expected: np.ndarray) -> np.ndarray:
    r"""What the schedule neglects, as an error of the time of each drop, for the times `expected` of each run.

    At each drop, a few times its own duration $1/(\rho v)$: three. After each drop j heads in use settle, and turn past
    strict saddles, in a time of order $\delta = \ln(1/w)/s$ (`settling_rate`). Meanwhile a fresh head goes on as on the
    plateau before, and its value changes by up to $\rho_j\|k\|\|q\|\delta = \rho_j D w^2\delta$. It leaves plateau m
    after a wait $T = 1/(\rho_m v)$, which is then off by $\rho_j D w^2 \delta/(\rho_m v^2) = \rho_j/\rho_m\,
    D(w\rho_m T)^2\,\delta$, or by $\rho_j/\rho_m\,\delta$ where it has grown, $v > \sqrt D w$. Added is the error of
    the solver in the flow that the schedule is compared with.
    """
    init, drops = settings.init, expected.shape[1]
    rates = theory.escape_rates(task)[:drops]
    own = 1 / (rates * np.array([abs(theory.aligned_weights(task, [d], heads=HEADS)[0][0]) for d in range(drops)]))
    settling = settling_time(task, init)
    earlier = np.concatenate([[0.0], np.cumsum(rates)[:-1]])
    waits = np.diff(expected, axis=1, prepend=0.0)
    solver = settings.steps * RTOL * expected
    return solver + 3 * own + settling * earlier / rates * np.maximum(1.0, DIM * (init * rates * waits) ** 2)


def _read(task: InContextRegression, flows: xr.Dataset, results: xr.Dataset, init: float) -> xr.Dataset:
    """Plateaus, drop times and components learned, from the runs."""
    level, rates = results["level"].values, theory.escape_rates(task)[: results.sizes["drop"]]
    time, loss = flows["time"].values, flows["loss"].values
    shape = (len(loss), level.size)
    # A strict saddle on the way may show as a step, but is left within this time.
    settling = settling_time(task, init)
    counts = np.array([sum(p.end - p.start > settling for p in staircase(time, each).plateaus) for each in loss])
    drops = np.array(
        [[passage_time(time, each, (a + b) / 2) for a, b in zip(level[:-1], level[1:], strict=True)] for each in loss]
    )
    # Plateaus lie between the drops that are predicted; they are read in the middle.
    edges = np.concatenate([np.zeros((shape[0], 1)), results["predicted_time"].values], axis=1)
    ends = np.concatenate([edges[:, 1:], np.full((shape[0], 1), time[-1])], axis=1)
    places = np.abs(time - ((edges + ends) / 2)[..., None]).argmin(axis=-1)
    maps = effective_map(flows).values
    learned = np.zeros((*shape, DIM))
    for row in range(shape[0]):
        for m, place in enumerate(places[row]):
            learned[row, m, list(theory.nearest_fixed_point(task, maps[row, place]).point.learned)] = 1
    # The head that leaves after a wait T has grown as v' = ρv², to 2/(ρT) halfway; each head lowers the loss by 2ρv³.
    size = 2 / (rates * (ends - edges)[:, :-1])
    growing = np.concatenate([HEADS * 2 * rates * size**3, np.zeros((shape[0], 1))], axis=1)
    # By the middle of a plateau of four times that, what has yet to settle has shrunk from 1 to w.
    lasting = ends - edges > 4 * settling
    read = np.where(lasting, np.take_along_axis(loss, places, axis=1), np.nan)
    dims = ("run", "plateau")
    return xr.Dataset(
        {
            "plateaus": ("run", counts),
            "predicted_plateaus": ("run", (ends - edges > settling).sum(axis=1)),
            "measured_time": (("run", "drop"), drops, {"units": TIME_UNIT}),
            "plateau_loss": (dims, read),
            # At a fixed point the loss is quadratic in what has yet to settle.
            "plateau_tolerance": (dims, growing + (init**2 + (10 * RTOL) ** 2) * level[0]),
            "learned": ((*dims, "component"), learned),
        }
    )


def claims(data: Data, settings: Settings) -> list[Claim]:
    return [claim for name in NAMES for claim in _claims(name, data[name])]


def _claims(name: str, trained: xr.Dataset) -> list[Claim]:
    which = NAMES[name]
    lasting = trained["plateau_loss"].notnull().values
    levels = np.broadcast_to(trained["level"].values, lasting.shape)
    in_order = xr.DataArray(np.tri(trained.sizes["plateau"], DIM, -1), dims=("plateau", "component"))
    wrong = (trained["learned"] != in_order).sum("component").values
    heads = np.take_along_axis(trained["head_order"].values, trained["predicted_head"].values, axis=1)
    error = trained["measured_time"] / trained["predicted_time"] - 1
    bound = trained["allowed"] / trained["predicted_time"]
    ours: Any = {"kind": "theory", "explored": True}
    return [
        Claim.over(
            f"{name}-plateaus",
            f"{which}: the loss curve has as many plateaus that outlast the passing of a strict saddle as predicted",
            predicted=trained["predicted_plateaus"].values,
            measured=trained["plateaus"].values,
            tolerance=0,
            basis="a count; a plateau is 4 times slower than the falls beside it",
            source="stepwell.theory.linear.drop_schedule",
            **ours,
        ),
        Claim.over(
            f"{name}-levels",
            f"{which}: plateau m is at the predicted level: loss halfway through each plateau ({lasting.sum()} of "
            f"{lasting.size} are predicted to last)",
            predicted=levels[lasting],
            measured=trained["plateau_loss"].values[lasting],
            tolerance=trained["plateau_tolerance"].values[lasting],
            basis="what heads have grown, and squares of what is not yet settled and of the solver's error, halfway",
            counted="plateaus",
            source="stepwell.theory.linear.levels",
            **ours,
        ),
        Claim.over(
            f"{name}-order",
            f"{which}: components are learned in falling order of gain: number of components that are learned out of "
            "turn, or missing, on each plateau",
            predicted=0,
            measured=wrong.ravel(),
            tolerance=0,
            basis="a count",
            counted="plateaus",
            source="stepwell.theory.linear.levels",
            **ours,
        ),
        Claim.over(
            f"{name}-heads",
            f"{which}: heads grow in the order of the schedule: place of the head that is predicted for each drop",
            predicted=np.broadcast_to(np.arange(heads.shape[1]), heads.shape).ravel(),
            measured=heads.ravel(),
            tolerance=0,
            basis="a count",
            counted="drops",
            source="stepwell.theory.linear.drop_schedule",
            **ours,
        ),
        Claim.over(
            f"{name}-times",
            f"{which}: drops come when the schedule says: relative error of each time",
            predicted=0.0,
            measured=error.values.ravel(),
            tolerance=bound.values.ravel(),
            basis="the time ln(1/init)/s to pass the slowest strict saddle after each drop, carried over; three times "
            "the duration of the drop; solver",
            counted="drops",
            source="stepwell.theory.linear.drop_schedule",
            **ours,
        ),
    ]


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    with styled():
        figure = new_figure(9.6, 6.4)
        panels = figure.subplots(2, 2, height_ratios=(3, 2), sharey="row")
        for column, (name, words) in enumerate(NAMES.items()):
            trained = data[name]
            curve, errors = panels[:, column]
            for level in trained["level"].values:
                curve.axhline(level, color=GRAY, linestyle=":", linewidth=0.9, zorder=0)
            runs = trained.sizes["run"]
            for run in range(runs):
                color = PALETTE[run % len(PALETTE)]
                label = "gradient flow, one line a seed" if run == 0 else None
                curve.plot(trained["time"], trained["loss"][run], color=color, linewidth=1.8, label=label)
                label = "predicted from the initial weights" if run == 0 else None
                curve.plot(trained["time"], trained["staircase"][run], "--", color=BLACK, linewidth=0.9, label=label)
                drop = np.arange(1, trained.sizes["drop"] + 1) + 0.1 * (run - (runs - 1) / 2)
                error = 100 * abs(trained["measured_time"] / trained["predicted_time"] - 1)[run]
                allowed = 100 * (trained["allowed"] / trained["predicted_time"])[run]
                label = "bound" if run == 0 else None
                errors.plot(drop, allowed, "_", color=GRAY, markersize=9, markeredgewidth=2, label=label)
                label = "measured" if run == 0 else None
                errors.plot(drop, error, "o", color=color, markersize=4, label=label)
            curve.set_xscale("log")
            curve.set_xlim(float(trained["time"][1]), float(trained["time"][-1]))
            curve.set_ylim(0, 1.1 * float(trained["level"][0]))
            curve.set_xlabel("training time $t/\\tau$")
            curve.set_title(f"({'ab'[column]}) {words}, noisy labels")
            errors.set_yscale("log")
            errors.set_xticks(range(1, DIM + 1))
            errors.set_xlabel("drop")
            errors.set_title(f"({'cd'[column]}) Error of the drop times, and its bound")
        panels[0, 0].set_ylabel("loss")
        panels[1, 0].set_ylabel("|measured − predicted|, %")
        panels[0, 1].legend(loc="upper right", bbox_to_anchor=(1.0, 0.86))
        panels[1, 0].legend(loc="upper left")
    return figure


FIGURE = Figure(
    title="Beyond the paper: correlated task vectors and noisy labels, predicted and simulated",
    caption=CAPTION,
    settings=Settings(),
    quick=Settings(seeds=(90,), points=200),
    described=describe,
    simulate=simulate,
    claims=claims,
    draw=draw,
)
