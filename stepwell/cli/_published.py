"""`python train.py …`: the published script's commands as they are, with the files that it leaves."""

import argparse

from stepwell._util.parser import Parser
from stepwell.experiments.published import Published, add_published_flags, experiment_of, keep_abbreviations, warnings

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
    keep_abbreviations(parser, published)


def run(arguments: argparse.Namespace) -> int:
    """Read the flags, train, write the files and print the report; return the exit status."""
    flags = Published.of(arguments)
    experiment = experiment_of(flags)
    if arguments.dry_run:
        return print_experiment(experiment, None)
    from stepwell.experiments.published import PublishedNames

    job = Job(experiment, None, PublishedNames(flags), "train.py")
    for line in warnings(flags):
        job.say(line)
    return train_to_files(job, arguments)
