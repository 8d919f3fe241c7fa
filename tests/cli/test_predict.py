"""`stepwell predict` as it is typed."""

import json
import re
from typing import Any

import jax
import numpy as np
import pytest

import stepwell as sw
from stepwell._util.paper_time import PAPER_UNIT
from stepwell.cli import main
from stepwell.dynamics import Record, flow
from stepwell.models import MergedAttention, SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import ContextLengths, InContextRegression
from stepwell.theory import linear

TASK = ["--eigenvalues", ".4", ".3", ".2", ".1", "--context", "31", "--directions", "axes"]
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


def test_the_document(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK)
    # Eight digits are given, so the last may be off by half.
    np.testing.assert_allclose(found["levels"], LEVELS, rtol=0, atol=5.0001e-9)
    assert found["learned"] == [0, 1, 2, 3, 4] and found["time_unit"] == PAPER_UNIT
    assert found["components_count_from"] == found["heads_count_from"] == 1
    assert found["final_loss"] == found["levels"][-1]
    assert [row["eigenvalue"] for row in found["components"]] == [0.4, 0.3, 0.2, 0.1]
    assert [row["gain"] for row in found["components"]] == pytest.approx(-np.diff(found["levels"]), abs=1e-14)
    made = sw.Experiment.from_dict(found["experiment"])
    assert made.task.directions == "axes" and found["name"] == made.name
    own = json.loads(json.dumps(made.predict().document))
    assert own == found


def test_a_run_of_separate_heads_follows(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK, "--heads", "4", "--scale", "1e-2", "--seed", "3")
    model = SeparateAttention.random(dim=4, heads=4, scale=1e-2, key=jax.random.key(3))
    task = InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    times = [drop["time"] for drop in found["drops"]]
    points = np.linspace(0, 1.2 * times[-1], 4001)
    run = flow(model, Population(task), until=points[-1], record=Record(points=points), progress=False)
    # The schedule is exact as the scale becomes small; at 1e-2 it is within 5 %. The run is recorded on a grid.
    np.testing.assert_allclose(halfway(run, found["levels"]), times, rtol=0.05, atol=points[1])
    assert [drop["component"] for drop in found["drops"]] == [1, 2, 3, 4]
    assert all(drop["step"] is None for drop in found["drops"])
    value, key, query = (run[name].values[0, -1] for name in ("value", "key", "query"))
    grown = value[:, 0, 4:] * key[:, 0, :4] * query[:, 0]
    assert [drop["head"] for drop in found["drops"]] == list(1 + np.argmax(grown, axis=0))


def test_a_run_of_merged_heads_follows(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK, "--model", "merged", "--heads", "8", "--scale", "1e-4", "--balanced")
    np.testing.assert_allclose(found["levels"], [LEVELS[0], LEVELS[-1]], rtol=0, atol=5.0001e-9)
    assert found["learned"] == [0, 4]
    (drop,) = found["drops"]
    assert drop["head"] is None and drop["component"] is None
    model = MergedAttention.random(dim=4, heads=8, scale=1e-4, key=jax.random.key(0)).balanced()
    points = np.linspace(0, 2 * drop["time"], 2001)
    task = InContextRegression(np.diag([0.4, 0.3, 0.2, 0.1]), 31)
    run = flow(model, Population(task), until=points[-1], record=Record(points=points), progress=False)
    assert halfway(run, found["levels"]) == pytest.approx([drop["time"]], abs=2 * points[1])


def test_time_is_the_papers_whatever_is_trained(capsys: pytest.CaptureFixture[str]):
    """Attention that is not divided by N has weights smaller by N^(1/3), and takes N^(2/3) times fewer steps."""
    divided = predicted(capsys, *TASK, "--scale", "0.0314138065239139", "--training", "descent", "--rate", "0.01")
    words = ["--normalization", "none", "--scale", "0.01", "--training", "descent", "--rate", "0.01"]
    plain = predicted(capsys, *TASK, *words)
    for one, other in zip(divided["drops"], plain["drops"], strict=True):
        assert other["time"] == pytest.approx(one["time"], rel=1e-6)
        assert one["step"] == pytest.approx(one["time"] / 0.02, rel=1e-12)
        assert other["step"] == pytest.approx(other["time"] / (0.02 * 31 ** (2 / 3)), rel=1e-12)
        assert (one["head"], one["component"]) == (other["head"], other["component"])


def test_rank_and_few_heads(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK, "--heads", "1", "--rank", "3", "--balanced", "--scale", "1e-3")
    assert found["learned"] == [0, 1, 2, 3]
    assert [(drop["head"], drop["component"]) for drop in found["drops"]] == [(1, 1), (1, 2), (1, 3)]
    assert found["final_loss"] == pytest.approx(LEVELS[3], abs=5.0001e-9)


def test_tasks_noise_and_lengths(capsys: pytest.CaptureFixture[str]):
    flags = ["--eigenvalues", ".3", ".4", ".1", "--task-eigenvalues", "2", "1", "0", "--noise", ".5"]
    found = predicted(capsys, *flags, "--context", "5", "20", "--directions", "axes")
    task = InContextRegression(
        np.diag([0.3, 0.4, 0.1]), ContextLengths([5, 20]), task_covariance=np.diag([2.0, 1, 0]), noise_variance=0.5
    )
    # The third component brings nothing, and is on no plateau.
    assert found["levels"] == pytest.approx(linear.levels(task)[:3].tolist(), rel=1e-14)
    assert found["learned"] == [0, 1, 2]
    assert [row["eigenvalue"] for row in found["components"]] == pytest.approx([0.3, 0.4, 0.1])


def test_the_levels_of_a_sample_are_its_own(capsys: pytest.CaptureFixture[str]):
    words = [*TASK, "--objective", "moments", "--sequences", "2000", "--seed", "5"]
    found = predicted(capsys, *words)
    assert found["remark"] == "predicted for the 2000 sequences trained on; how far off times are is not known"
    assert found["levels"] != pytest.approx(LEVELS, rel=1e-3)
    np.testing.assert_allclose(found["levels"], LEVELS, rtol=0.3)


def test_times_of_a_finite_sample_and_of_steps_have_no_uncertainty(capsys: pytest.CaptureFixture[str]):
    """That of the flow at infinitely many sequences is too small for them."""
    words = [*TASK, "--objective", "moments", "--sequences", "2000", "--scale", "1e-3"]
    assert {drop["uncertainty"] for drop in predicted(capsys, *words)["drops"]} == {None}
    steps = [*TASK, "--training", "descent", "--scale", "1e-3"]  # later than the flow by more than its uncertainty
    assert {drop["uncertainty"] for drop in predicted(capsys, *steps)["drops"]} == {None}
    assert all(drop["uncertainty"] > 0 for drop in predicted(capsys, *TASK, "--scale", "1e-3")["drops"])
    assert main(["predict", *words]) == 0
    first = capsys.readouterr().out.split("head  component\n")[1].splitlines()[0]
    assert first.split()[1] == "-"


def test_what_is_recorded_does_not_matter(capsys: pytest.CaptureFixture[str]):
    one, other = predicted(capsys, *TASK), predicted(capsys, *TASK, "--points", "50", "--spacing", "log")
    assert one["drops"] == other["drops"] and one["name"] != other["name"]


def test_tables(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", *TASK, "--heads", "4", "--rank", "1", "--scale", "1e-3"]) == 0
    told = capsys.readouterr().out
    assert all(f"{level:.8f}" in told for level in LEVELS)
    assert "separate, 4 heads of rank 1, initialization scale 0.001, attention divided by N, seed 0" in told
    rows = told.split("head  component\n")[1].splitlines()[:4]
    assert [row.split()[-1] for row in rows] == ["1", "2", "3", "4"]
    assert "drop at t/τ" in told and told.endswith("final loss 0.13599507\n")
    assert main(["predict", *TASK, "--training", "descent", "--rate", "0.1"]) == 0
    assert re.search(r"drop at t/τ +± +step +loss to", capsys.readouterr().out)


NO_THEORY = {
    "softmax": ("--activation softmax", "softmax attention on one regression"),
    "mixture": ("--task mixture", "the task mixture"),
    "outputs": ("--outputs 2", "several outputs"),
    "tokens": ("--context 3 5 --normalization 1/tokens", "not divided by N"),
    "a model of tokens on several regressions": ("--task multitask --model multihead", "the model multihead"),
}


@pytest.mark.parametrize("line, reason", NO_THEORY.values(), ids=NO_THEORY)
def test_without_theory_it_says_why(line: str, reason: str, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", *line.split()]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and reason in err
    assert main(["predict", *line.split(), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert reason in found["reason"] and sw.Experiment.from_dict(found["experiment"]).name == found["name"]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--dim", "2", "--rank", "3"], "rank 3 is above the dimension 2"),
        (["--scale", "0", "--training", "descent"], "fixed"),
    ],
)
def test_allowed_with_a_word(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", *flags]) == 0
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and err.startswith("stepwell predict: ")


def test_too_many_heads_are_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", "--heads", "1000000", "--rank", "1000000"]) == 2
    assert "GiB" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line, times, reason",
    [
        ("--eigenvalues 1 1e-6 --rank 2 --scale 1e-3", 2, None),
        ("--eigenvalues 1 1e-30 --scale 1e-3", 1, None),  # what the second takes away is below rounding
        ("--eigenvalues 1 --scale 1e-20", 1, None),
        ("--eigenvalues 1 --scale 1e-40", 1, None),
        ("--eigenvalues 1 --scale 1e49", 0, "too large"),
        ("--eigenvalues 1 1e-6 --model merged --scale 1e49", 0, "too large"),
    ],
)
def test_extreme_values_end_with_times_or_with_the_reason(line, times, reason, capsys: pytest.CaptureFixture[str]):
    flags = [*line.split(), "--directions", "axes"]
    assert main(["predict", *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["drops"]) == times
    assert (found["drops_missing"] is None) if reason is None else (reason in found["drops_missing"])
    assert main(["predict", *flags]) == 0
    assert (reason or "final loss") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--spectrum", "white", "--dim", "20000"], "a model of 20000 heads in dimension 20000 needs about 59.6 GiB"),
        (["--spectrum", "white", "--dim", "100000"], "a model of 100000 heads"),
        (["--objective", "moments", "--dim", "90"], "the moment matrix of 8100 features in dimension 90 needs"),
        (["--objective", "sampled", "--dim", "90"], "take a smaller dimension, or the objective population"),
    ],
)
def test_what_would_not_fit_is_refused_before_it_is_built(
    flags: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """As if one GiB were free: the refusal must not depend on the machine, nor a failure of this test end it."""
    monkeypatch.setattr("stepwell._util.memory.available_memory", lambda: 2**30)
    monkeypatch.setattr(sw.Experiment, "build_task", lambda self: pytest.fail("a task was built"))
    assert main(["predict", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line and "1.0 GiB are free" in line
