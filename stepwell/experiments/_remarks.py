"""What is allowed in an experiment, and probably not meant."""

from ._experiment import Experiment, sections_of
from ._kinds._models import dimension
from ._run import record_of


def remarks(experiment: Experiment) -> list[str]:
    """Return a line for each value of an experiment that is allowed but doubtful.

    **Arguments:**

    - `experiment`: the experiment.

    **Returns:** the lines; none if there is nothing to remark.

    **Example:**

    >>> import stepwell as sw
    >>> sw.experiments.remarks(sw.Experiment(task={"dim": 2}, model={"rank": 3}))
    ['rank 3 is above the dimension 2: rank 2 can do the same']
    """
    rank, dim = experiment.model.get("rank"), dimension(sections_of(experiment))
    made = []
    if isinstance(rank, int) and dim is not None and rank > dim:
        made.append(f"rank {rank} is above the dimension {dim}: rank {dim} can do the same")
    if experiment.model.get("scale") == 0.0:
        made.append("scale 0 is a fixed point: the weights will not move")
    given, steps = experiment.record.given, experiment.training.get("steps")
    if isinstance(steps, int) and ("points" in given or "snapshots" in given):
        record = record_of(experiment)
        kept = record.steps(steps)
        spaced = " at log spacing" if record.spacing == "log" else ""
        for name, count in {"points": kept.size, "snapshots": record.places(kept).size}.items():
            if given.get(name, 0) > count:
                made.append(f"{name} is {given[name]}, of which {steps} steps have {count}{spaced}")
    return made
