"""`stepwell doctor`: what this installation runs on, which kernels it uses, and why not where it does not."""

import argparse
import json
import os
import platform
from collections.abc import Iterator
from typing import Any

from stepwell import __version__
from stepwell._util.cache import cache
from stepwell._util.memory import available_memory
from stepwell._util.progress import Meter
from stepwell._util.versions import installed

_PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy", "xarray", "h5netcdf", "matplotlib")
_GIB = 2**30


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")


def run(arguments: argparse.Namespace) -> int:
    facts = _examine()
    print(json.dumps(facts, indent=2, ensure_ascii=False) if arguments.json else "\n".join(_lines(facts)))
    return 0


def _examine() -> dict[str, Any]:
    """All that is shown, as JSON has it. Kernels that are not built yet are built."""
    from stepwell import native

    kernels = []
    with Meter("building kernels", sum(map(len, native.KERNELS.values()))) as meter:
        for name, element, state in native.states():
            width = None if state.kernel is None else state.kernel.vector_bytes
            used = width is not None
            kernels.append({"name": name, "element": element, "used": used, "bytes": width, "why": state.reason})
            meter.update(len(kernels), name)
    kept, packages = cache(), {name: installed(name) for name in _PACKAGES}
    files = [] if kept.folder is None else [entry for entry in os.scandir(kept.folder) if entry.is_file()]
    content = {"files": len(files), "bytes": sum(entry.stat().st_size for entry in files)}
    return {
        "versions": {"stepwell": __version__, "python": platform.python_version(), **packages},
        "system": {
            "platform": platform.platform(),
            "processor": native.processor_name(),
            "levels": list(native.levels()),
            "cores": native.cores(),
            "free_memory": available_memory(),
        },
        "kernels": kernels,
        "cache": {"folder": kept.folder, "why": kept.reason, **content},
    }


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    system, kept = facts["system"], facts["cache"]
    yield "versions   " + ", ".join(f"{name} {number or 'missing'}" for name, number in facts["versions"].items())
    yield f"system     {system['platform']}"
    yield f"processor  {system['processor']}; kernels for it: {', '.join(system['levels'])} (the first is used)"
    yield f"cores      {system['cores']}"
    yield f"memory     {system['free_memory'] / _GIB:.1f} GiB free"
    if kept["folder"] is None:
        yield f"cache      none: {kept['why']}"
    else:
        yield f"cache      {kept['folder']}: {kept['files']} files, {kept['bytes'] / 2**20:.1f} MiB"
    used = sum(kernel["used"] for kernel in facts["kernels"])
    yield f"kernels    {used} of {len(facts['kernels'])} in use; in place of others plain JAX is used, which is slower"
    for kernel in facts["kernels"]:
        what = f"{8 * kernel['bytes']}-bit vectors, {kernel['why']}" if kernel["used"] else f"NOT USED: {kernel['why']}"
        yield f"  {kernel['name']:<21} {kernel['element']:<7} {what}"
