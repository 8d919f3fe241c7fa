"""Single runs in the store."""

from pathlib import Path

import numpy as np
import pytest

from stepwell import Experiment, sweep
from stepwell._util.errors import InvalidInput
from stepwell.store import Store, load_run, save_run

DESCENT = {"kind": "descent", "steps": 60, "rate": 0.05}
SAMPLE = {"kind": "moments", "sequences": 30}
RUNS: dict[str, tuple[Experiment, list[int] | None]] = {
    "moments": (Experiment(objective=SAMPLE, training=DESCENT), None),
    "seeds": (Experiment(training=DESCENT), [0, 5, 2]),
    "a flow": (Experiment(task={"dim": 2}, record={"points": 11, "snapshots": 3}), None),
    "a flow to a time": (Experiment(training={"until": 5.0}, record={"points": 11}), [4, 3]),
    "everything": (
        Experiment(objective=SAMPLE, training=DESCENT, record={"test_sequences": 30, "value_weights": True}),
        None,
    ),
    "several": (Experiment(task={"kind": "multitask", "dims": [2, 3]}, training=DESCENT), None),
    "an optimizer": (Experiment(training={**DESCENT, "optimizer": "adam"}), None),
}


@pytest.mark.parametrize("experiment,seeds", RUNS.values(), ids=RUNS)
def test_what_is_kept_comes_back_as_it_was(tmp_path: Path, experiment: Experiment, seeds: list[int] | None):
    store = Store(tmp_path)
    assert load_run(store, experiment, seeds) is None
    trajectory = experiment.run(seeds=seeds, progress=False)
    save_run(store, trajectory)
    found = load_run(store, experiment, seeds)
    assert found is not None and found.identical(trajectory)
    assert load_run(store, experiment.replace(model={"scale": 0.02}), seeds) is None
    names = {experiment.replace(seed=seed).name for seed in ([experiment.seed] if seeds is None else seeds)}
    assert set(store.table().index) == names


def test_a_run_in_other_words_is_found(tmp_path: Path):
    one = Experiment(task={"dim": 2}, training=DESCENT)
    other = Experiment(task={"eigenvalues": [2 / 3, 1 / 3]}, model={"heads": 2}, training=DESCENT)
    trajectory = one.run(progress=False)
    save_run(Store(tmp_path), trajectory)
    found = load_run(Store(tmp_path), other)
    assert found is not None and np.array_equal(found["loss"], trajectory["loss"])


def test_a_fresh_run_takes_the_place_of_a_stored_one(tmp_path: Path):
    store, experiment = Store(tmp_path), Experiment(training=DESCENT)
    trajectory = experiment.run(progress=False)
    save_run(store, trajectory)
    changed = trajectory.assign(loss=2 * trajectory["loss"])
    save_run(store, changed)
    assert load_run(store, experiment).identical(trajectory)  # pyright: ignore[reportOptionalMemberAccess]
    save_run(store, changed, fresh=True)
    assert load_run(store, experiment).identical(changed)  # pyright: ignore[reportOptionalMemberAccess]


def test_a_run_of_a_sweep_gives_way_to_the_trajectory_of_the_same_run(tmp_path: Path):
    record = {"points": 65, "spacing": "linear", "snapshots": 2}
    store, experiment = Store(tmp_path), Experiment(training=DESCENT, record=record)
    sweep(experiment, {"seed": [0]}, store=store, progress=False)
    assert store.table().index.tolist() == [experiment.name] and load_run(store, experiment) is None
    trajectory = experiment.run(progress=False)
    save_run(store, trajectory)
    assert len(store.table()) == 1
    assert load_run(store, experiment).identical(trajectory)  # pyright: ignore[reportOptionalMemberAccess]


def test_a_damaged_shard_is_no_run(tmp_path: Path):
    store, experiment = Store(tmp_path), Experiment(training=DESCENT)
    trajectory = experiment.run(progress=False)
    path = save_run(store, trajectory)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert load_run(store, experiment) is None
    save_run(store, trajectory)
    assert load_run(store, experiment).identical(trajectory)  # pyright: ignore[reportOptionalMemberAccess]


def test_a_run_that_diverged_is_not_kept(tmp_path: Path):
    trajectory = Experiment(training={**DESCENT, "rate": 500.0}).run(progress=False, throw=False)
    with pytest.raises(InvalidInput, match="diverged"):
        save_run(Store(tmp_path), trajectory)
