"""Native libraries: which texts one is named after."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell import _native
from stepwell._native import _texts


def test_a_library_is_named_after_all_that_it_includes(tmp_path: Path):
    """Else a change in a header of a header would go unnoticed, and the old library would be taken."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "deep.h").write_text("deep")
    (tmp_path / "one.h").write_text('#include "inner/deep.h"\n#include "of/another/library.h"\n#include <math.h>\none')
    (tmp_path / "unused.h").write_text("unused")
    source = tmp_path / "a.c"
    source.write_text('#include "one.h"\n')
    assert [text.splitlines()[-1] for text in _texts(source)] == ['#include "one.h"', "one", "deep"]


def test_all_are_built_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And where there is no compiler, that is said in a line."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    environment["STEPWELL_CACHE"] = str(tmp_path)
    command = [sys.executable, "-m", "stepwell._native"]
    without = subprocess.run(command, env=environment | {"CC": "no-such-compiler"}, capture_output=True, text=True)
    assert without.returncode == 0 and without.stdout.startswith("no native functions") and without.stderr == ""
    monkeypatch.setattr(_native, "_built", lambda source, element: built.append((source.name, element)))
    built: list[tuple[str, str]] = []
    _native.build_all()
    assert ("_softmax_loss.c", "double") in built and len(built) == len(set(built)) >= 4
