"""`stepwell explore`: the page in the browser on which runs answer while a slider moves."""

import argparse
import sys
from pathlib import Path

from stepwell._util.errors import InvalidInput
from stepwell._util.parser import Parser
from stepwell._util.text import shortened
from stepwell.experiments import add_experiment_flags, experiment_from

_USUAL = "reproduction"


def configure(parser: Parser) -> None:
    parser.description = (
        "Open a page in the browser on which runs answer while a slider moves. A file, or the flags of `stepwell "
        "train`, say which experiment it begins with. Exit status: 0 ended by Ctrl-C, 2 bad usage."
    )
    add_experiment_flags(parser)
    parser.add_argument("--port", metavar="N", type=int, help="of 127.0.0.1; by default 5137 or the next free one")
    parser.add_argument("--no-browser", action="store_true", help="print the address, and open nothing")
    parser.add_argument(
        "--store", metavar="DIR", help="the store (off: none; default: $STEPWELL_STORE or stepwell-runs)"
    )
    parser.add_argument("--reproduction", metavar="DIR", help="folder of figures; by default reproduction, if there")


def run(arguments: argparse.Namespace) -> int:
    port = arguments.port
    if port is not None and not 0 <= port < 65536:
        raise InvalidInput(f"--port is {port}; it must be a number from 0 to 65535")
    folder = arguments.reproduction
    if folder is not None and not Path(folder).is_dir():
        raise InvalidInput(f"there is no folder {shortened(folder)}; name one that stepwell reproduce has made")
    experiment = None
    if arguments.file is not None or any(name == "seed" or "." in name for name in vars(arguments)):
        experiment = experiment_from(arguments)
        if left_out := ", ".join(name for name in experiment.record.given if name != "spacing"):
            print(f"stepwell explore: the page records points of its own; {left_out} left out", file=sys.stderr)

    from stepwell.explorer import explore

    explore(
        port,
        experiment=experiment,
        browser=not arguments.no_browser,
        store=arguments.store,
        reproduction=folder or (_USUAL if Path(_USUAL).is_dir() else None),
        announce=lambda address: print(f"the explorer is at {address}; Ctrl-C ends it", flush=True),
    )
    return 0
