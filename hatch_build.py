"""What is built knows its commit, and wheels have the kernels inside: `make wheel` compiles them for every level of
the processor's kind.

Other builds (an installation from source, an editable one, the source archive) ship the C files alone, and kernels are
compiled when they are first used.
"""

import os
import platform
import shutil
import subprocess
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
    """Adds the commit to what is built, and to a wheel `stepwell/native/built/KERNEL-ELEMENT-LEVEL.so`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        if version != "editable":
            self._add_commit(build_data)
        if not self._ships(version):
            return
        sys.path.insert(0, self.root)
        from stepwell.native._compile import library
        from stepwell.native._kernels import KERNELS, SOURCES
        from stepwell.native._processor import LEVELS, cores, is_x86

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

    def _add_commit(self, build_data: dict[str, Any]) -> None:
        """Write into what is built of which commit it is, for `stepwell --version`; a source archive has it already."""
        kept = Path("stepwell", "_commit.txt")
        if (Path(self.root) / kept).exists() or not (Path(self.root) / ".git").exists():
            return
        # As in stepwell/_util/versions.py, which cannot be imported where a build is isolated from the dependencies.
        command = ["git", "-C", self.root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        try:
            made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout
        except (OSError, subprocess.SubprocessError):
            return
        path = Path(self._folder.name) / kept.name
        path.write_text(made, encoding="utf-8")
        build_data["force_include"][str(path)] = str(kept)

    def _ships(self, version: str) -> bool:
        return os.environ.get(VARIABLE) == "1" and version != "editable" and self.target_name == "wheel"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._folder.cleanup()
