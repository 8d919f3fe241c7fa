"""`python -m benchmarks [NAME…]`: run them and print one table, or one JSON document."""

import argparse
import difflib
import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import stepwell

from . import BENCHMARKS
from ._row import Row, Unavailable, markdown, table


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0 done (a missed speed target is only shown), 1 a check failed, 2 one could not be run."""
    given = _parser().parse_args(arguments)
    for name in given.names:
        if name not in BENCHMARKS:
            near = difflib.get_close_matches(name, BENCHMARKS, n=1) or [", ".join(BENCHMARKS)]
            print(f"there is no benchmark {name}; did you mean {near[0]}?", file=sys.stderr)
            return 2
    stepwell.configure()
    begun = time.monotonic()
    machine = _machine()
    rows: dict[str, list[Row]] = {}
    left_out: dict[str, str] = {}
    for name in given.names or BENCHMARKS:
        print(f"{name}: {BENCHMARKS[name]}", file=sys.stderr, flush=True)
        rows[name] = []
        try:
            for row in importlib.import_module(f"benchmarks.{name}").run(given.quick):
                rows[name].append(row.without_speed_target() if given.quick else row)
                print(f"  {row.brief()}", file=sys.stderr, flush=True)
        except Unavailable as reason:
            left_out[name] = str(reason)
            print(f"{name}: {reason}", file=sys.stderr, flush=True)
    if given.json:
        document = {
            "rows": [{"benchmark": name, **row.record()} for name, found in rows.items() for row in found],
            "left_out": left_out,
            "quick": given.quick,
            "seconds": time.monotonic() - begun,
            "machine": machine,
            "versions": _versions(),
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        write = markdown if given.markdown else table
        print(f"\n{write([row for found in rows.values() for row in found])}")
        print(f"\n{machine['processor']}, {machine['cores']} cores, load {machine['load']:.2f} at the start")
    if any(row.check and not row.reached for found in rows.values() for row in found):
        print("a check failed: a number above is not what it should be", file=sys.stderr)
        return 1
    return 2 if left_out else 0


def _parser() -> argparse.ArgumentParser:
    listing = "\n".join(f"  {name:<16} {text}" for name, text in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"How fast Stepwell is, beside what it is measured against.\n\nbenchmarks:\n{listing}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run (default: all)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document")
    form.add_argument("--markdown", action="store_true", help="print the table as a page of documentation has it")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that all works; no speed targets")
    return parser


def _machine() -> dict[str, Any]:
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as lines:
            processor = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"processor": processor, "cores": os.cpu_count(), "load": os.getloadavg()[0], "system": platform.system()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("stepwell", "jax", "jaxlib", "numpy", "scipy", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            pass
    return found


if __name__ == "__main__":
    sys.exit(main())
