r"""Beyond the paper: correlated task vectors and noisy labels. Levels, order and drop times are predicted all the same.

Two tasks, of one input covariance Λ and label noise. In one the covariance Ω of the task vectors commutes with Λ, but
puts the components in another order; in the other it does not commute, and components are eigenvectors of neither.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import matplotlib.figure
import numpy as np
import xarray as xr

from stepwell.analysis import effective_map, staircase, winners
from stepwell.analysis.style import BLACK, GRAY, PALETTE, new_figure, styled
from stepwell.figures import Claim, Data, Figure, Origin, Seeds
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression, covariance, random_rotation
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT

from ._drawing import lines
from ._quadrature import losses_at
from ._runs import DIM, EIGENVALUES, HEADS, described, flow_at, initial_models, labeled, passages, schedules

RTOL = 1e-9
NAMES = {"commuting": "Ω commutes with Λ", "rotated": "Ω does not commute with Λ"}


@dataclass(frozen=True)
class Settings:
    """What can be changed."""

    context: int = 31
    task_eigenvalues: tuple[float, ...] = (1.0, 0.6, 1.5, 0.8)
    noise: float = 0.1
    seeds: tuple[int, ...] = (90, 91, 92, 93, 94, 95)
    init: float = 1e-6
    points: int = 400
    steps: int = 500  # a flow takes at least so many steps, whose errors of relative size RTOL add up

    @cached_property
    def tasks(self) -> dict[str, InContextRegression]:
        turn = random_rotation(DIM, key=jax.random.key(0))
        other = random_rotation(DIM, key=jax.random.key(1))
        inputs = covariance(EIGENVALUES, turn)
        tasks = (covariance(self.task_eigenvalues, vectors) for vectors in (turn, other))
        options: Any = {"noise_variance": self.noise}
        made = (InContextRegression(inputs, self.context, task_covariance=task, **options) for task in tasks)
        return dict(zip(NAMES, made, strict=True))


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
    staircases = [theory.predicted_staircase(theory_task, each, times) for each in predicted]
    results = xr.Dataset(
        {
            "loss": flows["loss"],
            "staircase": (("run", "time"), staircases),
            "level": ("plateau", predicted.levels),
            "predicted_time": (("run", "drop"), predicted.times, {"units": TIME_UNIT}),
            "allowed": (("run", "drop"), drop_time_errors(theory_task, settings, predicted.times)),
            "predicted_head": (("run", "drop"), predicted.heads),
            "head_order": winners(flows)["order"],
        }
    )
    return results.merge(_read(theory_task, task, flows, results, models[0], settings.init))


def save_times(task: InContextRegression, expected: np.ndarray, points: int) -> np.ndarray:
    """Evenly spaced in log time, and ever finer towards each predicted drop, down to a fraction of its duration."""
    even = np.geomspace(expected.min() / 5, 3 * expected.max(), points)
    duration = 1 / float(theory.escape_rates(task)[0])
    away = np.concatenate([[0.0], duration * np.geomspace(0.2, 0.03 * expected.max() / duration, 40)])
    times = np.union1d(even, np.add.outer(expected, [away, -away]))
    return times[(times > 0) & (times <= even[-1]) & (np.diff(times, prepend=-1.0) > 1e-9 * times)]


def settling_time(task: InContextRegression, init: float) -> float:
    """In which the slowest strict saddle is left from weights of the initial size, at the rate s, minus half the lowest
    eigenvalue of its Hessian."""
    sets = (point.learned for point in theory.fixed_points(task))
    strict = [learned for learned in sets if learned != tuple(range(len(learned)))]
    points = (theory.fixed_point_landscape(task, learned, heads=HEADS) for learned in strict)
    return max(np.log(1 / init), 0.0) / min((-point.eigenvalues[0] / 2 for point in points), default=np.inf)


def drop_time_errors(task: InContextRegression, settings: Settings, expected: np.ndarray) -> np.ndarray:
    r"""What the schedule neglects, as an error of the time of each drop, for the times `expected` of each run.

    At each drop, a few times its own duration $1/(\rho v)$: three. After each drop j heads in use settle, and turn past
    strict saddles, in a time of order $\delta = \ln(1/w)/s$ (`settling_time`). Meanwhile a fresh head goes on as on the
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


def _read(
    task: InContextRegression,
    trained: InContextRegression,
    flows: xr.Dataset,
    results: xr.Dataset,
    model: SeparateAttention,
    init: float,
) -> xr.Dataset:
    level, rates = results["level"].values, theory.escape_rates(task)[: results.sizes["drop"]]
    time, loss = flows["time"].values, flows["loss"].values
    shape = (len(loss), level.size)
    # A strict saddle on the way may show as a step, but is left within this time.
    settling = settling_time(task, init)
    counts = np.array([sum(p.end - p.start > settling for p in staircase(time, each).plateaus) for each in loss])
    drops = passages(time, loss, (level[:-1] + level[1:]) / 2)
    # Plateaus lie between the drops that are predicted; they are read in the middle.
    edges = np.pad(results["predicted_time"].values, ((0, 0), (1, 1)), constant_values=((0, 0), (0.0, time[-1])))
    edges, ends = edges[:, :-1], edges[:, 1:]
    places = np.abs(time - ((edges + ends) / 2)[..., None]).argmin(axis=-1)
    maps, learned = effective_map(flows).values, np.zeros((*shape, DIM))
    for row, m in np.ndindex(shape):
        learned[row, m, list(theory.nearest_fixed_point(task, maps[row, places[row, m]]).point.learned)] = 1
    # The head that leaves after a wait T has grown as v' = ρv², to 2/(ρT) halfway; each head lowers the loss by 2ρv³.
    size = 2 / (rates * (ends - edges)[:, :-1])
    growing = np.pad(HEADS * 2 * rates * size**3, ((0, 0), (0, 1)))
    # By the middle of a plateau of four times that, what has yet to settle has shrunk from 1 to w.
    lasting = ends - edges > 4 * settling
    read = np.where(lasting, losses_at(trained, flows, model, places), np.nan)
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
    which, lasting = NAMES[name], trained["plateau_loss"].notnull().values
    schedule = Origin("theory", "stepwell.theory.linear.drop_schedule", explored=True)
    at_levels = Origin("theory", "stepwell.theory.linear.levels", explored=True)
    seeds, drops = trained["run"].values, range(1, trained.sizes["drop"] + 1)
    places: Any = {"seed": seeds, "plateau": range(trained.sizes["plateau"])}
    levels = np.broadcast_to(trained["level"].values, lasting.shape)
    in_order = xr.DataArray(np.tri(trained.sizes["plateau"], DIM, -1), dims=("plateau", "component"))
    wrong = (trained["learned"] != in_order).sum("component").values
    heads = np.take_along_axis(trained["head_order"].values, trained["predicted_head"].values, axis=1)
    error = trained["measured_time"] / trained["predicted_time"] - 1
    bound = trained["allowed"] / trained["predicted_time"]
    return [
        schedule.close(
            f"{name}-plateaus",
            f"{which}: the loss curve has as many plateaus that outlast the passing of a strict saddle as predicted",
            predicted=trained["predicted_plateaus"].values,
            measured=labeled(trained["plateaus"], seed=seeds),
            basis="a count; a plateau is 4 times slower than the falls beside it",
        ),
        at_levels.close(
            f"{name}-levels",
            f"{which}: plateau m is at the predicted level: loss halfway through each plateau ({lasting.sum()} of "
            f"{lasting.size} are predicted to last)",
            predicted=levels[lasting],
            measured=labeled(trained["plateau_loss"], lasting, **places),
            tolerance=trained["plateau_tolerance"].values[lasting],
            basis="what heads have grown, and squares of what is not yet settled and of the solver's error, halfway",
            counted="plateaus",
        ),
        at_levels.close(
            f"{name}-order",
            f"{which}: components are learned in falling order of gain: number of components that are learned out of "
            "turn, or missing, on each plateau",
            measured=labeled(wrong, **places),
            basis="a count",
            counted="plateaus",
        ),
        schedule.close(
            f"{name}-heads",
            f"{which}: heads grow in the order of the schedule: place of the head that is predicted for each drop",
            predicted=np.broadcast_to(np.arange(heads.shape[1]), heads.shape).ravel(),
            measured=labeled(heads, seed=seeds, drop=drops),
            basis="a count",
            counted="drops",
        ),
        schedule.close(
            f"{name}-times",
            f"{which}: drops come when the schedule says: relative error of each time",
            measured=labeled(error, seed=seeds, drop=drops),
            tolerance=bound.values.ravel(),
            basis="the time ln(1/init)/s to pass the slowest strict saddle after each drop, carried over; three times "
            "the duration of the drop; solver",
            counted="drops",
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
            time, runs, drops = trained["time"], trained.sizes["run"], np.arange(1, trained.sizes["drop"] + 1)
            label = "gradient flow, one line a seed"
            lines(curve, time, trained["loss"].values, colors=PALETTE, linewidth=1.8, label=label)
            style: Any = {"color": BLACK, "linewidth": 0.9, "label": "predicted from the initial weights"}
            lines(curve, time, trained["staircase"].values, "--", **style)
            places = drops + 0.1 * (np.arange(runs) - (runs - 1) / 2)[:, None]
            error, allowed = (
                100 * (values / trained["predicted_time"]).values
                for values in (abs(trained["measured_time"] - trained["predicted_time"]), trained["allowed"])
            )
            errors.plot(
                places.ravel(), allowed.ravel(), "_", color=GRAY, markersize=9, markeredgewidth=2, label="bound"
            )
            for run, color in zip(range(runs), itertools.cycle(PALETTE), strict=False):
                label = None if run else "measured"
                errors.plot(places[run], error[run], "o", color=color, markersize=4, label=label)
            curve.set(xscale="log", xlim=(float(trained["time"][1]), float(trained["time"][-1])))
            curve.set(ylim=(0, 1.1 * float(trained["level"][0])), xlabel="training time $t/\\tau$")
            curve.set_title(f"({'ab'[column]}) {words}, noisy labels")
            errors.set(yscale="log", xticks=range(1, DIM + 1), xlabel="drop")
            errors.set(title=f"({'cd'[column]}) Error of the drop times, and its bound")
        panels[0, 0].set_ylabel("loss")
        panels[1, 0].set_ylabel("|measured − predicted|, %")
        panels[0, 1].legend(loc="upper right", bbox_to_anchor=(1.0, 0.86))
        panels[1, 0].legend(loc="upper left")
    return figure


FIGURE = Figure(
    title="Beyond the paper: correlated task vectors and noisy labels, predicted and simulated",
    caption=(
        "Linear attention with separate keys and queries of rank one, on tasks the paper does not have: the task "
        "vectors have a covariance Ω other than the identity, and labels in the context are noisy. Above, the loss "
        "under gradient flow at infinitely many sequences (lines, one a seed) and the staircase predicted from the "
        "task and the initial weights (dashed); nothing is fitted. Left, Ω shares the eigenvectors of the input "
        "covariance Λ and changes the order in which they are learned; right, it does not share them. Below, the "
        "relative error of every drop time (points) and a bound from theory (dashes): heads need a time of order "
        "ln(1/init) to pass a strict saddle, which the schedule neglects. All of this is ours."
    ),
    settings=Settings(),
    quick=Settings(seeds=(90,), points=200),
    described=partial(
        described,
        heads=HEADS,
        rank=1,
        eigenvalues=EIGENVALUES,
        training="gradient flow at infinitely many sequences",
        initial="Gaussian",
    ),
    seeds=Seeds(explored="0 to 11"),
    simulate=simulate,
    claims=claims,
    draw=draw,
)
