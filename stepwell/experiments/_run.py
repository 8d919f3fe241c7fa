"""Run an experiment; which one a trajectory is of; remarks on doubtful values."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.outcomes import return_or_raise
from stepwell._util.progress import Meter

from ._experiment import Experiment
from ._keys import Keys
from ._kind import find_kind
from ._kinds._models import dimension
from ._training import Descent, Online

if TYPE_CHECKING:
    import xarray as xr


@checked
def train(
    experiment: Experiment, *, seeds: Sequence[int] | None, progress: bool, checkpoint: Any, throw: bool
) -> "xr.Dataset":
    """What `Experiment.run` returns."""
    with Meter("building and compiling", None, shown=progress):  # where no meter of the training is shown
        first, listed, task, model, objective, record = _prepared(experiment, seeds, progress)
        options: Any = {"progress": progress, "checkpoint": checkpoint, "throw": False}
        options["configuration"] = {"task": task} if len(listed) == 1 else None
        made = experiment.build_training().run(model, objective, record, experiment.time_scale, **options)
    return return_or_raise(remembering(made, first, None if seeds is None else listed), throw)


@checked
def check(experiment: Experiment, seeds: Sequence[int] | None) -> None:
    """What `Experiment.check` refuses."""
    from stepwell.dynamics import Ensemble

    experiment.check_memory(1 if seeds is None else len(seeds))
    *_, model, objective, _ = _prepared(experiment, seeds, progress=False)
    training = experiment.build_training()
    if isinstance(training, Descent):
        training.rule(model)
    if not isinstance(objective, Online):
        first = [part.member(0) if isinstance(part, Ensemble) else part for part in (objective, model)]
        first[0].check(first[1])


def _prepared(
    experiment: Experiment, seeds: Sequence[int] | None, progress: bool
) -> tuple[Experiment, list[int], Any, Any, Any, Any]:
    """The experiment with the first of the seeds, the seeds, and task, model, objective and record of the run."""
    listed = [experiment.seed] if seeds is None else [int(seed) for seed in seeds]
    if not listed:
        raise InvalidInput("seeds are empty; give at least one")
    if len(set(listed)) < len(listed):
        raise InvalidInput("seeds has one seed twice; give each once")
    for seed in (min(listed), max(listed)):
        experiment.replace(seed=seed)  # which refuses a seed that is out of range, before anything is built
    first = experiment.replace(seed=listed[0])
    task, model, objective = first.build()
    watched = observables(first, task, model)
    if len(listed) > 1:
        if experiment.record.test_sequences:
            raise InvalidInput("test_sequences are for one run; with several seeds leave it out")
        if isinstance(objective, Online):
            raise InvalidInput("the objective online is for one run; train one seed at a time")
        model, objective = _build_seeds(first, listed, progress)
    return first, listed, task, model, objective, experiment.build_record(watched)


def _build_seeds(experiment: Experiment, seeds: list[int], progress: bool) -> tuple[Any, Any]:
    """The ensembles of models and of objectives: at once where the kinds say how, else one run after the other."""
    from stepwell.dynamics import Ensemble

    from ._together import build_seeds, rotated_field

    if (field := rotated_field(experiment)) is not None:
        return build_seeds(experiment, field, seeds)[:2]
    built = []
    with Meter("building runs", len(seeds), shown=progress) as meter:
        for number, seed in enumerate(seeds, start=1):
            built.append(experiment.replace(seed=seed).build())
            meter.update(number, f"{number} of {len(seeds)}")
    return Ensemble.of([one.model for one in built]), Ensemble.of([one.objective for one in built])


def observables(experiment: Experiment, task: Any, model: Any) -> dict[str, Callable[[Any], Any]]:
    """Curves to observe, by name: test losses and value weights, where they are asked for."""
    record, keys = experiment.record, Keys(experiment.seed)
    curves: dict[str, Callable[[Any], Any]] = {}
    if record.test_sequences:
        from stepwell.tasks import InContextInWeightMixture

        context = experiment.task.context
        longest = max(context) if isinstance(context, tuple) else context
        # Test sets are of whole sequences, whatever the lengths trained on.
        tested = InContextInWeightMixture.random(
            task.covariance, 1.0, longest, outputs=task.outputs, centered=task.centered, key=keys.fixed_task
        )
        tests = {
            "in_weight_test_loss": (tested.in_weight_test(), keys.in_weight_test),
            "in_context_test_loss": (tested.in_context_test(), keys.in_context_test),
        }
        sampled = experiment.objective.kind in ("sampled", "online")
        kind = find_kind("objective", "sampled" if sampled else "moments")
        for name, (test, key) in tests.items():
            given = {"task": test, "model": model, "normalization": experiment.normalization, "key": key}
            curves[name] = kind.build(*(given[one] for one in kind.wants), sequences=record.test_sequences)
    if record.value_weights:
        curves["value_weight"] = value_weights
    return curves


def value_weights(model: Any) -> Any:
    r"""$v_i$, the last entry of $W^V_i$, for each head."""
    return type(model).theory_weights(model.weights())["values"]


def remembering(trajectory: "xr.Dataset", experiment: Experiment, seeds: list[int] | None = None) -> "xr.Dataset":
    """The trajectory, which knows the experiment that it is of."""
    if "value_weight" in trajectory and trajectory["value_weight"].dims[-1] == "value_weight_0":
        values = trajectory["value_weight"]
        headed = (*values.dims[:-1], "head"), values.values, {"long_name": "value weight"}
        trajectory = trajectory.assign(value_weight=headed)
    trajectory = trajectory.assign_coords(run=[experiment.seed] if seeds is None else seeds)
    trajectory.attrs["experiment"] = json.dumps({**experiment.to_dict(), **({} if seeds is None else {"seeds": seeds})})
    return trajectory


def experiment_and_seeds(trajectory: "xr.Dataset") -> tuple[Experiment, list[int] | None]:
    """The experiment of the first run in a trajectory, and the seeds of its runs if they are of several.

    Seeds are those of the coordinate `run`: some runs may have been taken, or put into another order. Others than those
    that were trained are refused.
    """
    try:
        document = json.loads(trajectory.attrs["experiment"])
        several = document.pop("seeds", None)
    except (KeyError, ValueError, TypeError, AttributeError):
        raise InvalidInput("the trajectory does not say which experiment it is of; it was made of objects") from None
    experiment = Experiment.from_dict(document, "the trajectory")
    seeds = trajectory["run"].values.ravel().tolist() if "run" in trajectory.coords else []
    known = [experiment.seed] if several is None else several
    if not seeds or not all(isinstance(seed, int) for seed in seeds) or not set(seeds) <= set(known):
        raise InvalidInput(
            f"the coordinate run of the trajectory is {seeds}; it must have the seeds of the experiment, "
            f"which are {known}; of runs that were put together, as by xr.concat, give each alone"
        )
    return experiment.replace(seed=seeds[0]), None if several is None and len(seeds) == 1 else seeds


def remarks(experiment: Experiment) -> list[str]:
    """What `Experiment.remarks` returns."""
    rank, dim = experiment.model.get("rank"), dimension(experiment.sections)
    made = []
    if isinstance(rank, int) and dim is not None and rank > dim:
        made.append(f"rank {rank} is above the dimension {dim}: rank {dim} can do the same")
    if experiment.model.get("scale") == 0.0:
        made.append("scale 0 is a fixed point: the weights will not move")
    if str(experiment.training.get("optimizer")).partition(":")[0] == "muon":
        made.append(
            "muon amplifies rounding errors: with several seeds or in a sweep, runs differ from those trained alone"
        )
    given, steps = experiment.record.given, experiment.training.get("steps")
    if isinstance(steps, int) and ("points" in given or "snapshots" in given):
        record = experiment.build_record()
        kept = record.steps(steps)
        spaced = " at log spacing" if record.spacing == "log" else ""
        for name, count in {"points": kept.size, "snapshots": record.places(kept).size}.items():
            if given.get(name, 0) > count:
                made.append(f"{name} is {given[name]}, of which {steps} steps have {count}{spaced}")
    return made
