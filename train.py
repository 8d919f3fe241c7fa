"""`python train.py …`: the published script's commands run as they are."""

import importlib.util
import os
import sys
from pathlib import Path

if importlib.util.find_spec("jax") is None:
    # Not the project's interpreter: hand over to it, where it has been made.
    own = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
    if not own.exists():
        sys.exit("train.py: JAX is not installed; run `make env` first")
    os.execv(own, [str(own), *sys.argv])

from stepwell.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(["train.py", *sys.argv[1:]]))
