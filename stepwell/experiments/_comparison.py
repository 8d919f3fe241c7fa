"""Theory beside a run of an experiment: each seed with its own task, sample and prediction."""

from typing import TYPE_CHECKING

from stepwell._util.errors import InvalidInput

from ._build import build_task
from ._keys import keys_of
from ._predict_linear import sample_of
from ._prediction import no_comparison
from ._run import experiment_and_seeds

if TYPE_CHECKING:
    import xarray as xr

    from stepwell.analysis import Comparison


def compare_run(trajectory: "xr.Dataset") -> "Comparison":
    """Return the drops of a run, predicted and measured: `analysis.compare` with its own task and sample.

    **Arguments:**

    - `trajectory`: what `Experiment.run` returned, or what `load` read.

    **Returns:** the `analysis.Comparison`, with a run for each seed. `InvalidInput` is raised where there is no theory
    of the experiment.

    **Example:**

    >>> import stepwell as sw
    >>> run = sw.Experiment(task={"dim": 2}, model={"scale": 0.01}).run(progress=False)
    >>> sw.experiments.compare_run(run).table["status"].tolist()
    ['measured', 'measured']
    """
    from stepwell.analysis import Comparison, compare

    experiment, seeds = experiment_and_seeds(trajectory)
    if reason := no_comparison(experiment):
        raise InvalidInput(f"{reason}; nothing is compared")
    made = []
    for number, seed in enumerate([experiment.seed] if seeds is None else seeds):
        one = experiment.replace(seed=seed)
        task = build_task(one, keys_of(seed))
        made.append(compare(trajectory.isel(run=[number]), task, sample=sample_of(one)))
    runs = tuple(run for each in made for run in each.runs)
    remarks = dict.fromkeys(remark for each in made for remark in each.remarks)
    return Comparison(runs, made[0].stepped, tuple(remarks))
