"""`stepwell train`: the published script's training run, and what the theory says about it."""

import argparse
import dataclasses
import json
import math
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from stepwell._errors import InvalidInput
from stepwell._interrupt import Interruptible, exit_status
from stepwell._parser import Parser
from stepwell._task_file import as_toml
from stepwell.published import (
    add_train_flags,
    check,
    infinite,
    keep_abbreviations,
    run_of,
    tables_of,
    warnings,
)

from ._store import add_store_flag, chosen_store

if TYPE_CHECKING:
    from pathlib import Path

    import xarray as xr

    from stepwell.published.training import Course, Levels, Setup
    from stepwell.runs import Store

_FORMATS = ("png", "pdf", "svg", "gif")


def configure(parser: Parser) -> None:
    """The published flags, with their abbreviations, and our own."""
    parser.description = (
        "Train one model as the published script does, or many, on another task, with another optimiser. Leaves a loss "
        "file with the published name, a netCDF trajectory and a plot with the theory's levels. The name leaves out "
        "most flags: where another run has it already, this one gets eight digits of its own behind it, and so does "
        "every run that the published script could not make. Ctrl-C, SIGTERM or SIGHUP end the training, "
        "and what was trained is saved; Ctrl-C three times within a second gives up what remains after that. "
        "Exit status: 0 done, 1 diverged, 2 bad usage or a file that cannot be written, 128 and the number of the "
        "signal (130 for Ctrl-C)."
    )
    published = add_train_flags(parser)
    _add_output_flags(parser)
    keep_abbreviations(parser, published)


def _add_output_flags(parser: Parser) -> None:
    absent: Any = {"default": argparse.SUPPRESS}
    output = parser.add_argument_group("output, beyond the published script")
    output.add_argument("--out", metavar="DIR", default=".", help="folder for the files")
    output.add_argument(
        "--format",
        nargs="+",
        choices=_FORMATS,
        **absent,
        help="of the plot; a gif shows the loss and the effective map moving (default: png)",
    )
    add_store_flag(output, "runs")
    output.add_argument("--fresh", action="store_true", help="train again what the store has already")
    output.add_argument("--overwrite", action="store_true", help="replace another run's files of the same name")
    output.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    output.add_argument("--theory", action="store_true", help="draw the prediction from the initial weights")
    output.add_argument("--resume", action="store_true", help="resume a previous run with the same flags")
    output.add_argument(
        "--dry-run", action="store_true", help="print the run as a TOML file for --task, and train nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the flags, train, write the files and print the report; returns the exit status."""
    begun = time.monotonic()
    described = run_of(arguments)
    flags, beyond, engine, until = described
    for warning in warnings(flags):
        _say(warning)
    if arguments.dry_run:
        print(as_toml(tables_of(described)), end="")
        return 0

    from stepwell._files import writable_folder

    folder = writable_folder(arguments.out)

    from stepwell.published import training

    stream = sys.stderr if arguments.json else sys.stdout
    setup = training.set_up(flags, engine, beyond)
    if until is not None:
        setup = _lasting(setup, until)
        flags = setup.flags
        check(flags, engine, len(beyond.seeds or (0,)))
    previous = training.find_stored(folder, setup) if arguments.resume else None
    stored = None if previous is None else training.stored_run(setup, previous)
    complete = stored if stored is not None and training.last_step(stored) >= flags.epoch else None
    if complete is not None:
        setup = setup._replace(flags=dataclasses.replace(flags, epoch=_flags_of(complete)["epoch"]))
    store = chosen_store(arguments)
    if complete is None and store is not None and not (arguments.fresh or arguments.resume):
        complete = _kept(store, setup)
    place, remark = training.choose_place(folder, setup, previous, overwrite=arguments.overwrite)
    if remark:
        _say(remark)
    checkpoint = training.checkpoint_of(setup, folder, resume=arguments.resume)
    if arguments.resume:
        last = None if stored is None else training.last_step(stored)
        print(_resuming(previous or place.trajectory, last, flags.epoch, checkpoint.file), file=stream)
    elif checkpoint.file.exists():
        _say(f"an unfinished run left the checkpoint {checkpoint.file}; give --resume to continue it")

    # From here on a signal ends the training, and what was trained is brought to safety before anything else.
    with Interruptible(holding=True) as signals:
        trajectory = training.train(setup, stored, checkpoint) if complete is None else complete
        if trajectory.sizes["step"] == 0 and trajectory.attrs["outcome"] == "interrupted":
            raise KeyboardInterrupt
        if trajectory.sizes["step"] == 0:
            _say(f"{trajectory.attrs['message']}; there is nothing to keep")
            checkpoint.file.unlink(missing_ok=True)
            return 1
        place, later = training.write_trajectory(folder, setup, trajectory, previous, overwrite=arguments.overwrite)
        if later and later != remark:
            _say(later)
        if trajectory.attrs["outcome"] != "interrupted":
            checkpoint.file.unlink(missing_ok=True)
        if complete is None and store is not None and trajectory.attrs["outcome"] == "finished":
            _keep(store, setup, trajectory, fresh=arguments.fresh)
        files = {"trajectory": place.trajectory}
        try:
            signals.release()
            files |= training.write_tables(place, setup, trajectory)
            levels, course, remark, table = training.levels_of(setup), None, "", None
            if arguments.theory:
                course, remark = training.course_of(setup, int(trajectory["step"][-1]))
                table = training.comparison_of(setup, trajectory)
            if remark:
                _say(remark)
            for ending in dict.fromkeys(getattr(arguments, "format", ["png"])):
                kind = "film" if ending == "gif" else "plot"
                kind = kind if kind not in files else ending
                if ending == "gif":
                    linear = levels is not None and not setup.beyond.several
                    task = setup.members[0].task if linear else None
                    files[kind] = _write_film(place.plot(ending), trajectory, task)
                else:
                    files[kind] = training.write_plot(place, setup, trajectory, levels, course, ending)
        except KeyboardInterrupt:
            _say(f"given up after {' and '.join(files)}; the whole run is in {place.trajectory}")
            return exit_status()
        ended = signals.pressed
    report = _report(setup, trajectory, levels, course, files, time.monotonic() - begun)
    report["drops"] = None if table is None else json.loads(str(table.to_json(orient="records")))
    report["remarks"] = [] if table is None else table.attrs["remarks"]
    print(json.dumps(report) if arguments.json else _summary(report))
    status = _status(trajectory) if complete is None else 0
    if ended or status > 128:
        return exit_status()
    if arguments.show:
        _show(setup, trajectory, levels, course, files.get("plot", files.get("film")), stream)
    return status


def _kept(store: "Store", setup: "Setup") -> "xr.Dataset | None":
    """The run, if the store has it. A store that cannot be read is no reason not to train."""
    from stepwell.runs import load_run

    try:
        stored = load_run(store, setup)
    except (InvalidInput, OSError) as error:
        _say(f"the store {store.path} cannot be read ({error}); training")
        return None
    if stored is not None:
        _say(f"the store {store.path} has this run, which is not trained again; --fresh does")
    return stored


def _keep(store: "Store", setup: "Setup", trajectory: "xr.Dataset", *, fresh: bool) -> None:
    """Put the run into the store; it has its own file already, so that a store which fails loses nothing."""
    from stepwell.runs import save_run

    try:
        save_run(store, setup, trajectory, fresh=fresh)
    except (InvalidInput, OSError) as error:
        reason = error if isinstance(error, InvalidInput) else error.strerror or error
        _say(f"the run is not in the store {store.path} ({reason}); its file is complete")


def _write_film(path: "Path", trajectory: "xr.Dataset", task: Any) -> "Path":
    """A film of the first run; where there is a theory of the task, with its levels and in its eigenvectors."""
    import tempfile

    from stepwell._files import write_bytes
    from stepwell.plots import animate

    with tempfile.TemporaryDirectory() as folder:
        film = f"{folder}/film.gif"
        animate(trajectory, task).save(film, writer="pillow")
        with open(film, "rb") as written:
            return write_bytes(path, written.read())


def _lasting(setup: "Setup", until: float | str) -> "Setup":
    """The run of as many steps as its flow time takes."""
    from stepwell.published import training

    if isinstance(until, str):
        return training.converged_setup(setup)
    if not setup.beyond.plain:
        raise InvalidInput("--until is a flow time, which other optimisers than sgd do not have; give --epoch")
    steps = math.ceil(until / float(training.paper_time(setup, 1.0)) - 1e-9)
    return setup._replace(flags=dataclasses.replace(setup.flags, epoch=max(1, steps)))


def _say(line: str) -> None:
    print(f"stepwell train: {line}", file=sys.stderr, flush=True)


def _flags_of(trajectory: "xr.Dataset") -> dict[str, Any]:
    return json.loads(trajectory.attrs["configuration"])["flags"]


def _resuming(path: "Path", last: int | None, epoch: int, checkpoint: "Path") -> str:
    if last is not None and last >= epoch:
        return f"{path} is complete, with {last} steps"
    if checkpoint.exists():
        return f"resuming from the checkpoint {checkpoint}"
    if last is None:
        return f"there is no {path}: starting from the beginning"
    return f"resuming from step {last} of {path}"


def _status(trajectory: "xr.Dataset") -> int:
    """The exit status, with a line where the run did not come to its end."""
    outcome, message = trajectory.attrs["outcome"], trajectory.attrs["message"]
    if outcome == "interrupted":
        _say(f"{message}; to resume it, give the same command with --resume")
        return exit_status()
    if outcome != "finished":
        _say(message)
        return 1
    return 0


def _report(
    setup: "Setup",
    trajectory: "xr.Dataset",
    levels: "Levels | None",
    course: "Course | None",
    files: "dict[str, Path]",
    seconds: float,
) -> dict[str, Any]:
    """The run as one JSON document: outcome, losses, levels, predicted drops, files, flags and seconds."""
    from stepwell.published.training import IN_CONTEXT, IN_WEIGHT

    curves = {"train": "loss", "in_weight_test": IN_WEIGHT, "in_context_test": IN_CONTEXT}
    present = {name: trajectory[curve].values.mean(axis=0) for name, curve in curves.items() if curve in trajectory}
    own = setup.beyond.identity()
    if setup.beyond.seeds is not None:
        own["final_losses"] = [_number(loss) for loss in trajectory["loss"].values[:, -1]]
    return {
        "outcome": trajectory.attrs["outcome"],
        "message": trajectory.attrs["message"],
        "engine": setup.engine,
        "epochs": min(trajectory.sizes["step"], setup.flags.epoch),
        "first_loss": {name: _number(values[0]) for name, values in present.items()},
        "final_loss": {name: _number(values[-1]) for name, values in present.items()},
        "levels": None if levels is None else dict(zip(map(str, levels.learned), levels.losses, strict=True)),
        "predicted_drops": None if course is None else course.drops,
        "files": {kind: str(path) for kind, path in files.items()},
        "flags": dataclasses.asdict(setup.flags),
        **({"beyond": own} if own else {}),
        "seconds": round(seconds, 3),
    }


def _number(value: Any) -> float | None:
    """A number that JSON can hold."""
    return float(value) if math.isfinite(value) else None


def _summary(report: dict[str, Any]) -> str:
    flags, first, last = report["flags"], report["first_loss"], report["final_loss"]
    heads = f"{flags['head_num']} head" + ("s" if flags["head_num"] > 1 else "")
    kind = f"{'softmax ' if flags['softmax'] else ''}{flags['model']}"
    data = "the population" if infinite(report["engine"]) else f"{flags['trainset_size']} sequences"
    own = report.get("beyond", {})
    seeds = f", {len(own['seeds'])} seeds (mean losses)" if "seeds" in own else ""
    lines = [f"{kind}, {heads}, on {data} of {flags['seq_len']} tokens, dimension {flags['in_dim']}{seeds}"]
    if {"optimiser", "schedule"} & set(own):
        lines.append(f"optimiser {own.get('optimiser', 'sgd')}, schedule {own.get('schedule', 'constant')}")
    for name in last:
        ends = " to ".join("not finite" if value is None else f"{value:.6g}" for value in (first[name], last[name]))
        lines.append(f"{name.replace('_', ' ')} loss: {ends}")
    lines.append(
        f"{report['epochs']} epochs, engine {report['engine']}, {report['outcome']} in {report['seconds']:.1f} s"
    )
    lines += _drop_lines(report)
    lines += [f"{kind}: {path}" for kind, path in report["files"].items()]
    return "\n".join(lines)


def _drop_lines(report: dict[str, Any]) -> list[str]:
    """The table of drops, predicted and measured, at epochs; and what the finite sample changes."""
    if not report["drops"]:
        steps = ", ".join(f"{drop:.0f}" for drop in report["predicted_drops"] or ())
        return [f"predicted drops at epochs {steps}"] if steps else []
    lines = ["drop  component  head   predicted    measured   error     loss to"]
    for drop in report["drops"]:
        measured = "-" if drop["measured"] is None else f"{drop['measured']:.0f}"
        error = "-" if drop["error"] is None else f"{100 * drop['error']:+.0f} %"
        predicted = "-" if drop["predicted"] is None else f"{drop['predicted']:.0f}"
        component, head = (drop[name] or "all" if drop["predicted"] else "-" for name in ("component", "head"))
        note = "" if drop["status"] == "measured" else f"  {drop['status']}"
        note += "  out of order" if drop["in_order"] is False else ""
        row = f"{drop['drop']:>4}  {component:>9}  {head:>4}  {predicted:>10}  {measured:>10}  {error:>6}"
        lines.append(f"{row}  {drop['level']:>10.4g}{note}")
    return [*lines, *report["remarks"]]


def _show(
    setup: "Setup",
    trajectory: "xr.Dataset",
    levels: "Levels | None",
    course: "Course | None",
    plot: "Path | None",
    stream: Any,
) -> None:
    """Show the plot in a window where there is a screen; else print on `stream` where the plot is."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        import matplotlib
        from matplotlib import pyplot

        from stepwell.published.training import draw

        figure = pyplot.figure()
        if matplotlib.get_backend().lower() != "agg":
            draw(figure, setup, trajectory, levels, course)
            pyplot.show()
            return
        pyplot.close(figure)
    print(f"there is no screen to show the plot on; it is in {plot}", file=stream)
