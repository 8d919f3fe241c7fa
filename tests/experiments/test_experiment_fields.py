"""Fields are declared once: bounds, words, schema, and how a kind is registered."""

import importlib
import importlib.metadata
import json
import math
import pickle
import re
import subprocess
import sys
import tomllib
from typing import Annotated, Any, Literal

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_experiments import descriptions, tasks

import stepwell as sw
from stepwell import cli
from stepwell._util.errors import InvalidInput
from stepwell._util.parser import Parser
from stepwell.experiments import (
    SECTIONS,
    SEED,
    DeclaredField,
    Experiment,
    Field,
    _kind,
    _plugins,
    find_kind,
    json_schema,
    kinds,
    load_kinds,
    register,
)
from stepwell.experiments._flags import OTHER_FLAGS, parsed
from stepwell.experiments._kind import ENTRY_POINTS

FIELDS = [
    (section, kind.name, field)
    for section in SECTIONS
    for kind in kinds(section).values()
    for field in kind.fields.values()
] + [("", "", SEED)]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch):
    """Kinds that a test registers go at its end."""
    before = {section: dict(known) for section, known in _kind._REGISTRY.items()}
    modules, loaded = dict(sys.modules), list(_plugins.LOADED)
    yield _kind._REGISTRY
    for section, known in before.items():
        _kind._REGISTRY[section].clear()
        _kind._REGISTRY[section].update(known)
    for name in set(sys.modules) - set(modules):
        if name.startswith("my_"):
            del sys.modules[name]
    _plugins.LOADED[:] = loaded


def _edges(field: DeclaredField) -> list[tuple[Any, bool]]:
    """Values at both sides of each bound of a field, and whether they are allowed."""
    whole = int in (field.scalar, *_inner(field))
    step = (lambda value, to: value + (1 if to > value else -1)) if whole else math.nextafter
    about, edges = field.about, []
    if about.least is not None:
        edges += [(about.least, True), (step(about.least, -math.inf), False)]
    if about.above is not None:
        edges += [(about.above, False), (step(about.above, math.inf), True)]
    if about.most is not None:
        edges += [(about.most, True), (step(about.most, math.inf), False)]
    return edges


def _inner(field: DeclaredField) -> list[Any]:
    return [int] if "int" in str(field.kind) else [float] if "float" in str(field.kind) else []


@pytest.mark.parametrize(("section", "kind", "field"), FIELDS, ids=lambda v: getattr(v, "name", v))
def test_every_field_is_described_and_bounded_where_it_says(section: str, kind: str, field: DeclaredField):
    assert field.about.help and not field.about.help.endswith("."), "one line of help, without a full stop"
    for value, allowed in _edges(field):
        for one in [*([[value]] if field.is_list else []), *([] if field._needs_list else [value])]:
            if allowed:
                assert field.convert(one) == (tuple(one) if isinstance(one, list) else one)
            else:
                with pytest.raises(InvalidInput, match=re.escape(field.allowed())):
                    field.convert(one)
    for wrong in (object(), {"a": 1}, math.nan, "no such word\n"):
        with pytest.raises(InvalidInput):
            field.convert(wrong)
    low, high = field.about.slider or (0, 1)
    assert low < high and (not field.about.log or low > 0)
    for end in field.about.slider or ():  # a slider goes over allowed values
        value = int(end) if int in _inner(field) else float(end)
        field.convert([value] if field._needs_list else value)
    if field.default is not None:
        assert field.convert(field.default) == field.default


@pytest.mark.parametrize("value", [True, 1.0, "3", -1, 2**32, [1], None, math.inf])
def test_a_seed_is_an_integer(value: Any):
    with pytest.raises(InvalidInput, match="seed is .*; it must be an integer from 0 to 4294967295"):
        SEED.convert(value)


def test_types_that_cannot_be_declared_are_refused(registry):
    for annotation in (dict, tuple[int, int], bytes, Any):
        with pytest.raises(TypeError, match="a field has the type"):
            DeclaredField.of("field", annotation, None)
    with pytest.raises(TypeError, match="needs a type and a default: gate: float = 1.0"):
        exec("@register('model', 'mine')\ndef mine(task, *, gate): ...", {"register": register})


@pytest.mark.parametrize(
    ("annotation", "default", "message"),
    [
        (int | float, 1, "the field gate is an int or a float, .*; declare a float"),
        (int | None, 8, "the field gate may be None, which stands for the default; its default must be None"),
        (Annotated[int, Field("", least=1)], 0, "the default of the field gate is 0; it must be an integer from 1 on"),
        (tuple[int, ...], (), "the default of the field gate is"),
        (Literal["a", "b"], "c", "it must be one of a or b"),
        (Annotated[int, Field("", when={"door": (1,)})], 2, "has an effect when door, which is no field"),
    ],
)
def test_declarations_that_would_break_a_name_are_refused(registry, annotation: Any, default: Any, message: str):
    def builder(task: Any, *, gate=default): ...

    builder.__annotations__["gate"] = annotation
    with pytest.raises(TypeError, match=message):
        register("model", "mine")(builder)


@pytest.mark.parametrize("name", ["", "my/kind", "../up", "-x", "two words", "a\n"])
def test_a_kind_has_a_name_that_files_can_have(registry, name: str):
    with pytest.raises(InvalidInput, match="a name has letters, digits, _ and -"):
        register("model", name)(lambda: None)


def test_no_field_is_called_kind(registry):
    with pytest.raises(TypeError, match="has a field kind, which is the name of the kind"):

        @register("model", "mine")
        def mine(task: Any, *, kind: str = "a"): ...


def _register_odd() -> None:
    """A kind with a field of every type, and defaults that are written as one would."""

    def fill(values: dict[str, Any], sections: Any) -> dict[str, Any]:
        return values | ({"size": 2} if values["size"] is None else {})  # an integer for a number

    @register("model", "odd", fill=fill)
    def odd(
        task: Any,
        *,
        gate: float = 1,
        gated: bool = True,
        form: Literal["soft", "hard"] = "soft",
        width: Annotated[int, Field("width", when={"form": ("hard",)})] = 3,
        level: Literal[1, 2] = 1,
        bias: float = 0.0,
        label: str = "",
        labels: tuple[str, ...] = ("a",),
        sides: tuple[bool, ...] = (True,),
        size: float | None = None,
        heads: tuple[int, ...] = (1, 2),
    ): ...


@pytest.mark.parametrize(
    "given",
    [
        {}, {"form": "hard"}, {"form": "hard", "width": 4}, {"gate": 2}, {"gated": False}, {"level": 2},
        {"bias": -1e-5}, {"bias": -0.25}, {"label": "two words"}, {"label": "-x"}, {"label": "--seed"},
        {"label": "😀 \"'\\"}, {"labels": []}, {"labels": ["a", "b c"]},
        {"sides": [True, False]}, {"size": 4}, {"heads": [3]}, {"heads": [3, 4, 5]},
    ],
    ids=str,
)  # fmt: skip
def test_fields_of_every_type_are_the_same_in_every_form(registry, given: dict):
    _register_odd()
    experiment = Experiment(model={"kind": "odd", **given}, seed=3)
    forms = {
        "file": Experiment(**tomllib.loads(experiment.to_toml())),
        "JSON": Experiment.from_dict(json.loads(json.dumps(experiment.to_dict()))),
        "canonical": Experiment.from_canonical(experiment.canonical()),
        "command": parsed(experiment.command()[2:]),
        "pickle": pickle.loads(pickle.dumps(experiment)),
    }
    assert {form: made.name for form, made in forms.items()} == dict.fromkeys(forms, experiment.name)


def test_a_list_of_what_looks_like_flags_has_no_command(registry):
    _register_odd()
    with pytest.raises(InvalidInput, match="a word of a list begins with -; write a file"):
        Experiment(model={"kind": "odd", "labels": ["-a", "b"]}).command()


def test_fields_named_like_flags_of_a_verb_have_their_long_flag(registry, capsys):
    @register("model", "mine")
    def mine(task: Any, *, seed: int = 1, format: str = "a", theory: bool = False, task_: int = 1, model: int = 2):
        return sw.models.SeparateAttention.random(dim=task.dim, heads=model, scale=0.1, key=jax.random.key(seed))

    experiment = Experiment(model={"kind": "mine", "seed": 4, "format": "b", "theory": True, "model": 3}, seed=5)
    assert parsed(experiment.command()[2:]) == experiment
    words = ["--model", "mine", "--model.seed", "4", "--model.format", "b", "--model.theory", "--model.model", "3"]
    for verb in ("train", "predict"):
        assert cli.main([verb, *words, "--seed", "-5"]) == 2  # read, and refused for its seed
        assert "--seed is '-5'" in capsys.readouterr().err
    assert cli.main(["train", *words, "--seed", "5", "--dry-run"]) == 0
    assert Experiment(**tomllib.loads(capsys.readouterr().out)) == experiment


def test_flags_that_fields_could_be_named_like_are_known():
    own = {
        action.dest for verb in ("train", "predict") for action in _parser_of(verb)._actions if "." not in action.dest
    }
    assert own - {"file"} <= OTHER_FLAGS


def _parser_of(verb: str) -> Parser:
    parser = Parser(prog=f"stepwell {verb}")
    importlib.import_module(f"stepwell.cli._{verb}").configure(parser)
    return parser


def test_defaults_and_filled_values_have_the_name_of_the_same_values_given(registry):
    _register_odd()
    given = {"kind": "odd", "gate": 1.0, "size": 2.0, "label": "", "heads": (1, 2)}
    assert Experiment(model="odd").name == Experiment(model=given).name
    with pytest.raises(InvalidInput, match="width is given as 3, and has an effect only where form is hard"):
        Experiment(model={"kind": "odd", "width": 3})
    with pytest.raises(InvalidInput, match="string of at most"):
        Experiment(model={"kind": "odd", "label": "\ud800"})  # no file can hold half a character


def test_tasks_of_any_kind_are_drawn_as_their_fields_are_declared(registry):
    """A kind that has none of the fields of ours, with values that only its declarations tell."""

    @register("task", "odd")
    def odd(
        *,
        dim: Annotated[int, Field("dimension", least=3, most=5)] = 4,
        degrees: Annotated[float, Field("above a bound", above=4.0)] = 5.0,
        small: Annotated[float, Field("below what is usual", above=0.0, most=0.01)] = 0.01,
        part: Annotated[float, Field("with a slider", least=0.0, most=1.0, slider=(0.2, 0.8))] = 0.5,
        strengths: Annotated[tuple[float, ...], Field("several", least=1.0)] = (1.0, 2.0),
        lengths: Annotated[int | tuple[int, ...], Field("one or several", least=1)] = 3,
        form: Literal["hard", "soft"] = "hard",
        width: Annotated[float, Field("of the soft form", when={"form": ("soft",)})] = 1.0,
        label: str = "",
    ):
        """Nothing."""

    drawn: set[str] = set()

    @given(tasks("odd", drawn=True, finite=True))
    @settings(max_examples=40, deadline=None)
    def check(task: dict[str, Any]) -> None:
        Experiment(task=task, model={"heads": 2})
        drawn.update(task)

    check()
    assert drawn == {"kind", "dim", "degrees", "small", "part", "strengths", "form"}


# ---- the schema ----


def _valid(value: Any, schema: Any) -> bool:
    """Whether a schema allows a value: as much of JSON Schema as ours has."""
    known = {"$schema", "title", "description", "default", "type", "enum", "const", "anyOf", "properties", "required"}
    known |= {"additionalProperties", "items", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum"}
    assert set(schema) <= known | {"pattern", "maxLength"}, set(schema) - known
    if "anyOf" in schema and not any(_valid(value, one) for one in schema["anyOf"]):
        return False
    if ("enum" in schema and value not in schema["enum"]) or ("const" in schema and value != schema["const"]):
        return False
    if "type" in schema and not _has_type(value, schema["type"]):
        return False
    if isinstance(value, dict) and "properties" in schema:
        if any(name not in value for name in schema.get("required", ())):
            return False
        return all(name in schema["properties"] and _valid(v, schema["properties"][name]) for name, v in value.items())
    if isinstance(value, list) and "items" in schema:
        long_enough = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf)
        return long_enough and all(_valid(one, schema["items"]) for one in value)
    if isinstance(value, str) and not isinstance(value, bool):
        return len(value) <= schema.get("maxLength", math.inf) and bool(re.search(schema.get("pattern", ""), value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
        return low <= value <= high and value > schema.get("exclusiveMinimum", -math.inf)
    return True


def _has_type(value: Any, name: str) -> bool:
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int}
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, types[name]) and (name == "boolean" or not isinstance(value, bool))


SCHEMA = json.loads(json.dumps(json_schema()))


@given(descriptions(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_schema_allows_what_an_experiment_is(described: dict[str, Any], whole: bool):
    document = Experiment(**described).to_dict() if whole else described
    assert _valid(json.loads(json.dumps(document)), SCHEMA)


@pytest.mark.parametrize(
    "document",
    [
        {"model": {"heads": 3}},  # no kind: what follows from the task
        {"model": "merged", "training": {"until": 3}},
        {"task": {"context": 8}, "seed": 3},
        {},
    ],
)
def test_the_schema_allows_what_is_left_out(document: dict):
    Experiment(**document)
    assert _valid(document, SCHEMA)


@pytest.mark.parametrize(
    "document",
    [
        {"model": {"kind": "merged", "rank": 2}},
        {"model": {"kind": "separate", "heads": 0}},
        {"model": {"kind": "separate", "heads": 1.5}},
        {"model": {"kind": "seperate"}},
        {"model": "seperate"},
        {"modle": {}},
        {"model": {"scale": -1.0}},
        {"model": {"activation": "relu"}},
        {"task": {"eigenvalues": []}},
        {"task": {"eigenvalues": ["0.5"]}},
        {"task": {"context": [0]}},
        {"training": {"kind": "flow", "until": 0}},
        {"training": {"kind": "flow", "until": "end"}},
        {"record": {"measure": ["drop"]}},
        {"seed": -1},
        {"seed": 2**32},
    ],
    ids=str,
)
def test_the_schema_refuses_what_an_experiment_refuses(document: dict):
    with pytest.raises(InvalidInput):
        Experiment.from_dict(document)
    assert not _valid(document, SCHEMA)


@pytest.mark.parametrize(("section", "kind", "field"), FIELDS, ids=lambda v: getattr(v, "name", v))
def test_the_schema_of_a_field_has_its_bounds(section: str, kind: str, field: DeclaredField):
    for value, allowed in _edges(field):
        given = [value] if field._needs_list else value
        assert _valid(given, field.schema()) == allowed


def test_the_schema_is_printed():
    done = subprocess.run([sys.executable, "-m", "stepwell.experiments"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == SCHEMA


# ---- kinds ----


def test_a_kind_is_registered_by_its_signature(registry):
    @register("model", "gated", theory="separate")
    def gated(task: Any, key: Any, *, gate: Annotated[float, Field("opening", symbol="g", least=0.0, most=1.0)] = 0.5):
        """Attention with a gate."""
        return sw.MergedAttention.random(dim=task.dim, heads=1, scale=gate, key=key)

    kind = find_kind("model", "gated")
    assert (kind.wants, kind.help, list(kind.fields)) == (("task", "key"), "Attention with a gate.", ["gate"])
    experiment = Experiment(task={"dim": 2}, model={"kind": "gated", "gate": 0.25}, seed=3)
    assert experiment.objective.kind == "sampled" and experiment.canonical()["model.gate"] == 0.25
    # The key of the initial weights is that of the seed, as in the README of JAX.
    expected = sw.MergedAttention.random(dim=2, heads=1, scale=0.25, key=__import__("jax").random.key(3))
    assert (experiment.build().model.weights()["key_query"] == expected.key_query).all()
    assert _valid({"model": {"kind": "gated", "gate": 0.1}}, json_schema())
    with pytest.raises(InvalidInput, match="model.gate is 2.0; it must be a number from 0 to 1"):
        experiment.replace(model={"gate": 2.0})


def test_a_name_is_registered_once(registry):
    def builder(task: Any, *, heads: int = 1): ...

    register("model", "mine")(builder)
    register("model", "mine")(builder)  # the same one again, as when a module is imported anew
    with pytest.raises(InvalidInput, match="the model kind separate is registered already, by stepwell.experiments"):
        register("model", "separate")(builder)
    with pytest.raises(InvalidInput, match="asks for heads; it may ask for task, key, keys, and fields are keyword"):
        register("model", "other")(lambda heads: None)


def test_installed_packages_bring_kinds(registry, monkeypatch: pytest.MonkeyPatch):
    class Point:
        def load(self) -> None:
            register("task", "installed")(lambda: None)

    asked = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **named: asked.append(named) or [Point()])
    monkeypatch.setitem(_kind._LOADED, "entry points", False)
    assert find_kind("task", "regression").name == "regression" and not asked  # only where a name is not known
    assert find_kind("task", "installed").name == "installed" and asked == [{"group": ENTRY_POINTS}]
    with pytest.raises(InvalidInput, match="there is no task kind 'instaled'; did you mean installed?"):
        find_kind("task", "instaled")
    assert len(asked) == 1


def test_a_package_that_cannot_be_loaded_is_reported(registry, monkeypatch: pytest.MonkeyPatch):
    class Broken:
        value = "their_package.kinds"

        def load(self) -> None:
            raise ImportError("no module named torch")

    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **named: [Broken()])
    monkeypatch.setitem(_kind._LOADED, "entry points", False)
    with (
        pytest.warns(UserWarning, match="kinds of their_package.kinds cannot be loaded .ImportError: no module"),
        pytest.raises(InvalidInput, match="did you mean merged?"),
    ):
        find_kind("model", "mergd")


OWN = """
from stepwell.experiments import register
import stepwell as sw

@register("task", "mine", follows="separate")
def mine(key, *, dim: int = 2):
    "A task of my own."
    return sw.InContextRegression(sw.covariance([1.0] * dim), 8)
"""


def test_kinds_from_a_file(registry, tmp_path):
    path = tmp_path / "my_lab.py"
    path.write_text(OWN)
    module = load_kinds(path)
    assert module is load_kinds(path) and _plugins.LOADED.count(str(path)) == 1
    assert Experiment(task="mine").build().task.dim == 2
    assert Experiment(task={"kind": "mine", "dim": 3}).model.heads == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("jax.py", OWN, "give it another name, such as my_jax.py"),
        ("json.py", OWN, "my_json.py"),
        ("my_broken.py", "import no_such_module_at_all", "cannot be imported .*no_such_module_at_all"),
        ("my_syntax.py", "def (", "cannot be imported .*SyntaxError"),
        ("my_missing.py", None, "my_missing.py"),
        ("my_text.txt", OWN, "my_text.txt"),
    ],
)
def test_files_that_cannot_be_loaded_are_refused(registry, tmp_path, name: str, text: str | None, message: str):
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        load_kinds(path)
    assert str(path) not in _plugins.LOADED
