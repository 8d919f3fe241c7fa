"""`stepwell train`: one experiment, from its description to its files, its report and what the theory says of it."""

import argparse
import json
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell._util.errors import InvalidInput
from stepwell._util.interrupt import Interruptible, exit_status
from stepwell._util.outcomes import DONE
from stepwell._util.parser import Parser
from stepwell.experiments import Experiment, add_experiment_flags, experiment_from, seeds_of

from ._flags import add_store_flag, chosen_store, renamed

if TYPE_CHECKING:
    from pathlib import Path

    import xarray as xr

    from stepwell.analysis import Comparison
    from stepwell.experiments import Course, Prediction
    from stepwell.store import Store

    from ._names import AnyNames


class Job(NamedTuple):
    """What is trained, how its files are named, and which program says so."""

    experiment: Experiment
    seeds: list[int] | None
    names: "AnyNames"
    program: str

    def say(self, line: str) -> None:
        print(f"{self.program}: {line}", file=sys.stderr, flush=True)


def configure(parser: Parser) -> None:
    """The flags of an experiment, and those of the output."""
    parser.description = (
        "Train one experiment: a file, flags that replace what it says, or flags alone. Leaves a netCDF trajectory, "
        "the losses as text and a plot with the theory's levels, all named by model, seed and eight digits that no "
        "other experiment has. Ctrl-C, SIGTERM or SIGHUP end the training, and what was trained is saved; Ctrl-C three "
        "times within a second gives up what remains after that. Exit status: 0 done, 1 diverged, 2 bad usage or a "
        "file that cannot be written, 128 and the number of the signal (130 for Ctrl-C)."
    )
    add_experiment_flags(parser, seeds=True)
    parser.renamed = renamed()
    output = parser.add_argument_group("output")
    output.add_argument("--show", action="store_true", help="show the plot in a window")
    add_output_flags(output)


def run(arguments: argparse.Namespace) -> int:
    """Read the experiment, train it, write the files and print the report; return the exit status."""
    experiment = experiment_from(arguments)
    seeds = None
    if "seeds" in arguments:
        listed = seeds_of(arguments.seeds, experiment.seed)
        experiment, seeds = experiment.replace(seed=listed[0]), listed if len(listed) > 1 else None
    if arguments.dry_run:
        return print_experiment(experiment, seeds)

    from ._names import Names

    job = Job(experiment, seeds, Names(experiment, seeds), "stepwell train")
    for line in experiment.remarks():
        job.say(line)
    if experiment.record.given.get("measure"):
        job.say("measure is for sweeps; it has no effect here but on the name of the run")
    return train_to_files(job, arguments)


def add_output_flags(group: Any) -> None:
    """Declare the flags of what a run leaves behind."""
    group.add_argument("--out", metavar="DIR", default=".", help="folder for the files")
    text = "of the plot; a gif shows the loss and the effective map moving (default: png)"
    group.add_argument(
        "--format", nargs="+", choices=("png", "pdf", "svg", "gif"), default=argparse.SUPPRESS, help=text
    )
    add_store_flag(group, "runs")
    group.add_argument("--fresh", action="store_true", help="train again what the store has already")
    group.add_argument("--overwrite", action="store_true", help="replace another run's files of the same name")
    group.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    group.add_argument("--theory", action="store_true", help="draw the prediction from the initial weights")
    group.add_argument("--resume", action="store_true", help="resume a previous run, or continue it to more steps")
    group.add_argument(
        "--dry-run", action="store_true", help="check the experiment, print it as a TOML file, and train nothing"
    )


def print_experiment(experiment: Experiment, seeds: list[int] | None) -> int:
    """Print what `--dry-run` prints, if the run can be made."""
    experiment.check(seeds)
    if seeds is not None:
        print(f"# --seeds {' '.join(map(str, seeds))}")
    print(experiment.to_toml(), end="")
    return 0


def train_to_files(job: Job, arguments: argparse.Namespace) -> int:
    """Train, write the files and print the report; return the exit status."""
    begun = time.monotonic()
    experiment, seeds = job.experiment, job.seeds

    from stepwell._util.files import writable_folder

    experiment.check_memory(len(seeds or (0,)))
    folder = writable_folder(arguments.out)

    from stepwell.dynamics import Checkpoint

    from ._names import find_previous, run_name, stored_run
    from ._training_files import write_trajectory

    stream = sys.stderr if arguments.json else sys.stdout
    previous = find_previous(folder, job.names, experiment, seeds) if arguments.resume else None
    stored = None if previous is None else stored_run(previous)
    complete = None
    if stored is not None and stored.attrs["outcome"] in DONE and Experiment.of(stored) == experiment:
        complete = stored
    store = chosen_store(arguments)
    if complete is None and store is not None and not (arguments.fresh or arguments.resume):
        complete = _kept(job, store)
    place, remark = job.names.place(folder, previous, overwrite=arguments.overwrite)
    if remark:
        job.say(remark)
    checkpoint = Checkpoint(folder / f".{run_name(experiment, seeds)}.checkpoint", arguments.resume)
    if arguments.resume:
        print(_resuming(previous or place.trajectory, stored, complete is not None, checkpoint.file), file=stream)
    elif checkpoint.file.exists():
        job.say(f"an unfinished run left the checkpoint {checkpoint.file}; give --resume to continue it")

    # From here on a signal ends the training, and what was trained is brought to safety before anything else.
    with Interruptible(holding=True) as signals:
        run = complete
        if run is None:
            options: Any = {"seeds": seeds, "checkpoint": checkpoint, "throw": False}
            run = experiment.run(**options) if stored is None else experiment.resume(stored, **options)
        recorded = run.sizes[run["loss"].dims[-1]]
        if recorded == 0 and run.attrs["outcome"] == "interrupted":
            raise KeyboardInterrupt
        if recorded == 0:
            job.say(f"{run.attrs['message']}; there is nothing to keep")
            checkpoint.file.unlink(missing_ok=True)
            return 1
        place, later = write_trajectory(folder, job.names, run, previous, overwrite=arguments.overwrite)
        if later and later != remark:
            job.say(later)
        if run.attrs["outcome"] != "interrupted":
            checkpoint.file.unlink(missing_ok=True)
        if complete is None and store is not None and run.attrs["outcome"] in DONE:
            _keep(job, store, run, fresh=arguments.fresh)
        files = {"trajectory": place.trajectory}
        try:
            signals.release()
            made = _write_rest(job, arguments, run, place, files)
        except KeyboardInterrupt:
            job.say(f"given up after {' and '.join(files)}; the whole run is in {place.trajectory}")
            return exit_status()
        ended = signals.pressed
    report = _report(job, run, made, files, time.monotonic() - begun)
    print(json.dumps(report) if arguments.json else _summary(experiment, report, made.comparison))
    status = _status(job, run) if complete is None else 0
    if ended or status > 128:
        return exit_status()
    if arguments.show:
        _show(job, run, made, files.get("plot", files.get("animation")), stream)
    return status


class _Theory(NamedTuple):
    """What the theory says beside a run; all but the levels if it is asked for."""

    prediction: "Prediction"
    asked: bool = False
    course: "Course | None" = None
    comparison: "Comparison | None" = None
    others: "tuple[Prediction, ...]" = ()
    """Those of the other seeds, if they are asked for and not in the comparison."""


def _write_rest(
    job: Job, arguments: argparse.Namespace, run: "xr.Dataset", place: Any, files: "dict[str, Path]"
) -> _Theory:
    """Write tables and plots, and note their paths in `files`; return what theory says."""
    from ._training_files import write_animation, write_plot, write_tables

    files |= write_tables(place, job.names, run)
    theory = _Theory(job.experiment.predict())
    if arguments.theory:
        theory = _with_theory(job, run, theory._replace(asked=True))
    for ending in dict.fromkeys(getattr(arguments, "format", ["png"])):
        kind = "animation" if ending == "gif" else "plot"
        kind = kind if kind not in files else ending
        if ending == "gif":
            attention = job.experiment.theory != "units" and not job.experiment.no_theory()
            task = job.experiment.build_task() if attention else None
            files[kind] = write_animation(place, run, task)
        else:
            files[kind] = write_plot(place, ending, job.experiment, run, theory.prediction.levels, theory.course)
    return theory


def _with_theory(job: Job, run: "xr.Dataset", theory: _Theory) -> _Theory:
    from stepwell.experiments import compare_run

    points = run.sizes[run["loss"].dims[-1]]
    compared = "time" in run.coords and points > 1 and not job.experiment.no_comparison()
    if not compared and job.seeds is not None:
        theory = theory._replace(others=tuple(job.experiment.replace(seed=seed).predict() for seed in job.seeds[1:]))
    if "time" not in run.coords:
        job.say("--theory: times are predicted for gradient descent at a constant rate, and not for other optimizers")
        return theory
    course, reason = theory.prediction.course(float(run["time"].values.ravel()[-1]))
    if reason and not compared:  # a comparison says it itself
        job.say(f"--theory: {reason}")
    for other in theory.others:
        if other.reason and other.reason not in reason:
            job.say(f"--theory: seed {other.experiment.seed}: {other.reason}")
    return theory._replace(course=course, comparison=compare_run(run) if compared else None)


def _kept(job: Job, store: "Store") -> "xr.Dataset | None":
    """The run, if the store has it. A store that cannot be read is no reason not to train."""
    from stepwell.store import load_run

    try:
        stored = load_run(store, job.experiment, job.seeds)
    except (InvalidInput, OSError) as error:
        job.say(f"the store {store.path} cannot be read ({error}); training")
        return None
    if stored is not None:
        job.say(f"the store {store.path} has this run, which is not trained again; --fresh does")
    return stored


def _keep(job: Job, store: "Store", run: "xr.Dataset", *, fresh: bool) -> None:
    """Put the run into the store; it has its own file already, so that a store which fails loses nothing."""
    from stepwell.store import save_run

    try:
        save_run(store, run, fresh=fresh)
    except (InvalidInput, OSError) as error:
        reason = error if isinstance(error, InvalidInput) else error.strerror or error
        job.say(f"the run is not in the store {store.path} ({reason}); its file is complete")


def _resuming(path: "Path", stored: "xr.Dataset | None", complete: bool, checkpoint: "Path") -> str:
    if complete:
        return f"{path} is complete"
    if checkpoint.exists():
        return f"resuming from the checkpoint {checkpoint}"
    if stored is None:
        return f"there is no {path}: starting from the beginning"
    from ._names import last_step

    return f"resuming from step {last_step(stored)} of {path}"


def _status(job: Job, run: "xr.Dataset") -> int:
    """The exit status, with a line where the run did not come to its end."""
    outcome, message = run.attrs["outcome"], run.attrs["message"]
    if outcome in DONE:
        return 0
    job.say(f"{message}; to resume it, give the same command with --resume" if outcome == "interrupted" else message)
    return exit_status() if outcome == "interrupted" else 1


def _report(job: Job, run: "xr.Dataset", theory: _Theory, files: "dict[str, Path]", seconds: float) -> dict[str, Any]:
    """The run as one JSON document."""
    tests = ("in_weight_test", "in_context_test")
    curves = {"train": "loss", **{name: f"{name}_loss" for name in tests}}
    present = {name: run[curve].values.mean(axis=0) for name, curve in curves.items() if curve in run}
    timed, compared = "time" in run.coords, theory.comparison
    several = {"seeds": job.seeds, "final_losses": [_number(loss) for loss in run["loss"].values[:, -1]]}
    return {
        "experiment": job.experiment.to_dict(),
        "name": job.experiment.name,
        **({} if job.seeds is None else several),
        "outcome": run.attrs["outcome"],
        "message": run.attrs["message"],
        "steps": int(run["step"][-1]) if "step" in run.dims else None,
        "time": _number(run["time"].values.ravel()[-1]) if timed else None,
        "time_unit": run["time"].attrs["units"] if timed else None,
        "first_loss": {name: _number(values[0]) for name, values in present.items()},
        "final_loss": {name: _number(values[-1]) for name, values in present.items()},
        **_predicted_of(job.seeds, theory),
        "drops": None if compared is None else compared.records(),
        "remarks": [] if compared is None else list(compared.remarks),
        "files": {kind: str(path) for kind, path in files.items()},
        "seconds": round(seconds, 3),
    }


def _predicted_of(seeds: list[int] | None, theory: _Theory) -> dict[str, Any]:
    if seeds is None:
        return _predicted(theory.prediction, theory.asked)
    return {"predictions": _predictions(seeds, theory)}


def _predicted(prediction: "Prediction", asked: bool) -> dict[str, Any]:
    return {
        "levels": [level.loss for level in prediction.levels],
        "learned": [level.learned for level in prediction.levels],
        "predicted_drops": prediction.document.get("drops") if asked else None,
    }


def _predictions(seeds: list[int], theory: _Theory) -> list[dict[str, Any]]:
    """What is predicted of each seed; of the first alone, its levels, if the theory is not asked for."""
    if theory.comparison is None:
        each = (theory.prediction, *theory.others)
        return [{"seed": one.experiment.seed, **_predicted(one, theory.asked)} for one in each]
    return [
        {
            "seed": seed,
            "levels": run.levels.tolist(),
            "learned": run.learned,
            "predicted_drops": [
                {
                    "time": drop.predicted,
                    "uncertainty": _number(drop.uncertainty),
                    "step": _number(drop.predicted_step),
                    "head": drop.head,
                    "component": drop.component,
                }
                for drop in run.drops
                if math.isfinite(drop.predicted)
            ],
        }
        for seed, run in zip(seeds, theory.comparison.runs, strict=True)
    ]


def _number(value: Any) -> float | None:
    """A number that JSON can hold."""
    return float(value) if math.isfinite(value) else None


def _summary(experiment: Experiment, report: dict[str, Any], compared: "Comparison | None") -> str:
    from ._training_files import title

    first, last = report["first_loss"], report["final_loss"]
    sequences = experiment.objective.get("sequences")
    data = f" on {sequences} sequences" if sequences else ""
    seeds = f", {len(report['seeds'])} seeds (mean losses)" if "seeds" in report else f", seed {experiment.seed}"
    lines = [f"{title(experiment)}{data}{seeds}"]
    for name in last:
        ends = " to ".join("not finite" if value is None else f"{value:.6g}" for value in (first[name], last[name]))
        lines.append(f"{name.replace('_', ' ')} loss: {ends}")
    steps = "" if report["steps"] is None else f"{report['steps']} steps, "
    at = "" if report["time"] is None else f"to t/τ = {report['time']:.6g}, "
    lines.append(f"{experiment.training.kind}, {steps}{at}{report['outcome']} in {report['seconds']:.1f} s")
    if compared is not None:
        lines += compared.lines("seed" if "seeds" in report else "")
    else:
        for one in report.get("predictions", [report]):
            times = ", ".join(f"{drop['time']:.6g}" for drop in one["predicted_drops"] or [])
            of = f"seed {one['seed']}: " if "seed" in one else ""
            lines += [f"{of}predicted drops at t/τ = {times}"] if times else []
    lines += [f"{kind}: {path}" for kind, path in report["files"].items()]
    return "\n".join(lines)


def _show(job: Job, run: "xr.Dataset", theory: _Theory, plot: "Path | None", stream: Any) -> None:
    """Show the plot in a window where there is a screen; else print on `stream` where the plot is."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        import matplotlib
        from matplotlib import pyplot

        from ._training_files import draw

        figure = pyplot.figure()
        if matplotlib.get_backend().lower() != "agg":
            draw(figure, job.experiment, run, theory.prediction.levels, theory.course)
            pyplot.show()
            return
        pyplot.close(figure)
    print(f"there is no screen to show the plot on; it is in {plot}", file=stream)
