"""`stepwell replay FILE…`: re-run recorded training runs and report the deviation."""

import argparse
import json
import sys

from stepwell._util import checks
from stepwell._util.errors import InvalidInput


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="a recording, as docs/recordings.md describes it")
    parser.add_argument(
        "--engine",
        choices=("auto", "moments", "sampled"),
        default="auto",
        help="how the loss is computed: from moments of the data (linear models), or through every sequence",
    )
    parser.add_argument(
        "--tolerance", type=float, default=5e-6, help="largest deviation allowed, of losses and weights"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")


def run(arguments: argparse.Namespace) -> int:
    tolerance = checks.number("--tolerance", arguments.tolerance, least=0.0)
    from stepwell.experiments.recorded import load, replay

    status, done = 0, []
    width = max(len(file) for file in arguments.files)
    try:
        for file in arguments.files:
            try:
                result = replay(load(file), engine=arguments.engine, tolerance=tolerance)
            except InvalidInput as error:
                print(f"stepwell replay: {error}", file=sys.stderr)
                status = 2
                continue
            status = max(status, 0 if result.passed else 1)
            done.append(result.summary())
            if not arguments.json:
                print(_line(result, width), flush=True)
    except KeyboardInterrupt:
        replayed = f"{len(done)} of {len(arguments.files)} files were replayed"
        print(f"stepwell replay: interrupted; {replayed}", file=sys.stderr)
        status = 130
    if arguments.json:
        print(json.dumps(done, indent=2))
    return status


def _line(result, width: int) -> str:
    errors = dict(result.curves)
    if result.weights_error is not None:
        errors["weights"] = result.weights_error
    listed = "  ".join(f"{name} {error:.1e}" for name, error in errors.items())
    line = f"{result.file:<{width}}  {result.engine:<7}  {result.steps:>6} steps  {result.seconds:>5.1f} s  "
    line += f"{'ok      ' if result.passed else 'MISMATCH'}  {listed}"
    notes = [result.message] if result.message else []
    if not result.passed:
        notes.append(f"within the tolerance for the first {result.followed} of {result.steps} steps")
    if result.reproducible is not None and result.reproducible < result.steps:
        notes.append(f"this run amplifies rounding: float32 and float64 runs diverge from step {result.reproducible}")
    return "\n".join([line, *(f"    {note}" for note in notes)])
