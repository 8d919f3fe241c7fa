"""An experiment is one value: said in several ways it has one name, and every value given is used or refused."""

import inspect
import json
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_experiments import descriptions

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell._util.text import name_of
from stepwell._util.versions import NUMERICS
from stepwell.experiments import Experiment, find_kind, kinds
from stepwell.experiments._flags import parsed


@given(descriptions())
@settings(max_examples=150, deadline=None)
def test_every_way_to_write_an_experiment_gives_the_same(tmp_path_factory, described: dict[str, Any]):
    experiment = Experiment(**described)
    folder = tmp_path_factory.getbasetemp()
    (folder / "one.toml").write_text(experiment.to_toml(), encoding="utf-8")
    (folder / "one.json").write_text(json.dumps(experiment.to_dict()), encoding="utf-8")
    written = {
        "toml": Experiment.read(folder / "one.toml"),
        "json": Experiment.read(folder / "one.json"),
        "canonical": Experiment.from_canonical(json.loads(json.dumps(experiment.canonical()))),
        "given": Experiment(**experiment.given()),
        "pickle": pickle.loads(pickle.dumps(experiment)),
        "command": parsed(experiment.command()[2:]),
        "nothing replaced": experiment.replace(),
        "sections": Experiment(
            experiment.task,
            experiment.model,
            experiment.objective,
            experiment.training,
            experiment.record,
            experiment.seed,
        ),
    }
    for way, other in written.items():
        assert other.canonical() == experiment.canonical(), way
        assert other == experiment and other.name == experiment.name and hash(other) == hash(experiment), way
    assert written["pickle"].given() == experiment.given()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"task": {"spectrum": "published", "dim": 4}}, {"task": {"eigenvalues": [0.4, 0.3, 0.2, 0.1]}}),
        ({"task": {"spectrum": "white", "dim": 2}}, {"task": {"spectrum": "power", "exponent": 0, "dim": 2}}),
        ({"task": {"context": [31]}}, {"task": {"context": 31}}),
        ({"task": {"context": [31, 8]}}, {"task": {"context": (8, 31)}}),
        ({"task": {"task_eigenvalues": [1, 1, 1, 1]}}, {}),
        ({"task": {"dim": 2, "task_eigenvalues": [-0.0, 1]}}, {"task": {"dim": 2, "task_eigenvalues": [0, 1.0]}}),
        ({"task": {"noise": -0.0}}, {"task": {"noise": 0}}),
        ({"task": {"eigenvalues": np.array([0.5, 0.25])}}, {"task": {"eigenvalues": (0.5, 0.25)}}),
        ({"task": "regression", "model": "separate", "objective": "population", "training": "flow"}, {}),
        ({"model": {"heads": 4, "scale": np.float64(0.01)}}, {}),
        ({"model": {"heads": None}, "seed": None}, {}),
        ({"training": {"kind": "descent", "until": 2.0}}, {"training": {"kind": "descent", "steps": 100}}),
        *(({"training": {"kind": "descent", "optimizer": one}}, {"training": {"kind": "descent", "optimizer": other}})
          for one, other in [("adam: b1 = .90, b2=0.99", "adam:b2=0.99,b1=0.9"), ("momentum", "sgd:momentum=0.9"),
                             ("sgd:", "sgd"), ("sgd:nesterov=True,momentum=9e-1", "momentum:nesterov=true")]),
        ({"training": {"kind": "descent", "schedule": "cosine"}},
         {"training": {"kind": "descent", "schedule": "cosine_decay_schedule"}}),
        ({"task": {"kind": "multitask", "dims": [2, 3], "strengths": [2]}},
         {"task": {"kind": "multitask", "dims": [2, 3], "strengths": [2, 2.0]}}),
        ({"record": {"points": 2, "spacing": "log"}}, {"record": {"points": 2, "spacing": "linear"}}),
        ({"training": {"kind": "descent", "steps": 5}, "record": {"points": 9, "snapshots": 7}},
         {"training": {"kind": "descent", "steps": 5}, "record": {"points": 6, "snapshots": 6}}),
        ({"record": {"measure": ["map", "drops", "map"]}}, {"record": {"measure": ["drops", "map"]}}),
    ],
)  # fmt: skip
def test_two_ways_of_saying_one_run_have_one_name(one: dict, other: dict):
    assert Experiment(**one).canonical() == Experiment(**other).canonical()
    assert Experiment(**one).name == Experiment(**other).name


def test_a_name_is_the_hash_of_the_canonical_form_and_does_not_drift():
    """If this fails, the names of all stored runs have changed: raise `NUMERICS` if their numbers have."""
    experiment = Experiment()
    assert experiment.name == name_of(experiment.canonical()) and len(experiment.name) == 32
    assert experiment.canonical()["numerics"] == NUMERICS
    assert list(experiment.canonical()) == [
        "task.kind", "task.eigenvalues", "task.directions", "task.context", "task.noise", "task.outputs",
        "task.centered", "task.whitened", "model.kind", "model.heads", "model.rank", "model.activation",
        "model.normalization", "model.scheme", "model.scale", "model.balanced", "objective.kind", "training.kind",
        "training.until", "training.tolerance", "record.points", "record.spacing", "record.snapshots",
        "record.measure", "record.test_sequences", "record.value_weights", "seed", "numerics",
    ]  # fmt: skip
    with pytest.raises(InvalidInput, match="version 1 of the numerics"):
        Experiment.from_canonical({**experiment.canonical(), "numerics": 1})


@given(descriptions(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_free_field_changes_only_itself(described: dict[str, Any], data: st.DataObject):
    """Sweeps vary free fields without resolving every combination: nothing else may depend on them."""
    experiment = Experiment(**described)
    free = [
        (section, name, field)
        for section in ("task", "model", "objective", "training")
        for name, field in find_kind(section, getattr(experiment, section).kind).fields.items()
        if field.about.free
    ]
    if experiment.training.kind == "flow" and experiment.training.given.get("until") is None:
        return  # the default of a stop time is worked out from the scale
    section, name, field = data.draw(st.sampled_from([("", "seed", None), *free]))
    value = data.draw(st.integers(0, 2**32 - 1) if field is None else st.floats(1e-6, 1e3))
    changed = experiment.replace(**({"seed": value} if field is None else {section: {name: value}}))
    dotted = "seed" if field is None else f"{section}.{name}"
    assert changed.canonical() == {**experiment.canonical(), dotted: value}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        # What was silent once.
        ({"task": {"dim": 3, "eigenvalues": [0.5, 0.5]}}, "dim is given as 3, and has an effect only where spectrum"),
        ({"task": {"kind": "multitask", "dims": [4, 10], "seq_len": 32}}, "no field 'seq_len'"),
        ({"task": {"kind": "multitask", "dim": 3}}, "leave it out, or choose the task regression or mixture"),
        ({"task": {"kind": "multitask", "outputs": 2}}, "no field 'outputs'; leave it out"),
        ({"task": {"kind": "multitask"}, "model": {"activation": "softmax"}}, "spectral has no field 'activation'"),
        ({"task": {"context": 8, "seq_len": 31}}, "no field 'seq_len'"),
        ({"model": {"heads": 2, "head_num": 4}}, "no field 'head_num'; did you mean heads?"),
        ({"model": {"kind": "merged", "rank": 2}}, "merged has no field 'rank'; leave it out, or choose the model sep"),
        ({"objective": {"kind": "population", "sequences": 9}}, "population has no field 'sequences'; leave it out"),
        ({"training": {"kind": "descent", "steps": 5, "until": 2.0}}, "steps and until are both given"),
        ({"training": {"kind": "descent", "until": 1e20}}, "at the rate 0.01 is 5e+21 steps; there may be 1000000000"),
        ({"training": {"kind": "descent", "until": 1e300, "rate": 1e-50}}, "is inf steps"),
        ({"training": {"kind": "flow", "steps": 5}}, "flow has no field 'steps'; leave it out, or choose the training"),
        # Values that have an effect elsewhere only.
        ({"task": {"spectrum": "white", "exponent": 2.0}}, "only where spectrum is power; here spectrum is white"),
        ({"task": {"spectrum": "power", "ratio": 2.0}}, "only where spectrum is spiked"),
        ({"task": {"spectrum": "power", "eigenvalues": [1.0]}}, "only where spectrum is custom; here"),
        ({"training": {"kind": "descent", "optimizer": "adam", "until": 2.0}}, "other optimizers than sgd"),
        *(({"task": {name: True}, **more}, f"{name} is of a finite sample, and has no effect on the objective {kind}")
          for name in ("centered", "whitened")
          for kind, more in [("population", {}), ("online", {"objective": "online"})]),
        ({"task": {"kind": "mixture", "centered": True}, "objective": "online"}, "take the objective moments or"),
        ({"task": {"whitened": True}, "record": {"test_sequences": 9}}, "whitened is of a finite sample"),
        ({"record": {"points": 5, "snapshots": 6}}, "snapshots is 6, and there are 5 points"),
        ({"training": "descent", "record": {"spacing": "steps"}}, "descent records linear or log"),
        ({"task": "multitask", "record": {"value_weights": True}}, "value_weights are those of separate and merged"),
        ({"task": {"noise": 0.1}, "record": {"test_sequences": 9}}, "test_sequences are for tasks without noise"),
        ({"task": "multitask", "record": {"test_sequences": 9}}, "not for multitask"),
        # What does not fit together.
        ({"task": {"spectrum": "custom"}}, "give the eigenvalues, for instance"),
        ({"task": {"dim": 2, "task_eigenvalues": [1, 2, 3]}}, "2 eigenvalues and 3 task_eigenvalues"),
        ({"task": {"dim": 2, "task_eigenvalues": [0, 0]}}, "nothing to learn"),
        ({"task": {"context": [5, 5]}}, "one length twice"),
        ({"task": {"spectrum": "spiked", "spikes": 4, "dim": 4}}, "it must be below 4"),
        ({"task": {"kind": "multitask", "dims": [2, 3], "strengths": [1, 2, 3]}}, "2 dims and 3 strengths"),
        ({"task": {"whitened": True}, "objective": {"kind": "moments", "sequences": 4}}, "must be at least 5"),
        ({"model": {"rank": 5, "balanced": True}}, "a rank of at most the dimension, 4; the rank is 5"),
        ({"model": {"activation": "softmax"}, "objective": "population"}, "with softmax attention take sampled"),
        ({"task": "mixture", "objective": "population"}, "no closed form for the task mixture; take moments"),
        ({"model": {"kind": "multihead", "heads": 3, "scheme": "opposite"}}, "needs an even number"),
        ({"model": "spectral"}, "for the task multitask, and the task is regression"),
        ({"task": "multitask", "model": "multihead", "objective": "reduced"}, "for the model spectral"),
        ({"task": "multitask", "objective": "exact"}, "one head, or for several heads of one regression"),
        ({"task": "multitask", "objective": "sampled"}, "with spectral take reduced"),
        ({"model": "mlp", "objective": "online"}, "not for mlp"),
        ({"objective": "online", "training": "flow"}, "train it by descent"),
        ({"model": {"scale": 0}}, "a fixed point of the flow"),
        ({"task": "multitask", "training": {"until": "converged"}}, "cannot tell convergence from a plateau"),
        ({"objective": "moments", "training": "flow"}, "give until a time"),
        ({"task": "teacher", "model": "separate"}, "attention reads sequences; take the model polynomial or"),
        ({"model": "nonlinear"}, "the task regression gives sequences; take a supervised task such as teacher"),
        *(({"task": "teacher", "objective": kind}, "gives inputs without a context; take features or examples")
          for kind in ("population", "moments", "sampled", "online", "spectral")),
        ({"objective": "features"}, "for supervised tasks, and regression gives sequences"),
        ({"task": "points", "objective": "features"}, "with nonlinear take examples"),
        ({"task": "points", "objective": {"examples": 9}}, "a data set, which is trained on as a whole"),
        ({"task": {"kind": "points", "labels": [1.0]}}, "2 norms and 1 labels"),
        ({"task": {"kind": "teacher", "eigenvalues": [1.0]}}, "2 strengths, and 1 patches of 1 entries"),
        ({"task": "teacher", "model": {"patches": 3}}, "patches is 3; it must divide the dimension of an input, 2"),
        ({"task": {"kind": "teacher", "degree": 2}}, "give until a time"),
        # Names that do not exist.
        ({"training": {"kind": "descent", "optimizer": "adamm"}}, "no optimizer 'adamm'; did you mean adam?"),
        ({"training": {"kind": "descent", "optimizer": "<script>"}}, "there is no optimizer '<script>'; there are"),
        ({"training": {"kind": "descent", "optimizer": "adam:b1=x"}}, "it must be a finite number, true or false"),
        ({"training": {"kind": "descent", "optimizer": "adam:b1"}}, "has the parameter 'b1'; write each once"),
        ({"training": {"kind": "descent", "schedule": "cosinus"}}, "no schedule 'cosinus'; did you mean cosine?"),
        ({"modell": "separate"}, "unexpected keyword"),
        ({"model": "seperate"}, "did you mean separate? A kind of your own is registered by --with"),
        ({"model": {"kind": ["merged"]}}, "there is no model kind ['merged']"),
        ({"task": {"heads": 3}}, "it belongs to the section model"),
        ({"model": {"head": 3}}, "did you mean heads?"),
        ({"model": 3}, "it must be the name of a kind, or a table of fields with kind"),
    ],
)  # fmt: skip
def test_a_value_is_used_or_refused(given: dict, message: str):
    with pytest.raises((InvalidInput, TypeError), match=re.escape(message)):
        Experiment(**given)


def test_the_exact_loss_is_of_several_heads_of_one_regression():
    built = Experiment(
        task={"kind": "multitask", "dims": [4]}, model={"heads": 2}, objective={"kind": "exact", "reach": 10.0}
    ).build()
    assert float(built.objective(built.model)) > 0


def test_test_sets_are_centered_where_the_loss_is_of_infinitely_many_sequences():
    """There `centered` has an effect, and only there is it taken with `population` and `online`."""
    for objective in ("population", "online"):
        given = {"objective": objective, "training": {"kind": "descent", "steps": 2}, "record": {"test_sequences": 9}}
        curves = [
            Experiment(task={"dim": 2, "context": 3, "centered": centered}, **given).run(progress=False)
            for centered in (True, False)
        ]
        assert (curves[0]["loss"] == curves[1]["loss"]).all()
        assert (curves[0]["in_context_test_loss"] != curves[1]["in_context_test_loss"]).all()


def test_files_with_unknown_tables_are_refused(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[modle]\nheads = 3\n")
    with pytest.raises(InvalidInput, match="run.toml has the unknown key 'modle'; did you mean model?"):
        Experiment.read(path)
    path.write_text("[sweep]\nheads = [1, 2]\n")
    with pytest.raises(InvalidInput, match="has the table sweep, so that it is a study; run it with `stepwell sweep`"):
        Experiment.read(path)
    path.write_text("[model\n")
    with pytest.raises(InvalidInput, match="is not a TOML file"):
        Experiment.read(path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(InvalidInput, match="is not a JSON file"):
        Experiment.read(tmp_path / "run.json")
    (tmp_path / "run.json").write_text('{"model": {"heads": 2, "heads": 3}}')
    with pytest.raises(InvalidInput, match="is not a JSON file .it has 'heads' twice"):
        Experiment.read(tmp_path / "run.json")
    with pytest.raises(InvalidInput, match="cannot read"):
        Experiment.read(tmp_path / "none.toml")


def test_defaults_follow_from_the_sections_before():
    kinds_of = lambda **given: [getattr(Experiment(**given), s).kind for s in ("model", "objective", "training")]  # noqa: E731
    assert kinds_of() == ["separate", "population", "flow"]
    assert kinds_of(task="mixture")[:2] == ["separate", "moments"]
    assert kinds_of(model={"activation": "softmax"}) == ["separate", "sampled", "descent"]
    assert kinds_of(task="multitask") == ["spectral", "spectral", "flow"]
    assert kinds_of(task="multitask", objective="reduced") == ["spectral", "reduced", "descent"]
    assert kinds_of(task="teacher") == ["polynomial", "features", "flow"]
    assert kinds_of(task="points") == ["nonlinear", "examples", "descent"]
    assert kinds_of(model="multihead") == ["multihead", "sampled", "descent"]
    assert Experiment(task={"eigenvalues": [1, 2, 3]}).model.heads == 3
    assert Experiment(task={"kind": "multitask", "dims": [5, 6]}).model.heads == 2
    taught = Experiment(task={"kind": "teacher", "degree": 2, "patches": 2}, training={"until": 1.0})
    assert (taught.model.degree, taught.model.patches, taught.task.eigenvalues) == (2, 2, (1.0, 1.0))
    assert Experiment(model={"activation": "softmax"}).model.normalization == "none"
    assert Experiment(model="mlp").model.normalization == "1/N"
    assert Experiment(task={"spectrum": "white"}).task.directions == "axes"
    assert Experiment(training={"kind": "descent", "steps": 9}).record.points == 10


def test_replace_keeps_what_was_given_and_works_out_the_rest_anew():
    one = Experiment(task={"dim": 2}, model={"scale": 0.1}, seed=4)
    other = one.replace(task={"eigenvalues": [3, 2, 1]})
    assert (other.model.heads, other.model.scale, other.seed) == (3, 0.1, 4)  # heads follow, the scale was given
    assert one.replace(model={"heads": 2}).replace(task={"dim": 3}).model.heads == 2
    assert one.replace(model={"scale": None}).model.scale == 0.01
    assert one.replace(model={"kind": "merged"}).model.scale == 0.1
    assert one.replace(task="multitask").objective.kind == "spectral"  # kinds that were not given follow
    assert Experiment(training="descent").replace(model={"activation": "softmax"}).training.kind == "descent"
    stepped = Experiment(training={"kind": "descent", "steps": 9})
    assert stepped.replace(training={"until": 2.0}).training.steps == 100  # one takes the place of the other
    followed = Experiment(training={"until": 4.0}).replace(objective="moments", training={"steps": 7})
    assert (followed.training.kind, followed.training.steps) == ("descent", 7)  # whose steps replace the stop time
    assert pickle.loads(pickle.dumps(one)).replace(task="multitask") == one.replace(task="multitask")
    with pytest.raises(InvalidInput, match="there is no section 'modle'; did you mean model?"):
        one.replace(modle={})


def test_an_experiment_does_not_change():
    experiment = Experiment()
    with pytest.raises(AttributeError, match=r"experiment.replace\(seed=…\)"):
        experiment.seed = 3
    with pytest.raises(AttributeError, match="make another"):
        experiment.model.heads = 3
    with pytest.raises(TypeError):
        experiment.model.given["heads"] = 3  # pyright: ignore[reportIndexIssue]
    with pytest.raises(AttributeError, match="did you mean heads"):
        experiment.model.head  # noqa: B018
    assert experiment != "an experiment" and {experiment: 1}[Experiment()] == 1


def test_what_it_is_can_be_read():
    experiment = Experiment(task={"dim": 2}, seed=7)
    shown, page = repr(experiment), experiment._repr_html_()
    assert "separate(heads=2" in shown and "seed=7" in shown
    assert "attention heads" in page and experiment.name[:8] in page
    hostile = Experiment(training={"kind": "descent", "optimizer": "adam:<script>=1"})
    assert "<script>" not in hostile._repr_html_()


def test_optimizers_and_schedules_have_their_short_names():
    words = {"optimizer": "sgd:nesterov=true,momentum=.9", "schedule": "exponential_decay:decay_rate=.5"}
    training = {"kind": "descent", **words}
    made = Experiment(training=training).training
    assert (made.optimizer, made.schedule) == ("momentum:nesterov=true", "exponential:decay_rate=0.5")
    assert Experiment(training={"kind": "descent", "optimizer": "momentum:momentum=0.5"}).training.optimizer == (
        "sgd:momentum=0.5"
    )


def test_optimizers_and_schedules_are_those_of_optax():
    """The lists are checked without importing optax; of another version they may lack, or have, a name."""
    import optax

    from stepwell._util import optimizers

    made = {
        name: one for place in (optax, optax.contrib) for name, one in vars(place).items() if inspect.isfunction(one)
    }
    made = {name: one for name, one in made.items() if not name.startswith(("_", "scale_by", "noisy"))}
    rules = {name for name, one in made.items() if "learning_rate" in inspect.signature(one).parameters}
    schedules = {name for name in made if name.endswith(("_schedule", "_decay"))}
    for installed, known in ((rules, optimizers.OPTIMIZERS), (schedules, optimizers.SCHEDULES)):
        assert installed <= known, f"optax {optax.__version__} has more: {installed - known}"
        assert known <= installed or optax.__version__ != "0.2.8"


@pytest.mark.parametrize(
    "schedule", ["constant:value=0.5", "cosine:init_value=0.5", "warmup_cosine:peak_value=1,warmup_steps=2"]
)
def test_a_schedule_has_no_rate_of_its_own(schedule: str):
    training = {"kind": "descent", "schedule": schedule, "steps": 5}
    with pytest.raises(InvalidInput, match="which is the rate; give the rate itself"):
        Experiment(task={"dim": 2}, training=training).run(progress=False)


def test_it_is_at_the_top_of_the_package():
    assert sw.Experiment is Experiment and set(kinds("model")) >= {"separate", "merged", "mlp", "spectral", "multihead"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"task": {"centered": True, "whitened": True}, "objective": "moments"}, []),
        (
            {"training": {"kind": "descent", "steps": 5}, "record": {"points": 9}},
            ["points is 9, of which 5 steps have 6"],
        ),
        ({"training": {"kind": "descent", "steps": 5}, "record": {"points": 6}}, []),
        (
            {"training": {"kind": "descent", "steps": 5}, "record": {"snapshots": 500}},
            ["snapshots is 500, of which 5 steps have 6"],
        ),
        (
            {"training": {"kind": "descent", "steps": 100}, "record": {"points": 101, "spacing": "log"}},
            ["points is 101, of which 100 steps have 56 at log spacing"],
        ),
        ({"training": {"kind": "descent", "steps": 100}, "record": {"points": 5, "spacing": "log"}}, []),
        ({"training": {"kind": "descent", "steps": 9}, "record": {"spacing": "log"}}, []),  # none was given
        (
            {"training": {"kind": "descent", "optimizer": "muon:beta=0.9"}},
            ["muon amplifies rounding errors: with several seeds or in a sweep, runs differ from those trained alone"],
        ),
    ],
)
def test_values_that_are_not_used_as_given_are_remarked(given: dict, said: list[str]):
    assert Experiment(**given).remarks() == said
