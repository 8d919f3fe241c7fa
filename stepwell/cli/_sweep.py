"""`stepwell sweep`: a study of many runs, from a TOML file."""

import argparse
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from stepwell._util.errors import InvalidInput
from stepwell._util.interrupt import exit_status
from stepwell._util.outcomes import DONE
from stepwell._util.parser import Parser
from stepwell._util.text import nearest, shown

if TYPE_CHECKING:
    from pathlib import Path

    import xarray as xr

    from stepwell.sweeps import Plan, Study

_FORMATS = ("png", "pdf", "svg")


def configure(parser: Parser) -> None:
    parser.description = (
        "Run a study: many runs that differ in some fields, computed thousands at a time and kept in a store. The TOML "
        "file has an experiment as `stepwell train --dry-run` prints it, and what is varied in a table [sweep]. What "
        "the store has already is not computed again: Ctrl-C at any time, the same command goes on. Exit status: 0 "
        "done, 1 some runs diverged or could not be solved (only with --strict), 2 bad usage, 128 and the number of "
        "a signal."
    )
    parser.add_argument("study", metavar="STUDY.toml", help="what is run")
    parser.add_argument(
        "--store", metavar="DIR", help="where runs are kept (default: $STEPWELL_STORE or stepwell-runs)"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--workers", type=int, metavar="N", help="processes on this machine (needs stepwell[cluster])")
    where.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster that runs, such as tcp://host:8786")
    parser.add_argument("--shard", metavar="I/N", help="compute part I of N: for job arrays on a shared disk")
    parser.add_argument("--limit", type=int, metavar="RUNS", help="compute no more runs than so many")
    parser.add_argument("--dry-run", action="store_true", help="say what would be computed, how long and how much disk")
    parser.add_argument("--fresh", action="store_true", help="compute runs again that the store has")
    parser.add_argument(
        "--plot",
        nargs="+",
        metavar="NAME",
        help="draw a scalar against one or two fields: final_loss scale, regime rate scale; the median over what else "
        "varies, and of words the fraction of each, or the most frequent",
    )
    parser.add_argument("--table", metavar="FILE.csv", help="write the scalars of all runs as a table")
    parser.add_argument(
        "--out", metavar="FILE", help="of --plot: a .png, .pdf or .svg (default: named after the study)"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a run diverged or could not be solved")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def run(arguments: argparse.Namespace) -> int:
    begun = time.monotonic()
    part = _part(arguments.shard)

    from stepwell.store import Store
    from stepwell.sweeps import Study, plan_sweep

    study = Study.read(arguments.study)
    picture = _picture(arguments, study)
    store = Store(arguments.store)
    job = plan_sweep(study, store, part=part, limit=arguments.limit, fresh=arguments.fresh)
    plan = job.plan()
    if arguments.dry_run:
        job.check()
        print(json.dumps(plan._asdict()) if arguments.json else _planned(plan))
        return 0

    from stepwell.sweeps import run_job

    for line in job.remarks():
        print(f"stepwell sweep: {line}", file=sys.stderr)
    shown_progress = not arguments.json or sys.stderr.isatty()
    where = {"workers": arguments.workers, "scheduler": arguments.scheduler}
    result = run_job(job, **where, progress=shown_progress, throw=False)
    outcome, message = result.attrs["outcome"], result.attrs["message"]
    files = _files(arguments, result, picture)
    report = _report(job.waiting, result, files, time.monotonic() - begun)
    print(json.dumps(report) if arguments.json else _summary(report))
    if outcome != "finished":
        print(f"stepwell sweep: {message}", file=sys.stderr)
    if outcome == "interrupted":
        return exit_status()
    return 1 if arguments.strict and set(report["outcomes"]) - set(DONE) else 0


def _part(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise InvalidInput(f"--shard is {shown(text)}; give I/N with I from 1 to N, for instance 17/400")
    return int(match[1]), int(match[2])


def _picture(arguments: argparse.Namespace, study: "Study") -> "Path | None":
    """The file of --plot; what cannot be drawn is refused before anything is computed."""
    from pathlib import Path

    if arguments.plot is None:
        if arguments.out is not None:
            raise InvalidInput("--out names the file of --plot, and nothing is drawn; give --plot too, or leave it out")
        return None
    scalar, *fields = arguments.plot
    if not 1 <= len(fields) <= 2:
        raise InvalidInput(f"--plot has {len(arguments.plot)} names; give a scalar and one or two fields")
    from stepwell.sweeps import scalars_in, short_name

    varied = [short_name(name) for axis in study.axes for name in axis.fields]
    for place, field in enumerate(fields, start=1):
        arguments.plot[place] = short_name(field)
        if arguments.plot[place] not in varied:
            raise InvalidInput(f"{field} is not varied in this study; {nearest(field, varied)}")
    known = scalars_in(study.base.record.measure)
    if not any(re.fullmatch(pattern, scalar) for pattern in known):
        raise InvalidInput(
            f"there is no scalar {scalar}; {nearest(scalar, [one.replace('[0-9]+', '1') for one in known])}"
        )
    path = Path(arguments.out or f"{Path(arguments.study).stem}_{'_'.join(arguments.plot)}.png")
    if path.suffix.lstrip(".") not in _FORMATS:
        raise InvalidInput(f"--out is {shown(str(path))}; its ending must be one of {', '.join(_FORMATS)}")
    return path


def _files(arguments: argparse.Namespace, result: "xr.Dataset", picture: "Path | None") -> dict[str, str]:
    files = {}
    if arguments.table is not None:
        from stepwell._util.files import write_text
        from stepwell.sweeps import table_of

        files["table"] = str(write_text(arguments.table, table_of(result).to_csv(index=False)))
    if picture is not None:
        from stepwell.analysis.style import save_figure
        from stepwell.sweeps import draw

        save_figure(draw(result, *arguments.plot), picture)
        files["plot"] = str(picture)
    return files


def _report(computed: int, result: "xr.Dataset", files: dict[str, str], seconds: float) -> dict[str, Any]:
    import numpy as np

    words, counts = np.unique(result["outcome"].values, return_counts=True) if "outcome" in result else ([], [])
    return {
        **{name: result.attrs[name] for name in ("outcome", "message", "runs", "stored", "store")},
        "outcomes": {str(word): int(count) for word, count in zip(words, counts, strict=True) if word},
        "axes": {str(name): int(size) for name, size in result.sizes.items()},
        "files": files,
        "computed": computed,
        "seconds": round(seconds, 3),
    }


def _summary(report: dict[str, Any]) -> str:
    axes = " x ".join(f"{size} {name}" for name, size in report["axes"].items())
    ends = ", ".join(f"{count} {word}" for word, count in report["outcomes"].items())
    varied = f" ({axes})" if axes else ""
    lines = [f"{report['stored']} of {report['runs']} runs{varied} are in {report['store']}: {ends}"]
    lines.append(f"{report['computed']} runs to compute, {report['outcome']} in {report['seconds']:.1f} s")
    return "\n".join([*lines, *(f"{kind}: {path}" for kind, path in report["files"].items())])


def _planned(plan: "Plan") -> str:
    return (
        f"{plan.runs} runs, of which the store has {plan.stored}; {plan.waiting} to compute\n"
        f"programs: {plan.programs}, shards: {plan.shards}\n"
        f"about {_seconds(plan.seconds)} on one core, and {plan.bytes / 1e6:.3g} MB on the disk"
    )


def _seconds(seconds: float) -> str:
    """Two digits, in a unit that suits."""
    unit, length = ("s", 1) if seconds <= 99 else ("min", 60) if seconds <= 99 * 60 else ("h", 3600)
    return f"{float(f'{seconds / length:.2g}'):g} {unit}"
