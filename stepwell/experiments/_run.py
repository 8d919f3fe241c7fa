"""Run an experiment; which one a trajectory is of; remarks on doubtful values."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.outcomes import return_or_raise

from ._build import build_model, build_objective, build_task, keys_of, observables
from ._experiment import Experiment, sections_of, training_of
from ._kinds._models import dimension
from ._training import Online, TimeScale, time_scale

if TYPE_CHECKING:
    import xarray as xr

    from stepwell.dynamics import Record


@checked
def run(
    experiment: Experiment,
    *,
    seeds: Sequence[int] | None = None,
    progress: bool = True,
    checkpoint: Any = None,
    throw: bool = True,
) -> "xr.Dataset":
    """Train what an experiment describes.

    **Arguments:**

    - `experiment`: the experiment.
    - `seeds`: several seeds, trained as one program; each has its own task, data and initial weights. By default the
      seed of the experiment.
    - `progress`: whether to show a progress bar.
    - `checkpoint`: the path of a file where the state of the run is saved now and then, or a `Checkpoint`; as in
      `descend`. The same call continues a run that was killed.
    - `throw`: whether a run that does not come to its end raises `RunFailed`, or `Interrupted`, which have its
      trajectory so far. If not, that is returned, and its attribute `outcome` says how it ended.

    **Returns:** the trajectory. Its attribute `experiment` has the experiment, and `rerun` needs nothing else; with
    `seeds` its coordinate `run` has them. Times are the paper's t/τ, with steps beside where there are steps.

    **Example:**

    >>> import stepwell as sw
    >>> runs = sw.Experiment(task={"dim": 2}, training={"until": 10.0}).run(seeds=range(3), progress=False)
    >>> runs["run"].values.tolist()
    [0, 1, 2]
    """
    from stepwell.dynamics import Ensemble

    members = [experiment] if seeds is None else [experiment.replace(seed=int(seed)) for seed in seeds]
    if not members:
        raise InvalidInput("seeds are empty; give at least one")
    if len(set(members)) < len(members):
        raise InvalidInput("seeds has one seed twice; give each once")
    built = []
    for member in members:
        keys = keys_of(member.seed)
        task = build_task(member, keys)
        model = build_model(member, task, keys)
        built.append((task, model, build_objective(member, task, model, keys), observables(member, task, keys)))
    model, objective, watched = built[0][1], built[0][2], built[0][3]
    if len(members) > 1:
        if watched and experiment.record.test_sequences:
            raise InvalidInput("test_sequences are for one run; with several seeds leave it out")
        if isinstance(objective, Online):
            raise InvalidInput("the objective online is for one run; train one seed at a time")
        model, objective = Ensemble.of([one[1] for one in built]), Ensemble.of([one[2] for one in built])
    made = training_of(experiment).run(
        model,
        objective,
        record_of(experiment, watched),
        time_of(experiment),
        progress=progress,
        configuration={"task": built[0][0]} if len(members) == 1 else None,
        checkpoint=checkpoint,
        throw=False,
    )
    made = remembering(made, members[0], None if seeds is None else [member.seed for member in members])
    return return_or_raise(made, throw)


def record_of(experiment: Experiment, observe: dict[str, Callable[[Any], Any]] | None = None) -> "Record":
    """What is kept of a run of the experiment."""
    from stepwell.dynamics import Record

    section = experiment.record
    return Record(points=section.points, spacing=section.spacing, snapshots=section.snapshots, observe=observe or None)


def time_of(experiment: Experiment) -> TimeScale:
    """How its times become the paper's."""
    return time_scale(experiment.task, experiment.model)


def remembering(trajectory: "xr.Dataset", experiment: Experiment, seeds: list[int] | None = None) -> "xr.Dataset":
    """The trajectory, which knows the experiment that it is of."""
    if "value_weight" in trajectory and trajectory["value_weight"].dims[-1] == "value_weight_0":
        trajectory = trajectory.rename(value_weight_0="head") if "head" not in trajectory.dims else _headed(trajectory)
    trajectory = trajectory.assign_coords(run=[experiment.seed] if seeds is None else seeds)
    trajectory.attrs["experiment"] = json.dumps({**experiment.to_dict(), **({} if seeds is None else {"seeds": seeds})})
    return trajectory


def _headed(trajectory: "xr.Dataset") -> "xr.Dataset":
    values = trajectory["value_weight"]
    return trajectory.assign(value_weight=((*values.dims[:-1], "head"), values.values, {"long_name": "value weight"}))


def experiment_of(trajectory: "xr.Dataset") -> Experiment:
    """Return the experiment that a trajectory is of.

    **Arguments:**

    - `trajectory`: what `Experiment.run` returned, or what `load` read.

    **Returns:** the experiment; of several seeds that of the first. `InvalidInput` is raised where the trajectory was
    made by hand, of objects.

    **Example:**

    >>> import stepwell as sw
    >>> run = sw.Experiment(task={"dim": 2}, training={"until": 1.0}).run(progress=False)
    >>> sw.experiments.experiment_of(run).task.eigenvalues
    (0.6666666666666666, 0.3333333333333333)
    """
    return experiment_and_seeds(trajectory)[0]


def experiment_and_seeds(trajectory: "xr.Dataset") -> tuple[Experiment, list[int] | None]:
    """The experiment of a trajectory, and its seeds if there are several."""
    try:
        document = json.loads(trajectory.attrs["experiment"])
        seeds = document.pop("seeds", None)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise InvalidInput("the trajectory does not say which experiment it is of; it was made of objects") from None
    return Experiment.from_dict(document, "the trajectory"), seeds


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
