"""`stepwell runs`: what a store of runs holds, and care for it."""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from stepwell._util.errors import InvalidInput
from stepwell._util.parser import Parser
from stepwell._util.text import shortened

if TYPE_CHECKING:
    from stepwell.store import Column, Store

_FILTER = "filters that must all hold, such as model=separate rank=2 'final_loss<0.3'; signs: = != < <= > >= ~"
_LIMIT = 50
"""Rows of a table, unless more are asked for. A JSON document is whole."""
_FORMATS = ("netcdf", "zarr", "parquet", "csv")
_WIDEST = 40
"""Characters of a value that are shown in a table."""
_READING = ("ls", "open", "export")
"""Actions that answer without the runs of damaged shards, and say so."""


Answer = tuple[int, Any, Iterator[str] | list[str]]
"""Exit status, JSON document and the lines of the text."""


def configure(parser: Parser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, answer: Callable[..., Answer], text: str) -> Any:
        one = actions.add_parser(name, help=text, description=text)
        one.set_defaults(answer=answer)
        one.add_argument("--store", metavar="DIR", help="the store; by default $STEPWELL_STORE or stepwell-runs")
        one.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
        if name in _READING:
            one.add_argument("--strict", action="store_true", help="exit with 1 if damaged shards were left out")
        return one

    listed = action("ls", _list, "list runs")
    listed.add_argument("where", metavar="FILTER", nargs="*", help=_FILTER)
    listed.add_argument("--columns", metavar="NAME,…", help="the columns wanted; by default those that differ")
    listed.add_argument("--sort", metavar="NAME", help="order by a column; --sort=-NAME puts the largest first")
    listed.add_argument(
        "--limit", metavar="N", type=int, help=f"rows at the most; 0 for all (default: {_LIMIT}; with --json all)"
    )
    shown = action("show", _show, "show one run: configuration, scalars, what was recorded, and where")
    shown.add_argument("name", metavar="NAME", help="the name of the run, or the digits that it begins with")
    opened = action("open", _open, "show what runs recorded as a data set, and how to open it in Python")
    opened.add_argument("where", metavar="FILTER", nargs="*", help=_FILTER)
    opened.add_argument("--variables", metavar="NAME,…", help="the arrays wanted; by default all")
    exported = action("export", _export, "write runs in another format")
    exported.add_argument("out", metavar="FILE", help="the file, or for zarr the folder")
    exported.add_argument("where", metavar="FILTER", nargs="*", help=_FILTER)
    exported.add_argument("--format", choices=_FORMATS, default="netcdf", help="netcdf and zarr have the arrays too")
    exported.add_argument("--variables", metavar="NAME,…", help="the arrays wanted; by default all")
    text = "compare every file with its checksum, and name what is damaged or foreign; nothing is changed"
    action("verify", _verify, text)
    merged = action("merge", _merge, "copy the runs of other stores that this one lacks")
    merged.add_argument("others", metavar="DIR", nargs="+", help="the other stores")
    removed = action("rm", _remove, "remove runs")
    removed.add_argument("where", metavar="FILTER", nargs="*", help=_FILTER)
    removed.add_argument("--all", action="store_true", help="all runs; a filter is needed otherwise")
    removed.add_argument("--yes", action="store_true", help="remove them; otherwise it is only said how many there are")
    text = "remove what killed processes left, shards whose runs others hold too, and figures of earlier versions"
    collected = action("gc", _collect, text)
    collected.add_argument("--damaged", action="store_true", help="remove damaged shards too")


def run(arguments: argparse.Namespace) -> int:
    from stepwell.store import Store

    store = Store(arguments.store)
    if arguments.action != "merge" and not store.path.is_dir():
        raise InvalidInput(f"there is no store {shortened(store.path)}; name one by --store or $STEPWELL_STORE")
    status, document, lines = arguments.answer(store, arguments)
    if arguments.action in _READING:  # the store has warned of these
        damaged = [{"file": str(path), "reason": reason} for path, reason in store.damaged().items()]
        document = {**document, "damaged": damaged}
        status = 1 if arguments.strict and damaged else status
    if arguments.json:
        print(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        for line in lines:
            print(line)
    return status


def _list(store: "Store", arguments: argparse.Namespace) -> Answer:
    limit = (0 if arguments.json else _LIMIT) if arguments.limit is None else arguments.limit
    if limit < 0:
        raise InvalidInput(f"--limit is {limit}; it must be 0, for all, or more")
    columns = _words(arguments.columns)
    listing = store.listing(arguments.where, columns=columns, sort=arguments.sort, limit=limit or None)
    rest = listing.total - len(listing.names)
    document = {"store": str(store.path), "total": listing.total, "left_out": rest}
    if arguments.json:
        rows = _rows(listing.names, listing.columns, _finite)
        document["runs"] = [dict(zip(("name", *listing.columns), row, strict=True)) for row in rows]

    def lines() -> Iterator[str]:
        varying = dict(listing.columns)
        if columns is None and len(listing.names) > 1:
            same = {name: column for name, column in varying.items() if (column.values == column.values[0]).all()}
            if same:
                yield "in all rows: " + " ".join(f"{name}={_cell(column.value(0))}" for name, column in same.items())
            varying = {name: column for name, column in varying.items() if name not in same}
        yield from _aligned(["name", *varying], _rows(listing.names, varying, _cell))
        yield f"{listing.total} runs" + (f", {rest} of them not shown (--limit 0 for all)" if rest else "")

    return 0, document, lines()


def _show(store: "Store", arguments: argparse.Namespace) -> Answer:
    run = store.describe(arguments.name)
    lacking = _lacking(run["configuration"])
    scalars = {name: _finite(value) for name, value in run["scalars"].items()}
    document = {**run, "scalars": scalars, "lacking": lacking}

    def lines() -> Iterator[str]:
        yield f"run      {run['name']}"
        yield f"shard    {run['shard']}"
        if lacking:
            yield f"lacking  {', '.join(lacking)}: to build it, register its kinds by --with FILE.py"
        for title in ("configuration", "scalars"):
            yield title
            width = max(map(len, run[title]), default=0)
            yield from (f"  {name:<{width}}  {_cell(value)}" for name, value in run[title].items())
        yield "recorded"
        yield from (
            f"  {name} ({', '.join(f'{axis}: {size}' for axis, size in one['sizes'].items())}) {one['dtype']}"
            for name, one in run["recorded"].items()
        )

    return 0, document, lines()


def _lacking(configuration: dict[str, Any]) -> list[str]:
    """The kinds of a run that are not registered, without which it can be listed and exported, and not built."""
    from stepwell.experiments import SECTIONS, kinds

    return [
        f"{section} {name}"
        for section in SECTIONS
        if (name := configuration.get(f"{section}.kind")) and name not in kinds(section, installed=True)
    ]


def _open(store: "Store", arguments: argparse.Namespace) -> Answer:
    variables = _words(arguments.variables)
    data = store.select(arguments.where, variables=variables)
    given = [repr(arguments.where)] if arguments.where else []
    given += [f"variables={variables!r}"] if variables is not None else []
    command = f"stepwell.store.Store({str(store.path)!r}).select({', '.join(given)})"
    document = {"python": command, "sizes": dict(data.sizes), "variables": {k: str(v.dtype) for k, v in data.items()}}
    return 0, document, ["import stepwell", f"data = {command}", "", repr(data)]


def _export(store: "Store", arguments: argparse.Namespace) -> Answer:
    from stepwell.store import export

    variables = _words(arguments.variables)
    path = export(store, arguments.out, arguments.where, format=arguments.format, variables=variables)
    return 0, {"written": str(path)}, [f"written: {path}"]


def _verify(store: "Store", arguments: argparse.Namespace) -> Answer:
    from stepwell.figures import damaged_figures

    wrong = [*store.verify(), *damaged_figures(store.path)]
    problems = [{"file": str(path), "reason": reason} for path, reason in wrong]
    lines = [f"{one['file']}: {one['reason']}" for one in problems]
    lines.append(f"{len(problems)} problems" if problems else "every file is as it was written")
    return (1 if problems else 0), {"store": str(store.path), "problems": problems}, lines


def _merge(store: "Store", arguments: argparse.Namespace) -> Answer:
    merged = [(other, store.merge(other)) for other in arguments.others]
    problems = [{"file": str(path), "reason": reason} for _, one in merged for path, reason in one.problems]
    copied = [{"store": other, "shards": one.shards, "runs": one.runs} for other, one in merged]
    lines = [f"{one['store']}: {one['runs']} runs in {one['shards']} shards copied" for one in copied]
    lines += [f"{one['file']} is left out: {one['reason']}" for one in problems]
    return (1 if problems else 0), {"copied": copied, "problems": problems}, lines


def _remove(store: "Store", arguments: argparse.Namespace) -> Answer:
    if bool(arguments.where) == arguments.all:
        raise InvalidInput("say which runs to remove, by filters or by --all")
    if not arguments.yes:
        count = store.listing(arguments.where, columns=[], limit=0).total
        return 0, {"matching": count, "removed": 0}, [f"{count} runs match; with --yes they are removed"]
    count = store.remove(arguments.where)
    return 0, {"matching": count, "removed": count}, [f"{count} runs removed"]


def _collect(store: "Store", arguments: argparse.Namespace) -> Answer:
    from stepwell.figures import remove_old_figures

    paths = [*store.collect_garbage(damaged=arguments.damaged), *remove_old_figures(store.path)]
    removed = [str(path) for path in paths]
    return 0, {"removed": removed}, [*(f"removed: {path}" for path in removed), f"{len(removed)} files removed"]


def _words(text: str | None) -> list[str] | None:
    """Names separated by commas."""
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _finite(value: Any) -> Any:
    """A value for JSON, which has no NaN."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rows(names: list[str], columns: "dict[str, Column]", shown: Callable[[Any], Any]) -> list[tuple[Any, ...]]:
    """The name of each run, and its values as they are shown."""
    values = [names, *(map(shown, column.decoded().tolist()) for column in columns.values())]
    return list(zip(*values, strict=True))


def _cell(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _aligned(head: Sequence[str], rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
