"""`stepwell predict` as it is typed."""

import json
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np
import pytest

from stepwell.cli import main
from stepwell.dynamics import flow
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import ContextLengths, InContextRegression
from stepwell.theory import linear

TASK = ["--eigenvalues", ".4", ".3", ".2", ".1", "--context", "31"]
LEVELS = [1, 0.64057971, 0.37737216, 0.20980460, 0.13599507]


def predicted(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["predict", *flags, "--json"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return json.loads(told.out)


def halfway(run, levels) -> list[float]:
    """Times at which the loss of a run is halfway between levels."""
    middles = (np.array(levels[:-1]) + levels[1:]) / 2
    loss = run.loss.values[0]
    return [float(run.time.values[np.argmax(loss < level)]) for level in middles]


def test_without_a_model(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK)
    # Eight digits are given, so the last may be off by half.
    np.testing.assert_allclose(found["levels"], LEVELS, rtol=0, atol=5.0001e-9)
    assert found["subsets"] == [[], [1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]
    assert found["components_count_from"] == found["heads_count_from"] == 1
    assert found["drops"] == [] and found["model"] is None
    assert found["final_loss"] == found["levels"][-1]
    assert [row["eigenvalue"] for row in found["components"]] == [0.4, 0.3, 0.2, 0.1]
    assert [row["gain"] for row in found["components"]] == pytest.approx(-np.diff(found["levels"]), abs=1e-14)


def test_a_run_of_separate_heads_follows(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK, "--model", "attnS", "--heads", "4", "--init", "1e-2", "--seed", "3")
    model = SeparateAttention.random(dim=4, heads=4, scale=1e-2, key=jax.random.key(3))
    task = InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    times = [drop["time"] for drop in found["drops"]]
    points = np.linspace(0, 1.2 * times[-1], 4001)
    run = flow(model, Population(task), until=points[-1], save=points, progress=False)
    # The schedule is exact as init becomes small; at 1e-2 it is within 5 %. The run is recorded on a grid.
    np.testing.assert_allclose(halfway(run, found["levels"]), times, rtol=0.05, atol=points[1])
    assert [drop["component"] for drop in found["drops"]] == [1, 2, 3, 4]
    value, key, query = (run[name].values[0, -1] for name in ("value", "key", "query"))
    grown = value[:, 0, 4:] * key[:, 0, :4] * query[:, 0]
    assert [drop["head"] for drop in found["drops"]] == list(1 + np.argmax(grown, axis=0))


def test_a_run_of_merged_heads_follows(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK, "--model", "attnM", "--heads", "8", "--init", "1e-4", "--balanced")
    np.testing.assert_allclose(found["levels"], [LEVELS[0], LEVELS[-1]], rtol=0, atol=5.0001e-9)
    assert found["subsets"] == [[], [1, 2, 3, 4]]
    (drop,) = found["drops"]
    assert drop["head"] is None and drop["component"] is None
    model = MergedAttention.random(dim=4, heads=8, scale=1e-4, key=jax.random.key(0)).balanced()
    points = np.linspace(0, 2 * drop["time"], 2001)
    task = InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    run = flow(model, Population(task), until=points[-1], save=points, progress=False)
    assert halfway(run, found["levels"]) == pytest.approx([drop["time"]], abs=2 * points[1])


def test_rank_and_few_heads(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK, "--model", "attnS", "--heads", "1", "--rank", "3", "--balanced")
    assert [len(subset) for subset in found["subsets"]] == [0, 1, 2, 3]
    assert [(drop["head"], drop["component"]) for drop in found["drops"]] == [(1, 1), (1, 2), (1, 3)]
    assert found["final_loss"] == pytest.approx(LEVELS[3], abs=5.0001e-9)
    assert found["model"]["rank"] == 3 and found["model"]["balanced"] is True


def test_tasks_noise_and_lengths(capsys: pytest.CaptureFixture[str]):
    flags = ["--eigenvalues", ".3", ".4", ".1", "--task-eigenvalues", "2", "1", "0", "--noise", ".5"]
    found = predicted(capsys, *flags, "--context", "5", "20")
    task = InContextRegression(
        np.diag([0.3, 0.4, 0.1]), ContextLengths([5, 20]), task_covariance=np.diag([2.0, 1, 0]), noise_variance=0.5
    )
    # The third component brings nothing, and is on no plateau.
    assert found["levels"] == linear.levels(task)[:3].tolist()
    assert found["subsets"] == [[], [1], [1, 2]]
    assert [row["eigenvalue"] for row in found["components"]] == [0.3, 0.4, 0.1]


def test_tables(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", *TASK, "--model", "attnS", "--heads", "4", "--rank", "1", "--init", "1e-3"]) == 0
    told = capsys.readouterr().out
    assert all(f"{level:.8f}" in told for level in LEVELS)
    assert "linear attnS, 4 heads of rank 1, init 0.001, seed 0" in told
    rows = told.split("head  component\n")[1].splitlines()[:4]
    assert [row.split()[-1] for row in rows] == ["1", "2", "3", "4"]
    assert told.isascii() and told.endswith("final loss 0.13599507\n")


@pytest.mark.parametrize(
    "flags, word",
    [
        ([], "required"),
        (["--eigenvalues"], "at least one"),
        (["--eigenvalues", "-1"], "--eigenvalues is -1.0"),
        (["--eigenvalues", "0.4", "nan"], "nan"),
        (["--eigenvalues", "1e99"], "1e+50"),
        (["--eigenvalues", "1", "--context", "0"], "--context"),
        (["--eigenvalues", "1", "--noise", "-1"], "--noise"),
        (["--eigenvalues", "1", "--task-eigenvalues", "1", "2"], "the same number"),
        (["--eigenvalues", "1", "--task-eigenvalues", "0"], "nothing to learn"),
        (["--eigenvalues", "1", "--heads", "2"], "--model"),
        (["--eigenvalues", "1", "--model", "attn"], "attnM"),
        (["--eigenvalues", "1", "--model", "attnM", "--rank", "2"], "--rank is for"),
        (["--eigenvalues", "1", "--model", "attnS", "--heads", "0"], "--heads"),
        (["--eigenvalues", "1", "--model", "attnS", "--heads", "1000000000000"], "smaller --heads"),
        (["--eigenvalues", "1", "--model", "attnS", "--init", "0"], "--init"),
        (["--eigenvalues", "1", "--model", "attnS", "--seed", "-1"], "--seed"),
        (["--eigenvalues", "1", "--model", "attnS", "--rank", "2", "--balanced"], "--balanced needs"),
        (["--eigenvalues", "1", "--headz", "2"], "did you mean --heads"),
    ],
)
def test_bad_usage(flags: list[str], word: str, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", *flags]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and word in told.err


@pytest.mark.parametrize(
    "flags, times, reason",
    [
        (["--eigenvalues", "1", "1e-6", "--model", "attnS", "--rank", "2"], 2, None),
        (["--eigenvalues", "1", "1e-30", "--model", "attnS"], 2, None),
        (["--eigenvalues", "1", "--model", "attnS", "--init", "1e-20"], 1, None),
        (["--eigenvalues", "1", "--model", "attnS", "--init", "1e-40"], 1, None),
        (["--eigenvalues", "1", "--model", "attnS", "--init", "1e49"], 0, "too large"),
        (["--eigenvalues", "1", "1e-6", "--model", "attnM", "--init", "1e49"], 0, "too large"),
    ],
)
def test_extreme_values_end_with_times_or_with_the_reason(flags, times, reason, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["drops"]) == times
    assert (found["drops_missing"] is None) if reason is None else (reason in found["drops_missing"])
    assert main(["predict", *flags]) == 0
    assert (reason or "final loss") in capsys.readouterr().out


def test_no_jax_without_a_model():
    script = (
        "import sys; from stepwell.cli import main; code = main(sys.argv[1:]); "
        "assert 'jax' not in sys.modules; sys.exit(code)"
    )
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script, "predict", *TASK], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # It takes 0.6 s alone; the rest is for a busy machine.
    assert time.monotonic() - begun < 10
