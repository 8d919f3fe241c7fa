"""netCDF-4 files with a checksum: the line of text after their end, and the arrays of a file written at once.

A file is an ordinary netCDF-4 (HDF5) file, and one line after its end, `stepwell_checksum=sha256:…`, over all bytes
before it, which HDF5 does not read. That the line must be there is noted in the hidden attribute `_NCProperties`, which
programs that write a copy replace. So a changed byte, or a missing end, is noticed before HDF5 reads the file: damaged
ones can crash it. Each array has checksums of its own besides (fletcher32), which every reader verifies.
"""

import hashlib
import io
import os
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from .errors import InvalidInput

MARK = b"stepwell_checksum=sha256"
END = len(b"\n" + MARK + b":" + b"\n") + hashlib.sha256().digest_size * 2
"""Length of the line after the end of the HDF5 file."""

_NO_LINE = "has no checksum at its end: it is cut short, was changed, or another program wrote it"
_PROPERTIES = "_NCProperties"
_BLOCK = 2**22
"""Bytes that are read at once for a checksum."""
_CHUNK = 2**20
"""Bytes of an array that are stored together, and verified together when one of them is read."""
_NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable. {:>9d}"
"""What the netCDF library expects as the name of a dimension that has no values."""


def checksum_line(digest: str) -> bytes:
    """What follows the HDF5 file, for the SHA-256 of it in hexadecimal digits."""
    return b"\n" + MARK + b":" + digest.encode() + b"\n"


def sealed(buffer: io.BytesIO) -> bytes:
    """The netCDF file in `buffer` with its checksum."""
    with h5py.File(buffer, "r+") as file:
        writers = bytes(file.attrs[_PROPERTIES]) + b"," + MARK  # pyright: ignore[reportArgumentType]
        file.attrs.create(_PROPERTIES, np.bytes_(writers))
    line = checksum_line(hashlib.sha256(buffer.getbuffer()).hexdigest())
    buffer.seek(0, os.SEEK_END)
    buffer.write(line)
    return buffer.getvalue()


def verify(file: io.BufferedIOBase, path: Any) -> None:
    """Raise `InvalidInput` unless the open file ends with its checksum."""
    size = file.seek(0, os.SEEK_END)
    if size <= END:
        raise InvalidInput(f"{path} {_NO_LINE}")
    file.seek(0)
    hashed, left = hashlib.sha256(), size - END
    while left:
        block = file.read(min(left, _BLOCK))
        if not block:
            raise InvalidInput(f"{path} was cut short while it was read; try again")
        hashed.update(block)
        left -= len(block)
    line = file.read(END + 1)
    if not line.startswith(b"\n" + MARK):
        raise InvalidInput(f"{path} {_NO_LINE}")
    if line != checksum_line(hashed.hexdigest()):
        raise InvalidInput(f"{path} is damaged or was changed: it does not match its checksum; restore it from a copy")


def to_bytes(
    variables: Mapping[str, tuple[Sequence[str], np.ndarray, Mapping[str, str]]], attributes: Mapping[str, str]
) -> bytes:
    """A netCDF-4 file with a checksum, of arrays of numbers: dimensions, values and attributes of each by its name.

    It is written here, and not by xarray, since many small arrays take a millisecond each there.
    """
    sizes: dict[str, int] = {}
    for dimensions, values, _ in variables.values():
        sizes.update(zip(dimensions, values.shape, strict=True))
    order = sorted(sizes)
    # In memory, under a name that no other file of the process has. From HDF5 1.8 on, attributes may be longer than
    # 64 KiB; the netCDF library writes the same kind.
    options: Any = {"driver": "core", "backing_store": False, "libver": ("v108", "v108"), "track_order": True}
    with h5py.File(secrets.token_hex(16), "w", **options) as file:
        scales = {name: file.create_dataset(name, **_stored(*variables[name])) for name in order if name in variables}
        for name in order:
            if name not in scales:
                scales[name] = file.create_dataset(name, shape=(sizes[name],), dtype=">f4", track_order=True)
        for number, name in enumerate(order):
            scales[name].make_scale(name if name in variables else _NO_VARIABLE.format(sizes[name]))
            scales[name].attrs["_Netcdf4Dimid"] = np.int32(number)
        for name, (dimensions, values, notes) in variables.items():
            dataset = scales[name] if name in scales else file.create_dataset(name, **_stored(dimensions, values, {}))
            if name not in scales:
                for axis, dimension in enumerate(dimensions):
                    dataset.dims[axis].attach_scale(scales[dimension])
            if values.dtype == bool:
                dataset.attrs["dtype"] = "bool"  # as xarray has it: netCDF has none
            for key, text in notes.items():
                dataset.attrs[key] = text
        for key, text in attributes.items():
            file.attrs[key] = text
        file.attrs.create(_PROPERTIES, np.bytes_(b"version=2," + MARK))
        file.flush()
        content = file.id.get_file_image()
    return content + checksum_line(hashlib.sha256(content).hexdigest())


def _stored(dimensions: Sequence[str], values: np.ndarray, notes: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of `create_dataset`: chunks of whole rows, with checksums."""
    data = values.astype(np.int8) if values.dtype == bool else values
    options: dict[str, Any] = {"data": data, "track_order": True}
    if data.ndim and data.size:
        row = data.nbytes // data.shape[0]
        rows = min(max(_CHUNK // row, 1), data.shape[0])
        options |= {"chunks": (rows, *data.shape[1:]), "fletcher32": True}
    return options
