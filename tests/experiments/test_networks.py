"""Experiments on networks of units: what they train on, and what is said of them without a theory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepwell as sw
from stepwell._util.errors import WouldNotFit
from stepwell.cli import main
from stepwell.explorer._state import State
from stepwell.explorer._view import theory_view, view

RECORD: dict[str, Any] = {"points": 2001, "spacing": "linear"}
LINEAR: dict[str, Any] = {"kind": "teacher", "strengths": [1.0, 0.6], "eigenvalues": [1.5, 1.0, 0.5]}


def test_a_teacher_is_learned_from_moments_as_from_many_examples():
    """A thousand examples of a linear teacher without noise: the same levels up to the scatter of their variances."""
    exact = sw.Experiment(task=LINEAR, seed=1)
    drawn = exact.replace(objective={"examples": 1000})
    levels = [[level.loss for level in each.predict().levels] for each in (exact, drawn)]
    np.testing.assert_allclose(levels[0], [1.5 + 0.36, 0.36, 0.0], atol=1e-14)
    np.testing.assert_allclose(levels[1], levels[0], rtol=5 * (2 / 1000) ** 0.5, atol=1e-12)


def test_moments_of_drawn_examples_are_the_loss_over_these_examples():
    one = sw.Experiment(task=LINEAR, objective={"kind": "features", "examples": 50}, model={"scale": 0.3}, seed=2)
    other = one.replace(objective={"kind": "examples", "examples": 50}, training={"kind": "descent", "steps": 1})
    losses = [float(each.build().objective(each.build().model)) for each in (one, other)]
    np.testing.assert_allclose(*losses, rtol=1e-12)


def test_points_are_orthogonal_inputs_with_their_labels():
    experiment = sw.Experiment(task={"kind": "points", "norms": [2.0, 0.5], "labels": [1.0, -1.0]})
    batch = experiment.build_objective(experiment.build_task(), None).batch
    assert (batch.features == np.diag([2.0, 0.5])).all() and batch.labels.tolist() == [[1.0], [-1.0]]


def test_a_convolutional_network_visits_its_levels():
    """Both patches alike: a drop s²λ for each direction. The saddle is approached to ε^0.77, which is 8e-4: with the
    ratio r = 1/6 of the singular values sλ the exponent is 2(1 - r)/(2 + r)."""
    task = {"kind": "teacher", "strengths": [0.6, 0.6], "eigenvalues": [3.0, 0.5], "patches": 2}
    run = sw.Experiment(task=task, model={"units": 8, "scale": 1e-4}, seed=3).run(progress=False)
    loss, levels = run["loss"].values[0], np.array([1.26, 0.18, 0.0])
    speed = -np.gradient(loss, run["time"].values)
    middle = (loss < 0.6) & (loss > 0.09)
    np.testing.assert_allclose(loss[middle][speed[middle].argmin()], levels[1], rtol=0.01)
    assert loss[0] == pytest.approx(levels[0], rel=1e-3) and run.attrs["outcome"] == "converged"


def test_sweeps_measure_the_drops_of_linear_networks(tmp_path: Path):
    r"""Against $t = \ln((\sqrt2-1)/|m|^2)/2$ for $s = 1$, $m = (V^\top q + U r)/2$ of the initial weights: to order
    $\varepsilon^{2(1 - s_2/s_1)}$, here 1e-5, in units of the square of all weights over that of m, some tens."""
    task = {"kind": "teacher", "strengths": [1.0, 0.5]}
    record = {"measure": ["drops"], "points": 2001, "spacing": "linear"}
    experiment = sw.Experiment(task=task, model={"scale": 1e-5}, training={"until": 60.0}, record=record)
    swept = sw.sweep(experiment, {"seed": [0, 1, 2]}, store=tmp_path, progress=False)
    for seed in range(3):
        model: Any = experiment.replace(seed=seed).build().model
        m = (np.asarray(model.outer)[:, 0, 0] + np.asarray(model.inner)[:, 0]) / 2
        np.testing.assert_allclose(swept.drop_1[seed], np.log((2**0.5 - 1) / (m @ m)) / 2, rtol=1e-3)
        assert swept.drop_2[seed] > swept.drop_1[seed]


POINTS: dict[str, Any] = {"kind": "points", "norms": [2.0, 1.0], "labels": [1.0, -1.0]}
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "linear": (LINEAR, {"scale": 1e-3}, 40.0),
    "convolutional": ({**LINEAR, "eigenvalues": [1.5, 1.0], "patches": 2}, {"scale": 1e-3}, 60.0),
    "quadratic": (LINEAR | {"strengths": [0.5, 0.3], "degree": 2}, {"scale": 3e-3, "units": 6}, 400.0),
    "cubic": (LINEAR | {"strengths": [0.5], "eigenvalues": [1.0], "degree": 3}, {"scale": 1e-2, "units": 3}, 2000.0),
    "ReLU": (POINTS, {"scale": 1e-3, "units": 30}, 40.0),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_all_drops_of_a_network_are_predicted(name: str):
    """In order of time, by the units that made them, and off by less than their uncertainty."""
    task, model, until = NETWORKS[name]
    experiment = sw.Experiment(task=task, model=model, training={"kind": "flow", "until": until}, record=RECORD, seed=1)
    assert experiment.no_theory() == "" and experiment.predict().reason == ""
    table = experiment.run(progress=False).stepwell.compare().table
    assert list(table["status"]) == ["measured"] * len(task.get("strengths", [0, 0]))
    assert np.all(np.abs(table["measured"] - table["predicted"]) < table["uncertainty"] + until / RECORD["points"] / 10)
    assert np.all((table["head"] == table["measured_head"]).fillna(name in ("linear", "convolutional")))
    drops = experiment.predict().drops
    np.testing.assert_allclose([drop.time for drop in drops], table["predicted"], rtol=1e-9)


def test_drops_are_predicted_for_the_examples_that_are_drawn():
    task = sw.Experiment(task=LINEAR, objective={"kind": "features", "examples": 20}, seed=4)
    experiment = task.replace(model={"scale": 1e-3}, training={"until": 40.0}, record=RECORD)
    table = experiment.run(progress=False).stepwell.compare().table
    np.testing.assert_allclose(table["measured"], table["predicted"], rtol=2e-3)
    levels = [level.loss for level in experiment.predict().levels]
    np.testing.assert_allclose(levels[1:], table["level"], rtol=1e-8, atol=1e-12)


def test_gradient_descent_is_compared_by_step():
    training = {"kind": "descent", "steps": 1200, "rate": 0.01}
    experiment = sw.Experiment(task=POINTS, model={"scale": 1e-3, "units": 30}, training=training, seed=2)
    table = experiment.run(progress=False).stepwell.compare().table
    np.testing.assert_allclose(table["measured_step"], table["predicted_step"], rtol=0.02)
    assert table["uncertainty"].isna().all()


def test_sweeps_predict_networks_of_units(tmp_path: Path):
    """Patches of different variances, too, whose levels are not those of Baldi and Hornik."""
    task = {"kind": "teacher", "strengths": [1.0], "eigenvalues": [1.0, 1.0, 2.0, 1.0]}
    record = {"measure": ["drops", "predicted"], "points": 801, "spacing": "linear"}
    experiment = sw.Experiment(task=task, model={"patches": 2, "scale": 1e-3}, training={"until": 40.0}, record=record)
    swept = sw.sweep(experiment, {"seed": [0, 1]}, store=tmp_path, progress=False)
    np.testing.assert_allclose(swept.drop_1, swept.predicted_1, rtol=1e-3)
    assert np.all(swept.uncertainty_1 < 0.1) and "drop_2" not in swept


def test_predict_says_levels_drops_and_what_has_no_theory(capsys: pytest.CaptureFixture[str]):
    assert main(["predict", "--task", "teacher", "--units", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["levels"] == [1.25, 0.25] and len(document["drops"]) == 1
    assert main(["predict", "--task", "teacher"]) == 0
    assert "drop at t/τ" in capsys.readouterr().out
    assert main(["predict", "--task", "points", "--nonlinearity", "tanh"]) == 1
    assert "there is no theory of tanh units" in capsys.readouterr().err
    assert main(["predict", "--task", "points", "--scale", "2"]) == 1
    assert "try a smaller scale" in capsys.readouterr().err
    assert "at right angles" in sw.Experiment(task="teacher", model="nonlinear").no_theory()


def test_the_page_shows_the_loss_and_its_levels():
    experiment = sw.Experiment(task=LINEAR, training={"until": 20.0}, model={"scale": 0.05})
    made = view(State("explore", {}, experiment))
    assert made["kind"] == "curve" and made["level_names"] == ["nothing learned", "1 learned", "all 2 learned"]
    np.testing.assert_allclose(made["levels"], [1.86, 0.36, 0.0], atol=1e-14)
    beside = theory_view(experiment, experiment.build(), experiment.run(progress=False), made)
    np.testing.assert_allclose(beside["drop_times"], [drop.time for drop in experiment.predict().drops])
    assert beside["drop_names"] == ["component 1, all heads", "component 2, all heads"]


def test_what_would_not_fit_is_refused_before_it_is_built():
    wide = {"kind": "teacher", "eigenvalues": [1.0] * 200}
    for given in (
        {"task": wide, "model": {"degree": 3}, "training": {"until": 1.0}},
        {"task": wide, "objective": {"kind": "examples", "examples": 10**9}, "training": "descent"},
        {"task": "teacher", "model": {"units": 10**6}},
    ):
        with pytest.raises(WouldNotFit):
            sw.Experiment(**given).check_memory()


def test_nothing_to_learn_is_said(tmp_path):
    """Labels that are linear in the inputs have no part that a quadratic network could learn."""
    experiment = sw.Experiment(
        task={"kind": "teacher"}, model={"kind": "polynomial", "degree": 2}, training={"kind": "flow", "until": 1.0}
    )
    assert "nothing to learn" in experiment.predict().reason
    study = sw.sweeps.Study.of(experiment, {"seed": [0, 1]}, record={"measure": ["predicted"]})
    result = sw.sweep(study, store=tmp_path / "runs", progress=False)
    assert all("nothing to learn" in str(words) for words in result["withheld"].values)
