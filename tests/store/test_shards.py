"""Shards come back bit for bit, and nothing but `InvalidInput` comes of a file that is no shard."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from own_shards import resealed, shard_of

from stepwell._util import netcdf
from stepwell._util.errors import InvalidInput
from stepwell._util.text import name_of
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


def _note(name: str, key: str, value):
    return lambda file: (file[name] if name else file).attrs.__setitem__(key, value)


NO_SHARD = {
    "another kind of netCDF": (_note("", "stepwell_shard", "3"), "stepwell_shard"),
    "an earlier version": (_note("", "stepwell_shard", "1"), "of an earlier version of Stepwell"),
    "no configuration": (lambda file: file.attrs.__delitem__("configuration"), "configuration"),
    "a configuration that is a number": (_note("", "configuration", 3), "JSON"),
    "no names": (lambda file: file.pop("digest"), "digest"),
    "a field that is missing its categories": (lambda file: file["scalar_outcome"].attrs.__delitem__("categories"), ""),
}


@pytest.mark.parametrize("case", NO_SHARD)
def test_a_file_with_a_right_checksum_that_is_no_shard_is_refused(case: str, tmp_path: Path):
    edit, words = NO_SHARD[case]
    assert re.search(words, refused(resealed(CONTENT, edit), tmp_path))


def test_columns_keep_every_value_as_it_is():
    for values in ([1, 1.0], [True, 1], [None, "a"], [2**62, 0.5], ["1", 1]):
        column = Column.of(values)
        assert [repr(column.value(row)) for row in range(2)] == list(map(repr, values))
    assert Column.of([1, 2]).values.dtype == np.int64 and Column.of([1.0]).values.dtype == np.float64
    assert file_name(shard_of().names) == shard_of().file_name
