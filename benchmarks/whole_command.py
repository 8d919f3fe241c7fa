"""Commands from start to finish, as a user waits for them: a new process each time, so import and compilation count."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ._row import Row, Unavailable
from ._timing import best

ROOT = Path(__file__).parents[1]


def run(quick: bool) -> Iterator[Row]:
    script = Path(sys.executable).with_name("stepwell")
    yield Row(
        "stepwell --help",
        best(lambda: call([str(script), "--help"]), rounds=1 if quick else 9),
        "s",
        most=0.4,
    )
    flags = ["--model", "attnM", "--head", "8", "--init", "1e-6", *(["--epoch", "101"] if quick else [])]
    command = [sys.executable, str(ROOT / "train.py"), *flags]
    yield Row(
        "python train.py " + " ".join(flags),
        best(lambda: call(command), rounds=1 if quick else 4, warm=not quick),
        "s",
        most=3.0,
        note="import, data, programs read or compiled, training, files and plot; the best of some, so not a first run",
    )


def call(command: list[str]) -> None:
    """Run a command in a folder of its own, which is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise Unavailable(f"`{' '.join(command)}` ended with status {done.returncode} and said: {said[-1]}")
