"""`stepwell train`: train one experiment, and what the theory says about it."""

import argparse

from stepwell._util.parser import Parser
from stepwell.experiments import add_experiment_flags, experiment_from, seeds_from

from ._renamed import RENAMED
from ._training import Job, add_output_flags, print_experiment, train_to_files


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
    parser.renamed = RENAMED
    output = parser.add_argument_group("output")
    output.add_argument("--show", action="store_true", help="show the plot in a window")
    add_output_flags(output)


def run(arguments: argparse.Namespace) -> int:
    """Read the experiment, train it, write the files and print the report; return the exit status."""
    experiment = experiment_from(arguments)
    seeds = seeds_from(arguments, experiment.seed)
    if seeds is not None:
        experiment = experiment.replace(seed=seeds[0])
        seeds = seeds if len(seeds) > 1 else None
    if arguments.dry_run:
        return print_experiment(experiment, seeds)
    from stepwell.experiments import Names, remarks

    job = Job(experiment, seeds, Names(experiment, seeds), "stepwell train")
    for line in remarks(experiment):
        job.say(line)
    if experiment.record.given.get("measure"):
        job.say("measure is for sweeps; it has no effect here but on the name of the run")
    return train_to_files(job, arguments)
