"""The store: a folder of immutable shards, and an index of them."""

import contextlib
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.files import write_bytes
from stepwell._util.run_names import check_names, hexadecimal, is_among, places_of
from stepwell._util.store_path import OFF, VARIABLE, store_path
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


_REASONS = 3  # damaged shards that a warning names, at the most


class Listing(NamedTuple):
    """Some columns of some runs, and how many runs matched."""

    names: list[str]
    columns: dict[str, Column]
    total: int


class Store:
    """A folder of runs on disk, which are selected by their names or by filters.

    The folder is made by the first `add`. Several processes may use a store at once, and it may be moved.

    **Arguments:**

    - `path`: the folder; by default what the environment variable `STEPWELL_STORE` says, or `stepwell-runs`. `"off"`
      is no store, here and there, and refused; a folder of that name is `"./off"`.

    **Example:**

    >>> from stepwell.store import Shard, Store
    >>> store = Store("runs")
    >>> path = store.add(Shard({"model.kind": "merged"}, {"seed": [0, 1]}, {"final_loss": [0.5, 0.4]}))
    >>> store.table(["final_loss<0.45"], columns=["seed", "final_loss"]).to_dict("records")
    [{'seed': 1, 'final_loss': 0.4}]
    """

    @checked
    def __init__(self, path: str | os.PathLike | None = None):
        folder = store_path(path)
        if folder is None:
            what = f"the environment variable {VARIABLE}" if path is None else "the store"
            raise InvalidInput(f"{what} is {OFF}, so that there is no store; name a folder")
        self.path = folder
        self._index = _index.Index(self.path, verified)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    @property
    def shards_path(self) -> Path:
        return self.path / "shards"

    @checked
    def add(self, shard: Shard, *, replace: bool = False) -> Path:
        """Write a shard to the disk, and return the file. If the store has a shard of the same runs, that one stays, or
        with `replace` all that the store has of these runs is removed once the new one is there."""
        from ._reader import Summary

        path = self._write(shard.file_name, shard.to_bytes(), Summary.of(shard), replace=replace)
        if replace:
            from ._maintenance import remove

            remove(self, (), shard.names, spared=shard.file_name)
        return path

    def _write(self, file: str, content: bytes, made: "Summary", *, replace: bool = False) -> Path:
        path = self.shards_path / file
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidInput(f"{shortened(path.parent)} is not a folder; remove it, or use another store") from None
        try:
            write_bytes(path, content, replace=replace)
        except FileExistsError:
            with contextlib.suppress(InvalidInput):
                verified(path)
                return path
            write_bytes(path, content)  # what is there is damaged
        self._index.note(file, made)
        return path

    @checked
    def known(self, names: np.ndarray) -> np.ndarray:
        """Return for each run whether it is in the store, by `names` as in `Shard.names`, (run, 16) bytes."""
        check_names(names)
        return self._index.ask(lambda connection: is_among(names, _index.names_in(_index.rows(connection))))

    @checked
    def columns(self) -> dict[str, str]:
        """Return "field" or "scalar" by the name of each that any run has."""
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
        """Return what `table` returns, without pandas: names, columns by name, and how many runs match."""
        if limit is not None and limit < 0:
            raise InvalidInput(f"limit is {limit}; it must be None or an integer from 0 on")

        def ask(connection: Any) -> Listing:
            chosen = self._chosen(connection, where)
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
        """Return fields and scalars of runs, a row for each. A `RuntimeWarning` names damaged shards.

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

    def _chosen(self, connection: Any, where: Sequence[str], names: np.ndarray | None = None) -> Chosen:
        """The runs that match. A warning names the shards that are damaged, whose runs are left out."""
        problems = list(_index.problems(connection).values())
        chosen = Chosen(connection, where, names)
        if problems:
            more = f"; and {len(problems) - _REASONS} more" if len(problems) > _REASONS else ""
            reasons = "; ".join(problems[:_REASONS])
            warnings.warn(f"runs of damaged shards are left out: {reasons}{more}", RuntimeWarning, stacklevel=2)
        return chosen

    @checked
    def lookup(self, names: np.ndarray) -> tuple[np.ndarray, dict[str, Column]]:
        """Return for each of the runs `names`, (run, 16) bytes as in `Shard.names`, whether the store has it, and all
        scalars of those that it has, in their order."""
        check_names(names)

        def ask(connection: Any) -> tuple[np.ndarray, dict[str, Column]]:
            chosen = Chosen(connection, (), names)
            there = chosen.names()
            known = is_among(names, there)
            place = places_of(names[known], there)
            held = {name for piece in chosen.pieces for name in piece.shard.columns}
            own = [name for name, kind in chosen.kinds.items() if kind == "scalar" and name in held]
            return known, {name: chosen.column(name)[place] for name in own}

        return self._index.ask(ask)

    @checked
    def select(
        self, where: Sequence[str] = (), *, names: np.ndarray | None = None, variables: Sequence[str] | None = None
    ) -> "xr.Dataset":
        """Return what runs recorded, stacked along `run`; values are read when they are needed.

        A `RuntimeWarning` names damaged shards, whose runs are left out.

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
            chosen = self._chosen(connection, where, names)
            return dataset(self.path, chosen, variables, lambda file, error: self._index.note(file, None, str(error)))

        return self._index.ask(ask)

    @checked
    def describe(self, name: str) -> dict[str, Any]:
        """Return all that the store says about one run, by its name or the digits that no other begins with.

        It has `name`, `shard` (the file), `configuration`, `scalars`, and `recorded`, the sizes and types of arrays.
        """

        def ask(connection: Any) -> dict[str, Any]:
            chosen = self._chosen(connection, [f"name={name}"])
            if len(chosen) != 1:
                reason = "no run has such a name" if not len(chosen) else f"{len(chosen)} names begin so; add digits"
                raise InvalidInput(f"{shown(name)} names no run: {reason}")
            ((shard, rows),) = chosen.pieces
            held = {*shard.common, *shard.columns}
            columns = {one: (kind, chosen.column(one).value(0)) for one, kind in chosen.kinds.items() if one in held}
            return {
                "name": hexadecimal(shard.names[rows])[0],
                "shard": str(self.shards_path / shard.file),
                **{
                    title: {one: value for one, (of, value) in sorted(columns.items()) if of == kind}
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
        """Return the experiment of one run, by its name as for `describe`, to be built, run again and predicted.

        `InvalidInput` says which kind is missing, if it is one of a file that was not loaded.
        """
        from stepwell.experiments import Experiment

        return Experiment.from_canonical(self.describe(name)["configuration"])

    def shards(self) -> list[Path]:
        """Return the files of all shards that can be used, in the order of their names."""
        return [self.shards_path / row.file for row in self._index.ask(_index.rows)]

    def damaged(self) -> dict[Path, str]:
        """Return what is wrong with the shards that cannot be used, by file."""
        return {self.shards_path / file: text for file, text in self._index.ask(_index.problems).items()}

    def rebuild_index(self) -> None:
        """Rebuild the index from the shards."""
        self._index.discard()
        self._index.ask(lambda connection: None)

    def verify(self) -> "list[Problem]":
        """Return what is wrong with the files of the store: damaged shards, foreign files and links, a damaged index.

        Every file is read and compared with its checksum and its name; nothing is changed.
        """
        from ._maintenance import verify

        return verify(self)

    @checked
    def remove(self, where: Sequence[str] = (), *, names: np.ndarray | None = None) -> int:
        """Remove runs, chosen as for `select`, and return how many. Shards of which others stay are written anew."""
        from ._maintenance import remove

        check_names(names)
        return remove(self, where, names)

    @checked
    def collect_garbage(self, *, damaged: bool = False) -> list[Path]:
        """Remove what is of no use, and return the files that were removed: those that killed processes left, shards
        whose runs others hold too, and, if `damaged`, shards that cannot be used."""
        from ._maintenance import collect_garbage

        return collect_garbage(self, damaged=damaged)

    @checked
    def merge(self, other: "str | os.PathLike | Store") -> "Merged":
        """Copy the shards of another store, or its folder, that have runs which this one lacks.

        Returns how many shards and runs were copied, and the shards that cannot be used, with the reasons.
        """
        from ._maintenance import merge

        return merge(self, other if isinstance(other, Store) else Store(other))


def verified(path: Path) -> "Summary":
    """The summary of a shard, whose checksum and name are verified."""
    from ._reader import summary  # HDF5 takes a while to import, and most questions need none

    made = summary(path, again=True)
    if not path.as_posix().endswith(file_name(made.names)):
        raise InvalidInput(f"{shortened(path)} has the runs of {file_name(made.names)}; it was renamed")
    return made


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
