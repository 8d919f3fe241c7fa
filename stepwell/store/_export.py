"""Runs exported: netCDF and zarr with all that was recorded, Parquet and CSV with fields and scalars."""

import io
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.files import write_bytes

from ._store import Store

FORMATS = ("netcdf", "zarr", "parquet", "csv")
_NEEDS = {"zarr": "zarr", "parquet": "pyarrow"}  # libraries that are not installed with Stepwell, by format


@checked
def export(
    store: Store,
    path: str | os.PathLike,
    where: Sequence[str] = (),
    *,
    format: str = "netcdf",
    variables: Sequence[str] | None = None,
) -> Path:
    """Write runs of a store in a format that other programs read.

    **Arguments:**

    - `store`: where the runs are.
    - `path`: the file, or for zarr the folder, which must not be there.
    - `where`: filters, as for `Store.table`.
    - `format`: "netcdf" or "zarr", for fields, scalars and recorded arrays; "parquet" or "csv", for a table of fields
      and scalars. Lists become JSON. zarr and parquet need `pip install 'stepwell[export]'`.
    - `variables`: the arrays wanted, by default all, as for `Store.select`.

    **Returns:** the path.

    **Example:**

    >>> from stepwell.store import Shard, Store, export
    >>> store = Store("runs")
    >>> path = store.add(Shard({"model.kind": "merged"}, {"seed": [0, 1]}, {"final_loss": [0.5, 0.4]}))
    >>> print(export(store, "runs.csv", ["seed=1"], format="csv").read_text())
    name,model.kind,seed,final_loss
    cd6e21662476881fdcccb0f5ae13ea4f,merged,1,0.4
    <BLANKLINE>
    """
    path, buffer = Path(path), io.BytesIO()
    checks.one_of("format", format, FORMATS)
    try:
        __import__(_NEEDS.get(format, "io"))
    except ImportError:
        raise InvalidInput(
            f"the format {format} needs {_NEEDS[format]}, which is not installed; run pip install 'stepwell[export]'"
        ) from None
    if format in ("parquet", "csv"):
        if variables is not None:
            raise InvalidInput(f"{format} holds no recorded arrays; leave variables out, or take netcdf or zarr")
        import pandas as pd

        listing = store.listing(where)
        columns = {name: column.labels() for name, column in listing.columns.items()}
        table = pd.DataFrame(columns, index=pd.Index(listing.names, name="name", dtype=object))
        if format == "csv":
            return write_bytes(path, table.to_csv().encode())
        table.to_parquet(buffer, engine="pyarrow")
        return write_bytes(path, buffer.getvalue())
    if format == "zarr" and path.exists():
        raise InvalidInput(f"{path} is there already; choose another name, or remove it")
    data = store.select(where, variables=variables).load()
    if format == "netcdf":
        from stepwell._util.netcdf import sealed

        data.to_netcdf(buffer, engine="h5netcdf")
        return write_bytes(path, sealed(buffer))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".stepwell-") as folder:
        data.to_zarr(Path(folder, "zarr"), zarr_format=2, consolidated=True)  # version 3 has no fixed-length strings
        shutil.move(Path(folder, "zarr"), path)
    return path
