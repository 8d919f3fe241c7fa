"""A model and a task of the user's own, in a file: swept, stored, listed, reopened without the file, exported."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.cli import main
from stepwell.experiments import LOADED, Experiment, _kind, load_kinds
from stepwell.store import Store
from stepwell.sweeps import Study, sweep, table_of
from stepwell.sweeps._cluster import Cluster
from stepwell.sweeps._plan import blocks_of, is_stacked, programs_of
from stepwell.sweeps._stacked import build

ROOT = Path(__file__).parents[2]
LAB = '''
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp

import stepwell as sw
from stepwell.experiments import Field, register


class Gated(sw.models.AbstractModel):
    """Linear attention whose prediction passes a gate."""

    read: jax.Array
    gate: float = eqx.field(static=True)
    weight_dims = {"read": ("head", "dim")}

    def __call__(self, tokens):
        scores = tokens[:-1, :-1] @ tokens[-1, :-1]
        return self.gate * jnp.sum(self.read) * (scores @ tokens[:-1, -1:]) / len(tokens)


@register("model", "gated")
def gated(task, key, *, heads: int = 2, gate: Annotated[float, Field("opening", least=0.0, most=1.0)] = 0.5):
    """Gated attention."""
    return Gated(0.3 * jax.random.normal(key, (heads, task.dim)), gate)


@register("task", "sparse")
def sparse(*, dim: int = 3, sparsity: Annotated[float, Field("fraction of zeros", least=0.0, most=0.9)] = 0.5):
    """Regression on inputs of which some are zero."""

    def draw(n, key):
        first, second, third = jax.random.split(key, 3)
        x = jax.random.normal(first, (n, 9, dim)) * (jax.random.uniform(second, (n, 9, dim)) > sparsity)
        return x, jnp.einsum("sni,si->sn", x, jax.random.normal(third, (n, dim)))

    return sw.tasks.SamplerTask(draw)
'''
STUDY = """
[task]
kind = "sparse"
[model]
kind = "gated"
[objective]
kind = "sampled"
sequences = 50
[training]
kind = "descent"
steps = 20
rate = 0.1
[sweep]
"model.gate" = [0.2, 0.9]
"task.sparsity" = [0.0, 0.5]
seed = [0, 1]
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with kinds, which are forgotten at the end."""
    file = tmp_path / "own_lab.py"
    file.write_text(LAB)
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.setattr(_kind, "_REGISTRY", {name: dict(known) for name, known in _kind._REGISTRY.items()})
    before = LOADED.copy()
    yield file
    LOADED[:] = before
    sys.modules.pop("own_lab", None)


def called(*words: object) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([*map(str, words), "--json"]) == 0
    return json.loads(out.getvalue())


def test_from_the_file_to_the_table_and_without_the_file(lab: Path, tmp_path: Path):
    store = tmp_path / "store"
    report = called("sweep", tmp_path / "study.toml", "--with", lab, "--store", store)
    assert (report["stored"], report["axes"]) == (8, {"gate": 2, "sparsity": 2, "seed": 2})
    experiment = Experiment.read(_without_sweep(tmp_path)).replace(model={"gate": 0.9}, seed=1)
    listed = called("runs", "ls", "gate=0.9", "sparsity=0.5", "model.kind=gated", "--store", store)
    assert [run["model.gate"] for run in listed["runs"]] == [0.9, 0.9]
    record = {"points": 65, "spacing": "linear", "snapshots": 2}
    alone = experiment.replace(record=record)
    (found,) = [run for run in listed["runs"] if run["name"] == alone.name]
    assert found["final_loss"] == pytest.approx(float(alone.run(progress=False)["loss"][0, -1]), rel=1e-12)
    assert Store(store).experiment(alone.name) == alone

    code = f"""
import stepwell as sw
from stepwell._util.errors import InvalidInput
store = sw.store.Store({str(store)!r})
assert len(store.table(["gate>0.5", "sparsity=0"])) == 2
assert store.select(["gate=0.2"], variables=["loss"])["loss"].shape == (4, 21)
print(sw.store.export(store, {str(tmp_path / "runs.csv")!r}, ["model=gated"], format="csv"))
try:
    store.experiment({alone.name!r})
except InvalidInput as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    exported, refusal = done.stdout.splitlines()
    assert called("runs", "show", alone.name, "--store", store)["lacking"] == []
    for section, name in (("task", "sparse"), ("model", "gated")):
        del _kind._REGISTRY[section][name]
    assert called("runs", "show", alone.name, "--store", store)["lacking"] == ["task sparse", "model gated"]
    assert set(pd.read_csv(exported)["model.gate"]) == {0.2, 0.9}
    assert "there is no task kind 'sparse'" in refusal and "--with FILE.py" in refusal


def _without_sweep(folder: Path) -> Path:
    path = folder / "run.toml"
    path.write_text(STUDY.partition("[sweep]")[0])
    return path


def test_runs_of_other_structures_are_other_groups_of_one_piece_of_work(lab: Path, tmp_path: Path):
    """A gate is static in this model: runs that differ in it are not one program, though they are one shard."""
    load_kinds(lab)
    (program,) = programs_of(blocks_of(Study.read(str(tmp_path / "study.toml"))))
    (work,) = program.parts()
    groups = [(rows.tolist(), made.size) for rows, made in build(work)]
    assert sorted(row for rows, _ in groups for row in rows) == list(range(8))
    assert [size for _, size in groups] == [4, 4]
    for rows, _ in groups:
        assert len({work.configuration(row)["model.gate"] for row in rows}) == 1


def test_on_workers_that_load_the_same_file(lab: Path, tmp_path: Path, cluster: Cluster):
    load_kinds(lab)
    study = str(tmp_path / "study.toml")
    here = sweep(study, store=tmp_path / "here", progress=False)
    there = sweep(study, store=tmp_path / "there", client=cluster._client, progress=False)
    np.testing.assert_allclose(there.final_loss, here.final_loss, rtol=1e-12)
    assert len(table_of(there)) == 8


def test_a_kind_that_is_not_loaded_is_named(tmp_path: Path):
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(InvalidInput, match="there is no task kind 'sparse'"):
        Study.read(str(tmp_path / "study.toml"))


def test_a_training_of_the_users_own_is_run_one_by_one(tmp_path: Path, lab: Path):
    @sw.experiments.register("training", "signs")
    def signs(*, size: float = 0.01, steps: int = 5) -> Any:
        """Steps of one size."""
        return _Signs(size, steps)

    run = Experiment(task={"dim": 2}, training="signs")
    result = sweep(run, {"size": [0.01, 0.02], "seed": [0, 1]}, store=tmp_path / "store", progress=False)
    alone = run.replace(training={"size": 0.02}, seed=1).run(progress=False)
    assert float(result.final_loss.sel(size=0.02, seed=1)) == float(alone["loss"][0, -1])
    assert len(Store(tmp_path / "store").shards()) == 2


class _Signs(sw.experiments.AbstractTraining):
    def __init__(self, size: float, steps: int):
        self.size, self.steps = size, steps

    def run(self, model: Any, objective: Any, record: Any, time: Any, **options: Any) -> Any:
        import optax

        rule = optax.sign_sgd(self.size)
        return sw.descend(model, objective, optimizer=rule, steps=self.steps, record=record, **options)


ODD = '''
import jax
import jax.numpy as jnp

import stepwell as sw
from stepwell.experiments import register


@register("task", "odd")
def odd(*, dims: int = 2, context: str = "short", eigenvalues: float = 1.0, outputs: str = "one"):
    """A task whose fields are called like ours and are something else."""
    tokens = {"short": 5, "long": 9}[context]

    def draw(n, key):
        first, second = jax.random.split(key)
        x = eigenvalues * jax.random.normal(first, (n, tokens, dims))
        return x, jnp.einsum("sni,si->sn", x, jax.random.normal(second, (n, dims)))

    return sw.tasks.SamplerTask(draw)


@register("model", "mixed", follows="sampled")
def mixed(task, key, *, heads: tuple[int, ...] = (2, 3), rank: str = "", final_loss: float = 1.0, scale: float = 0.2):
    """A model whose fields are, too."""
    return sw.SeparateAttention.random(dim=task.dim, heads=heads[0], scale=scale * final_loss, key=key)
'''


@pytest.fixture
def odd_lab(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "my_odd_lab.py"
    file.write_text(ODD)
    load_kinds(file)
    yield file
    sys.modules.pop("my_odd_lab", None)


SHORT: dict[str, Any] = {"objective": {"sequences": 20}, "training": {"kind": "descent", "steps": 4}}


def test_fields_may_be_called_like_ours_and_be_something_else(odd_lab: Path, tmp_path: Path):
    run = Experiment(task="odd", model={"heads": 2}, **SHORT)
    result = sweep(
        run, {"task.eigenvalues": [0.5, 2.0], "task.context": ["short", "long"]}, store=tmp_path / "one", progress=False
    )
    alone = run.replace(task={"eigenvalues": 2.0, "context": "long"}).run(progress=False)
    assert float(result.final_loss[1, 1]) == pytest.approx(float(alone["loss"][0, -1]), rel=1e-12)
    lists = Experiment(task={"dim": 2}, model="mixed", **SHORT)
    result = sweep(lists, {"model.heads": [[2, 3], [3, 3]]}, store=tmp_path / "two", progress=False)
    alone = lists.replace(model={"heads": [3, 3]}).run(progress=False)
    assert float(result.final_loss[1]) == pytest.approx(float(alone["loss"][0, -1]), rel=1e-12)


def test_a_field_that_is_called_like_a_scalar_takes_nothing_away(odd_lab: Path, tmp_path: Path):
    run = Experiment(task={"dim": 2}, model="mixed", **SHORT)
    result = sweep(run, {"final_loss": [0.5, 2.0]}, store=tmp_path / "store", progress=False)
    assert result.final_loss.dims == ("model.final_loss",)
    assert result["model.final_loss"].values.tolist() == [0.5, 2.0]
    assert {"model.final_loss", "final_loss"} <= set(table_of(result).columns)


def test_a_users_file_does_not_slow_down_sweeps_of_our_kinds(odd_lab: Path, monkeypatch: pytest.MonkeyPatch):
    """`scale` of the user's model is not declared to be free, and that of ours is."""
    resolved = []
    replace = Experiment.replace
    monkeypatch.setattr(Experiment, "replace", lambda self, **given: resolved.append(given) or replace(self, **given))
    scales = {"from": 0.1, "to": 1.0, "count": 50}
    assert sum(block.places.size for block in blocks_of(Study.of(Experiment(), {"scale": scales}))) == 50
    assert len(resolved) < 10
    own = blocks_of(Study.of(Experiment(model="mixed", **SHORT), {"scale": scales}))
    assert len(resolved) > 50 and sum(block.places.size for block in own) == 50


def test_the_effective_map_of_a_users_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_kind, "_REGISTRY", {name: dict(known) for name, known in _kind._REGISTRY.items()})
    load_kinds(ROOT / "examples" / "my_lab.py")
    run = Experiment(task={"dim": 2}, model={"kind": "gated", "scale": 0.3}, training={"until": 2000.0})
    result = sweep(run, {"gate": [0.5, 1.0]}, record={"measure": ["map"]}, store=tmp_path / "store", progress=False)
    ours = Experiment(task={"dim": 2}, model={"scale": 0.3}, training={"until": 2000.0})
    other = sweep(ours, {"seed": [0]}, record={"measure": ["map"]}, store=tmp_path / "store", progress=False)
    for name in ("map_1", "map_2"):  # where all is learned, whatever it began with
        np.testing.assert_allclose(result[name], float(other[name][0]), rtol=1e-3)


IMPORTED = """
import own_lab
import stepwell as sw

result = sw.sweep("study.toml", store="there", workers=1, progress=False)
print(result.attrs["outcome"], result.attrs["stored"])
"""


def test_workers_import_what_was_imported_here(lab: Path, tmp_path: Path):
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["finished", "8"], done.stderr


def test_a_kind_of_the_program_itself_is_not_for_workers(lab: Path, tmp_path: Path):
    code = lab.read_text() + IMPORTED.replace("import own_lab", "")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert "InvalidInput: a kind is registered by the program itself" in done.stderr


class _Sum(sw.models.AbstractModel):
    """Attention whose heads differ in their size alone."""

    sizes: jax.Array

    def __call__(self, tokens: jax.Array) -> jax.Array:
        return jnp.sum(self.sizes) * (tokens[:-1, :-1] @ tokens[-1, :-1] @ tokens[:-1, -1:]) / len(tokens)


def _scaled(task: Any, key: Any, *, heads: int = 2, scale: float = 0.1) -> Any:
    """Sizes of a standard deviation that is a field."""
    return _Sum(scale * jax.random.normal(key, (heads,)))


def _many(task: Any, key: Any, *, heads: int, scale: Any) -> Any:
    return eqx.filter_vmap(lambda key, scale: _scaled(task, key, heads=heads, scale=scale))(key, scale)


def _fixed(*, dim: int = 2) -> Any:
    """A regression that has nothing random."""
    return sw.tasks.InContextRegression(np.eye(dim), 5)


def _built(model: str) -> Experiment:
    _kind.register("task", "fixed")(_fixed)
    return Experiment(task="fixed", model=model, objective={"sequences": 20}, training={"kind": "descent", "steps": 4})


OVER = {"scale": [0.1, 0.2], "seed": [4, 5, 6], "model.heads": [2, 3]}


def test_a_vectorized_builder_makes_what_the_plain_one_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    called = []
    _kind.register("model", "plainly")(_scaled)
    _kind.register("model", "at-once", many=lambda *given, **fields: called.append(fields) or _many(*given, **fields))(
        _scaled
    )
    monkeypatch.setattr(Experiment, "build_model", _counting(counted := []))
    at_once = sweep(_built("at-once"), OVER, store=tmp_path / "store", progress=False)
    assert len(counted) == 4 and [fields["heads"] for fields in called] == [2, 3]  # the first and last of each
    plainly = sweep(_built("plainly"), OVER, store=tmp_path / "store", progress=False)
    assert len(counted) == 4 + 12
    np.testing.assert_array_equal(at_once.first_loss, plainly.first_loss)
    np.testing.assert_array_equal(at_once.final_loss, plainly.final_loss)


def _counting(counted: list[Any]) -> Any:
    build_model = Experiment.build_model
    return lambda *given: counted.append(given) or build_model(*given)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda task, key, **fields: _many(task, key, **{**fields, "scale": 1.0000000001 * fields["scale"]}),
        lambda task, key, **fields: _many(task, key[::-1], **fields),
        lambda task, key, *, heads, scale: _scaled(task, key[0], heads=heads, scale=scale[0]),
    ],
    ids=["scale", "order", "one"],
)
def test_a_vectorized_builder_that_makes_something_else_is_refused(wrong: Any, tmp_path: Path):
    _kind.register("model", "at-once", many=wrong)(_scaled)
    with pytest.raises(InvalidInput, match="model kind at-once makes another model than its builder, at seed [46]"):
        sweep(_built("at-once"), OVER, store=tmp_path / "store", progress=False)


class _Ridge(sw.objectives.AbstractObjective):
    """The population loss, and a penalty on all weights."""

    population: sw.Population
    strength: jax.Array

    def __call__(self, model: Any) -> Any:
        penalty = sum(jnp.sum(weight**2) for weight in model.weights().values())
        return self.population(model) + self.strength * penalty

    def check(self, model: Any) -> None:
        self.population.check(model)

    def floor(self, model: Any) -> None:
        return None


def _ridge(task: Any, normalization: Any, *, strength: float = 0.01) -> Any:
    """Ridge regression."""
    return _Ridge(sw.Population(task, normalization), jnp.asarray(strength))


def _two(key: Any, *, ratio: float = 0.5, directions: Literal["random", "axes"] = "random") -> Any:
    """A regression in two dimensions."""
    vectors = np.eye(2) if directions == "axes" else sw.tasks.random_rotation(2, key=key)
    return sw.tasks.InContextRegression(sw.tasks.covariance([1.0, ratio], vectors), 9)


def _doubled(task: Any, key: Any, *, scale: float = 0.1) -> Any:
    """Separate attention from twice the scale."""
    return sw.SeparateAttention.random(dim=task.dim, heads=2, scale=2 * scale, key=key)


def _stacking(divisor: float = 0.5, kind: str = "doubled") -> Experiment:
    """An experiment whose task, model and objective are a user's, and say how many of them are built at once."""
    _kind.register("task", "two", rotates="directions")(_two)
    _kind.register("model", kind, theory="separate", divisors=lambda values, dim, outputs: 3 * (divisor,))(_doubled)
    _kind.register("objective", "ridge", rotates=True)(_ridge)
    return Experiment(task="two", model=kind, objective="ridge", training={"kind": "descent", "steps": 30, "rate": 0.2})


def test_kinds_of_the_users_own_are_built_at_once_if_they_say_how(tmp_path: Path):
    run = _stacking()
    over = {"ratio": [0.5, 0.25], "strength": [0.01, 0.1], "scale": [0.1, 1 / 3], "seed": [4, 5], "rate": [0.1, 0.2]}
    (program,) = programs_of(blocks_of(Study.of(run, over)))
    assert is_stacked(program.blocks[0].configuration())
    result = sweep(run, over, store=tmp_path, progress=False)
    for ratio, strength, scale, seed in ((0.25, 0.1, 1 / 3, 5), (0.5, 0.01, 0.1, 4), (0.25, 0.01, 1 / 3, 4)):
        task, model, objective = {"ratio": ratio}, {"scale": scale}, {"strength": strength}
        alone = run.replace(task=task, model=model, objective=objective, seed=seed).run(progress=False)
        found = result.sel(ratio=ratio, strength=strength, scale=scale, seed=seed, rate=0.2)
        assert float(found.final_loss) == pytest.approx(float(alone["loss"][0, -1]), rel=1e-11)


def test_kinds_that_say_it_wrongly_are_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="model kind thrice, built at once, .* at seed 4; mend its note divisors"):
        sweep(_stacking(1 / 3, "thrice"), {"seed": [4, 5]}, store=tmp_path, progress=False)


def _gained(task: Any, key: Any, *, scale: float = 0.1, gain: float = 2.0) -> Any:
    """Separate attention from a multiple of the scale."""
    return sw.SeparateAttention.random(dim=task.dim, heads=2, scale=gain * scale, key=key)


def test_models_that_are_drawn_at_once_differ_in_their_scale_alone(tmp_path: Path):
    """Divisors may depend on another number, and are those of one value of it."""
    run = _stacking()
    _kind.register("model", "gained", divisors=lambda values, dim, outputs: 3 * (1 / values["gain"],))(_gained)
    run, over = run.replace(model="gained"), {"seed": [4, 5], "gain": [2.0, 4.0, 2.5]}
    programs = programs_of(blocks_of(Study.of(run, over)))
    assert len(programs) == 3 and all(is_stacked(program.blocks[0].configuration()) for program in programs)
    over["gain"] = [2.0, 4.0]
    result = sweep(run, over, store=tmp_path, progress=False)
    alone = run.replace(model={"gain": 4.0}, seed=5).run(progress=False)
    assert float(result.final_loss.sel(gain=4.0, seed=5)) == pytest.approx(float(alone["loss"][0, -1]), rel=1e-11)


def _one_map(task: Any, key: Any, *, scale: float = 0.1) -> Any:
    """Merged attention with one head."""
    return sw.MergedAttention.random(dim=task.dim, heads=1, scale=scale, key=key)


def _entries(key: Any, *, ratio: float = 0.5) -> Any:
    """The same of the entries of a covariance, which do not say in which order its eigenvalues are."""
    return sw.tasks.InContextRegression(np.array(_two(key, ratio=ratio).covariance), 9)


@pytest.mark.parametrize("task", ["two", "entries"])
def test_measures_of_kinds_of_the_users_own(task: str, tmp_path: Path):
    """The map is read along the eigenvectors that the task has, and critical rates are those of its moments."""
    _kind.register("task", "two", rotates="directions")(_two)
    _kind.register("task", "entries")(_entries)
    _kind.register("model", "one-map", theory="merged")(_one_map)
    training = {"kind": "descent", "steps": 1000, "rate": 0.3}
    run = Experiment(task=task, model="one-map", objective="population", training=training)
    record = {"measure": ["map", "regime"]}
    result = sweep(run, {"ratio": [0.5, 0.25], "seed": [0, 1]}, record=record, store=tmp_path, progress=False)
    for ratio in (0.5, 0.25):
        known = sw.tasks.InContextRegression(np.diag([1.0, ratio]), 9)
        rates = sw.theory.linear.merged_critical_rates(known)
        wanted = np.diag(known.covariance) * np.diag(sw.theory.linear.fixed_point(known, [0, 1]).effective_map)
        for number, value in enumerate(wanted):
            np.testing.assert_allclose(result[f"map_{number + 1}"].sel(ratio=ratio), value, rtol=1e-3)
        np.testing.assert_allclose(result.catapult_rate.sel(ratio=ratio), rates.catapult, rtol=1e-9)
        np.testing.assert_allclose(result.cycle_rate.sel(ratio=ratio), rates.cycles, rtol=1e-9)
