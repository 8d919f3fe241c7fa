"""States of the page: experiments within bounds, and the address says exactly what is set."""

from typing import Annotated

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell._util.errors import InvalidInput
from stepwell.experiments import SECTIONS, Experiment, Field, kinds, register
from stepwell.explorer._controls import PRESETS, controls
from stepwell.explorer._state import PREFIXES, State, read_all

NAMES = sorted({name for section in SECTIONS for kind in kinds(section) for name in controls(section, kind)})


def texts_of(control):
    """Texts that a control may have."""
    if control.shape == "choice":
        return st.sampled_from(control.choices)
    if control.shape == "text":
        return st.sampled_from([control.default])
    low, high = control.slider or (1e-4, 1e-2)
    if control.shape in ("integer", "integers"):
        one = st.integers(int(low), int(high)).map(str)
    else:
        one = st.floats(low or 1e-3, high).map(repr)
    if control.shape in ("numbers", "integers"):
        return st.lists(one, min_size=1, max_size=control.count).map(",".join)
    return one


def section_words(section, kind):
    texts = {name: texts_of(control) for name, control in controls(section, kind).items()}
    if section != "record":
        texts[f"{section}.kind"] = st.just(kind)
    return st.fixed_dictionaries({}, optional=texts)


def together(several):
    return {name: text for words in several for name, text in words.items()}


ADDRESSES = st.tuples(
    *(st.one_of([section_words(section, kind) for kind in kinds(section)]) for section in SECTIONS),
    st.sampled_from([{}, {"seed": "3"}]),
).map(together)
"""Words that need not go together."""


def test_the_address_of_the_first_page_is_empty():
    state, problems = State.read({})
    assert not problems and state.query() == {}
    assert state.experiment == Experiment(record={"points": 128}, seed=59)
    assert State.read({"mode": "stored"})[0].query() == {"mode": "stored"}


def test_presets_are_experiments_and_their_words_are_their_address():
    for preset in PRESETS.values():
        state, problems = State.read(preset.words)
        assert not problems and state.query() == preset.words
    assert State.read(PRESETS["softmax"].words)[0].experiment == Experiment(
        task="multitask", model={"scale": 0.004}, record={"points": 128}, seed=9
    )


def test_controls_are_those_that_the_kinds_declare():
    """Kinds of ours declare every slider; that of users' kinds may follow from their bounds."""
    for kind, declared in kinds("model").items():
        made = controls("model", kind)
        assert list(made) == [f"model.{name}" for name in declared.fields]
        for field in declared.fields.values():
            control = made[f"model.{field.name}"]
            assert control.label == f"{field.name.capitalize()} {field.about.symbol}".strip()
            assert (control.slider, control.log) == (field.about.slider, field.about.log)
            assert field.about.help[1:] in control.help


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from([*NAMES, "mode", "x", "task.kind"]) | st.text(max_size=5), st.text(max_size=30)))
def test_nothing_but_problems_comes_out_of_any_address(words):
    states, problems = read_all(words)
    for state, messages in zip(states, problems, strict=True):
        assert all(isinstance(name, str) and message for name, message in messages.items())
        assert State.read(state.query()) == (state, {})


@settings(max_examples=40)
@given(ADDRESSES)
def test_an_address_is_read_back_exactly(words):
    state, problems = State.read(words)
    again, none = State.read(state.query())
    assert again == state and none == {} and hash(again) == hash(state)
    assert set(state.words) | set(problems) == set(words)  # every word is used or refused
    assert State.read(state.query())[0].values() == state.values()


@settings(max_examples=40)
@given(ADDRESSES)
def test_a_state_is_its_experiment(words):
    state, _ = State.read(words)
    experiment = state.run
    for name, text in state.words.items():
        section, _, field = name.partition(".")
        if field == "kind":
            assert getattr(experiment, section).kind == text
    heads = experiment.model.get("heads")
    assert heads is None or heads <= 8
    assert experiment.training.get("steps") is None or experiment.training.steps <= 10_000
    for section, fitting in state.kinds().items():
        assert getattr(experiment, section).kind in fitting


def query_all(states: list[State]) -> dict[str, str]:
    """The words of an address that make these configurations, as the page writes them."""
    first = states[0].query()
    words = dict(first)
    for prefix, state in zip(PREFIXES[1:], states[1:], strict=False):
        query = state.query()
        own = {name: text for name, text in query.items() if first.get(name) != text}
        own |= {name: "" for name in first if name not in query}
        words |= {prefix + name: text for name, text in own.items()} or {prefix: ""}
    return words


@settings(max_examples=40)
@given(st.lists(ADDRESSES, min_size=1, max_size=4))
def test_up_to_four_configurations_are_read_back(several):
    states = [State.read(words)[0] for words in several]
    assert read_all(query_all(states))[0] == states


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ({"task.dim": "9"}, "task.dim"),
        ({"task.dim": "2.5"}, "task.dim"),
        ({"model.scale": "nan"}, "model.scale"),
        ({"model.scale": "1_0"}, "model.scale"),
        ({"model.scale": "٠"}, "model.scale"),
        ({"task.dim": "3", "task.spectrum": "spiked", "task.spikes": "3"}, "task.spikes"),
        ({"task.exponent": "2"}, "task.exponent"),
        ({"task.task_eigenvalues": "1,2"}, "task.task_eigenvalues"),
        ({"task.task_eigenvalues": "0,0,0,0"}, "task.task_eigenvalues"),
        ({"task.kind": "multitask", "task.dims": "3,4", "task.strengths": "1,1,1"}, "task.strengths"),
        ({"task.kind": "multitask", "task.dims": "1,1,1,1,1,1,1"}, "task.dims"),
        ({"model.kind": "merged", "model.rank": "2"}, "model.rank"),
        ({"training.kind": "descent", "training.until": "3"}, "training.until"),
        ({"training.steps": "10001", "training.kind": "descent"}, "training.steps"),
        ({"record.points": "9"}, "record.points"),
        ({"mode": "what"}, "mode"),
        ({"model.haeds": "3"}, "model.haeds"),
        ({"model.kind": "mine"}, "model.kind"),
    ],
)
def test_a_bad_value_is_reported_under_its_control(words, name):
    _, problems = State.read(words)
    assert list(problems) == [name]


def test_problems_say_what_to_write_instead():
    assert "did you mean task.kind?" in State.read({"task": "multitask"})[1]["task"]
    assert "the kinds with it are separate" in State.read({"model.kind": "merged", "model.rank": "2"})[1]["model.rank"]


def test_no_more_sequences_than_fit_into_memory():
    words = {"model.activation": "softmax", "task.context": "1000", "objective.sequences": "4000"}
    assert any("must be at most 399" in message for message in State.read(words)[1].values())


def test_a_bad_value_leaves_the_default_and_the_others_as_they_are():
    state, problems = State.read({"model.scale": "much", "model.heads": "2"})
    assert state.run.model.scale == 0.01 and state.run.model.heads == 2
    assert "a number from 0 to 10" in problems["model.scale"]


def test_what_does_not_go_together_with_a_change_is_left_out_without_a_word():
    words = {"model.kind": "merged", "model.heads": "2", "task.dim": "3", "training.kind": "descent"}
    state, problems = State.read({**words, "task.kind": "multitask"}, first="task.kind")
    assert problems == {} and state.query() == {
        "task.kind": "multitask",
        "model.heads": "2",
        "training.kind": "descent",
    }
    state, problems = State.read({"task.dim": "3", "task.task_eigenvalues": "1,2,3,4"}, first="task.dim")
    assert problems == {} and state.query() == {"task.dim": "3"}
    assert "from 1 to 8" in State.read({"model.heads": "9"}, first="model.heads")[1]["model.heads"]


def test_another_configuration_is_as_the_first_where_it_fits():
    states, problems = read_all({"model.rank": "2", "model.scale": "0.1", "b.model.kind": "merged", "c.model.rank": ""})
    assert problems == [{}, {}, {}]
    assert [state.query() for state in states] == [
        {"model.rank": "2", "model.scale": "0.1"},
        {"model.kind": "merged", "model.scale": "0.1"},
        {"model.scale": "0.1"},
    ]


def test_softmax_attention_is_trained_on_sequences_by_descent():
    softmax = State.read({"model.activation": "softmax"})[0]
    assert softmax.long and (softmax.run.objective.kind, softmax.run.training.kind) == ("sampled", "descent")
    assert not State.read({})[0].long
    assert State.read({"task.kind": "multitask", "objective.kind": "reduced"})[0].run.training.kind == "descent"


@pytest.mark.parametrize(
    "experiment",
    [
        Experiment(),
        Experiment(model={"kind": "merged", "heads": 8}, seed=3),
        Experiment(task={"spectrum": "power", "exponent": 1.5, "noise": 0.1}, model={"rank": 2}),
        Experiment(training={"kind": "descent", "rate": 0.05, "until": 30.0}),
        Experiment(objective={"kind": "moments", "sequences": 100}, training={"kind": "descent", "steps": 200}),
        Experiment(task={"kind": "multitask", "dims": [4, 10]}, model={"scale": 0.01}, record={"spacing": "log"}),
    ],
    ids=str,
)
def test_an_experiment_is_shown_as_it_is(experiment: Experiment):
    """Also where the page begins with other defaults, of the seed, the rate and the number of sequences."""
    state = State.of(experiment)
    assert state.run.canonical() | _recorded(experiment) == experiment.canonical()
    assert "spacing" not in experiment.record.given or state.run.record.spacing == "log"
    again, problems = State.read(state.query())
    assert again == state and not problems


def _recorded(experiment: Experiment) -> dict[str, object]:
    return {name: value for name, value in experiment.canonical().items() if name.startswith("record.")}


@pytest.mark.parametrize(
    ("experiment", "words"),
    [
        (Experiment(model={"heads": 12}), "from 1 to 8"),
        (Experiment(task={"dim": 12}), "to 8"),
        (Experiment(task={"eigenvalues": [1.0] * 9}), "up to 8"),
    ],
    ids=["heads", "dimension", "eigenvalues"],
)
def test_an_experiment_beyond_the_page_is_refused(experiment: Experiment, words: str):
    with pytest.raises(InvalidInput, match=f"the page cannot show this experiment: .*{words}"):
        State.of(experiment)


def test_kinds_of_a_user_have_their_own_bounds_and_defaults():
    """Whatever their fields are called: what the page says of ours is not said of theirs."""

    @register("model", "mixed", follows="sampled")
    def mixed(task, key, *, heads: tuple[int, ...] = (2, 3), rank: Annotated[int, Field("", least=1, most=20)] = 2):
        raise AssertionError

    @register("training", "slow")
    def slow(*, rate: Annotated[float, Field("size of a step", above=0.0, most=0.1)] = 0.01, steps: int = 5):
        raise AssertionError

    state, problems = State.read({"model.kind": "mixed", "model.rank": "15", "training.kind": "slow"})
    assert not problems and state.run.model.rank == 15 and state.run.model.heads == (2, 3)
    assert state.run.training.rate == 0.01 and controls("model", "mixed")["model.rank"].slider == (1, 20)
    assert controls("model", "separate")["model.rank"].most == 8
