"""What a kind of model is registered with is what its class declares and does: one contract, over every kind."""

import inspect
from typing import Any

import numpy as np
import pytest

import stepwell as sw
from stepwell.experiments._kind import kinds
from stepwell.experiments._training import _FACTORS
from stepwell.models import theory_of
from stepwell.theory import linear

OURS = {name: kind for name, kind in kinds("model").items() if kind.build.__module__.startswith("stepwell.")}
WITH_THEORY = [name for name, kind in OURS.items() if kind.notes.get("theory") in _FACTORS]


def started(name: str, outputs: int = 1) -> Any:
    task: dict[str, Any] = {"kind": "multitask", "dims": [2, 1]} if name == "spectral" else {"dim": 3}
    if name != "spectral":
        task["outputs"] = outputs
    many = "heads"
    if OURS[name].notes.get("reads") == "inputs":
        task, many = {"kind": "teacher"}, "units"
    return sw.Experiment(task=task, model={"kind": name, many: 4, "scale": 0.5}, seed=1).build().model


def test_there_are_kinds_with_a_theory():
    assert {"separate", "merged", "mlp"} <= set(WITH_THEORY) and set(WITH_THEORY) < set(OURS)


@pytest.mark.parametrize("name", OURS)
def test_the_class_declares_the_theory_and_the_factors_of_the_kind(name: str):
    model, notes = started(name), OURS[name].notes
    assert theory_of(type(model)) == notes.get("theory")
    if notes.get("theory") in _FACTORS:  # of attention
        assert notes.get("factors", _FACTORS[notes["theory"]]) == model.factors
    assert all(np.all(np.isfinite(weight)) for weight in model.weights().values())


def test_a_subclass_inherits_no_theory():
    class Own(sw.SeparateAttention):
        pass

    class Declared(sw.SeparateAttention):
        declared_form = "separate"

    class Merged(sw.MergedAttention):
        pass

    assert [theory_of(each) for each in (Own, Declared, Merged, int)] == [None, "separate", None, None]


@pytest.mark.parametrize("name", WITH_THEORY)
def test_the_theory_reads_what_the_model_hands_over(name: str):
    """Its effective map is the model's, with leading axes too."""
    model = started(name)
    predictor = linear.PREDICTORS[str(theory_of(type(model)))]
    weights = {name: np.asarray(value) for name, value in model.weights().items()}
    expected = model.effective_map()[0, 0]
    found = predictor.effective_map(type(model).theory_weights(weights))
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)
    twice = {name: np.stack([value, 2 * value]) for name, value in weights.items()}
    found = predictor.effective_map(type(model).theory_weights(twice))
    np.testing.assert_allclose(found[1], 2**model.factors * expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", WITH_THEORY)
def test_value_weights_are_those_of_the_last_output(name: str):
    model = started(name, outputs=2)
    weights = {name: np.asarray(value) for name, value in model.weights().items()}
    first = weights["readout"] if "readout" in weights else weights["value"][..., -1].T
    np.testing.assert_array_equal(type(model).theory_weights(weights)["values"], first[-1])


@pytest.mark.parametrize("name", [name for name in OURS if "balanced" in OURS[name].fields])
def test_what_may_be_balanced_is(name: str):
    assert callable(inspect.getattr_static(type(started(name)), "balanced"))
    model: Any = sw.Experiment(model={"kind": name, "balanced": True, "scale": 0.3}).build().model
    read = type(model).theory_weights({name: np.asarray(value) for name, value in model.weights().items()})
    others = [np.square(value).sum(axis=tuple(range(1, value.ndim))) for value in read.values()]
    for other in others[1:]:
        np.testing.assert_allclose(other, others[0], rtol=1e-12)
