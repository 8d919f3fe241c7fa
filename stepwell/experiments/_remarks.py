"""What is allowed in an experiment, and probably not meant."""

from ._experiment import Experiment, sections_of
from ._kinds._models import dimension


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
    if experiment.objective.kind in ("population", "online"):
        for name in ("centered", "whitened"):
            if experiment.task.get(name):
                made.append(
                    f"{name} is of a finite sample, and has no effect on the objective {experiment.objective.kind}"
                )
    steps = experiment.training.get("steps")
    for name in ("points", "snapshots"):
        given = experiment.record.given.get(name)
        if steps is not None and given is not None and given > experiment.record[name]:
            made.append(f"{name} is {given}, of which {steps} steps have {experiment.record[name]}")
    return made
