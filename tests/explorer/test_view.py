"""Views: their numbers are those of the library, no slider compiles, and longer work streams and can be cancelled."""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import stepwell as sw
from stepwell.explorer import State
from stepwell.explorer._training import POINTS, set_up_state, unit_of
from stepwell.explorer._view import Cancelled, view
from stepwell.explorer._warm import counted_compilations, is_warm, mark_warm, neighbours, warm
from stepwell.published import run_in, training


def read(**words):
    state, problems = State.read({name: str(value) for name, value in words.items()})
    assert not problems
    return state


def arrays(made):
    return {name: value for name, value in made.items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize("words", [{}, {"model": "merged"}, {"rank": 2, "heads": 2, "noise": 0.1, "until": 60}])
def test_a_flow_is_that_of_the_library(words):
    state = read(dim=3, init=0.1, **words)
    made, setup = view(state), set_up_state(state)
    until = state["until"] / unit_of(setup) or "converged"
    run = sw.flow(
        setup.model,
        sw.objectives.Population(setup.task, "none"),
        until=until,
        save=POINTS,
        spacing="steps",
        progress=False,
    )
    np.testing.assert_array_equal(made["loss"], run["loss"].values[0])
    np.testing.assert_array_equal(made["time"], unit_of(setup) * run["time"].values)
    values = run["value"].values[0, :, :, 0, -1]
    np.testing.assert_array_equal(made["values"], values.astype(np.float32))
    assert made["outcome"] == run.attrs["outcome"]


@pytest.mark.parametrize("model", ["separate", "merged"])
def test_a_descent_is_that_of_stepwell_train(model):
    state = read(dim=2, heads=2, model=model, dynamics="descent", epoch=400, lr=0.02, init=0.2)
    made = view(state)
    run = run_in(state.run_fields())
    whole = training.train(training.set_up(run.flags, run.engine, run.beyond), None)
    steps = made["steps"].astype(int)
    assert steps[0] == 0 and steps[-1] == 400
    np.testing.assert_allclose(made["loss"], whole["loss"].values[0, steps], rtol=1e-13)


def test_the_table_is_that_of_compare():
    state = read(heads=3, dim=3)
    made, setup = view(state), set_up_state(state)
    run = sw.flow(
        setup.model, sw.objectives.Population(setup.task, "none"), save=POINTS, spacing="steps", progress=False
    )
    table = sw.compare(run, setup.task)  # pyright: ignore[reportArgumentType]
    rows = made["table"]["rows"]
    assert len(rows) == len(table) + 1
    unit = unit_of(setup)
    for place, row in enumerate(rows[:-1]):
        expected = table.iloc[place]
        assert row[:5] == [
            place + 1,
            expected["component"],
            expected["measured_component"],
            expected["head"],
            expected["measured_head"],
        ]
        np.testing.assert_allclose(
            row[5:8], [unit * expected["predicted"], unit * expected["measured"], expected["level"]]
        )
        assert row[-1] == expected["in_order"]
    np.testing.assert_allclose(made["drop_times"], unit * np.asarray(table["predicted"]))
    assert rows[-1][-2] == made["loss"][-1]


def test_weights_are_in_the_eigenvectors_and_make_the_map():
    state = read(dim=3, heads=2, rank=2, init=0.1)
    made, setup = view(state), set_up_state(state)
    rotation = sw.theory.linear.modes(setup.task).directions
    start = np.asarray(setup.model.weights()["query"])
    np.testing.assert_allclose(made["queries"][0], start @ rotation, rtol=1e-6, atol=1e-7)
    summed = np.einsum("th,thri,thrj->tij", *(made[name].astype(float) for name in ("values", "keys", "queries")))
    np.testing.assert_allclose(made["map"], summed, rtol=1e-5, atol=1e-6)
    # With four pairs in three dimensions the flow ends at the target.
    np.testing.assert_allclose(made["map"][-1], made["target"], atol=1e-3 * np.abs(made["target"]).max())


def test_the_values_follow_the_scalar_equation_where_drops_are_apart():
    made = view(read(init=1e-4))
    theory, values = made["values_theory"], made["values"]
    drawn = np.isfinite(theory)
    assert drawn.any(axis=0).all() and not drawn.all()
    np.testing.assert_allclose(values[-1], theory[-1], rtol=1e-3)  # where they come to rest
    merged = view(read(model="merged", init=1e-5))
    np.testing.assert_allclose(merged["values"][-1], merged["values_theory"][-1], rtol=1e-2)


def test_initial_weights_that_are_too_large_for_a_prediction_are_shown_without_one():
    made = view(read(init=1.0))
    assert np.isnan(made["drop_times"]).all() and "too large" in made["remark"]


def test_a_descent_that_diverges_says_so_and_is_cut_off_there():
    made = view(read(dynamics="descent", lr=1.0, epoch=200, dim=2, heads=1))
    assert made["outcome"] == "diverged" and made["message"]
    for name, values in arrays(made).items():
        if name not in ("values_theory", "drop_times", "measured_times"):
            assert np.isfinite(values).all(), name


def test_white_inputs_and_correlated_tasks():
    made = view(read(spectrum="white", dim=2, heads=2, init=0.1))
    assert made["outcome"] == "converged"
    ordered = view(read(dim=2, heads=2, init=0.1, spectrum="custom", eigenvalues="0.2,0.5", task_eigenvalues="3,0"))
    np.testing.assert_allclose(ordered["eigenvalues"], [0.2, 0.5])  # the first learned is first
    assert ordered["levels"].size == 2


SLIDERS = [{"init": 0.3}, {"noise": 0.5}, {"context": 7}, {"seed": 5}, {"spectrum": "power", "exponent": 1.3}]


@pytest.mark.parametrize("words", [{}, {"dynamics": "descent"}, {"model": "merged"}])
def test_no_slider_compiles(words):
    first = {"dim": 2, "heads": 2, "init": 0.2, "epoch": 1000, "lr": 0.01, **words}
    view(read(**first))
    descends = words.get("dynamics") == "descent"
    moved = SLIDERS + ([{"lr": 0.005}, {"lr": 1.0}, {"epoch": 777}] if descends else [{"until": 20.0}])
    with counted_compilations() as compiled:
        for changed in moved:
            view(read(**{**first, **changed}))
    assert compiled == []


def test_no_slider_of_the_closed_form_compiles():
    first = {"mode": "softmax", "dims": "3,4", "heads": 2, "init": 0.05}
    view(read(**first))
    sliders = [{"dims": "5,9"}, {"strengths": "0.5,2"}, {"noise": 0.3}, {"context": 50}, {"init": 0.02}, {"seed": 3}]
    with counted_compilations() as compiled:
        for changed in sliders:
            view(read(**{**first, **changed}))
    assert compiled == []


def test_compilations_are_counted():
    with counted_compilations() as compiled:
        jax.jit(lambda x: x * 3.25 + 1)(np.arange(7.0))
    assert compiled


def test_a_view_comes_in_parts_and_gives_way_to_a_newer_state():
    parts = []
    made = view(read(dim=2, heads=2, init=0.2), report=lambda part, partial: parts.append((part, partial)))
    assert [part for part, _ in parts] == [0.6]
    assert set(parts[0][1]) == set(made) and parts[0][1]["table"]["rows"] == []
    np.testing.assert_array_equal(parts[0][1]["loss"], made["loss"])
    with pytest.raises(Cancelled):
        view(read(dim=2, heads=2, init=0.2), stop=lambda: True)


def test_a_draft_comes_first_in_many_dimensions():
    parts = []
    made = view(read(dim=6, heads=1, init=0.3), report=lambda part, partial: parts.append(partial))
    draft, exact = parts
    # Both end where the gap to the lowest loss is closed, within a thousandth of it.
    np.testing.assert_allclose(draft["loss"][-1], exact["loss"][-1], rtol=1e-3)
    np.testing.assert_array_equal(exact["loss"], made["loss"])
    assert draft["caption"].endswith("(draft).") and "draft" not in exact["caption"]


SEQUENCES = {
    "linear": {"model": "softmax", "dim": 2, "heads": 2},
    "softmax": {"loss": "sequences", "dims": "3,3", "heads": 2},
}


@pytest.mark.parametrize("mode", ["linear", "softmax"])
def test_training_on_sequences_streams_and_is_that_of_stepwell_train(mode):
    state = read(mode=mode, sequences=40, epoch=200, context=9, init=0.05, lr=0.05, **SEQUENCES[mode])
    parts = []
    made = view(state, report=lambda part, partial: parts.append((part, partial)))
    assert len(parts) >= 2 and all(0 < part < 1 for part, _ in parts)
    sizes = [partial["loss"].size for _, partial in parts]
    assert sizes == sorted(sizes) and sizes[-1] < made["loss"].size
    assert all(partial["outcome"] == f"step {partial['steps'][-1]:.0f} of 200" for _, partial in parts)
    assert made["outcome"] == "finished"
    run = run_in(state.run_fields())
    whole = training.train(training.set_up(run.flags, run.engine, run.beyond), None)
    np.testing.assert_allclose(made["loss"], whole["loss"].values[0, made["steps"].astype(int)], rtol=1e-12)


def test_training_on_sequences_can_be_cancelled():
    state, asked = read(model="softmax", dim=2, heads=1, sequences=40, epoch=10_000), []

    def stop():
        asked.append(True)
        return len(asked) == 3

    with pytest.raises(Cancelled):
        view(state, stop=stop)
    assert len(asked) == 3


def test_training_on_sequences_ends_in_time(monkeypatch):
    monkeypatch.setattr("stepwell.explorer._training.SECONDS", -1.0)
    made = view(read(model="softmax", dim=2, heads=1, sequences=40, epoch=10_000))
    assert made["outcome"] == "cut off" and "of 10000 steps" in made["message"]
    assert made["steps"][-1] < 10_000


@pytest.mark.parametrize("dynamics", ["flow", "descent"])
def test_the_closed_form_is_that_of_stepwell_train(dynamics):
    state = read(mode="softmax", dims="3,5", strengths="1,0.5", heads=2, dynamics=dynamics, init=0.05, epoch=300)
    made = view(state)
    setup = set_up_state(state)
    loss = sw.objectives.Spectral(setup.task)  # pyright: ignore[reportArgumentType]
    if dynamics == "descent":
        run = sw.descend(setup.model, loss, rate=state["lr"], steps=300, progress=False)
        np.testing.assert_allclose(made["loss"], run["loss"].values[0, made["steps"].astype(int)], rtol=1e-11)
    else:
        times = made["time"] / unit_of(setup)
        run = sw.flow(setup.model, loss, until=float(times[-1]), save=times, solver="rodas5p", progress=False)
        np.testing.assert_allclose(made["loss"], run["loss"].values[0], rtol=1e-5)
    weights = {name: run[name].values[0, -1] for name in setup.model.weight_dims}
    omega = np.asarray(setup.model.with_weights(weights).omega())  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(made["omega"][-1], omega, rtol=1e-5, atol=1e-6)


def test_limits_phases_and_emergence_of_the_first_view():
    made = view(read(mode="softmax"))
    assert made["time_name"] == "t"  # half of t/τ
    limits = made["limits"]
    assert limits["Bayes risk"] <= limits["lower bound"] <= limits["flow, one head for each task"]
    assert [phase["name"] for phase in made["phases"]] == ["warm-up", "emergence", "convergence"]
    np.testing.assert_allclose(made["loss"][-1], limits["flow, one head for each task"], rtol=1e-2)
    heads = [row[6] for row in made["table"]["rows"]]
    assert sorted(heads) == [1, 2, 3]
    for row in made["table"]["rows"]:
        assert row[3] * 0.9 < row[5] < row[4]


def test_a_flow_that_errors_of_the_solver_have_led_astray_says_so():
    words = {"mode": "softmax", "dims": "10,20,30", "strengths": "1,0.5,0.3", "heads": 3, "init": 0.001}
    made = view(read(**words))
    below = made["mu"].min(axis=(1, 2)) < -0.02
    assert below.any() and made["loss"][-1] < 0.7 * made["limits"]["flow, one head for each task"]
    assert "errors of the solver" in made["remark"]
    said = float(made["remark"].removeprefix("after t = ").split()[0])
    assert abs(said - made["time"][below][0]) < 0.001 * said
    assert view(read(**words, until=60))["remark"] == ""


def test_what_is_compiled_is_known_and_neighbours_are_near():
    state = read(dim=2, heads=1, init=0.2)
    mark_warm(state)
    assert is_warm(read(dim=2, heads=1, init=0.3, noise=1.0))
    other = read(dim=2, heads=2, init=0.2)
    near = neighbours(state)
    assert all(not is_warm(one) for one in near) and len(set(near)) == len(near)
    warm(other)
    assert is_warm(other) and other not in neighbours(state)


def test_programs_are_given_up_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr("stepwell.explorer._warm._WARM", set())
    monkeypatch.setattr("stepwell.explorer._warm.MOST_SHAPES", 2)
    states = [read(heads=heads, dim=1) for heads in (1, 2, 3)]
    for state in states:
        mark_warm(state)
    assert [is_warm(state) for state in states] == [False, False, True]
    made = view(states[0])
    assert made["outcome"] == "converged"


def test_views_in_several_threads_are_those_in_one():
    states = [read(dim=2, heads=2, init=0.2, seed=seed) for seed in range(4)]
    states += [read(dim=2, heads=2, init=0.2, seed=seed, dynamics="descent", epoch=500) for seed in range(4)]
    alone = [view(state)["loss"] for state in states]
    with ThreadPoolExecutor(4) as pool:
        together = [made["loss"] for made in pool.map(view, states)]
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
