"""States of the page: every text is checked and bounded, and the address says exactly what is set."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.explorer import CONTROLS, MODES, State, controls, query_all, read_all
from stepwell.published import run_in

NAMES = sorted({control.name for control in CONTROLS})


def in_bounds(control, value):
    if control.kind == "choice":
        return value in [choice for choice, _ in control.choices]
    if control.kind == "name":
        return isinstance(value, str) and len(value) <= control.most and ".." not in value
    values = value if isinstance(value, tuple) else (value,)
    if isinstance(value, tuple) and len(value) > control.count:
        return False
    whole = control.kind in ("integer", "integers")
    return all(
        type(one) is (int if whole else float) and math.isfinite(one) and control.least <= one <= control.most
        for one in values
    )


def texts_of(control):
    """Texts that a control may have, at its bounds and between."""
    if control.kind == "choice":
        return st.sampled_from([choice for choice, _ in control.choices])
    if control.kind == "name":
        return st.sampled_from(["", "ab12", "linear-fig3"])
    if control.kind in ("integer", "integers"):
        one = st.integers(int(control.least), int(control.most)).map(str)
    else:
        one = st.floats(control.least, control.most).map(repr)
    if control.kind in ("numbers", "integers"):
        return st.lists(one, min_size=control.fewest, max_size=control.count).map(",".join)
    return one


def addresses(mode):
    texts = {name: texts_of(control) for name, control in controls(mode).items()}
    return st.fixed_dictionaries({"mode": st.just(mode)}, optional=texts)


LEGAL = st.one_of([addresses(mode) for mode in MODES])


def test_defaults_are_in_bounds_and_the_address_of_the_first_page_is_empty():
    for mode in MODES:
        for control in controls(mode).values():
            assert in_bounds(control, control.default), control
    assert State.default().query() == {}
    assert State.read({}) == (State.default(), {})


def test_conditions_name_controls_and_their_choices():
    for control in CONTROLS:
        known = controls(control.mode)
        for alternative in control.when:
            for name, values in alternative:
                assert set(values) <= {choice for choice, _ in known[name].choices}


@given(st.dictionaries(st.sampled_from([*NAMES, "mode", "x"]) | st.text(max_size=5), st.text(max_size=30)))
def test_nothing_but_problems_comes_out_of_any_address(words):
    states, problems = read_all(words)
    for state, messages in zip(states, problems, strict=True):
        assert all(in_bounds(control, state[name]) for name, control in controls(state.mode).items())
        assert all(isinstance(name, str) and message for name, message in messages.items())
        assert State.read(state.query()) == (state, {})


@given(LEGAL)
def test_an_address_is_read_back_exactly(words):
    state, _ = State.read(words)
    assert State.read(state.query()) == (state, {})
    assert hash(State.read(state.query())[0]) == hash(state)


@given(LEGAL)
def test_a_legal_state_is_a_run_of_stepwell_train(words):
    state, _ = State.read(words)
    if state.mode == "stored":
        return
    run = run_in(state.run_fields())
    assert run.flags.seed == state["seed"] and run.flags.head_num == state["heads"]
    assert run.flags.context == state["context"]


@given(st.lists(LEGAL, min_size=1, max_size=4))
def test_up_to_four_configurations_are_read_back(addresses):
    states = [State.read(words)[0] for words in addresses]
    assert read_all(query_all(states))[0] == states


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ({"dim": "9"}, "dim"),
        ({"dim": "2.5"}, "dim"),
        ({"init": "nan"}, "init"),
        ({"init": "1_0"}, "init"),
        ({"init": "٠"}, "init"),
        ({"dim": "2", "rank": "3"}, "rank"),
        ({"dim": "3", "spectrum": "spiked", "spikes": "3"}, "spikes"),
        ({"eigenvalues": "1,2"}, "eigenvalues"),
        ({"task_eigenvalues": "0,0,0,0"}, "task_eigenvalues"),
        ({"mode": "softmax", "dims": "3,4", "strengths": "1,1,1"}, "strengths"),
        ({"mode": "softmax", "dims": ""}, "dims"),
        ({"mode": "stored", "run": "../../etc/passwd"}, "run"),
        ({"mode": "softmax", "loss": "sequences", "context": "500", "sequences": "4000"}, "sequences"),
        ({"model": "softmax", "context": "1000", "sequences": "4000"}, "sequences"),
        ({"mode": "what"}, "mode"),
        ({"haeds": "3"}, "haeds"),
    ],
)
def test_a_bad_value_is_reported_under_its_control(words, name):
    _, problems = State.read(words)
    assert list(problems) == [name]


def test_a_bad_value_leaves_the_default_and_the_others_as_they_are():
    state, problems = State.read({"init": "much", "heads": "2"})
    assert state["init"] == State.default()["init"] and state["heads"] == 2
    assert "from 1e-05 to 1" in problems["init"]


def test_a_long_address_is_not_read_to_its_end():
    _, problems = State.read({f"x{number}": "1" for number in range(10_000)})
    assert len(problems) <= 201


def test_softmax_attention_and_sequences_descend():
    assert State.default().flows and not State.read({"dynamics": "descent"})[0].flows
    softmax = State.read({"model": "softmax"})[0]
    assert not softmax.flows and softmax.on_sequences and softmax.shows("lr") and not softmax.shows("dynamics")
    assert State.read({"mode": "softmax", "loss": "sequences"})[0].run_fields()["engine"] == "sampled"
