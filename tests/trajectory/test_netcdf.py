"""Trajectories survive a file."""

import contextlib
import gc
import io
import resource

import h5py
import jax
import numpy as np
import pytest
import xarray as xr

from stepwell._util.errors import InvalidInput
from stepwell.dynamics import Record, descend, flow
from stepwell.models import MergedAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression
from stepwell.trajectory import load, model_at, save, to_bytes

MODEL = MergedAttention.random(dim=2, heads=2, scale=0.3, key=jax.random.key(0))
OBJECTIVE = Population(InContextRegression(np.diag([0.6, 0.4]), 6))


@pytest.mark.parametrize("kind", ["descend", "flow"])
def test_a_trajectory_comes_back_without_loss(tmp_path, kind):
    if kind == "descend":
        trajectory = descend(MODEL, OBJECTIVE, rate=0.1, steps=20, configuration={"words": "λ ∝ 1/d"})
    else:
        trajectory = flow(MODEL, OBJECTIVE, until=3.0, record=Record(points=5))
    again = load(save(trajectory, tmp_path / "run.nc"))
    xr.testing.assert_identical(again, trajectory)
    assert [path.name for path in tmp_path.iterdir()] == ["run.nc"]
    np.testing.assert_array_equal(model_at(again, MODEL, at=0).value, MODEL.value)


def test_a_failed_write_leaves_nothing_behind_and_the_old_file_whole(tmp_path):
    """A limit of the process on the size of files stands for a full disk, on which HDF5 itself would crash."""
    trajectory = descend(MODEL, OBJECTIVE, rate=0.1, steps=5)
    path = save(trajectory, tmp_path / "run.nc")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        with pytest.raises(OSError, match="too large"):
            save(trajectory.isel(step=slice(2)), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [p.name for p in tmp_path.iterdir()] == ["run.nc"]
    xr.testing.assert_identical(load(path), trajectory)


def refusal(path, **options) -> str:
    with pytest.raises(InvalidInput) as refused:
        load(path, **options)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)
    return str(refused.value)


@pytest.fixture(scope="module")
def content():
    trajectory = descend(
        MODEL, OBJECTIVE, rate=0.1, steps=200, record=Record(observe={"twice": lambda model: 2 * OBJECTIVE(model)})
    )
    return to_bytes(trajectory)


def test_one_changed_byte_anywhere_is_noticed(tmp_path, content):
    path, line = tmp_path / "run.nc", len(content) - 91  # where the line with the checksum begins
    places = {*range(0, len(content), len(content) // 300), *range(line, len(content)), *range(96)}
    places |= {content.index(b"_NCProperties") + offset for offset in range(-8, 120)}
    assert len(places) > 450
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        assert "checksum" in refusal(path)


def test_a_file_cut_anywhere_is_noticed(tmp_path, content):
    path = tmp_path / "run.nc"
    line = len(content) - 91
    for length in {*range(0, len(content), len(content) // 100), *range(line - 2, len(content)), *range(100)}:
        path.write_bytes(content[:length])
        refusal(path)
    path.write_bytes(content + b"more")
    assert "checksum" in refusal(path)


def test_a_file_with_a_checksum_is_an_ordinary_one(tmp_path, content):
    path = tmp_path / "run.nc"
    path.write_bytes(content)
    xr.testing.assert_identical(xr.load_dataset(path), load(path))  # by whichever library xarray finds
    with h5py.File(path) as file:
        assert all(file[name].fletcher32 for name in load(path).variables)  # pyright: ignore


def test_other_readers_notice_changed_numbers_too(content):
    values = xr.load_dataset(io.BytesIO(content), engine="h5netcdf")["loss"].values
    place = content.index(values[0, 10:12].tobytes())
    damaged = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    with pytest.raises(OSError, match="fletcher32|filter"):
        xr.load_dataset(io.BytesIO(damaged), engine="h5netcdf")


def test_files_of_other_programs_are_read_unless_a_checksum_is_wanted(tmp_path, content):
    path, copy = tmp_path / "run.nc", tmp_path / "copy.nc"
    path.write_bytes(content)
    load(path).to_netcdf(copy, engine="h5netcdf")
    xr.testing.assert_identical(load(copy), load(path, unverified=False))
    assert "no checksum" in refusal(copy, unverified=False)
    with h5py.File(path, "r+") as file:
        file.attrs["remark"] = "changed"
    assert "changed" in refusal(path)


@pytest.mark.filterwarnings("error")
def test_a_damaged_file_without_a_checksum_is_refused_without_a_traceback(tmp_path, content):
    """h5netcdf prints one when it is given up half-opened."""
    path = tmp_path / "run.nc"
    plain = content[: content.rindex(b"\nstepwell_checksum")].replace(b"stepwell_checksum", b"stepwell_otherthing")
    for place in range(48, min(len(plain), 4000), 16):
        path.write_bytes(plain[:place] + bytes(8) + plain[place + 8 :])
        with contextlib.suppress(InvalidInput):
            load(path)
    gc.collect()


def test_files_that_are_no_trajectories_are_refused(tmp_path):
    bad = tmp_path / "bad.nc"
    bad.write_text("nonsense")
    for path in (bad, tmp_path / "none.nc", tmp_path):
        refusal(path)


def test_weights_of_another_model_are_refused():
    trajectory = descend(MODEL, OBJECTIVE, rate=0.1, steps=5).drop_vars("key_query")
    with pytest.raises(InvalidInput, match="key_query"):
        model_at(trajectory, MODEL)
