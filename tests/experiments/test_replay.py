"""Recorded runs, published and made by hand, are followed to the end; wrong ones are not."""

import dataclasses
import json
from pathlib import Path

import by_hand
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput, WouldNotFit
from stepwell.experiments.recorded import Engine, load, replay

DATA = Path(__file__).parents[1] / "data"
TOLERANCE = 5e-6  # of a run in float32: some ten roundings of a loss near 1
FOLLOWED = sorted(path.stem for path in DATA.glob("*.npz") if path.stem != "msattn_diagonal")
LINEAR = [name for name in FOLLOWED if "softmax" not in name and not name.startswith(("msattn", "icl"))]


@pytest.mark.parametrize(
    ("name", "engine"), [(name, "sampled") for name in FOLLOWED] + [(name, "moments") for name in LINEAR]
)
def test_published_runs_are_followed(name: str, engine: Engine):
    found = replay(load(DATA / f"{name}.npz"), engine=engine, progress=False)
    assert found.passed and found.max_abs_error < TOLERANCE and found.followed == found.steps
    assert found.weights_error is not None and found.weights_error < TOLERANCE
    assert found.engine == engine


def test_there_are_nineteen_published_runs():
    assert len(FOLLOWED) == 18 and len(LINEAR) == 6 and "msattn_stable" in FOLLOWED
    adam = [name for name in FOLLOWED if load(DATA / f"{name}.npz").optimizer == "adam:b1=0.9,b2=0.999,eps=1e-08"]
    assert adam == ["icl_oppo_adam", "icl_random_adam"]


def test_a_run_of_adam_is_not_one_of_plain_descent():
    """With the other rule, or another parameter, the replay fails, and says that rounding is not the cause."""
    recording = load(DATA / "icl_random_adam.npz")
    for optimizer in ("sgd", "adam:b1=0.9,b2=0.99,eps=1e-08"):
        found = replay(dataclasses.replace(recording, optimizer=optimizer), progress=False)
        assert not found.passed and found.followed < 10 and found.reproducible is not None
        assert found.reproducible > 500


def test_an_unstable_run_is_followed_until_it_amplifies_rounding():
    """Its rate times sharpness passes 2 near step 410 and reaches 2.6, so that rounding grows by up to 1.6 a step."""
    path = DATA / "msattn_diagonal.npz"
    found = replay(load(path), progress=False)
    assert not found.passed and found.max_abs_error > 0.1
    assert found.followed >= 400
    assert found.reproducible is not None and found.reproducible < 500
    # Steps that a factor of 20 in the rounding makes: log(20)/log(1.6).
    assert abs(found.followed - found.reproducible) <= 6


def test_the_unstable_run_cannot_be_followed_in_float32_either():
    """Nothing of ours in it: by hand, in float32, the order of the sequences decides where the run goes."""
    with np.load(DATA / "msattn_diagonal.npz", allow_pickle=False) as stored:
        config = json.loads(str(stored["config"]))
        weights = {name: stored[f"init_{name}"] for name in ("query", "key", "value", "output")}
        data = tuple(stored[name] for name in ("context", "query", "target"))
        recorded = stored["loss"][:500]
    order = np.random.default_rng(0).permutation(len(data[0]))
    one, _ = by_hand.train(config, weights, data, {}, 500)
    other, _ = by_hand.train(config, weights, tuple(part[order] for part in data), {}, 500)
    assert np.abs(one["loss"] - other["loss"])[:450].max() < TOLERANCE
    assert np.abs(one["loss"] - recorded)[:450].max() < TOLERANCE
    assert np.abs(one["loss"] - other["loss"]).max() > 0.01
    assert np.abs(one["loss"] - recorded).max() > 0.01


BY_HAND = {
    "attnM, two outputs": {"model": "attnM", "outputs": 2},
    "attnM, two outputs, varying length, tests": {
        "model": "attnM",
        "outputs": 2,
        "vary_len": True,
        "tests": ("iwl", "icl"),
    },
    "attnS, two outputs": {"model": "attnS", "outputs": 2},
    "attnS, rank above dim": {"model": "attnS", "rank": 5, "heads": 1},
    "attnS, varying length, tests": {"model": "attnS", "vary_len": True, "tests": ("iwl", "icl")},
    "attnM, softmax, varying length, tests": {"model": "attnM", "softmax": True, "vary_len": True, "tests": ("iwl",)},
    "attnS, softmax, two outputs, tests": {"model": "attnS", "softmax": True, "outputs": 2, "tests": ("other",)},
    "mlp, tests": {"model": "mlp", "tests": ("iwl", "icl"), "heads": 4},
    "mlp, three outputs": {"model": "mlp", "outputs": 3},
    "multihead, softmax": {"model": "multihead_softmax", "outputs": 2, "tests": ("new",)},
    "multihead, linear": {"model": "multihead_softmax", "attention": "linear", "outputs": 2},
    "multihead, relu": {"model": "multihead_softmax", "attention": "relu", "outputs": 2, "rate": 0.02},
    "multihead, narrow heads": {"model": "multihead_softmax", "attention": "linear", "head_width": (2, 3)},
    "multihead, wide heads": {"model": "multihead_softmax", "attention": "softmax", "head_width": (9, 7)},
    "attnS, adam": {"model": "attnS", "rule": {"optimizer": "adam", "betas": [0.8, 0.99], "eps": 1e-3}},
    "multihead, adam": {"model": "multihead_softmax", "rate": 0.01, "rule": {"optimizer": "adam"}},
    "one step": {"model": "attnM", "steps": 1},
}


def _is_linear(options: dict) -> bool:
    return not options.get("softmax") and (
        options["model"] != "multihead_softmax" or options.get("attention") == "linear"
    )


@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, "sampled") for name in BY_HAND]
    + [(name, "moments") for name, options in BY_HAND.items() if _is_linear(options)],
)
def test_runs_by_hand_are_followed(name: str, engine: Engine, tmp_path: Path):
    path = by_hand.write(tmp_path / "run.npz", by_hand.recording(**BY_HAND[name]))
    # Float64 on both sides: losses of order 1, each sum rounded some thousand times.
    found = replay(load(path), engine=engine, tolerance=1e-11, progress=False)
    assert found.passed, found
    assert set(found.curves) == {"loss", *(f"loss_{test}" for test in BY_HAND[name].get("tests", ()))}


def test_the_run_moves_enough_for_the_check_to_mean_something():
    for name, options in BY_HAND.items():
        arrays = by_hand.recording(**options)
        weights = [key for key in arrays if key.startswith("init_")]
        for key in weights:
            assert np.abs(arrays[key] - arrays[key.replace("init", "final")]).max() > 1e-6, (name, key)


def test_a_test_set_of_tokens_gives_a_network_its_features(tmp_path: Path):
    arrays = by_hand.recording("mlp", tests=("icl",), seed=3)
    tokens = by_hand.recording("attnM", tests=("icl",), seed=3)  # draws the same sequences
    del arrays["features_icl"]
    path = by_hand.write(tmp_path / "run.npz", arrays | {"tokens_icl": tokens["tokens_icl"]})
    assert replay(load(path), tolerance=1e-11, progress=False).passed


def test_engines_are_chosen_by_the_model_and_the_work(tmp_path: Path):
    def chosen(**options) -> str:
        path = by_hand.write(tmp_path / "run.npz", by_hand.recording(steps=2, **options))
        return replay(load(path), progress=False).engine

    assert chosen(model="attnM") == "moments"
    assert chosen(model="attnM", softmax=True) == "sampled"
    assert chosen(model="attnM", dim=12, sequences=3, rate=1e-4) == "sampled"


def test_a_nonlinear_model_has_no_moments(tmp_path: Path):
    path = by_hand.write(tmp_path / "run.npz", by_hand.recording("attnM", softmax=True, steps=2))
    with pytest.raises(InvalidInput, match="softmax attention has no moments"):
        replay(load(path), engine="moments", progress=False)


@pytest.mark.parametrize("engine", ["moments", "sampled"])
def test_what_would_not_fit_is_refused(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    recording = load(by_hand.write(tmp_path / "run.npz", by_hand.recording("attnM", steps=2)))
    monkeypatch.setattr("stepwell._util.memory.available_memory", lambda: 1000)
    with pytest.raises(WouldNotFit, match="GiB"):
        replay(recording, engine=engine, progress=False)


@pytest.mark.parametrize("drop", [("value",), ("value", "key_query")])
def test_final_weights_may_be_missing(drop: tuple[str, ...], tmp_path: Path):
    arrays = by_hand.recording("attnM", steps=3)
    for name in drop:
        del arrays[f"final_{name}"]
    found = replay(load(by_hand.write(tmp_path / "run.npz", arrays)), tolerance=1e-11, progress=False)
    assert found.passed
    assert (found.weights_error is None) == (len(drop) == 2)


def test_weights_that_get_no_gradient_are_compared_too(tmp_path: Path):
    arrays = by_hand.recording("attnM", steps=3)
    arrays["final_value"][0, 0, 0] += 0.25
    found = replay(load(by_hand.write(tmp_path / "run.npz", arrays)), progress=False)
    assert not found.passed and found.max_abs_error < 1e-11
    assert found.weights_error == pytest.approx(0.25, abs=1e-11)
    assert found.followed == found.reproducible == found.steps  # nothing to do with rounding


def test_the_final_weights_are_those_after_as_many_steps_as_losses(tmp_path: Path):
    with np.load(DATA / "attnM_vary_len.npz", allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    config = json.loads(str(arrays["config"])) | {"epoch": 600}
    arrays |= {"loss": arrays["loss"][:-1], "config": json.dumps(config)}
    found = replay(load(by_hand.write(tmp_path / "run.npz", arrays)), progress=False)
    assert found.weights_error is not None and found.weights_error > 10 * TOLERANCE > 10 * found.max_abs_error


def test_a_replay_that_diverges_fails_with_finite_json(tmp_path: Path):
    arrays = by_hand.recording("attnM", steps=20)
    config = json.loads(arrays["config"]) | {"lr": 50.0}
    path = by_hand.write(tmp_path / "run.npz", arrays | {"config": json.dumps(config)})
    found = replay(load(path), tolerance=1e300, progress=False)
    assert found.outcome == "diverged" and not found.passed and found.weights_error is None
    json.dumps(found.summary(), allow_nan=False)
