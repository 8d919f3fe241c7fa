"""The store: a folder of immutable shards, and an index of them."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.files import write_bytes
from stepwell._util.run_names import DIGEST, check_names, hexadecimal, is_among, places_of
from stepwell._util.text import shortened, shown

from . import _index
from ._query import Chosen
from ._shard import Shard, file_name
from ._values import Column

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from stepwell.experiments import Experiment

    from ._maintenance import Merged, Problem
    from ._reader import Summary

VARIABLE = "STEPWELL_STORE"
DEFAULT = "stepwell-runs"
OFF = "off"
"""The value of the variable with which `stepwell train` keeps its runs in its own files only."""


class Listing(NamedTuple):
    """Some columns of some runs, and how many runs matched."""

    names: list[str]
    columns: dict[str, Column]
    total: int


class Store:
    """Runs that last: shards on disk, found by the names of their runs, or by filters.

    The folder is made by the first `add`. Several processes may use a store at once, and it may be moved.

    **Arguments:**

    - `path`: the folder; by default what the environment variable `STEPWELL_STORE` says, or `stepwell-runs`. If it says
      `off`, there is no default.

    **Example:**

    >>> from stepwell.store import Shard, Store
    >>> store = Store("runs")
    >>> path = store.add(Shard({"model.kind": "merged"}, {"seed": [0, 1]}, {"final_loss": [0.5, 0.4]}))
    >>> store.table(["final_loss<0.45"], columns=["seed", "final_loss"]).to_dict("records")
    [{'seed': 1, 'final_loss': 0.4}]
    """

    @checked
    def __init__(self, path: str | os.PathLike | None = None):
        named = os.environ.get(VARIABLE) or DEFAULT
        if path is None and named == OFF:
            raise InvalidInput(f"the environment variable {VARIABLE} is {OFF}, so that there is no store; name one")
        self.path = Path(named if path is None else path)
        self._index = _index.Index(self.path, _summary)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    @property
    def shards_path(self) -> Path:
        return self.path / "shards"

    @checked
    def add(self, shard: Shard, *, replace: bool = False) -> Path:
        """Write a shard; when this returns it is on the disk. A shard of the same runs that is there is kept.

        **Arguments:**

        - `shard`: the runs.
        - `replace`: whether it takes the place of what the store has of these runs, which is there until then.

        **Returns:** the file.
        """
        from ._reader import Summary

        path = self._write(shard.file_name, shard.to_bytes(), Summary.of(shard), replace=replace)
        if replace:
            from ._maintenance import remove

            remove(self, self._index, (), shard.names, spared=shard.file_name)
        return path

    def _write(self, file: str, content: bytes, made: "Summary", *, replace: bool = False) -> Path:
        """Write the bytes of a shard whose summary is known; `add` for others."""
        path = self.shards_path / file
        self._folder(path.parent)
        try:
            write_bytes(path, content, replace=replace)
        except FileExistsError:
            with contextlib.suppress(InvalidInput):
                if file_name(_summary(path).names) == file:
                    return path
            write_bytes(path, content)  # what is there is damaged
        self._index.note(file, made)
        return path

    def _folder(self, folder: Path) -> None:
        """Make the folder of a shard, inside the store and nowhere else."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidInput(f"{shortened(folder)} is not a folder; remove it, or use another store") from None
        for one in (self.shards_path, folder):
            if one.is_symlink():
                raise InvalidInput(f"{shortened(one)} is a link, which may lead out of the store; put a folder there")

    @checked
    def known(self, names: np.ndarray) -> np.ndarray:
        """Return which runs are in the store.

        **Arguments:**

        - `names`: (run, 16) bytes, as in `Shard.names`.

        **Returns:** a boolean for each run.
        """
        check_names(names)

        def ask(connection: Any) -> np.ndarray:
            every = [row.names for row in _index.rows(connection)]
            return is_among(names, np.concatenate(every) if every else np.zeros((0, DIGEST), np.uint8))

        return self._index.ask(ask)

    @checked
    def columns(self) -> dict[str, str]:
        """Return the fields and scalars that any run has.

        **Returns:** "field" or "scalar" by name.
        """
        return self._index.ask(lambda connection: Chosen(connection).kinds)

    @checked
    def listing(
        self,
        where: Sequence[str] = (),
        *,
        columns: Sequence[str] | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> Listing:
        """Return what `table` returns, without pandas, and with the number of runs that match.

        **Arguments:**

        - `where`, `columns`, `sort`, `limit`: as for `table`.

        **Returns:** names, columns by name, and how many runs match.
        """
        if limit is not None and limit < 0:
            raise InvalidInput(f"limit is {limit}; it must be None or an integer from 0 on")

        def ask(connection: Any) -> Listing:
            chosen = Chosen(connection, where)
            wanted = [*chosen.kinds] if columns is None else list(columns)
            order = chosen.order(sort)[:limit]
            made = {name: chosen.column(name)[order] for name in wanted}
            return Listing(hexadecimal(chosen.names()[order]), made, len(chosen))

        return self._index.ask(ask)

    @checked
    def table(
        self,
        where: Sequence[str] = (),
        *,
        columns: Sequence[str] | None = None,
        sort: str | None = None,
        limit: int | None = None,
    ) -> "pd.DataFrame":
        """Return fields and scalars of runs, a row for each.

        **Arguments:**

        - `where`: filters such as `"model.kind=merged"`, `"heads=4"` or `"final_loss<0.3"`, with one of = != < <= > >=
          and, for regular expressions, ~. All must hold. The section may be left out where one field alone has that
          name. A run that lacks a field has the value none there.
        - `columns`: those wanted; by default all.
        - `sort`: a column to order by; `"-final_loss"` puts the largest first.
        - `limit`: the number of rows at the most.

        **Returns:** a data frame; its index has the names of the runs. What is one of several strings or lists is
        categorical.
        """
        import pandas as pd

        listing = self.listing(where, columns=columns, sort=sort, limit=limit)
        index = pd.Index(listing.names, name="name", dtype=object)
        return pd.DataFrame({name: _series(column) for name, column in listing.columns.items()}, index=index)

    @checked
    def lookup(self, names: np.ndarray, columns: Sequence[str] | None = None) -> tuple[np.ndarray, dict[str, Column]]:
        """Return fields and scalars of given runs, in their order.

        **Arguments:**

        - `names`: (run, 16) bytes, as in `Shard.names`.
        - `columns`: those wanted; by default all scalars that any of these runs has.

        **Returns:** a boolean for each run, whether the store has it; and columns of those that it has.
        """

        check_names(names)

        def ask(connection: Any) -> tuple[np.ndarray, dict[str, Column]]:
            chosen = Chosen(connection, (), names)
            there = chosen.names()
            known = is_among(names, there)
            place = places_of(names[known], there)
            held = {name for piece in chosen.pieces for name in chosen.held(piece.shard)}
            own = [name for name, kind in chosen.kinds.items() if kind == "scalar" and name in held]
            wanted = own if columns is None else columns
            return known, {name: chosen.column(name)[place] for name in wanted}

        return self._index.ask(ask)

    @checked
    def select(
        self,
        where: Sequence[str] = (),
        *,
        names: np.ndarray | None = None,
        variables: Sequence[str] | None = None,
    ) -> "xr.Dataset":
        """Return what runs recorded, stacked along `run`; values are read when they are needed.

        **Arguments:**

        - `where`: filters, as for `table`.
        - `names`: of the runs that match only these, (run, 16) bytes; by default all.
        - `variables`: the arrays wanted, such as `["loss"]`; by default all. They must have one shape in all runs.

        **Returns:** a data set with fields and scalars as coordinates: along `run` where they differ, else single
        values. Its order is that of the shards. `InvalidInput` is raised when an array is read from a damaged shard,
        whose runs count as missing from then on.
        """
        from ._dataset import dataset

        check_names(names)

        def ask(connection: Any) -> "xr.Dataset":
            chosen = Chosen(connection, where, names)
            return dataset(self.path, chosen, variables, lambda file, error: self._index.note(file, None, str(error)))

        return self._index.ask(ask)

    @checked
    def describe(self, name: str) -> dict[str, Any]:
        """Return all that the store says about one run.

        **Arguments:**

        - `name`: its name, or the digits that it begins with, if no other begins with them.

        **Returns:** `name`, `shard` (the file), `configuration`, `scalars`, and `recorded`, the sizes and types of
        arrays.
        """

        def ask(connection: Any) -> dict[str, Any]:
            chosen = Chosen(connection, [f"name={name}"])
            if len(chosen) != 1:
                reason = "no run has such a name" if not len(chosen) else f"{len(chosen)} names begin so; add digits"
                raise InvalidInput(f"{shown(name)} names no run: {reason}")
            ((shard, rows),) = chosen.pieces
            columns = {one: (kind, chosen.column(one).value(0)) for one, kind in chosen.kinds.items()}
            held = chosen.held(shard)
            return {
                "name": hexadecimal(shard.names[rows])[0],
                "shard": str(self.shards_path / shard.file),
                **{
                    title: {one: value for one, (of, value) in sorted(columns.items()) if of == kind and one in held}
                    for title, kind in (("configuration", "field"), ("scalars", "scalar"))
                },
                "recorded": {
                    one: {"sizes": dict(zip(what["dims"], what["shape"], strict=True)), "dtype": what["dtype"]}
                    for one, what in sorted(shard.variables.items())
                },
            }

        return self._index.ask(ask)

    @checked
    def experiment(self, name: str) -> "Experiment":
        """Return the experiment of one run, of which it can be built, run again and predicted.

        **Arguments:**

        - `name`: its name, or the digits that it begins with, if no other begins with them.

        **Returns:** the experiment. `InvalidInput` says which kind is missing, if it is one of a file that was not
        loaded.
        """
        from stepwell.experiments import Experiment

        return Experiment.from_canonical(self.describe(name)["configuration"])

    def shards(self) -> list[Path]:
        """Return the files of all shards that can be used.

        **Returns:** paths, in the order of their names.
        """
        return [self.shards_path / row.file for row in self._index.ask(_index.rows)]

    def damaged(self) -> dict[Path, str]:
        """Return the shards that cannot be used.

        **Returns:** what is wrong, by file.
        """
        return {self.shards_path / file: text for file, text in self._index.ask(_index.problems).items()}

    def rebuild_index(self) -> None:
        """Make the index anew from the shards."""
        self._index.discard()
        self._index.ask(lambda connection: None)

    def verify(self) -> "list[Problem]":
        """Read every file of the store and compare it with its checksum and its name; nothing is changed.

        **Returns:** what is wrong: damaged shards, foreign files, links, a damaged index.
        """
        from ._maintenance import verify

        return verify(self.path, self._index)

    @checked
    def remove(self, where: Sequence[str] = (), *, names: np.ndarray | None = None) -> int:
        """Remove runs. Shards of which others stay are written anew without them.

        **Arguments:**

        - `where`, `names`: which, as for `select`.

        **Returns:** how many runs were removed.
        """
        from ._maintenance import remove

        check_names(names)
        return remove(self, self._index, where, names)

    @checked
    def collect_garbage(self, *, damaged: bool = False) -> list[Path]:
        """Remove what is of no use: files that killed processes left, and shards whose runs others hold too.

        **Arguments:**

        - `damaged`: whether shards that cannot be used are removed too.

        **Returns:** the files that were removed.
        """
        from ._maintenance import collect_garbage

        return collect_garbage(self, self._index, damaged=damaged)

    @checked
    def merge(self, other: "str | os.PathLike | Store") -> "Merged":
        """Copy the shards of another store that have runs which this one lacks.

        **Arguments:**

        - `other`: the other store, or its folder. It is only read.

        **Returns:** how many shards and runs were copied, and the shards that cannot be used, with the reasons.
        """
        from ._maintenance import merge

        return merge(self, other if isinstance(other, Store) else Store(other))


def _summary(path: Path) -> "Summary":
    from ._reader import summary  # HDF5 takes a while to import, and most questions need none

    return summary(path)


def _series(column: Column) -> Any:
    import pandas as pd

    if column.categories is None:
        return column.values
    values = [tuple(one) if isinstance(one, list) else one for one in column.categories]
    kept = [number for number, one in enumerate(values) if one is not None]
    codes = np.full(len(values) + 1, -1)
    codes[kept] = np.arange(len(kept))
    categories = pd.Index([values[number] for number in kept], dtype=object, tupleize_cols=False)
    return pd.Categorical.from_codes(codes[column.values], categories=categories)
