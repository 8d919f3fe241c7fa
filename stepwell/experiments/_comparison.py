"""Theory beside a run of an experiment: each seed with its own task, sample and prediction."""

from typing import TYPE_CHECKING

from ._build import build_task
from ._keys import keys_of
from ._predict_linear import sample_of
from ._prediction import no_comparison
from ._run import experiment_and_seeds

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


def compare_run(trajectory: "xr.Dataset") -> "pd.DataFrame":
    """Return the drops of a run, predicted and measured: `analysis.compare` with its own task and sample.

    **Arguments:**

    - `trajectory`: what `Experiment.run` returned, or what `load` read.

    **Returns:** the table of `analysis.compare`, with a row for each drop of each seed. `InvalidInput` is raised where
    there is no theory of the experiment.

    **Example:**

    >>> import stepwell as sw
    >>> run = sw.Experiment(task={"dim": 2}, model={"scale": 0.01}).run(progress=False)
    >>> sw.experiments.compare_run(run)["status"].tolist()
    ['measured', 'measured']
    """
    import pandas as pd

    from stepwell._util.errors import InvalidInput
    from stepwell.analysis import DropTable, compare

    experiment, seeds = experiment_and_seeds(trajectory)
    if reason := no_comparison(experiment):
        raise InvalidInput(f"{reason}; nothing is compared")
    tables, remarks = [], []
    for number, seed in enumerate([experiment.seed] if seeds is None else seeds):
        member = experiment.replace(seed=seed)
        task = build_task(member, keys_of(seed))
        table = compare(trajectory.isel(run=[number]), task, sample=sample_of(member))
        remarks += [line for line in table.attrs["remarks"] if line not in remarks]
        unit = table.attrs["unit"]
        tables.append(pd.DataFrame(table))
    made = DropTable(pd.concat(tables, ignore_index=True))
    made.attrs = {"unit": unit, "remarks": remarks}
    return made
