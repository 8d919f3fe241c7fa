"""The doors through which an experiment can be run, and what each says of it: weights, losses, times, heads, levels.

`Experiment.run`, `predict` and `compare` in this process are the reference. Every other door is a function from an
experiment and a folder to an `Answer`, or to None where the door is not for such an experiment (a sweep of a flow
recorded at the solver's own steps); `differences` compares two answers.
"""

import contextlib
import csv
import functools
import io
import json
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import xarray as xr

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.analysis import sample_task
from stepwell.cli import main
from stepwell.dynamics import named_optimizer, time_factor
from stepwell.experiments import Experiment, Keys
from stepwell.models import theory_of
from stepwell.objectives import Moments
from stepwell.store import Store, load_run, save_run
from stepwell.tasks import GivenExamples
from stepwell.theory import linear


class Answer(NamedTuple):
    """What a door says of an experiment; None is what it does not say."""

    weights: dict[str, np.ndarray] | None = None
    """The initial ones."""
    time: np.ndarray | None = None
    """The paper's, of each recorded loss."""
    step: np.ndarray | None = None
    loss: np.ndarray | None = None
    predicted: list[dict[str, Any]] | None = None
    """Of each drop: time, step, head and component."""
    measured: list[dict[str, Any]] | None = None
    """The same, as measured, and the level after it."""
    levels: list[float] | None = None
    thinned: bool = False
    """Whether losses may be those of some of the recorded points."""


Door = Callable[..., Answer | None]
Function = TypeVar("Function", bound=Door)
DOORS: dict[str, Door] = {}


def door(name: str) -> Callable[[Function], Function]:
    """Add a function to the doors."""

    def add(function: Function) -> Function:
        DOORS[name] = function
        return function

    return add


# ---- reading answers ----


def of_run(run: xr.Dataset, experiment: Experiment) -> Answer:
    """The answer of a trajectory."""
    axis = "step" if "step" in run.dims else "time"
    names = set(experiment.build().model.weights())
    points = {"snapshot", axis} & {dim for name in names for dim in run[name].dims}
    first = {name: run[name].isel({"run": 0, **dict.fromkeys(points, 0)}).values for name in names}
    answer = Answer(
        weights=first,
        time=run["time"].values if "time" in run.coords else None,
        step=run["step"].values if axis == "step" else None,
        loss=run["loss"].isel(run=0).values,
    )
    return answer if experiment.no_comparison() else with_drops(answer, run)


def with_drops(answer: Answer, run: xr.Dataset) -> Answer:
    """The answer with the drops of `run.stepwell.compare()`."""
    return with_table(answer, run.stepwell.compare().table)


def with_table(answer: Answer, table: Any) -> Answer:
    """The answer with the drops of a table of `compare`."""
    rows = json.loads(table.to_json(orient="records"))
    return answer._replace(
        predicted=[
            _row(row, "predicted", "predicted_step", "head", "component")
            for row in rows
            if row["predicted"] is not None
        ],
        measured=[
            _row(row, "measured", "measured_step", "measured_head", "measured_component", "measured_level")
            for row in rows
        ],
    )


def _row(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    names = ("time", "step", "head", "component", "level")
    return {name: row.get(column) for name, column in zip(names, columns, strict=False)}


def with_prediction(answer: Answer, document: dict[str, Any]) -> Answer:
    """The answer with what a document of `predict` says."""
    if "levels" not in document:
        return answer
    return answer._replace(levels=document["levels"], predicted=document["drops"])


def reference(experiment: Experiment) -> Answer:
    """What the experiment itself says."""
    answer = of_run(trained(experiment), experiment)
    own = experiment.predict().document
    if experiment.no_theory():
        return with_prediction(answer, own)
    if answer.predicted is not None:  # the table of a run and the prediction are one answer, too
        problems = _drops_differ("predicted", own["drops"], answer.predicted)
        assert not problems, problems
    return answer._replace(levels=own["levels"], predicted=own["drops"])


@functools.lru_cache(maxsize=1)
def trained(experiment: Experiment) -> xr.Dataset:
    """The trajectory of `Experiment.run`, once for all doors that begin with it."""
    return experiment.run(progress=False)


# ---- comparing answers ----


def differences(one: Answer, other: Answer, experiment: Experiment) -> list[str]:
    """What two answers say differently; what one of them does not say is left out."""
    flowing = experiment.training.kind == "flow"
    # Two descents agree to rounding, which steps may amplify; two solves of a flow to the solver's tolerance, and what
    # is wrong in small weights grows with them, to their inverse scale.
    amplified = max(200.0, 10.0 / experiment.model.get("scale", 1.0))
    tolerance = amplified * experiment.training.tolerance if flowing else 1e-8
    found = []
    if other.thinned:
        one = thinned(one, other)
    if one.weights is not None and other.weights is not None:
        for name, weight in one.weights.items():
            if name not in other.weights or not np.array_equal(weight, other.weights[name]):  # bit for bit
                found.append(f"the initial {name} differ")
    for name in ("time", "step"):
        first, second = getattr(one, name), getattr(other, name)
        if first is not None and second is not None and not _close(first, second, 1e-9):
            found.append(f"the {name}s of the losses differ: {first[-1]} and {second[-1]} at the end")
    if one.loss is not None and other.loss is not None and not _close(one.loss, other.loss, tolerance):
        found.append("the losses differ")
    if one.levels is not None and other.levels is not None and not _close(one.levels, other.levels, 1e-9):
        found.append(f"the levels differ: {one.levels} and {other.levels}")
    for name, close in (("predicted", 1e-9), ("measured", tolerance)):
        first, second = getattr(one, name), getattr(other, name)
        if first is not None and second is not None:
            found += _drops_differ(name, first, second, close)
    return found


def thinned(one: Answer, other: Answer) -> Answer:
    """The answer at those points alone that the other has."""
    name = "time" if other.step is None else "step"
    mine, wanted = getattr(one, name), getattr(other, name)
    if mine is None or wanted is None:
        return one
    places = np.abs(mine[:, None] - wanted).argmin(axis=0)
    chosen = {what: getattr(one, what)[places] for what in ("time", "step", "loss") if getattr(one, what) is not None}
    return one._replace(**chosen)


def _close(one: Any, other: Any, tolerance: float) -> bool:
    one, other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if one.shape != other.shape:
        return False
    return bool(np.allclose(one, other, rtol=tolerance, atol=1e-12 * np.abs(one).max(initial=0.0), equal_nan=True))


def _drops_differ(
    name: str, one: list[dict[str, Any]], other: list[dict[str, Any]], tolerance: float = 1e-9
) -> list[str]:
    if len(one) != len(other):
        return [f"there are {len(one)} and {len(other)} {name} drops"]
    found = []
    for number, (first, second) in enumerate(zip(one, other, strict=True), start=1):
        for what in ("head", "component"):
            if what in first and what in second and first[what] != second[what]:
                found.append(f"{name} drop {number} is of {what} {first[what]} and {second[what]}")
        for what in ("time", "step", "level"):
            if what not in first or what not in second:
                continue
            a, b = first[what], second[what]
            if (a is None) != (b is None) or (a is not None and not _close(a, b, max(tolerance, 1e-6))):
                found.append(f"{name} drop {number} is at {what} {a} and {b}")
    return found


# ---- doors in Python ----


def of_units_by_hand(experiment: Experiment, run: Any, task: Any, model: Any, answer: Answer) -> Answer:
    """With the levels of a network of units, and its drops beside theory, on the examples that are drawn if any are."""
    count = experiment.objective.get("examples")
    known = task if count is None else GivenExamples(task.examples(count, key=Keys(experiment.seed).train))
    if not experiment.no_comparison():
        answer = with_table(answer, sw.compare(run, known).table)
    try:
        drops = sw.analysis.unit_drops(known, model)
    except InvalidInput:
        return answer._replace(levels=[])
    return answer._replace(levels=[*(drop.level_before for drop in drops[:1]), *(drop.level_after for drop in drops)])


@door("objects by hand")
def by_hand(experiment: Experiment, folder: Path) -> Answer:
    """Task, model and objective as they are built, trained by `flow`, `descend` or `online`, and compared."""
    task, model, objective = experiment.build()
    training, record = experiment.training, experiment.record
    kept = sw.Record(points=record.points, spacing=record.spacing, snapshots=record.snapshots)
    factor = _factor(experiment, model)
    if training.kind == "flow":
        until: Any = training.until if training.until == "converged" else training.until / factor
        run = sw.flow(
            model,
            objective,
            until=until,
            record=sw.Record(points=record.points, spacing=record.spacing),
            rtol=training.tolerance,
            progress=False,
        )
    else:
        rule: dict[str, Any] = {"rate": training.rate}
        if (training.optimizer, training.schedule) != ("sgd", "constant"):
            given = {"rate": training.rate, "steps": training.steps, "model": model}
            rule = {"optimizer": named_optimizer(training.optimizer, training.schedule, **given).optimizer}
        rule |= {"steps": training.steps, "record": kept, "progress": False}
        if experiment.objective.kind == "online":
            run = sw.online(model, task, batch_size=objective.batch_size, key=Keys(experiment.seed).train, **rule)
        else:
            run = sw.descend(model, objective, **rule)
    answer = of_run_by_hand(run, model, factor)
    if experiment.no_theory():
        return answer
    if theory_of(type(model)) == "units":
        return of_units_by_hand(experiment, run, task, model, answer)
    theory, sample = task, None
    if experiment.objective.kind in ("moments", "sampled"):
        count, key = experiment.objective.sequences, Keys(experiment.seed).train
        sample = Moments.of_task(task, count, features="cubic", normalization="1/N", progress=False, key=key)
        with contextlib.suppress(InvalidInput):  # a sample that drives away from zero is predicted by its task
            theory = sample_task(task, sample, commuting=theory_of(type(model)) == "merged")
    if not experiment.no_comparison():
        answer = with_table(answer, sw.compare(run, task, sample=sample).table)
    losses, heads = linear.levels(theory), experiment.model.heads * experiment.model.get("rank", 1)
    predictor = linear.PREDICTORS[str(theory_of(type(model)))]
    return answer._replace(levels=losses[predictor.plateaus(int(np.sum(np.diff(losses) < 0)), heads)].tolist())


def of_run_by_hand(run: xr.Dataset, model: Any, factor: float) -> Answer:
    """The answer of a trajectory of objects, whose times are those of the weights as they are trained."""
    return Answer(
        weights={name: np.asarray(weight) for name, weight in model.weights().items()},
        time=run["time"].values * factor if "time" in run.coords else None,
        step=run["step"].values if "step" in run.dims else None,
        loss=run["loss"].isel(run=0).values,
    )


def _factor(experiment: Experiment, model: Any) -> float:
    """The paper's time for a unit of time of the weights as they are trained."""
    context = experiment.task.get("context")
    if theory_of(type(model)) is None or not isinstance(context, int):
        return 1.0
    if experiment.model.get("activation", "linear") != "linear":
        return 1.0
    return time_factor(experiment.model.normalization, "1/N", length=context, factors=model.factors)


@door("TOML")
def toml(experiment: Experiment, folder: Path) -> Answer:
    """The experiment written as TOML and read again."""
    path = folder / "experiment.toml"
    path.write_text(experiment.to_toml(), encoding="utf-8")
    again = Experiment.read(path)
    return _trained(again)


def _trained(experiment: Experiment) -> Answer:
    answer = of_run(experiment.run(progress=False), experiment)
    return with_prediction(answer, experiment.predict().document)


# ---- doors of the terminal ----


def command(*words: str, process: bool = False) -> tuple[int, str]:
    """The exit status of a command of the terminal, and what it printed: called here, or as a process of its own."""
    if process:
        program = [sys.executable, "-m", "stepwell", *words]
        done = subprocess.run(program, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        status = main(list(words))
    return status, printed.getvalue()


def _written(experiment: Experiment, folder: Path, *lines: str) -> str:
    path = folder / f"{experiment.name[:8]}.toml"
    path.write_text("\n".join([experiment.to_toml(), *lines]), encoding="utf-8")
    return str(path)


@door("train FILE")
def train(experiment: Experiment, folder: Path, *, process: bool = False) -> Answer:
    """`stepwell train` of a file: its netCDF file, its text and its JSON document, and the store that it fills."""
    words = ["train", _written(experiment, folder), "--json", "--theory", "--out", str(folder / "out")]
    status, printed = command(*words, "--store", str(folder / "store"), process=process)
    assert status == 0, status
    return _of_document(json.loads(printed), experiment)


@door("flags")
def flags(experiment: Experiment, folder: Path) -> Answer:
    """The same by flags alone, as `command` writes them: what `train` would train, and what `predict` says."""
    words = experiment.command()[2:]
    status, printed = command("train", *words, "--dry-run")
    (folder / "dry.toml").write_text(printed, encoding="utf-8")
    assert status == 0 and Experiment.read(folder / "dry.toml") == experiment
    status, printed = command("predict", *words, "--json")
    return with_prediction(Answer(), json.loads(printed))


@door("rerun")
def rerun(experiment: Experiment, folder: Path) -> Answer:
    """The file that `train` wrote, run again."""
    path = next((folder / "out").glob("*.nc"), None) or sw.save(trained(experiment), folder / "saved.nc")
    again = sw.rerun(path, progress=False)
    assert Experiment.of(again) == experiment
    return of_run(again, experiment)


def _of_document(document: dict[str, Any], experiment: Experiment) -> Answer:
    """What the JSON document of `train` says, and the files that it names."""
    assert document["name"] == experiment.name and Experiment(**document["experiment"]) == experiment
    answer = of_run(sw.load(document["files"]["trajectory"]), experiment)
    text = np.loadtxt(document["files"]["train"] if "train" in document["files"] else document["files"]["losses"])
    assert np.array_equal(text[:, -1], np.asarray(answer.loss)), "the text file has other losses"
    if answer.time is not None:
        column = 1 if answer.step is not None else 0
        assert np.allclose(text[:, column], answer.time, rtol=1e-12), "the text file has other times"
    assert document["final_loss"]["train"] == np.asarray(answer.loss)[-1]
    if document["levels"]:
        answer = answer._replace(levels=document["levels"])
    if document["drops"] is not None:
        import pandas as pd

        answer = with_table(answer, pd.DataFrame(document["drops"]))
    if document["predicted_drops"]:
        problems = _drops_differ(
            "predicted", answer.predicted or document["predicted_drops"], document["predicted_drops"]
        )
        assert not problems, problems
    return answer


@door("predict FILE")
def predict(experiment: Experiment, folder: Path, *, process: bool = False) -> Answer:
    """`stepwell predict` of a file: its JSON document."""
    status, printed = command("predict", _written(experiment, folder), "--json", process=process)
    document = json.loads(printed)
    several = experiment.task.kind == "multitask" and experiment.model.kind == "spectral"
    linear_network = experiment.objective.kind == "features" and experiment.model.degree == 1
    assert status == (1 if experiment.no_theory() and not (several or linear_network) else 0), status
    assert document["name"] == experiment.name and Experiment(**document["experiment"]) == experiment
    if several:
        own = json.loads(json.dumps(experiment.predict().document))
        assert {name: document[name] for name in own} == own
    return with_prediction(Answer(), document)


# ---- doors of the store ----


@door("store")
def stored(experiment: Experiment, folder: Path) -> Answer:
    """The run in a store, after it is opened again."""
    save_run(Store(folder / "single"), trained(experiment))
    run = load_run(Store(folder / "single"), experiment)
    assert run is not None
    return of_run(run, experiment)


@door("sweep")
def swept(experiment: Experiment, folder: Path) -> Answer | None:
    """A study of two seeds from a file, and what its store has of the first after it is opened again."""
    if experiment.record.spacing == "steps":
        return None  # many runs are recorded at the same times
    record = {name: experiment.record[name] for name in ("points", "spacing", "snapshots")}
    whole = experiment.replace(record=record)
    assert whole == experiment
    other = (experiment.seed + 1) % 2**32
    study = _written(whole, folder, "", "[sweep]", f"seed = [{other}, {experiment.seed}]")
    status, _ = command("sweep", study, "--store", str(folder / "swept"), "--json")
    assert status == 0, status
    store = Store(folder / "swept")
    assert store.experiment(experiment.name) == experiment
    kept = store.select([f"name={experiment.name}"])
    names = set(experiment.build().model.weights())
    points = {"snapshot", "step", "time", "point"} & {dim for name in names for dim in kept[name].dims}
    return Answer(
        weights={name: kept[name].isel({"run": 0, **dict.fromkeys(points, 0)}).values for name in names},
        # Runs that end when they have converged have times of their own.
        time=np.atleast_2d(kept["time"].values)[0] if "time" in kept.variables else None,
        step=kept["step"].values if "step" in kept.dims else None,
        loss=kept["loss"].isel(run=0).values,
    )


# ---- doors of the page ----


def _state(experiment: Experiment) -> Any:
    """The state of the page, from the words of an address where the page's own bounds allow them."""
    from stepwell.explorer._state import State

    words = {name: _word(value) for name, value in experiment.canonical().items() if name != "numerics"}
    state, problems = State.read(words)
    return State("explore", {}, experiment) if problems or state.run != experiment else state


def _word(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_word, value))
    return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else repr(value)


def _file(experiment: Experiment, folder: Path, kind: str) -> Path:
    """A file that the page offers."""
    from stepwell.explorer._downloads import download

    name, _, content = download([_state(experiment)], kind)
    (folder / "page").mkdir(exist_ok=True)
    path = folder / "page" / name
    path.write_bytes(content)
    return path


@door("page: view and CSV")
def page_csv(experiment: Experiment, folder: Path) -> Answer:
    """What the page shows, and the rows of the CSV file."""
    from stepwell.explorer._view import kept_view

    shown = kept_view(_state(experiment))
    with _file(experiment, folder, "csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["quantity"] == "loss"]
    loss = np.array([float(row["value"]) for row in rows])
    assert np.array_equal(loss, np.asarray(shown["loss"])), "the CSV file has other losses than the page"
    timed, stepped = rows[0]["time_t_over_tau"] != "", rows[0]["step"] != ""
    answer = Answer(
        time=np.array([float(row["time_t_over_tau"]) for row in rows]) if timed else None,
        step=np.array([int(row["step"]) for row in rows]) if stepped else None,
        loss=loss,
        thinned=True,  # where weights are recorded more rarely than losses, the page shows these points
    )
    if not shown.get("table", {}).get("rows"):  # of a model without maps, or weights at few points, a curve is shown
        return answer
    drops = [dict(zip(shown["table"]["columns"], row, strict=True)) for row in shown["table"]["rows"]]
    predicted = [_row(drop, "t/τ", "step", "head", "component") for drop in drops if drop.get("t/τ") is not None]
    # Of heads that were measured nothing is said here: the page may see weights at more points than a run records.
    names = {"time": "measured t/τ", "step": "measured step", "level": "measured level"}
    measured = [{name: drop.get(column) for name, column in names.items()} for drop in drops]
    return answer._replace(predicted=predicted, measured=measured, levels=[float(level) for level in shown["levels"]])


@door("page: netCDF")
def page_netcdf(experiment: Experiment, folder: Path) -> Answer:
    """The netCDF file that the page offers."""
    run = sw.load(_file(experiment, folder, "netcdf"))
    assert Experiment.of(run) == experiment
    return of_run(run, experiment)


@door("page: script")
def page_script(experiment: Experiment, folder: Path, *, process: bool = False) -> Answer:
    """The script that the page offers, executed."""
    path = _file(experiment, folder, "script")
    if process:
        done = subprocess.run([sys.executable, path.name], cwd=path.parent, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        printed = done.stdout
        answer = Answer()
    else:
        stream = io.StringIO()
        with contextlib.chdir(path.parent), contextlib.redirect_stdout(stream):
            made = runpy.run_path(str(path))
        printed = stream.getvalue()
        assert made["experiment"] == experiment
        answer = of_run(made["run"], experiment)
    final = float(printed.split("final loss ")[1].split()[0])
    expected = float(trained(experiment)["loss"][0, -1])
    assert _close(final, expected, 200 * experiment.training.get("tolerance", 1e-10)), (final, expected)
    return answer


@door("page: command")
def page_command(experiment: Experiment, folder: Path, *, process: bool = False) -> Answer:
    """The command that the page offers, executed."""
    program, *words = shlex.split(_file(experiment, folder, "command").read_text(encoding="utf-8"))
    assert program == "stepwell"
    output = ["--json", "--theory", "--out", str(folder / "commanded"), "--store", str(folder / "commanded-store")]
    status, printed = command(*words, *output, process=process)
    assert status == 0, status
    return _of_document(json.loads(printed), experiment)


@contextlib.contextmanager
def undrawn() -> Iterator[None]:
    """Figures are made and not rendered, which is most of the time that small runs take."""
    from matplotlib.figure import Figure

    save = Figure.savefig
    Figure.savefig = lambda self, file, *given, **options: None  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        Figure.savefig = save


# ---- ten experiments ----

_PLAIN = {"points": 401, "spacing": "linear"}
TEN: dict[str, Experiment] = {
    "separate, flow": Experiment(
        task={"dim": 3, "context": 31}, model={"scale": 0.02}, training={"until": 400.0}, seed=1
    ),
    "separate, unnormalized": Experiment(
        task={"dim": 2, "context": 31},
        model={"scale": 0.02, "normalization": "none"},
        training={"kind": "descent", "rate": 0.005, "until": 150.0},
        record=_PLAIN,
        seed=2,
    ),
    "merged, flow": Experiment(
        task={"eigenvalues": [0.6, 0.4], "noise": 0.1},
        model={"kind": "merged", "heads": 4, "scale": 0.01},
        training={"until": 60.0},
        record={"spacing": "log"},
        seed=3,
    ),
    "rank 2, a finite sample": Experiment(
        task={"dim": 2, "context": 15},
        model={"rank": 2, "heads": 2, "scale": 0.05},
        objective={"kind": "moments", "sequences": 300},
        training={"rate": 0.05, "steps": 1200},
        record=_PLAIN,
        seed=4,
    ),
    "lengths that vary": Experiment(
        task={"dim": 2, "context": [7, 15, 31]},
        model={"scale": 0.05},
        training={"until": 120.0},
        record={"spacing": "log"},
        seed=5,
    ),
    "mlp": Experiment(
        task={"dim": 2},
        model={"kind": "mlp", "heads": 4, "scale": 0.05},
        training={"until": 60.0},
        record={"spacing": "log"},
        seed=6,
    ),
    "softmax": Experiment(
        task={"dim": 2, "context": 15},
        model={"heads": 2, "activation": "softmax", "scale": 0.2},
        objective={"sequences": 200},
        training={"rate": 0.05, "steps": 400},
        record=_PLAIN,
        seed=7,
    ),
    "mixture, Adam": Experiment(
        task={"kind": "mixture", "dim": 2, "in_context": 0.7},
        model={"kind": "merged", "heads": 2, "scale": 0.05},
        objective={"sequences": 300},
        training={"optimizer": "adam", "schedule": "cosine", "rate": 0.01, "steps": 300},
        record={"points": 101},
        seed=8,
    ),
    "online": Experiment(
        task={"dim": 2, "context": 15},
        model={"scale": 0.1},
        objective={"kind": "online", "batch_size": 512},
        training={"rate": 0.05, "steps": 800},
        record=_PLAIN,
        seed=9,
    ),
    "several regressions": Experiment(
        task={"kind": "multitask", "dims": [4, 10], "strengths": [2.0, 0.6], "context": 50, "noise": 0.3},
        model={"scale": 0.01},
        record={"spacing": "log"},
        seed=10,
    ),
}
"""Experiments of several kinds, most of them long enough to have their drops."""
