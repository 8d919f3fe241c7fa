"""The benchmarks run and print what they promise. Nothing here depends on how long anything takes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import BENCHMARKS, natives
from benchmarks.__main__ import main
from benchmarks._row import Row, markdown, quantity, table
from benchmarks._timing import interleaved
from stepwell.native import KERNELS

ROOT = Path(__file__).parents[1]

WITHOUT_TORCH = (
    "spectral",
    "flow",
    "flow_solvers",
    "sampling",
    "streaming",
    "population_scale",
    "ensembles",
    "schedules",
    "natives",
    "store",
    "sweep",
    "whole_command",
)


def test_help_lists_every_benchmark(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    text = capsys.readouterr().out
    for name, what in BENCHMARKS.items():
        assert name in text and what in text
        assert (ROOT / "benchmarks" / f"{name}.py").is_file()


def test_an_unknown_name_is_refused_with_the_near_one(capsys: pytest.CaptureFixture[str]):
    assert main(["flwo"]) == 2
    assert capsys.readouterr().err == "there is no benchmark flwo; did you mean flow?\n"


def test_quick_runs_give_valid_rows():
    command = [sys.executable, "-m", "benchmarks", *WITHOUT_TORCH, "--quick", "--json"]
    environment = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # how fast they are is not tested
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["left_out"] == {}
    assert {row["benchmark"] for row in document["rows"]} == set(WITHOUT_TORCH)
    for row in document["rows"]:
        assert row["what"] and isinstance(row["ours"], float | int)
        assert row["check"] == (row["reached"] is not None)  # at these sizes only correctness has a target
        assert row["reached"] in (True, None), row
        assert row["ratio"] == (None if row["baseline"] is None else row["baseline"] / row["ours"])


def test_every_kernel_is_measured():
    measured = {work.kernel for work in natives.WORK}
    assert measured == set(natives.COMMANDS) == set(KERNELS), "WORK and COMMANDS of benchmarks/natives.py: all kernels"


def test_what_needs_pytorch_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """PyTorch made impossible to import, whether or not it is there."""
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in ("benchmarks.cubic_mlp", "benchmarks._pytorch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main(["cubic_mlp"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "cubic_mlp: needs PyTorch; `make bench` installs it"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(4.1e-6, "s", "4.10 µs"), (0.25, "s", "250 ms"), (3, "s", "3 s"), (3 * 2**20, "bytes", "3 MiB"), (0, "", "0")],
)
def test_quantities_are_written_for_people(value: float, unit: str, text: str):
    assert quantity(value, unit) == text


def test_targets():
    faster = Row("a", 2.0, "s", 8.0, least_ratio=5)
    assert (faster.ratio, faster.reached, faster.target) == (4.0, False, "≥ 5 ×")
    short = Row("b", 2.0, "s", most=2.0)
    assert (short.ratio, short.reached, short.target) == (None, True, "≤ 2 s")
    assert short.without_speed_target().reached is None
    correct = Row("c", 1e-9, "", most=1e-8, check=True)
    assert correct.without_speed_target() == correct
    assert "NO" in table([faster]) and "yes" in table([short])
    near = faster._replace(limit=0.5, note="why")
    assert near.record()["limit"] == 0.5 and "500 ms" in table([near])
    assert markdown([near]).splitlines()[-1] == "| a<br><small>why</small> | 2 s | 8 s | 4 × | 500 ms | ≥ 5 × | NO |"


def test_sides_are_warmed_and_take_turns():
    calls = []
    times = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3)
    assert calls == ["a", "b"] * 4
    assert set(times) == {"a", "b"}
