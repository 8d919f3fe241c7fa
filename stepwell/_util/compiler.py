"""How XLA is asked to compile. Standard library only: this runs at every start.

XLA's newer way of emitting fused kernels takes twice as long to compile as the older one. Of the programs here only the
loop of merged attention runs faster for it, by a third: 1.6 µs a step, which the compiler takes 0.3 s to gain. So the
older way is taken, but for loops that are long enough to earn it back. Programs here are small: cutting them into parts
for several threads to compile takes a sixth more work and saves no time.
"""

import importlib.util
import os
import re
from typing import Any

_NEWER = "xla_cpu_use_fusion_emitters"
_PARTS = "xla_cpu_parallel_codegen_split_count"
_LEVEL = "xla_backend_optimization_level"


def _known() -> bool:
    """XLA ends the process that names an option it does not have, so other versions are left as they are.

    The version is read from its file: `importlib.metadata` takes a quarter of the time that help takes.
    """
    found = importlib.util.find_spec("jaxlib")
    if found is None or found.origin is None:
        return False
    try:
        with open(os.path.join(os.path.dirname(found.origin), "version.py"), encoding="utf-8") as file:
            return re.search(r"""^_version = ["']0\.10\.""", file.read(), re.MULTILINE) is not None
    except OSError:
        return False


_KNOWN = _known()

FOR_LONG_LOOPS: dict[str, Any] | None = {_NEWER: True} if _KNOWN else None
"""Compiler options for programs that run long enough to earn the newer way back; None for other versions of XLA."""


def compile_quickly() -> None:
    """Takes effect if JAX has not yet computed anything; a choice the user made stands."""
    _ask({_NEWER: "false", _PARTS: "1"})


def disable_optimization() -> None:
    """Disable XLA's optimization: for a process whose programs run for less time than they take to compile.

    A third of the compiler's work is left; numbers differ in their last digits.
    """
    _ask({_LEVEL: "0"})


def _ask(options: dict[str, str]) -> None:
    """Add options to `XLA_FLAGS`. If that does not begin with a dash it names a file of options, and is left alone."""
    asked = os.environ.get("XLA_FLAGS", "").split()
    if _KNOWN and (not asked or asked[0].startswith("-")):
        asked += [f"--{name}={value}" for name, value in options.items() if not any(name in one for one in asked)]
        os.environ["XLA_FLAGS"] = " ".join(asked)
