"""The conservation figure holds, and fails for quantities that are not conserved."""

import jax
import numpy as np
import pytest

from stepwell.analysis import conserved
from stepwell.dynamics import Record
from stepwell.models import SeparateAttention
from stepwell.objectives import Moments
from stepwell.papers.linear import conservation as figure
from stepwell.theory import linear as theory

FIGURE = "linear/conservation"
QUICK = figure.FIGURE.at(quick=True)


def prepare(sequences: int = 500) -> Moments:
    return Moments.of_task(QUICK.task, sequences, progress=False, key=jax.random.key(1))


@pytest.mark.parametrize(("rates", "unjudged"), [("0.05", {"by-rate", "curve-by-rate"}), ("0.1,0.025", set())])
def test_other_settings(survives, rates: str, unjudged: set[str]):
    """With one rate there is no power of it."""
    sizes = {"eigenvalues": "1,0.2,0.1", "context": "3", "heads": "1", "until": "20", "sequences": "50"}
    claims = survives({**sizes, "points": "101", "rates": rates, "tolerances": "1e-8"})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged


def test_the_wrong_sign_is_not_conserved(data, failing):
    flows = data["flow"]
    wrong = flows.assign(drift=flows["moved"].expand_dims(tolerance=flows["tolerance"]))
    assert failing({**data, "flow": wrong}) == {
        "drift-separate-rank-1",
        "drift-separate-rank-3",
        "drift-merged",
    }


def test_a_drift_that_does_not_fall_with_the_tolerance_fails(data, failing):
    """Small as it is: that at the coarsest tolerance."""
    flows = data["flow"].copy(deep=True)
    flows["drift"][:, :, -1] = flows["drift"].isel(tolerance=0).values
    assert failing({**data, "flow": flows}) == {
        f"drift-{kind}" for kind in ("separate-rank-1", "separate-rank-3", "merged")
    }


def test_shuffled_heads_are_not_balanced():
    """The value of one head with the key of the next."""
    objective = prepare(200)
    run = figure.flow(
        figure.initial_model("separate, rank 1", 86, QUICK),
        objective,
        until=50.0,
        record=Record(points=11),
        rtol=1e-8,
        progress=False,
    )
    shuffled = run.assign(value=(run["value"].dims, np.roll(run["value"].values, 1, axis=2)))
    assert figure.drift(run).max() < 1e-5
    assert figure.drift(shuffled).max() > 0.1


def test_the_bound_is_of_differences_of_squares():
    """Of one head with v and k alone, that is at (3, 1) by the solver and at (2, 1): their bound is above 9 - 4."""
    pairs = [
        figure.xr.Dataset({name: (("run", "time", "head", "entry"), [[[[each]]]]) for name, each in head.items()})
        for head in ({"value": 3.0, "key": 1.0}, {"value": 2.0, "key": 1.0})
    ]
    assert figure.allowed_drift(*pairs) == pytest.approx((5**2 + 2**2) ** 0.5)


def test_a_curve_that_does_not_tend_to_that_of_the_flow_fails(data, failing):
    descent = data["descent"]
    assert failing({**data, "descent": descent.assign(apart=descent["apart"] + 0.01)}) == {"curve-by-rate"}


def test_a_drift_of_second_order_fails(data, failing):
    descent = data["descent"]
    second = descent["drift"] * descent["rate"] / float(descent["rate"][0])
    assert failing({**data, "descent": descent.assign(drift=second)}) == {"by-rate", "descent-drift"}


def test_a_drift_without_the_factor_of_two_fails(data, failing):
    flows = data["flow"]
    assert failing({**data, "flow": flows.assign(predicted=flows["predicted"] / 2)}) == {"descent-drift"}


def test_the_drift_of_descent_along_a_known_flow():
    """One head of velocity (a, b, 0) for v, k and q: 2 |∫(v̇² − k̇²) dt| = 2 |a² − b²| t, or 2 b² t of key and query."""
    time = np.linspace(0.0, 3.0, 31)
    run = figure.flow(
        figure.initial_model("separate, rank 1", 86, QUICK),
        prepare(),
        until=3.0,
        record=Record(points=time),
        progress=False,
    )
    weights = {name: np.zeros(run[name].shape) for name in ("value", "key", "query")}
    weights["value"][0, :, 0, 0, 4], weights["key"][0, :, 0, 0, 1] = 2 * time, 0.5 * time
    moved = run.assign({name: (run[name].dims, w) for name, w in weights.items()})
    assert figure.descent_drift(moved) == pytest.approx(2 * (2**2 - 0.5**2) * 3)


def test_runs_that_stand_still_prove_nothing(data, failing):
    assert "moves" in failing({**data, "flow": data["flow"].assign(moved=data["flow"]["moved"] / 100)})


@pytest.mark.parametrize("kind", ["separate, rank 1", "separate, rank 3"])
def test_against_the_theory_where_label_blocks_are_zero(kind):
    model = figure.initial_model(kind, 86, QUICK)
    assert isinstance(model, SeparateAttention)
    dim = len(QUICK.eigenvalues)
    value = np.array(model.value)
    key, query = np.array(model.key), np.array(model.query)
    value[:, :, :dim], key[:, :, dim:] = 0.0, 0.0
    weights = {"value": value, "key": key, "query": query}
    dims = ("run", "time")
    run = figure.xr.Dataset({k: ((*dims, *model.weight_dims[k]), w[None, None]) for k, w in weights.items()})
    wanted = theory.separate_conserved(value[:, 0, dim], key[:, :, :dim], query)
    quantities = conserved(run).isel(run=0, time=0)
    np.testing.assert_allclose(quantities["value_key"], wanted.value_key, rtol=1e-12)
    np.testing.assert_allclose(quantities["key_query"], wanted.key_query, rtol=1e-12, atol=1e-15)


def test_the_drawing(data):
    assert [axes.get_title(loc="left")[:3] for axes in figure.draw(data, QUICK).axes] == ["(a)", "(b)", "(c)", "(d)"]
