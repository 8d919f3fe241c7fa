"""`python train.py …`: the published script's commands as they are, with the files that it leaves."""

import argparse
from typing import Any

from stepwell._util.parser import Parser
from stepwell.experiments.published import Published, add_published_flags

from ._train import Job, add_output_flags, print_experiment, train_to_files


def configure(parser: Parser) -> None:
    """The published flags, with their abbreviations, and those of the output."""
    parser.allow_abbrev = True
    parser.description = (
        "Train as the published script does. Leaves a loss file with the published name, a netCDF trajectory and a "
        "plot with the theory's levels. The name leaves out most flags: where another run has it already, this one "
        "gets eight digits of its own behind it. `stepwell train` trains anything else. Exit status: 0 done, 1 "
        "diverged, 2 bad usage or a file that cannot be written, 128 and the number of the signal (130 for Ctrl-C)."
    )
    published = add_published_flags(parser)
    add_output_flags(parser.add_argument_group("output, beyond the published script"))
    _keep_abbreviations(parser, published)


def _keep_abbreviations(parser: argparse.ArgumentParser, published: list[argparse.Action]) -> None:
    """Let an abbreviation that only our own flags make ambiguous mean what it means to the published script.

    `--o` stays `--out_dim`, beside `--overwrite`: it becomes a hidden name, which argparse takes before a prefix.
    """
    others = (action for action in parser._actions if action not in published and action.dest != "help")
    own = [flag for action in others for flag in action.option_strings]
    names = {name: action for action in published for name in action.option_strings}
    for prefix in sorted({name[:end] for name in names for end in range(3, len(name))} - {*names, *own}):
        meant = {id(action): action for name, action in names.items() if name.startswith(prefix)}
        if len(meant) == 1 and any(name.startswith(prefix) for name in own):
            action = next(iter(meant.values()))
            kind: dict[str, Any] = {"action": "store_true"} if action.nargs == 0 else {"type": action.type or str}
            parser.add_argument(prefix, dest=action.dest, default=argparse.SUPPRESS, help=argparse.SUPPRESS, **kind)


def run(arguments: argparse.Namespace) -> int:
    """Read the flags, train, write the files and print the report; return the exit status."""
    flags = Published.of(arguments)
    experiment = flags.experiment()
    if arguments.dry_run:
        return print_experiment(experiment, None)
    from ._names import PublishedNames

    job = Job(experiment, None, PublishedNames(flags), "train.py")
    for line in flags.remarks():
        job.say(line)
    return train_to_files(job, arguments)
