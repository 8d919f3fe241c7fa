"""Views: their numbers are those of the library, no slider compiles, and longer work streams and can be cancelled."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

import stepwell as sw
from stepwell.experiments import compare_run, load_kinds
from stepwell.explorer._controls import controls
from stepwell.explorer._engine import is_warm, mark_warm, neighbors, warm
from stepwell.explorer._page import page
from stepwell.explorer._state import State
from stepwell.explorer._training import traced
from stepwell.explorer._view import Cancelled, view


@contextlib.contextmanager
def counted_compilations() -> Iterator[list[str]]:
    """A list that grows by the name of every program that JAX compiles in this context and thread.

    The engine of an earlier test may still be compiling in a thread of its own.
    """
    names, here = [], threading.get_ident()

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration" and threading.get_ident() == here:
            names.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield names
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def read(**words):
    """The state of words by their short names."""
    named = {name if name in KINDS else sw.experiments.full_name(name): str(value) for name, value in words.items()}
    state, problems = State.read({f"{name}.kind" if name in KINDS else name: text for name, text in named.items()})
    assert not problems
    return state


KINDS = ("task", "model", "objective", "training")


def arrays(made):
    return {name: value for name, value in made.items() if isinstance(value, np.ndarray)}


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"model": "merged"},
        {"rank": 2, "heads": 2, "noise": 0.1, "until": 60},
        {"normalization": "none", "context": 9},
        {"training": "descent", "rate": 0.1, "steps": 400},
        {"model": "merged", "training": "descent", "rate": 0.1, "steps": 150, "spacing": "log"},
        {"objective": "moments", "sequences": 40, "rate": 0.1, "steps": 300},
        {
            "objective": "moments",
            "sequences": 40,
            "training": "descent",
            "optimizer": "adam",
            "steps": 50,
            "rate": 0.01,
        },
        {"objective": "online", "batch_size": 8, "steps": 60, "rate": 0.05},
        {"model": "mlp", "scale": 0.1},
        {"task": "mixture", "sequences": 40, "steps": 40},
    ],
    ids=str,
)
def test_a_view_is_the_run_of_its_experiment(words):
    state = read(**{"dim": 3, "scale": 0.2, **words})
    made, run = view(state), state.run.run(progress=False)
    assert made["outcome"] == run.attrs["outcome"]
    axis = "step" if "step" in run.dims else "time"
    if axis == "step" and made["kind"] == "linear":  # which is shown where it has weights
        run = run.sel(step=run["snapshot"].values)
    np.testing.assert_allclose(made["loss"], run["loss"].values[0], rtol=1e-12)
    if "optimizer" in words:  # which has no flow time
        assert made["time_name"] == "step" and "time" not in run.coords
    else:
        np.testing.assert_allclose(made["time"], run["time"].values, rtol=1e-14)
        assert (made["time_name"], made["time_unit"]) == ("t/τ", run["time"].attrs["units"])
    if axis == "step":
        np.testing.assert_array_equal(made["steps"], run["step"].values)
    if made["kind"] == "linear":
        values = run["value"].values[0, :, :, 0, -1]
        np.testing.assert_allclose(made["values"], values.astype(np.float32), rtol=1e-6)


@pytest.mark.parametrize(
    "words", [{}, {"training": "descent", "rate": 0.2, "steps": 600}, {"model": "merged"}], ids=str
)
def test_the_table_is_that_of_compare(words):
    state = read(**{"heads": 3, "dim": 3, "scale": 0.1, **words})
    made, table = view(state), compare_run(state.run.run(progress=False)).table
    columns, rows = made["table"]["columns"], made["table"]["rows"]
    assert len(rows) == len(table) and {"t/τ", "measured t/τ"} <= set(columns)
    assert ("step" in columns) == ("training" in words)
    names = {"component": "component", "measured component": "measured_component", "head": "head"}
    names |= {"measured head": "measured_head", "t/τ": "predicted", "measured t/τ": "measured", "level": "level"}
    names |= {"measured level": "measured_level"}
    for column, name in names.items():
        shown = [float("nan") if row[columns.index(column)] is None else row[columns.index(column)] for row in rows]
        np.testing.assert_allclose(shown, table[name].to_numpy(float, na_value=np.nan), rtol=1e-9)
    np.testing.assert_allclose(made["drop_times"], table["predicted"], rtol=1e-9)
    np.testing.assert_allclose(made["drop_uncertainties"], table["uncertainty"], rtol=1e-3)
    assert np.isfinite(made["drop_uncertainties"]).any() == ("training" not in words)  # not known of steps
    np.testing.assert_allclose(made["measured_times"], table["measured"], rtol=1e-9)
    prediction = state.run.predict()
    np.testing.assert_allclose(made["levels"], [level.loss for level in prediction.levels], rtol=1e-12)
    np.testing.assert_allclose(made["drop_times"][: len(prediction.drops)], [d.time for d in prediction.drops])


@pytest.mark.parametrize("long", [False, True], ids=["at once", "in parts"])
def test_drops_of_a_descent_are_measured_on_the_loss_of_every_step(long):
    """And not between the points that are shown, some dozens of steps apart: that is off by up to two per cent."""
    sampled = {"objective": "moments", "sequences": 200} if long else {}
    state = read(**sampled, dim=2, heads=2, scale=0.1, training="descent", rate=0.2, steps=2000)
    made, experiment = view(state), state.run.replace(record={"points": 2001, "snapshots": 101})
    assert made["time"].size == 201 and state.long == long
    table = compare_run(experiment.run(progress=False)).table
    np.testing.assert_allclose(made["measured_times"], table["measured"], rtol=1e-9)


def test_theory_is_that_of_the_sequences_trained_on():
    state = read(dim=2, scale=0.2, objective="moments", sequences=60, training="descent", rate=0.2, steps=800)
    made, prediction = view(state), state.run.predict()
    np.testing.assert_allclose(made["levels"], [level.loss for level in prediction.levels], rtol=1e-12)
    np.testing.assert_allclose(made["drop_times"], [drop.time for drop in prediction.drops], rtol=1e-9)
    assert "those of the population" in made["remark"]


@pytest.mark.parametrize("normalization", ["1/N", "none"])
def test_weights_are_in_the_eigenvectors_and_make_the_map(normalization):
    state = read(dim=3, heads=2, rank=2, scale=0.1, normalization=normalization)
    made, (task, model, _) = view(state), state.run.build()
    rotation = sw.theory.linear.modes(task).directions  # pyright: ignore[reportArgumentType]
    start = np.asarray(model.weights()["query"])
    np.testing.assert_allclose(made["queries"][0], start @ rotation, rtol=1e-6, atol=1e-7)
    summed = np.einsum("th,thri,thrj->tij", *(made[name].astype(float) for name in ("values", "keys", "queries")))
    np.testing.assert_allclose(made["map"], summed, rtol=1e-5, atol=1e-6)
    # With four pairs in three dimensions the flow ends at the target.
    np.testing.assert_allclose(made["map"][-1], made["target"], atol=1e-3 * np.abs(made["target"]).max())


def test_the_values_follow_the_scalar_equation_where_drops_are_apart():
    made = view(read(scale=1e-4, seed=21))
    theory, values = made["values_theory"], made["values"]
    drawn = np.isfinite(theory)
    assert drawn.any(axis=0).all() and not drawn.all()
    np.testing.assert_allclose(values[-1], theory[-1], rtol=1e-3)  # where they come to rest
    merged = view(read(model="merged", scale=1e-5))
    np.testing.assert_allclose(merged["values"][-1], merged["values_theory"][-1], rtol=1e-2)


def test_initial_weights_that_are_too_large_for_a_prediction_are_shown_without_one():
    made = view(read(scale=3.0))
    assert np.isnan(made["drop_times"]).all() and "too large" in made["remark"]


def test_a_descent_that_diverges_says_so_and_is_cut_off_there():
    made = view(read(training="descent", rate=50.0, steps=200, dim=2, heads=1, scale=1.0))
    assert made["outcome"] == "diverged" and made["message"]
    for name, values in arrays(made).items():
        if name not in ("values_theory", "drop_times", "drop_uncertainties", "measured_times"):
            assert np.isfinite(values).all(), name


def test_white_inputs_and_correlated_tasks():
    made = view(read(spectrum="white", dim=2, heads=2, scale=0.1))
    assert made["outcome"] == "converged"
    ordered = view(read(heads=2, scale=0.1, eigenvalues="0.2,0.5", task_eigenvalues="3,0"))
    np.testing.assert_allclose(ordered["eigenvalues"], [0.2, 0.5])  # the first learned is first
    assert ordered["levels"].size == 2


SLIDERS = [{"scale": 0.3}, {"noise": 0.5}, {"context": 7}, {"seed": 5}, {"spectrum": "power", "exponent": 1.3}]


@pytest.mark.parametrize("words", [{}, {"training": "descent", "steps": 1000, "rate": 0.05}, {"model": "merged"}])
def test_no_slider_compiles(words):
    first = {"dim": 2, "heads": 2, "scale": 0.2, **words}
    view(read(**first))
    moved = SLIDERS + ([{"rate": 0.005}, {"rate": 1.0}, {"steps": 777}] if "training" in words else [{"until": 20.0}])
    with counted_compilations() as compiled:
        for changed in moved:
            view(read(**{**first, **changed}))
    assert compiled == []


def test_no_slider_of_the_closed_form_compiles():
    first = {"task": "multitask", "dims": "3,4", "heads": 2, "scale": 0.05}
    view(read(**first))
    sliders = [
        [{"dims": "5,9"}, {"strengths": "0.5,2"}, {"noise": 0.3}, {"context": 50}, {"scale": 0.02}, {"seed": 3}],
        [{"dims": "6,8"}, {"strengths": "0.7,3"}, {"noise": 0.4}, {"context": 60}, {"scale": 0.03}, {"seed": 4}],
    ]
    counts = []
    for values in sliders:  # programs may be freed once meanwhile, by the engine of an earlier test
        with counted_compilations() as compiled:
            for changed in values:
                view(read(**{**first, **changed}))
        counts.append(len(compiled))
    assert min(counts) == 0


def test_compilations_are_counted():
    with counted_compilations() as compiled:
        jax.jit(lambda x: x * 3.25 + 1)(np.arange(7.0))
    assert compiled


def test_a_view_comes_in_parts_and_gives_way_to_a_newer_state():
    parts = []
    made = view(read(dim=2, heads=2, scale=0.2), report=lambda part, partial: parts.append((part, partial)))
    assert [part for part, _ in parts] == [0.6]
    assert set(parts[0][1]) == set(made) and parts[0][1]["table"]["rows"] == []
    np.testing.assert_array_equal(parts[0][1]["loss"], made["loss"])
    with pytest.raises(Cancelled):
        view(read(dim=2, heads=2, scale=0.2), stop=lambda: True)


def test_a_draft_comes_first_in_many_dimensions():
    parts = []
    made = view(read(dim=6, heads=1, scale=0.3), report=lambda part, partial: parts.append(partial))
    draft, exact = parts
    # Both end where the gap to the lowest loss is closed, within a thousandth of it.
    np.testing.assert_allclose(draft["loss"][-1], exact["loss"][-1], rtol=1e-3)
    np.testing.assert_array_equal(exact["loss"], made["loss"])
    assert draft["caption"].endswith("(draft).") and "draft" not in exact["caption"]


SEQUENCES = [
    {"activation": "softmax", "dim": 2, "heads": 2},
    {"objective": "sampled", "dim": 2, "heads": 2},
    {"task": "multitask", "objective": "reduced", "dims": "3,3", "heads": 2},
]


@pytest.mark.parametrize("words", SEQUENCES, ids=str)
def test_training_on_sequences_streams_and_is_the_run_of_its_experiment(words):
    state = read(sequences=40, steps=200, context=9, scale=0.05, rate=0.05, **words)
    parts = []
    made = view(state, report=lambda part, partial: parts.append((part, partial)))
    shares = [partial for _, partial in parts if partial["outcome"] != "finished"]
    assert len(shares) >= 2 and all(0 < part < 1 for part, _ in parts)
    sizes = [partial["loss"].size for partial in shares]
    assert sizes == sorted(sizes) and sizes[-1] < made["loss"].size
    assert all(partial["outcome"] == f"step {partial['steps'][-1]:.0f} of 200" for partial in shares)
    assert made["outcome"] == "finished"
    run = state.run.run(progress=False)
    np.testing.assert_allclose(made["loss"], run["loss"].values[0], rtol=1e-12)
    np.testing.assert_allclose(made["time"], run["time"].values, rtol=1e-14)


def test_training_on_sequences_can_be_cancelled():
    state, asked = read(activation="softmax", dim=2, heads=1, sequences=40, steps=10_000), []

    def stop():
        asked.append(True)
        return len(asked) == 3

    with pytest.raises(Cancelled):
        view(state, stop=stop)
    assert len(asked) == 3


def test_training_on_sequences_ends_in_time(monkeypatch):
    monkeypatch.setattr("stepwell.explorer._training.SECONDS", -1.0)
    made = view(read(activation="softmax", dim=2, heads=1, sequences=40, steps=10_000))
    assert made["outcome"] == "cut off" and "of 10000 steps" in made["message"]
    assert made["steps"][-1] < 10_000


def test_whole_heads_are_shown_by_their_scores_and_outputs():
    words = {"dims": "2,3", "noise": 0.2, "context": 12, "heads": 2, "scheme": "uniform", "scale": 1.0, "steps": 30}
    state = read(task="overlapping", objective="online", optimizer="adam", rate=0.01, batch_size=16, **words)
    made, run = view(state), state.run.run(progress=False)
    found = sw.analysis.head_structure(run).isel(run=0)
    assert made["kind"] == "heads" and made["omega"].shape == (run.sizes["snapshot"], 2)
    for name in ("omega", "mu"):
        np.testing.assert_allclose(made[name], found[name].values, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(made["loss"], run["loss"].sel(step=run["snapshot"].values)[0], rtol=1e-12)


@pytest.mark.parametrize("words", [{}, {"training": "descent", "rate": 0.05, "steps": 300}], ids=str)
def test_the_traced_closed_form_is_that_of_the_library(words):
    state = read(task="multitask", dims="3,5", strengths="1,0.5", heads=2, scale=0.05, **words)
    built = state.run.build()
    model, loss = traced(built)
    np.testing.assert_allclose(loss(model), built.objective(built.model), rtol=1e-14)
    made, run = view(state), state.run.run(progress=False)
    # The flow amplifies rounding on its way off the saddle; it is solved to 1e-6 a step.
    losses = run.sel(step=run["snapshot"].values) if words else run  # which are shown where there are weights
    np.testing.assert_allclose(made["time"], losses["time"].values, rtol=1e-4)
    np.testing.assert_allclose(made["loss"], losses["loss"].values[0], rtol=1e-11 if words else 1e-5)
    weights = {name: run[name].values[0, -1] for name in built.model.weight_dims}
    omega = np.asarray(built.model.with_weights(weights).omega())  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_allclose(made["omega"][-1], omega, rtol=1e-5, atol=1e-6)


def test_limits_phases_and_emergence_of_the_first_view():
    state = read(task="multitask", scale=0.004, seed=9)
    made = view(state)
    limits = made["limits"]
    assert limits["Bayes risk"] <= limits["lower bound"] <= limits["flow, one head for each task"]
    assert [phase["name"] for phase in made["phases"]] == ["warm-up", "emergence", "convergence"]
    np.testing.assert_allclose(made["loss"][-1], limits["flow, one head for each task"], rtol=1e-2)
    heads = [row[6] for row in made["table"]["rows"]]
    assert sorted(heads) == [1, 2, 3]
    for row in made["table"]["rows"]:
        assert row[3] * 0.9 < row[5] < row[4]
    predicted = state.run.predict().document  # t/τ, as everywhere
    np.testing.assert_allclose(made["drop_times"], predicted["emergence_times"], rtol=1e-12)
    np.testing.assert_allclose(limits["lower bound"], predicted["lower_bound"]["total"], rtol=1e-12)
    np.testing.assert_allclose(limits["flow, one head for each task"], predicted["gf_loss"]["total"], rtol=1e-12)


def test_a_long_flow_keeps_the_signs_of_its_weights():
    words = {"task": "multitask", "dims": "10,20,30", "strengths": "1,0.5,0.3", "heads": 3, "scale": 0.001, "seed": 9}
    made = view(read(**words, until=400))
    assert made["mu"].min() >= 0 and made["remark"] == ""


def test_what_is_compiled_is_known_and_neighbors_are_near():
    state = read(dim=2, heads=1, scale=0.2)
    mark_warm(state)
    assert is_warm(read(dim=2, heads=1, scale=0.3, noise=1.0))
    other = read(dim=2, heads=2, scale=0.2)
    near = neighbors(state)
    assert all(not is_warm(one) for one in near) and len(set(near)) == len(near)
    warm(other)
    assert is_warm(other) and other not in neighbors(state)


def test_programs_are_given_up_where_there_are_too_many(monkeypatch):
    monkeypatch.setattr("stepwell.explorer._engine._WARM", set())
    monkeypatch.setattr("stepwell.explorer._engine.MOST_SHAPES", 2)
    states = [read(heads=heads, dim=1) for heads in (1, 2, 3)]
    for state in states:
        mark_warm(state)
    assert [is_warm(state) for state in states] == [False, False, True]
    made = view(states[0])
    assert made["outcome"] == "converged"


def test_views_in_several_threads_are_those_in_one():
    states = [read(dim=2, heads=2, scale=0.2, seed=seed) for seed in range(4)]
    states += [read(dim=2, heads=2, scale=0.2, seed=seed, training="descent", steps=500) for seed in range(4)]
    alone = [view(state)["loss"] for state in states]
    with ThreadPoolExecutor(4) as pool:
        together = [made["loss"] for made in pool.map(view, states)]
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_users_file_gives_sliders_and_a_curve(own_kinds):
    """A model and a task registered in 30 lines: controls from their bounds, and the loss of their run."""
    gate = controls("model", "gated")["model.gate"]
    assert (gate.label, gate.slider, gate.help) == ("Gate g", (0.0, 1.0), "Opening of the gate.")
    assert controls("task", "sparse")["task.sparsity"].slider == (0.1, 0.9)
    words = {"task.kind": "sparse", "model.kind": "gated", "task.sparsity": "0.3", "model.gate": "0.6"}
    words |= {"training.steps": "60", "training.rate": "0.1", "objective.sequences": "40"}
    state, problems = State.read(words)
    assert not problems and state.query() == words
    assert State.read({**words, "model.gate": "1.5"})[1].keys() == {"model.gate"}
    made = view(state)
    assert made["kind"] == "heads" and made["outcome"] == "finished" and made["loss"][-1] < made["loss"][0]
    run = sw.Experiment(
        task={"kind": "sparse", "sparsity": 0.3},
        model={"kind": "gated", "gate": 0.6},
        objective={"sequences": 40},
        training={"steps": 60, "rate": 0.1},
        record={"points": 61, "snapshots": 61},
        seed=59,
    ).run(progress=False)
    np.testing.assert_allclose(made["loss"], run["loss"].values[0], rtol=1e-12)
    other = view(State.read({**words, "model.gate": "0.9"})[0])
    assert abs(other["loss"][-1] - made["loss"][-1]) > 1e-6
    html = page("linear", "token").html
    assert "gated" in html and "Opening of the gate" in html


def test_theory_of_users_kinds_stands_beside_their_curve():
    """Of a task of which the moments are known: levels, and drops as `compare` has them."""
    load_kinds(Path(__file__).parents[2] / "examples" / "my_lab.py")
    state, problems = State.read({"task.kind": "sparse", "model.kind": "gated", "model.gate": "0.2"})
    made = view(state)
    assert not problems and made["kind"] == "curve"
    experiment = state.run
    np.testing.assert_allclose(made["levels"], [level.loss for level in experiment.predict().levels], rtol=1e-12)
    table = experiment.run(progress=False).stepwell.compare().table
    np.testing.assert_allclose(made["drop_times"], table["predicted"], rtol=1e-9)
    np.testing.assert_allclose(made["measured_times"], table["measured"], rtol=1e-9)
    assert len(made["table"]["rows"]) == len(table) == 3
