"""Trajectories survive a file."""

import jax
import numpy as np
import pytest
import xarray as xr

from stepwell._errors import InvalidInput
from stepwell.dynamics import descend, flow
from stepwell.models import MergedAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression
from stepwell.trajectory import load, model_at, save

MODEL = MergedAttention.random(dim=2, heads=2, scale=0.3, key=jax.random.key(0))
OBJECTIVE = Population(InContextRegression(np.diag([0.6, 0.4]), 6))


@pytest.mark.parametrize("kind", ["descend", "flow"])
def test_a_trajectory_comes_back_without_loss(tmp_path, kind):
    if kind == "descend":
        trajectory = descend(MODEL, OBJECTIVE, rate=0.1, steps=20, configuration={"words": "λ ∝ 1/d"})
    else:
        trajectory = flow(MODEL, OBJECTIVE, until=3.0, save=5)
    again = load(save(trajectory, tmp_path / "run.nc"))
    xr.testing.assert_identical(again, trajectory)
    assert [path.name for path in tmp_path.iterdir()] == ["run.nc"]
    np.testing.assert_array_equal(model_at(again, MODEL, index=0).value, MODEL.value)


def test_a_failed_write_leaves_nothing_behind_and_the_old_file_whole(tmp_path, monkeypatch):
    trajectory = descend(MODEL, OBJECTIVE, rate=0.1, steps=5)
    path = save(trajectory, tmp_path / "run.nc")

    def broken(self, name, **options):
        with open(name, "w") as file:
            file.write("half")
        raise OSError("disk full")

    monkeypatch.setattr(xr.Dataset, "to_netcdf", broken)
    with pytest.raises(OSError, match="disk full"):
        save(trajectory.isel(step=slice(2)), path)
    assert [p.name for p in tmp_path.iterdir()] == ["run.nc"]
    xr.testing.assert_identical(load(path), trajectory)


def test_files_that_are_no_trajectories_are_refused(tmp_path):
    bad = tmp_path / "bad.nc"
    bad.write_text("nonsense")
    for path in (bad, tmp_path / "none.nc"):
        with pytest.raises(InvalidInput) as refusal:
            load(path)
        assert "\n" not in str(refusal.value)


def test_weights_of_another_model_are_refused():
    trajectory = descend(MODEL, OBJECTIVE, rate=0.1, steps=5).drop_vars("key_query")
    with pytest.raises(InvalidInput, match="key_query"):
        model_at(trajectory, MODEL)
