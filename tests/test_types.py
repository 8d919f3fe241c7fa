"""The types are right: here rather than before the tests, so that both cores are busy."""

import os
import subprocess
import sys
from pathlib import Path


def test_pyright_finds_nothing():
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # it does not ask for a newer version
    command = [sys.executable, "-m", "pyright"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
