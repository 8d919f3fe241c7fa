"""Wheels with the kernels inside: `make wheel` compiles them for every level of the processor's kind.

Other builds (an installation from source, an editable one, the source archive) ship the C files alone, and kernels are
compiled when they are first used.
"""

import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "STEPWELL_SHIP_KERNELS"
"""Set to 1 by `make wheel`."""


class Kernels(BuildHookInterface):
    """Adds `stepwell/native/built/KERNEL-ELEMENT-LEVEL.so` to a wheel, and the platform to its name."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get(VARIABLE) != "1" or version == "editable":
            return
        sys.path.insert(0, self.root)
        from stepwell.native._build import library
        from stepwell.native._kernels import KERNELS, SOURCES
        from stepwell.native._processor import LEVELS, cores, is_x86

        self._folder = tempfile.TemporaryDirectory()
        levels = os.environ.get("STEPWELL_SHIP_LEVELS", "").split() or (list(LEVELS) if is_x86() else ["baseline"])

        def compiled(name: str, element: str, level: str) -> tuple[str, str]:
            file = f"{name}-{element}-{level}.so"
            path = Path(self._folder.name) / file
            with library(SOURCES / f"{name}.c", element, level) as built:
                shutil.copyfile(built, path)
            return str(path), f"stepwell/native/built/{file}"

        wanted = [(n, e, level) for n, elements in KERNELS.items() for e in elements for level in levels]
        with ThreadPoolExecutor(cores()) as threads:
            build_data["force_include"].update(threads.map(lambda each: compiled(*each), wanted))
        build_data["pure_python"] = False
        system = sysconfig.get_platform().replace("universal2", platform.machine())  # kernels are for one of the two
        build_data["tag"] = f"py3-none-{system.replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if os.environ.get(VARIABLE) == "1" and version != "editable":
            self._folder.cleanup()
