"""How XLA is asked to compile. Standard library only: this runs at every start.

XLA's newer way of emitting fused kernels takes twice as long to compile as the older one. Of the programs here only the
loop of merged attention runs faster for it, by a third: 1.6 µs a step, which the compiler takes 0.3 s to gain. So the
older way is taken, but for loops that are long enough to earn it back.
"""

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_OPTION = "xla_cpu_use_fusion_emitters"


def _known() -> bool:
    """XLA ends the process that names an option it does not have, so other versions are left as they are."""
    try:
        return version("jaxlib").startswith("0.10.")
    except PackageNotFoundError:
        return False


_KNOWN = _known()

FOR_LONG_LOOPS: dict[str, Any] | None = {_OPTION: True} if _KNOWN else None
"""Compiler options."""


def compile_quickly() -> None:
    """Takes effect if JAX has not yet computed anything; a choice the user made stands."""
    chosen = os.environ.get("XLA_FLAGS", "")
    if _KNOWN and _OPTION not in chosen:
        os.environ["XLA_FLAGS"] = f"{chosen} --{_OPTION}=false".strip()
