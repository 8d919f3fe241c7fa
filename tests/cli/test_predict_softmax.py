"""`stepwell predict --task multitask` as it is typed."""

import json
from typing import Any

import numpy as np
import pytest

import stepwell as sw
from stepwell._util.paper_time import TIME_UNIT
from stepwell.cli import main
from stepwell.tasks import MultiTaskRegression
from stepwell.theory import softmax

TASK = [
    "--task",
    "multitask",
    "--scale",
    "0.001",
    "--dims",
    "4",
    "10",
    "7",
    "--strengths",
    "2",
    ".6",
    ".05",
    "--noise",
    ".8",
    "--context",
    "50",
]


def predicted(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["predict", *flags, "--json"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return json.loads(told.out)


def test_the_document(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK, "--heads", "3")
    task = MultiTaskRegression((4, 10, 7), (2.0, 0.6, 0.05), 50, noise_variance=0.8)
    model: Any = (
        sw.Experiment(
            task={
                "kind": "multitask",
                "dims": task.dims,
                "strengths": task.strengths,
                "noise": 0.8,
                "context": 50,
            },
            model={"kind": "spectral", "scale": 0.001},
        )
        .build()
        .model
    )
    end = softmax.flow_end(task, np.asarray(model.omega()), np.asarray(model.mu()))
    expected = {
        "gf_loss": end.loss,
        "gf_exact_loss": softmax.exact_loss(task, end.omega, end.mu),
        "division_loss": softmax.flow_limit_loss(task),
        "single_head_loss": softmax.single_head_optimum(task).loss,
        "lower_bound": softmax.lower_bound(task, 3),
        "mmse": softmax.exact_bayes_risk(task),
    }
    for name, losses in expected.items():
        if name != "lower_bound":
            assert found[name]["per_task"] == pytest.approx(losses, rel=1e-12)
        assert found[name]["total"] == pytest.approx(losses.sum(), rel=1e-12)
    # It bounds the sum only: the third task ends below its own part.
    assert list(found["lower_bound"]) == ["total"] and expected["lower_bound"][2] > expected["gf_exact_loss"][2]
    assert found["lower_bound"]["total"] < found["gf_exact_loss"]["total"]
    assert found["single_head_loss"]["total"] == pytest.approx(6.2411437847, abs=5.1e-11)
    assert found["limits"] == {"omega": pytest.approx(end.omega.sum(axis=0)), "mu": pytest.approx(end.mu.sum(axis=0))}
    assert found["gf_reason"] is None and found["gf_heads"] == (end.head + 1).tolist()
    assert found["task"]["signals"] == pytest.approx([8, 6, 0.35])
    # t/τ = 1/(2 s λ ρ* ω), ρ* = L/(H φ + L s/d), s = 1/√21, ω = 0.001.
    s, lam, dims = 21**-0.5, np.array([2, 0.6, 0.05]), np.array([4, 10, 7])
    for heads, name in ((1, "emergence_times"), (3, "emergence_times_with_equal_heads")):
        ray = 50 / (heads * (1 + 0.8 / (lam * dims)) + 50 * s / dims)
        assert found[name] == pytest.approx(1 / (2 * s * lam * ray * 1e-3), rel=1e-12)


def test_conventions(capsys: pytest.CaptureFixture[str]):
    given = predicted(capsys, *TASK)
    assert given["time_unit"] == TIME_UNIT and given["conventions"]["scale"] == 0.001
    slow = predicted(capsys, *TASK, "--scale", "1e-4")
    assert slow["emergence_times"] == pytest.approx(10 * np.array(given["emergence_times"]))
    # Defaults: unit strengths, context 100, a head for each.
    plain = predicted(capsys, "--task", "multitask", "--dims", "10", "10", "10")
    assert plain["task"] == {
        "dims": [10] * 3,
        "strengths": [1.0] * 3,
        "signals": [10.0] * 3,
        "context": 100,
        "noise_variance": 0.0,
    }
    assert plain["heads"] == 3 and plain["division_loss"]["total"] == pytest.approx(6.41, abs=0.0051)
    assert "inferred" in plain["conventions"]["inferred"]


def test_fewer_heads_than_tasks(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, *TASK, "--heads", "2")
    task = MultiTaskRegression((4, 10, 7), (2.0, 0.6, 0.05), 50, noise_variance=0.8)
    assert len(set(found["gf_heads"])) <= 2 and found["gf_loss"]["total"] >= found["division_loss"]["total"]
    best = softmax.best_partition(task, 2)
    assert found["division_loss"]["per_task"] == pytest.approx(best.loss)
    assert found["division_loss"]["groups"] == [[i + 1 for i in group] for group in best.groups]
    assert found["lower_bound"]["total"] < found["division_loss"]["total"] < found["single_head_loss"]["total"]
    # Too many tasks to try every division.
    many = predicted(capsys, "--task", "multitask", "--dims", *["3"] * 13, "--heads", "2")
    assert many["division_loss"] is None and many["gf_reason"] is None


def test_one_head_one_task(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, "--task", "multitask", "--dims", "5", "--heads", "1", "--context", "20")
    losses = [found[name]["total"] for name in ("gf_loss", "division_loss", "single_head_loss", "lower_bound")]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-12)
    assert found["emergence_times"] == found["emergence_times_with_equal_heads"]


def test_tables(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", *TASK, "--heads", "3"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("softmax attention, 3 heads, 3 regressions, context 50, noise variance 0.8")
    rows = {line.split()[0]: line.split() for line in told.split("losses")[1].split("weights")[0].splitlines() if line}
    assert rows["all"][-3] == "6.24114378"
    assert [len(rows[name]) for name in ("1", "2", "3", "all")] == [9, 9, 9, 9]
    assert "could not be consulted" in told
    assert main(["predict", *TASK, "--heads", "2"]) == 0
    told = capsys.readouterr().out
    assert "best flow: of all divisions of the tasks among heads, " in told and "share it for good" in told


def test_where_the_flow_ends_is_where_it_is_trained_to(capsys: pytest.CaptureFixture[str]):
    """Two of three tasks choose one head: the end lies above that of a head for each, for every tolerance."""
    found = predicted(capsys, "--task", "multitask", "--dims", "10", "20", "30", "--scale", "0.001")
    assert len(set(found["gf_heads"])) == 2
    assert found["gf_loss"]["total"] > 1.1 * found["division_loss"]["total"]
    experiment = sw.Experiment.from_dict(found["experiment"])
    trained = experiment.run(progress=False)
    assert float(trained["loss"][0, -1]) == pytest.approx(found["gf_loss"]["total"], rel=1e-4)


def test_weights_that_cannot_be_followed(capsys: pytest.CaptureFixture[str]):
    found = predicted(capsys, "--task", "multitask", "--dims", "3", "4", "--scale", "100")
    assert found["gf_loss"] is None and found["limits"] is None and "no prediction" in found["gf_reason"]
    assert main(["predict", "--task", "multitask", "--dims", "3", "4", "--scale", "100"]) == 0
    assert "no prediction of where the flow ends" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line, word",
    [
        ("--dims", "at least one"),
        ("--dims 0", "--dims"),
        ("--dims 1.5", "--dims"),
        ("--dims 3 --eigenvalues 1", "'eigenvalues'"),
        ("--dims 3 --strengths 0", "--strengths"),
        ("--dims 3 4 5 --strengths 1 2", "give one for all tasks, or one for each"),
        ("--dims 3 --context 5 9", "--context"),
        ("--dims 3 --context 0", "--context"),
        ("--dims 3 --noise -1", "--noise"),
        ("--dims 3 --heads 0", "--heads"),
        ("--dims 3 --scale 0", "--scale"),
        ("--dims 3 --task-eigenvalues 1", "'task_eigenvalues'"),
        ("--dims 3 --balanced", "'balanced'"),
    ],
)
def test_bad_usage(line: str, word: str, capsys: pytest.CaptureFixture[str]):
    assert main(["predict", "--task", "multitask", *line.split()]) == 2
    told = capsys.readouterr()
    assert told.out == "" and told.err.count("\n") == 1 and word in told.err
