"""Whatever is wrong with a file, it is refused in one line."""

import json
import zipfile
from pathlib import Path
from typing import Any

import by_hand
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.experiments.recorded import load

KINDS = {
    "attnM": by_hand.recording("attnM", steps=3, tests=("iwl",)),
    "attnS": by_hand.recording("attnS", steps=3, outputs=2, vary_len=True),
    "mlp": by_hand.recording("mlp", steps=3, tests=("icl",)),
    "multihead": by_hand.recording("multihead_softmax", steps=3, outputs=2),
}
NEEDED = [(kind, name) for kind, arrays in KINDS.items() for name in arrays if not name.startswith("final_")]


def _refused(path: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


def _refused_arrays(folder: Path, arrays: dict[str, Any]) -> str:
    return _refused(by_hand.write(folder / "run.npz", arrays))


@pytest.mark.parametrize(("kind", "name"), NEEDED)
def test_every_array_is_needed(kind: str, name: str, tmp_path: Path):
    arrays = {key: value for key, value in KINDS[kind].items() if key != name}
    if name.startswith("loss_"):  # a test set without its curve is not looked at
        assert set(load(by_hand.write(tmp_path / "run.npz", arrays)).curves) == {"loss"}
    else:
        assert name in _refused_arrays(tmp_path, arrays)


@pytest.mark.parametrize(("kind", "name"), NEEDED)
@pytest.mark.parametrize("flip", ["text", "complex", "objects", "nan", "infinite", "axis", "empty", "longer"])
def test_every_array_is_checked(kind: str, name: str, flip: str, tmp_path: Path):
    if name == "config":
        wrong: Any = {"text": "{", "objects": np.array([{}], dtype=object), "axis": np.array(["{}", "{}"])}.get(
            flip, 1.5
        )
    else:
        right = np.asarray(KINDS[kind][name])
        broken = right.copy()
        broken.flat[-1] = np.nan if flip == "nan" else np.inf
        wrong = {
            "text": right.astype(str),
            "complex": right.astype(complex),
            "objects": right.astype(object),
            "nan": broken,
            "infinite": broken,
            "axis": right[None],
            "empty": right[:0],
            "longer": np.concatenate([right, right], axis=0),
        }[flip]
    assert name in _refused_arrays(tmp_path, KINDS[kind] | {name: wrong}) or flip in ("objects", "longer")


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("attnM", {"model": None}, "config names the model None"),
        ("attnM", {"model": "attnX"}, "attnM, attnS, mlp or multihead_softmax"),
        ("attnM", {"model": ["attnM"]}, "config names the model"),
        ("attnM", {"lr": "fast"}, "lr in config is 'fast'"),
        ("attnM", {"lr": -0.1}, "lr in config is -0.1"),
        ("attnM", {"lr": 10**400}, "lr in config is 1000"),
        ("attnM", {"lr": [0.1]}, "lr in config is [0.1]"),
        ("attnM", {"lr": "0.1"}, "lr in config is '0.1'"),
        ("attnM", {"softmax": "x" * 5000}, "softmax = 'xxx"),
        ("attnM", {"epoch": 10**400}, "epoch = 1000"),
        ("attnM", {"epoch": 4}, "epoch = 4, and loss has 3 entries"),
        ("attnM", {"epoch": "three"}, "epoch = 'three'"),
        ("attnM", {"in_dim": 2}, "in_dim = 2"),
        ("attnM", {"softmax": "yes"}, "softmax = 'yes'"),
        ("attnM", {"vary_len": 2}, "vary_len = 2"),
        ("mlp", {"vary_len": True}, "only attnM and attnS"),
        ("multihead", {"attention": "hardmax"}, "softmax, linear or relu"),
        ("multihead", {"attention": {}}, "softmax, linear or relu"),
        ("multihead", {"steps": 1500}, "steps = 1500, and loss has 3"),
        ("multihead", {"dy": 1}, "dy = 1"),
        ("multihead", {"optimiser": "lion"}, "config names the optimizer 'lion'; it must be sgd or adam"),
        ("attnM", {"optimizer": ["adam"]}, "config names the optimizer ['adam']"),
        ("attnM", {"momentum": 0.9}, "momentum = 0.9; sgd is replayed without it"),
        ("attnM", {"optimizer": "adam", "weight_decay": 0.1}, "weight_decay = 0.1; adam is replayed without it"),
        ("attnM", {"optimizer": "adam", "betas": 0.9}, "betas = 0.9; they must be two numbers"),
        ("attnM", {"optimizer": "adam", "betas": [0.9, 2]}, "b2 in config is 2"),
    ],
)
def test_the_configuration_is_checked(kind: str, changes: dict, words: str, tmp_path: Path):
    config = json.loads(KINDS[kind]["config"]) | changes
    assert words in _refused_arrays(tmp_path, KINDS[kind] | {"config": json.dumps(config)})


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("", "not JSON"),
        ("[1]", "JSON object"),
        ('{"lr": 0.1}', "no model"),
        ('{"model": "attnM"}', "no lr"),
        (b"\xff\xfe{", "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_the_configuration_is_a_json_object(config: str | bytes, words: str, tmp_path: Path):
    assert words in _refused_arrays(tmp_path, KINDS["attnM"] | {"config": np.array(config)})


def test_shapes_that_disagree_are_named(tmp_path: Path):
    arrays = KINDS["attnM"]
    message = _refused_arrays(tmp_path, arrays | {"labels": arrays["labels"][:, :-1]})
    assert "labels of shape (30, 5)" in message and "tokens of shape (30, 6, 4)" in message


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("attnM", {"final_value": np.zeros((2, 4, 3))}, "final_value"),
        ("attnM", {"tokens_iwl": np.ones((30, 6, 4))}, "show their labels"),
        ("attnM", {"labels": np.zeros((30, 6, 2))}, "O = 1"),
        ("attnM", {"labels": np.zeros((30, 6, 5)), "labels_iwl": np.zeros((30, 6, 5))}, "hold no inputs"),
        ("attnM", {"tokens": np.zeros((30, 1, 4)), "labels": np.zeros((30, 1))}, "one token"),
        ("multihead", {"query": np.ones((30, 5))}, "show their labels"),
    ],
)
def test_what_does_not_belong_together_is_refused(kind: str, changes: dict, words: str, tmp_path: Path):
    kept = {k: v for k, v in KINDS[kind].items() if not k.startswith("final_")}
    assert words in _refused_arrays(tmp_path, kept | changes)


def test_files_that_are_no_recordings(tmp_path: Path):
    assert "No such file" in _refused(tmp_path / "missing.npz")
    assert "directory" in _refused(tmp_path)
    text = tmp_path / "text.npz"
    text.write_text("not a recording")
    assert "not an .npz file" in _refused(text)
    text.write_bytes(b"")
    assert "not an .npz file" in _refused(text)
    np.save(tmp_path / "one.npy", np.zeros(3))
    assert "not an .npz file" in _refused(tmp_path / "one.npy")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme.txt", "hello")
        archive.writestr("config", "hello")
    assert "config is not an array" in _refused(tmp_path / "other.zip")


def test_pickled_objects_are_refused_even_where_nobody_would_look(tmp_path: Path):
    arrays = KINDS["attnM"] | {"extra": np.array([print], dtype=object)}
    assert "pickled objects" in _refused_arrays(tmp_path, arrays)


def test_other_number_types_and_extra_arrays_are_accepted(tmp_path: Path):
    arrays = KINDS["attnM"] | {"extra": np.array(["text"]), "labels": np.arange(180).reshape(30, 6)}
    arrays["tokens"] = arrays["tokens"].astype(np.float32)
    arrays["config"] = np.array([arrays["config"].encode()])
    found = load(by_hand.write(tmp_path / "run.npz", arrays))
    assert found.train.labels.dtype == found.train.inputs.dtype == np.float64


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_cut_short_is_refused(compressed: bool, tmp_path: Path):
    path = tmp_path / "run.npz"
    (np.savez_compressed if compressed else np.savez)(path, **KINDS["attnS"])
    whole = path.read_bytes()
    for kept in [*range(0, len(whole), len(whole) // 40), len(whole) - 1]:
        path.write_bytes(whole[:kept])
        _refused(path)


@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(1, 255))
def test_a_damaged_byte_never_ends_in_a_traceback(place: float, value: int, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("damaged") / "run.npz"
    np.savez_compressed(path, **KINDS["mlp"])
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= value
    path.write_bytes(content)
    try:
        load(path)  # a byte that carries nothing, such as a date, does no harm
    except InvalidInput as error:
        assert "\n" not in str(error)


def test_a_very_long_name_is_not_repeated():
    with pytest.raises(InvalidInput) as refusal:
        load("9" * 3000)
    assert "cannot read" in str(refusal.value) and len(str(refusal.value)) < 500
