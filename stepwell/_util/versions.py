"""The versions of the software that made a result."""

import contextlib
import functools
import os
import platform
import subprocess
from pathlib import Path

from stepwell import __version__

NUMERICS = 3
"""Version of the numerics, raised when the numbers of runs change by more than rounding: names of runs change with it,
and checkpoints of others are not gone on from.
"""


def installed(name: str) -> str | None:
    """The version of a package that is installed; None if it is not."""
    from importlib.metadata import PackageNotFoundError, version  # 30 ms that help and mistakes do without

    try:
        return version(name)
    except PackageNotFoundError:
        return None


@functools.cache
def versions() -> dict[str, str]:
    """Versions of Stepwell and of the libraries that make its numbers; looked up once, since it takes a while."""
    names = ("jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy", "xarray")
    return {"stepwell": __version__, **{name: number for name in names if (number := installed(name))}}


@functools.cache
def commit() -> str | None:
    """The commit of the source, with "-dirty" where files differ from it; None where that is not known."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        kept = root / "stepwell" / "_commit.txt"  # written where a wheel or a source archive is built
        return kept.read_text(encoding="utf-8").strip() or None if kept.exists() else None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


@functools.cache
def machine() -> str:
    """The kind of machine: processor, cores and system."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {os.cpu_count()} cores, {platform.system()}"
