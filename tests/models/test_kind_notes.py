"""What every door needs to know of a kind of model is what it declares: no name of a kind is asked for."""

import ast
import json
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stepwell as sw
from stepwell._util.errors import InvalidInput, WouldNotFit
from stepwell.cli import main
from stepwell.experiments import Field, kinds, register
from stepwell.explorer._state import State
from stepwell.explorer._view import view
from stepwell.models import AbstractAttention, Form, Theory, is_attention, theory_of

ROOMS = ("experiments", "store", "sweeps", "explorer", "cli")
Count = Annotated[int, Field("a number of them", least=1, most=10**6)]
Scale = Annotated[float, Field("standard deviation of a weight", above=0.0, most=1.0)]


def names_asked_for(source: str) -> list[str]:
    """Comparisons of the kind of a model with a name."""
    names = set(kinds("model"))
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
            words = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
            if any("model" in side and "kind" in side for side in sides) and words & names:
                found.append(ast.unparse(node))
    return found


def test_no_room_asks_for_a_kind_of_model_by_its_name():
    package = Path(sw.__file__).parent
    files = [path for room in ROOMS for path in (package / room).rglob("*.py")]
    files.remove(package / "experiments" / "_published.py")  # the script's names of models
    assert len(files) > 50
    found = {str(path): asked for path in files if (asked := names_asked_for(path.read_text(encoding="utf-8")))}
    assert not found, f"let the kind declare it, as a note of register: {found}"


def test_a_name_that_is_asked_for_is_seen():
    for line in ('experiment.model.kind == "mlp"', 'sections["model"].kind not in ("separate", "merged")'):
        assert names_asked_for(line) == [line.replace('"', "'")]
    assert names_asked_for('experiment.objective.kind == "spectral"') == []


class Renamed(AbstractAttention):
    """Separate attention of rank one whose weights have other names: no door may know them."""

    gain: jax.Array
    left: jax.Array
    right: jax.Array
    activation: ClassVar[str] = "linear"  # pyright: ignore[reportIncompatibleVariableOverride]
    normalization: ClassVar[str] = "1/N"  # pyright: ignore[reportIncompatibleVariableOverride]
    attends_query: ClassVar[bool] = True  # pyright: ignore[reportIncompatibleVariableOverride]
    weight_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "gain": ("unit",),
        "left": ("unit", "left_dim"),
        "right": ("unit", "right_dim"),
    }
    factors: ClassVar[int] = 3
    declared_form: ClassVar[Form] = "attention"
    theory: ClassVar[Theory] = "separate"

    @staticmethod
    def theory_weights(weights: dict[str, Any]) -> dict[str, Any]:
        keys, queries = weights["left"][..., None, :], weights["right"][..., None, :]
        return {"values": weights["gain"], "keys": keys, "queries": queries}

    @property
    def dim(self) -> int:
        return self.left.shape[-1]

    def bilinear(self) -> jax.Array:
        return jnp.pad(jnp.einsum("hi,hj->hij", self.left, self.right), ((0, 0), (0, 1), (0, 0)))

    def directions(self, query: jax.Array) -> jax.Array:
        return self.bilinear() @ query

    def readout(self) -> jax.Array:
        return jnp.pad(self.gain[:, None, None], ((0, 0), (0, 0), (self.dim, 0)))

    def map_rank(self) -> int | None:
        return None


@pytest.fixture
def experiment() -> sw.Experiment:
    """Of a kind with a theory, which is that of separate attention with the same numbers."""

    @register(
        "model",
        "renamed",
        theory="separate",
        follows="population",
        weights=lambda values, dim, outputs: values["units"] * (1 + 2 * dim),
    )
    def renamed(task: Any, key: Any, *, units: Count = 2, scale: Scale = 0.1):
        drawn = scale * np.asarray(jax.random.normal(key, (units, 1 + 2 * task.dim)))
        return Renamed(*map(jnp.asarray, (drawn[:, 0], drawn[:, 1 : 1 + task.dim], drawn[:, 1 + task.dim :])))

    task = {"eigenvalues": [0.6, 0.4], "directions": "axes"}
    return sw.Experiment(task=task, model="renamed", training={"until": 60.0}, seed=3)


def as_separate(model: Renamed) -> sw.SeparateAttention:
    key = jnp.pad(model.left[:, None], ((0, 0), (0, 0), (0, 1)))
    return sw.SeparateAttention(model.readout(), key, model.right[:, None])


def test_drops_of_any_class_with_a_theory_are_compared(experiment: sw.Experiment):
    task, model, objective = experiment.build()
    separate = sw.flow(as_separate(model), objective, until=60.0, progress=False)  # pyright: ignore[reportArgumentType]
    expected, found = sw.compare(separate, task).table, experiment.run(progress=False).stepwell.compare().table
    np.testing.assert_allclose(found["predicted"], expected["predicted"], rtol=1e-9)
    np.testing.assert_allclose(found["measured"], expected["measured"], rtol=1e-3)
    assert found["measured_head"].tolist() == expected["measured_head"].tolist()


def test_value_weights_of_any_class_with_a_theory_are_kept(experiment: sw.Experiment):
    run = experiment.replace(record={"value_weights": True}).run(progress=False)
    np.testing.assert_allclose(run["value_weight"].values[0, -1], run["gain"].values[0, -1], rtol=1e-9)
    with pytest.raises(InvalidInput, match="not of multihead"):
        sw.Experiment(model="multihead", record={"value_weights": True})


def test_train_tabulates_the_drops_of_any_kind_with_a_theory(experiment: sw.Experiment, tmp_path: Path, capsys: Any):
    path = tmp_path / "run.toml"
    path.write_text(experiment.to_toml(), encoding="utf-8")
    assert main(["train", str(path), "--theory", "--json", "--out", str(tmp_path)]) == 0
    assert [row["status"] for row in json.loads(capsys.readouterr().out)["drops"]] == ["measured", "after the end"]


def test_the_page_has_the_pictures_of_any_class_with_a_theory(experiment: sw.Experiment):
    made = view(State("explore", {}, experiment))
    assert made["kind"] == "linear" and made["keys"].shape[1:] == (2, 1, 2) and len(made["table"]["rows"]) == 2


def test_what_any_kind_says_of_its_weights_is_counted(experiment: sw.Experiment):
    with pytest.raises(WouldNotFit):
        experiment.replace(model={"units": 10**6}).check_memory()


def test_models_of_cubic_features_are_not_compared():
    assert sw.Experiment(model="mlp").no_comparison() == "the drops of the mlp are those of merged attention"
    assert sw.Experiment(model="merged").no_comparison() == ""


OURS = [name for name, kind in kinds("model").items() if kind.build.__module__.startswith("stepwell.")]


@pytest.mark.parametrize("name", OURS)
def test_notes_are_true_of_what_is_built(name: str):
    notes = kinds("model")[name].notes
    task: dict[str, Any] = {"dim": 3, "outputs": 2}
    if notes.get("reads") == "spectra":
        task = {"kind": "multitask", "dims": [2, 1]}
    if notes.get("reads") == "inputs":
        task = {"kind": "teacher", "strengths": [1.0, 0.5], "eigenvalues": [1.0, 1.0, 1.0]}
    many = {"units" if "units" in kinds("model")[name].fields else "heads": 4}
    experiment = sw.Experiment(task=task, model={"kind": name, "scale": 0.5} | many, seed=1)
    model = experiment.build().model
    assert is_attention(model) == (notes.get("reads") not in ("cubic", "inputs"))
    assert theory_of(type(model)) == notes.get("theory")
    assert "weights" in notes, f"{name} does not say how many weights it has: what does not fit is not refused"
    said, own = notes["weights"](experiment.model, 3, 2), sum(weight.size for weight in model.weights().values())
    assert own <= said <= 1.5 * own  # of separate attention the label entries of queries are counted, too
    if "divisors" in notes:
        assert len(notes["divisors"](experiment.model, 3, 2)) == len(model.weights())


def test_a_note_that_is_unknown_is_refused():
    for section, note, words in (
        ("model", "theroy", "did you mean theory?"),
        ("task", "zeal", "there are closed_form, rotates, supervised, fill, canonical, follows, replaces"),
        ("training", "zeal", "there are fill, canonical, follows, replaces"),
    ):
        with pytest.raises(InvalidInput, match=f"the {section} kind noted .* unknown note '{note}'; .*") as refusal:
            register(section, "noted", **{note: "merged"})  # pyright: ignore[reportArgumentType, reportCallIssue]
        assert words in str(refusal.value)


def test_divisors_without_a_scale_to_divide_are_refused():
    with pytest.raises(InvalidInput, match="model kind unscaled .* no such field; give it the keyword scale: float"):

        @register("model", "unscaled", divisors=lambda values, dim, outputs: (1.0, 1.0))
        def unscaled(task: Any, key: Any, *, heads: Count = 2):
            return sw.MergedAttention.random(dim=task.dim, heads=heads, scale=0.1, key=key)


@pytest.mark.parametrize("right", [True, False])
def test_what_sweeps_draw_by_divisors_is_what_the_builder_draws(right: bool, tmp_path: Path):
    name = f"divided-{right}"

    @register("model", name, divisors=lambda values, dim, outputs: (1.0, 1.0 if right else 2.0))
    def divided(task: Any, key: Any, *, heads: Count = 2, scale: Scale = 0.1):
        return sw.MergedAttention.random(dim=task.dim, heads=heads, scale=scale, key=key)

    experiment = sw.Experiment(task={"dim": 2}, model=name, objective="population", training={"until": 1.0})
    axes: Any = {"model.scale": [0.1, 0.2], "seed": [0, 1]}
    if right:
        plain = experiment.replace(seed=1, model={"scale": 0.2}).run(progress=False).loss[0, 0]
        found = sw.sweep(experiment, axes, store=tmp_path, progress=False).first_loss.sel(scale=0.2, seed=1)
        np.testing.assert_allclose(found, plain, rtol=1e-12)
    else:
        with pytest.raises(InvalidInput, match="model kind divided-False, built at once, .* mend its note divisors"):
            sw.sweep(experiment, axes, store=tmp_path, progress=False)


def test_linear_attention_on_a_task_with_closed_forms_is_trained_on_the_population():
    def made(**notes: Any) -> list[str]:
        @register("task", f"plain-{len(notes)}", **notes)
        def plain(*, dim: Count = 2):
            return sw.InContextRegression(np.eye(dim), 5)

        task = {"kind": f"plain-{len(notes)}"}
        return [sw.Experiment(task=task, model=model).objective.kind for model in ("separate", "merged", "mlp")]

    assert made() == ["moments"] * 3
    assert made(closed_form=True) == ["population"] * 3
    with pytest.raises(InvalidInput, match="no closed form for the task mixture; take moments"):
        sw.Experiment(task="mixture", objective="population")
