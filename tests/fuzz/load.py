"""`python tests/fuzz/load.py`: many training commands, and what they leave behind.

One after another, each with another seed, they must leave no temporary file, no process and a cache of bounded size;
several at once must all finish with the numbers of one alone.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = ["train", "--dim", "2", "--objective", "moments", "--sequences", "50", "--steps", "200", "--json"]


def start(folder: Path, seed: int, environment: dict[str, str]) -> subprocess.Popen:
    """A training run as users start it, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "stepwell", *WORDS, "--seed", str(seed)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **pipes)


def finish(process: subprocess.Popen) -> dict[str, float]:
    """Its first and final loss; an error if it did not end well."""
    out, err = process.communicate(timeout=600)
    if process.returncode != 0:
        raise RuntimeError(f"status {process.returncode}: {err}")
    report = json.loads(out)
    return {part: report[part]["train"] for part in ("first_loss", "final_loss")}


def own_environment(base: Path) -> dict[str, str]:
    """That of commands with a cache and temporary files in folders of their own."""
    places = {"STEPWELL_CACHE": base / "cache", "TMPDIR": base / "temporary"}
    for place in places.values():
        place.mkdir(mode=0o700, exist_ok=True)
    return os.environ | {name: str(place) for name, place in places.items()}


def left_behind(base: Path) -> list[str]:
    """Temporary files, and half-written ones of the runs."""
    hidden = [path for path in (base / "runs").rglob(".*") if path.is_file()]
    return sorted(str(path.relative_to(base)) for path in [*(base / "temporary").iterdir(), *hidden])


def cached(base: Path) -> int:
    """Files in the cache."""
    return sum(path.is_file() for path in (base / "cache").rglob("*"))


def one_after_another(base: Path, count: int) -> tuple[list[int], dict[str, float]]:
    """How many files the cache has after each command, and the losses of the first, which has the seed 0."""
    environment = own_environment(base)
    sizes, losses = [], []
    for seed in range(count):
        losses.append(finish(start(base / "runs" / "row", seed, environment)))
        sizes.append(cached(base))
    return sizes, losses[0]


def at_once(base: Path, count: int) -> list[dict[str, float]]:
    """The losses of as many runs at once, all of the seed 0."""
    environment = own_environment(base)
    processes = [start(base / "runs" / str(number), 0, environment) for number in range(count)]
    return [finish(process) for process in processes]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="commands in a row")
    parser.add_argument("--at-once", type=int, default=8, help="commands at once")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        sizes, alone = one_after_another(base, given.count)
        print(f"files in the cache after the first command: {sizes[0]}; after {len(sizes)}: {sizes[-1]}")
        losses = at_once(base, given.at_once)
        same = sum(each == alone for each in losses)
        print(f"{same} of {len(losses)} at once have the losses of one alone, {alone}")
        print(f"left behind: {left_behind(base) or 'nothing'}")
        return 0 if same == len(losses) and not left_behind(base) else 1


if __name__ == "__main__":
    sys.exit(main())
