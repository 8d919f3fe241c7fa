"""Shards come back bit for bit, and nothing but `InvalidInput` comes of a file that is no shard."""

import hashlib
import io
import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from own_shards import resealed, shard_of

from stepwell._util import netcdf
from stepwell._util.errors import InvalidInput
from stepwell.experiments import name_of
from stepwell.store import Column, Shard, _reader
from stepwell.store._shard import file_name

CONTENT = shard_of().to_bytes()
ALL_KINDS = {
    "truth": np.array([True, False, True]),
    "whole": np.array([2**63 - 1, -(2**63) + 1, 0]),
    "number": np.array([1e-308, -0.0, 0.1]),
    "text": ["a", "ä", "a"],
    "lists": [[0.6, 0.4], [0.6, 0.4, 0.1], []],
    "mixed": [None, 1, 1.0],
}


def bits(shard: Shard) -> dict:
    columns = {name: (column.values.tobytes(), column.categories) for name, column in shard.fields.items()}
    columns |= {name: (column.values.tobytes(), column.categories) for name, column in shard.scalars.items()}
    data = {
        str(name): (one.dims, one.dtype, one.shape, one.values.tobytes(), dict(one.attrs))
        for name, one in shard.data.variables.items()
    }
    return {"common": repr(shard.common), "names": shard.names.tobytes(), **columns, **data}


def test_every_kind_of_column_and_array_comes_back_bit_for_bit(tmp_path: Path):
    strange = np.array([0x7FF8000000000123, 0xFFF0000000000000, 0x8000000000000000], np.uint64).view(float)
    arrays = {
        kind: (("run", "axis"), np.arange(6).reshape(3, 2).astype(kind))
        for kind in ("bool", "int8", "uint8", "int16", "uint32", "int64", "uint64", "float32", "float64")
    }
    data = xr.Dataset(
        {
            **arrays,
            "strange": ("run", strange),
            "axis": [0.5, -0.0],
            "single": 7.0,
            "none": (("run", "no"), np.ones((3, 0))),
        }
    )
    data["strange"].attrs = {"units": "step", "long_name": "ä"}
    scalars = {f"{name}_scalar": values for name, values in ALL_KINDS.items()} | {"odd": strange}
    shard = Shard({"a": 1, "b": 1.0, "c": None, "d": "x", "e": [1, 2.0], "f": True}, ALL_KINDS, scalars, data)
    path = tmp_path / "shard.nc"
    path.write_bytes(shard.to_bytes())
    assert bits(_reader.load(path)) == bits(shard)
    assert _reader.summary(path).variables == _reader.layout(shard.data)
    stored = xr.load_dataset(path)  # it is an ordinary netCDF file
    assert stored["float64"].dims == ("run", "axis") and stored["bool"].dtype == bool
    np.testing.assert_array_equal(stored["field_whole"], ALL_KINDS["whole"])


def test_names_are_those_of_the_configurations_and_the_file_that_of_the_set():
    shard = shard_of()
    for row in range(len(shard)):
        configuration = shard.common | {name: column.value(row) for name, column in shard.fields.items()}
        assert shard.names[row].tobytes().hex() == name_of(configuration)
    turned = shard.take(np.array([4, 2, 0, 1, 3]))
    assert turned.file_name == shard.file_name != shard.take(np.arange(4)).file_name
    assert shard.take(np.array([3])).data["loss"].values.tolist() == [shard.data["loss"].values[3].tolist()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (({}, {}), "numbers of runs"),
        (({"a": 1}, {"a": [1, 2]}), "twice"),
        (({}, {"a": [1, 1]}), "same configuration"),
        (({}, {"a": [1, 2]}, {"b": [1.0]}), "numbers of runs"),
        (({}, {"a": [1.0, np.nan]}), "finite"),
        (({}, {"a": 1}), "one value a run"),
        (({}, {"a": [1, 2]}, {}, xr.Dataset({"field_b": ("run", [1, 2])})), "cannot be the name"),
        (({}, {"a": [1, 2]}, {}, xr.Dataset({"t": ("run", ["x", "y"])})), "numbers of at most 64 bits"),
        (({}, {"a": [1, 2]}, {}, xr.Dataset({"t": (("x", "run"), [[1, 2]])})), "must be the first"),
        (({}, {"a": [1, 2]}, {}, xr.Dataset({"../t": ("run", [1, 2])})), "cannot be the name"),
    ],
)
def test_what_is_no_shard_is_refused(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        Shard(*arguments)


def refused(content: bytes, folder: Path) -> str:
    """The error with which every way to read the file refuses it."""
    path = folder / "x.nc"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as whole:
        _reader.load(path)
    with pytest.raises(InvalidInput):
        _reader.summary(path, content=content)
    assert "\n" not in str(whole.value)
    return str(whole.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, len(CONTENT) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path, place: int, bit: int):
    refused(CONTENT[:place] + bytes([CONTENT[place] ^ 1 << bit]) + CONTENT[place + 1 :], tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(0, len(CONTENT) - 1))
def test_a_shard_cut_anywhere_is_noticed(tmp_path: Path, length: int):
    refused(CONTENT[:length], tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_any_bytes_with_a_right_checksum_are_refused(tmp_path: Path, content: bytes):
    refused(content + netcdf.checksum_line(hashlib.sha256(content).hexdigest()), tmp_path)


def _replace(name: str, values, **options):
    def edit(file):
        notes = dict(file[name].attrs) if name in file else {}
        file.pop(name, None)
        dataset = file.create_dataset(name, data=values, **options)
        for key in ("categories", "dtype"):
            if key in notes:
                dataset.attrs[key] = notes[key]

    return edit


def _note(name: str, key: str, value):
    return lambda file: (file[name] if name else file).attrs.__setitem__(key, value)


def _link(link):
    return lambda file: file.__setitem__("extra", link)


NO_SHARD = {
    "another kind of netCDF": (_note("", "stepwell_shard", "3"), "stepwell_shard"),
    "an earlier version": (_note("", "stepwell_shard", "1"), "of an earlier version of Stepwell"),
    "no configuration": (lambda file: file.attrs.__delitem__("configuration"), "configuration"),
    "a configuration of other runs": (_note("", "configuration", '{"a":1}'), "not those of their configurations"),
    "a configuration that is a number": (_note("", "configuration", 3), "JSON"),
    "other names": (_replace("digest", np.zeros((5, 16), "u1")), "not those of their configurations"),
    "names of another shape": (_replace("digest", np.zeros((5, 15), "u1")), "not those of their configurations"),
    "no names": (lambda file: file.pop("digest"), "digest is not an array"),
    "a field of another length": (_replace("field_seed", np.arange(4)), "5 runs"),
    "a field of two axes": (_replace("field_seed", np.ones((5, 2), int)), "one axis"),
    "a field of another type": (_replace("field_seed", np.ones(5, "f4")), "bool, int64 or float64"),
    "a field of strings": (_replace("field_seed", ["a"] * 5), "bool, int64 or float64"),
    "a field that is not finite": (_replace("field_training.rate", np.full(5, np.nan)), "not those"),
    "codes out of range": (_replace("scalar_outcome", np.array([0, 1, 2, 0, 0], "i4")), "codes of categories"),
    "negative codes": (_replace("scalar_outcome", np.array([0, 1, -1, 0, 0], "i4")), "codes of categories"),
    "a link to another file": (_link(h5py.ExternalLink("/etc/passwd", "/x")), "not an array"),
    "a soft link": (_link(h5py.SoftLink("/loss")), "not an array"),
    "a group": (lambda f: f.create_group("extra"), "not an array"),
    "an array stored elsewhere": (
        lambda f: f.create_dataset("extra", (5,), "u1", external=[("/etc/passwd", 0, 5)]),
        "not an array of the file",
    ),
}


@pytest.mark.parametrize("case", NO_SHARD)
def test_a_file_with_a_right_checksum_that_is_no_shard_is_refused(case: str, tmp_path: Path):
    edit, words = NO_SHARD[case]
    assert re.search(words, refused(resealed(CONTENT, edit), tmp_path))


def test_a_virtual_array_is_refused(tmp_path: Path):
    layout = h5py.VirtualLayout((5,), "f8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (5,))
    edited = resealed(CONTENT, lambda f: f.create_virtual_dataset("extra", layout))
    assert "not an array of the file" in refused(edited, tmp_path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_edits_with_a_right_checksum_end_well_or_with_one_line(tmp_path: Path, data):
    """Variables replaced by arrays of any type and shape, attributes by any text."""
    with h5py.File(io.BytesIO(CONTENT)) as file:
        names = [*file, "extra", "field_extra", "scalar_extra"]

    def edit(file):
        for _ in range(data.draw(st.integers(1, 3))):
            name = data.draw(st.sampled_from(names))
            if data.draw(st.booleans()) and name in file:
                key = data.draw(st.sampled_from(["categories", "dtype", "units", "stepwell_axes", "DIMENSION_LIST"]))
                file[name].attrs[key] = data.draw(st.text('a[]1,"{}:nul', max_size=12))
            else:
                file.pop(name, None)
                shape = data.draw(st.lists(st.sampled_from([0, 1, 5, 16]), max_size=3))
                file.create_dataset(name, shape, data.draw(st.sampled_from(["u1", "i4", "i8", "f8", "f4", "S3"])))

    path = tmp_path / "x.nc"
    path.write_bytes(resealed(CONTENT, edit))
    try:
        shard = _reader.load(path)
    except InvalidInput as error:
        assert "\n" not in str(error)
    else:
        assert shard.names.tobytes() == shard_of().names.tobytes()


def test_files_that_are_none_are_refused(tmp_path: Path):
    real = tmp_path / "real.nc"
    real.write_bytes(CONTENT)
    (tmp_path / "link.nc").symlink_to(real)
    os.mkfifo(tmp_path / "pipe.nc")
    (tmp_path / "folder.nc").mkdir()
    for name in ("link.nc", "pipe.nc", "folder.nc", "absent.nc"):
        with pytest.raises(InvalidInput):
            _reader.summary(tmp_path / name)


def test_columns_keep_every_value_as_it_is():
    for values in ([1, 1.0], [True, 1], [None, "a"], [2**62, 0.5], ["1", 1]):
        column = Column.of(values)
        assert [repr(column.value(row)) for row in range(2)] == list(map(repr, values))
    assert Column.of([1, 2]).values.dtype == np.int64 and Column.of([1.0]).values.dtype == np.float64
    assert file_name(shard_of().names) == shard_of().file_name
