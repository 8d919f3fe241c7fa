"""Run a case, and say what is wrong with how it ended."""

import contextlib
import io
import json
import os
import random
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

from cases import Case, damaged

from stepwell.cli import main

STATUSES = {0, 1, 2, 3, 130}


class Ending(NamedTuple):
    """Exit status and what was printed."""

    status: int
    out: str
    err: str


def run(case: Case) -> Ending:
    """Run a case in a folder of its own, in this process."""
    out, err = io.StringIO(), io.StringIO()
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        os.chdir(folder)
        try:
            for name, data in case.files.items():
                Path(name).write_bytes(data)
            if "--resume" in case.words and "seed" in case.files:
                _damage_trajectory(case)
            for stream in (out, err):
                stream.seek(0)
                stream.truncate()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                try:
                    status = main(case.words)
                except SystemExit as end:  # argparse's --help
                    status = end.code if isinstance(end.code, int) else 1
        finally:
            os.chdir(before)
    return Ending(status, out.getvalue(), err.getvalue())


def _damage_trajectory(case: Case) -> None:
    words = [word for word in case.words if word != "--resume"]
    main([*words, "--steps", "30"])
    draw = random.Random(case.files["seed"])
    for path in Path().glob("*.nc"):
        path.write_bytes(damaged(path.read_bytes(), draw))


def complaint(case: Case, ending: Ending) -> str:
    """What must not be; empty if all is well."""
    status, out, err = ending
    if status not in STATUSES:
        return f"exit status {status}"
    if "Traceback" in err or "Traceback" in out:
        return "a traceback"
    lines = err.strip().splitlines()
    if status == 2 and not any(line.startswith("stepwell") for line in lines):
        return "bad usage without a message"
    if any(len(line) > 2000 for line in lines):
        return "a message of more than 2000 letters"
    if status == 0 and "--json" in case.words and case.words[0] in ("predict", "train", "replay", "doctor"):
        try:
            json.loads(out, parse_constant=lambda name: 1 / 0)
        except (ValueError, ZeroDivisionError):
            return "no JSON document where that was asked for"
    if case.words[0] == "train" and "seed" in case.files and "resuming from step" in out:
        return "a damaged trajectory was resumed"  # it may be passed over, and the run begun anew
    return ""
