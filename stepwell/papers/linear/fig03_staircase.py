r"""Fig 3: with separate keys and queries of rank one, the loss goes down a staircase, a component and a head a step.

The runs of (a) to (c) are those of the published command, with the start that the figure was made with: gradient
descent without 1/N, each seed with its own covariance, sequences and initial weights. Steps and weights are converted
to the paper's convention (attention divided by N) where they meet the theory. Runs on infinitely many sequences are
gradient flow in that convention, from the same start at several sizes.
"""

import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.dynamics import Ensemble, Record, flow
from stepwell.experiments import command_of
from stepwell.figures import Data, Figure
from stepwell.models import SeparateAttention
from stepwell.objectives import AbstractObjective, Population
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

from ._described import described
from ._fig03_claims import claims
from ._fig03_drawing import draw
from ._fig03_flows import saved_at_drops
from ._fig03_readings import passage, read_drops, rise, weights_at
from ._fig03_settings import BEGUN, Settings
from ._fig03_theory import initial_models, levels, schedule, scheduled
from ._fig03_video import save_gif, save_mp4
from ._onset import cross_tensor
from ._rank_one import DIM, EIGENVALUES
from ._runs import Run, runs_of, train_together

CAPTION = (
    "Linear attention with separate keys and queries of rank one (ATTN_S), trained at the published settings. (a) "
    "Training loss of six seeds against steps, as in the paper; dotted, the predicted levels L(M_m), at which m "
    "principal components of the inputs are learned. Beneath, the steps of the four drops in the paper's six runs, "
    "read off its picture, and in all of our seeds. (b) Value weights of one of these runs. Dashed, the solution of "
    "the scalar equation τ dv/dt = λ²v² − λcv⁵ (eq. 21), placed at the half of each drop, and as triangles the drops "
    "that the schedule predicts from the initial weights; nothing else is fitted. (c) Keys of that run just after "
    "each drop, one row a head, beside the eigenvectors of the covariance: at each drop one more head has turned to "
    "the next eigenvector. The panels below are ours, on infinitely many sequences. (d) How far the key of the newest "
    "head is off its eigenvector just after each drop, against the size of the initial weights: seeds, medians and "
    "lines with the predicted powers; beside it, by how much a finite data set turns the first key. (e) Error of the "
    "predicted drop times, in units of each drop's time constant, for every seed and drop but near ties: it does not "
    "grow as the initial weights, and with them the waits of 10³ to 10⁵ time constants, change. The video shows the "
    "run of (b)."
)


def published(settings: Settings) -> dict[str, Any]:
    """What the published figure has settings for, too."""
    return {
        **described(dim=DIM, context=settings.context, heads=settings.heads, rank=1, eigenvalues=EIGENVALUES),
        "initial weights": f"Gaussian, standard deviation {settings.init:g} without 1/N, label blocks zero",
        "rate": settings.rate,
        "steps": settings.steps,
        "sequences": settings.sequences or "infinitely many",
        "seeds": settings.seeds,
    }


def describe(settings: Settings) -> dict[str, Any]:
    names = ("record", "shown", "flow_seeds", "inits", "turned", "turned_init", "frames")
    return {
        **published(settings),
        "command": " ".join(command_of(settings.experiment)),
        **{name: getattr(settings, name) for name in names},
    }


def simulate(settings: Settings) -> Data:
    predictions = levels(settings.task)
    sets = runs_of(settings.experiment, settings.seeds[: settings.turned if settings.sequences is None else None])
    runs = sets
    if settings.sequences is None:
        whole = settings.experiment.replace(task={"centered": None, "whitened": None}, objective="population")
        runs = runs_of(whole, settings.seeds)
    training, shown = train(runs, settings, predictions)
    return {
        "training": training,
        "shown": shown,
        "flows": flows(settings, predictions),
        "turned": turned_keys(sets[: settings.turned], settings, predictions),
        "theory": predictions,
    }


def train(runs: Sequence[Run], settings: Settings, predictions: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Descent as published: losses and what is read at the drops; and the whole of the run that is shown.

    It is the first with all drops and no near tie of its schedule.
    """
    snapshots = np.arange(settings.record, settings.steps + 1, settings.record)
    trajectory = train_together(runs, record=Record(every=settings.record, snapshots=snapshots))
    courses = [in_paper_units(trajectory.isel(run=i), settings) for i in range(len(runs))]
    vectors = np.stack([theory.modes(regression(run)).directions for run in runs])
    readings = [read_drops(run, predictions, each) for run, each in zip(courses, vectors, strict=True)]
    expected = scheduled(((regression(run), separate(run)) for run in runs), predictions["time_constant"].values)
    together = xr.concat(readings, dim="run").assign(
        {
            "loss": (("run", "time"), trajectory["loss"].values),
            "eigenvectors": (("run", "dim", "component"), vectors),
            **expected,
        }
    )
    together = together.assign_coords(time=courses[0]["time"], run=trajectory["run"]).assign_attrs(trajectory.attrs)
    place = int((together["clear"] & np.isfinite(together["after"])).all("drop").argmax("run"))
    return together, courses[place].assign_attrs(place=place)


def regression(run: Run) -> InContextRegression:
    assert isinstance(run.task, InContextRegression)
    return run.task


def separate(run: Run) -> SeparateAttention:
    assert isinstance(run.model, SeparateAttention)
    return run.model


def in_paper_units(run: xr.Dataset, settings: Settings) -> xr.Dataset:
    """One run by descent, with a snapshot at every record, as a flow of attention divided by N: time and weights."""
    scale = settings.paper_scale
    weights = {name: run[name].rename(snapshot="time").drop_vars("time") * scale for name in _WEIGHTS}
    loss = ("time", run["loss"].values)
    return xr.Dataset({"loss": loss, **weights}, {"time": run["step"].values * settings.unit}, run.attrs)


_WEIGHTS = ("value", "key", "query")


def flows(settings: Settings, predictions: xr.Dataset) -> xr.Dataset:
    """Gradient flow on infinitely many sequences from every size: what is read at the drops, and what is scheduled."""
    task, constants, steps = settings.task, predictions["time_constant"].values, predictions["level"].values
    vectors = predictions["eigenvectors"].values
    rows = []
    for init in settings.inits:
        models = initial_models(settings, init)
        expected = scheduled(((task, model) for model in models), constants)
        times = expected["predicted"][1]
        times = times[np.isfinite(times)] if np.isfinite(times).any() else constants
        coarse = np.geomspace(times.min() / 5, 3 * times.max(), 600)
        # Drop times are compared to a hundredth of a time constant after waits of 10⁵ of them.
        saved = _saved(models, Population(task), rtol=1e-9, atol=1e-8 * init)
        run = saved_at_drops(saved, np.append(0.0, coarse), (steps[:-1] + steps[1:]) / 2, constants)
        readings = []
        for i in range(len(models)):
            one = run.isel(run=i)
            read = read_drops(one, predictions, vectors)
            heads, halves = read["head"].values, read["half"].values
            rises = [rise(one, predictions, d, int(heads[d]), halves[d]) for d in range(DIM)]
            readings.append(read.assign(rise=("drop", np.array(rises))))
        rows.append(xr.concat(readings, dim="run").assign(expected))
    return xr.concat(rows, dim="init").assign_coords(init=list(settings.inits), run=list(settings.flow_seeds))


def _saved(
    models: Sequence[SeparateAttention], objective: AbstractObjective | Ensemble, *, rtol: float, atol: float
) -> Callable[[Float[np.ndarray, " time"]], xr.Dataset]:
    """Gradient flow of all models as one program, as a function of the times at which it is saved."""
    ensemble = Ensemble.of(list(models))
    options: dict[str, Any] = {"rtol": rtol, "atol": atol, "progress": False}
    return lambda times: flow(ensemble, objective, until=float(times[-1]), record=Record(points=times), **options)


def turned_keys(runs: Sequence[Run], settings: Settings, predictions: xr.Dataset) -> xr.Dataset:
    r"""By how much P sequences turn the key of the first head, and what their moments say.

    On P sequences the head grows along the leading singular vectors of $\langle y_q\beta x_q^\top\rangle$, not of
    $\Lambda^2$. `measured`: components of its key, relative to the first, as its drop begins, less those on infinitely
    many sequences from the same initial weights. `predicted`: components of the leading left singular vector. Data
    sets on which the drop comes at another time are left out.
    """
    init, steps, unit = settings.turned_init, predictions["level"].values, settings.time_scale
    constant = predictions["time_constant"].values[:1] / unit
    models = [separate(run).scaled(init / settings.init) for run in runs]
    firsts = np.array([schedule(regression(r), m).times[0, 0] for r, m in zip(runs, models, strict=True)]) / unit
    if not np.isfinite(firsts).any():
        none = (("set", "component"), np.zeros((0, DIM)))
        return xr.Dataset({"init": init, "measured": none, "predicted": none})
    # Sampling moves the drop by a few per cent of its time.
    coarse = np.append(0.0, np.geomspace(0.8 * np.nanmin(firsts), 1.2 * np.nanmax(firsts), 6000))
    vectors = [theory.modes(regression(run)).directions for run in runs]
    keys = []
    sampled = [run.objective for run in runs]
    for objectives in (sampled, [Population(run.task, "none") for run in runs]):
        saved = _saved(models, Ensemble.of(objectives), rtol=1e-8, atol=1e-8 * init)
        run = saved_at_drops(saved, coarse, steps[:2].mean(keepdims=True), constant)
        keys.append([_first_key(run.isel(run=i), each, steps) for i, each in enumerate(vectors)])
    directions = []
    for moments, each in zip(sampled, vectors, strict=True):
        driving = each.T @ cross_tensor(np.asarray(moments.cross)[0], DIM)[DIM, :DIM] @ each
        leading = np.linalg.svd(driving)[0][:, 0]
        directions.append(leading / leading[0])
    columns = {"measured": np.array(keys[0]) - np.array(keys[1]), "predicted": np.array(directions)}
    turned = xr.Dataset({"init": init, **{name: (("set", "component"), values) for name, values in columns.items()}})
    return turned.dropna("set")


def _first_key(run: xr.Dataset, vectors: np.ndarray, steps: np.ndarray) -> np.ndarray:
    passed = passage(run["time"].values, run["loss"].values, run["loss"].values[0] - BEGUN * (steps[0] - steps[1]))
    if passed is None:
        return np.full(DIM, np.nan)
    weights = weights_at(run, passed[1], passed[0])
    along = weights["key"][abs(weights["value"]).argmax()] @ vectors
    return along / along[0]


def extras(data: Data, settings: Settings) -> dict[str, Callable[[str], None]]:
    """The video; beside the GIF an MP4 where ffmpeg is."""
    written: dict[str, Callable[[str], None]] = {"gif": lambda path: save_gif(data, settings, path)}
    if shutil.which("ffmpeg"):
        written["mp4"] = lambda path: save_mp4(data, settings, path)
    return written


_OWN = Settings()
FIGURE = Figure(
    title="Separate keys and queries learn one principal component at a time: a staircase",
    caption=CAPTION,
    source="Fig 3",
    settings=_OWN,
    quick=Settings(
        seeds=tuple(range(300, 320)),
        sequences=None,
        record=20,
        flow_seeds=tuple(range(400, 405)),
        inits=(1e-4, 1e-5),
        turned=2,
        frames=12,
    ),
    described=describe,
    paper_settings={
        **published(_OWN),
        "initial weights": f"{published(_OWN)['initial weights']} (the rule is inferred from the drop times)",
        "seeds": "0 to 5, of PyTorch",
    },
    simulate=simulate,
    claims=claims,
    draw=draw,
    extras=extras,
)
