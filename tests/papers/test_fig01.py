"""Fig 1 holds, is the same twice, and each claim fails when its physics is broken."""

import dataclasses

import equinox as eqx
import numpy as np
import pytest

from stepwell.dynamics import Record
from stepwell.experiments import Keys
from stepwell.objectives import Moments
from stepwell.papers.linear import _runs
from stepwell.papers.linear import fig01_merged_is_mlp as fig1
from stepwell.papers.linear._runs import runs_of
from stepwell.tasks import InContextRegression
from stepwell.theory import linear as theory

FIGURE = "linear/fig1"
QUICK = fig1.FIGURE.at(quick=True)


@pytest.mark.parametrize(
    "changes, unjudged",
    [
        ({"seeds": "5,6", "steps": "600", "context": "60", "heads": "1", "white_sizes": "0.02"}, set()),
        (
            {"seeds": "5", "steps": "60"},
            {"published", "one-drop", "training-end", "trained-map", "time", "time-held", "free-from-held"},
        ),
        ({"seeds": "5,6", "steps": "60", "init": "0.2"}, {"population-time", "time", "time-held", "free-from-held"}),
    ],
)
def test_other_settings(survives, changes, unjudged):
    small = {
        "sequences": "100",
        "population_time": "90",
        "equal_steps": "20",
        "equal_sequences": "50",
        "white_sizes": "0.01,0.001",
        "white_runs": "1",
    }
    claims = survives({**small, **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged
    assert claims["one-curve"].passed and claims["white-course"].passed


@pytest.fixture(scope="module")
def runs():
    return runs_of(QUICK.experiment, QUICK.seeds[:2])


def at(data, wrong):
    """A prediction at the times of the population's run."""
    return wrong.interp(time=data["population"]["time"]).assign(data["theory"][["loss_error", "map_error"]])


def test_half_the_context_in_the_prediction_fails(data, runs, failing):
    wrong = at(data, fig1.predict(runs[:1], dataclasses.replace(QUICK, context=15)))
    assert failing({**data, "theory": wrong}) == {"population-end", "training-end", "course", "population-time"}


def test_a_wrong_convention_fails(data, runs, failing):
    """Weights taken as if attention were divided by N already: the drop is predicted too late."""
    small = [run._replace(model=run.model.scaled(31**-0.5)) for run in runs[:1]]
    assert failing({**data, "theory": at(data, fig1.predict(small, QUICK))}) == {"course", "population-time"}


def test_other_rates_and_starts_are_not_the_published_curve(data, failing):
    """Half the rate; and a start ten times larger, which is ahead by ln(10) e-foldings, 200 steps."""
    training = data["training"]
    slow = training.assign_coords(step=2 * training["step"])
    assert {"published", "time"} <= failing({**data, "training": slow})
    ahead = training.assign_coords(step=training["step"] - 200)
    assert "published" in failing({**data, "training": ahead})


def test_a_start_that_is_one_per_cent_off_is_noticed(data, runs, failing):
    """The fall comes a step later of 750."""
    wrong = fig1.onsets([run._replace(model=run.model.scaled(0.99)) for run in runs], QUICK)
    few = {**data, **{name: data[name].isel(run=slice(2)) for name in ("training", "held", "held_onset")}}
    assert "time" not in failing({**few, "onset": fig1.onsets(runs, QUICK)})
    assert "time" in failing({**few, "onset": wrong})


def test_the_modes_of_other_sequences_fail(data, runs, failing):
    wrong = [run._replace(objective=other.objective) for run, other in zip(runs, runs[::-1], strict=True)]
    few = {**data, **{name: data[name].isel(run=slice(2)) for name in ("training", "held", "held_onset")}}
    assert "time" in failing({**few, "onset": fig1.onsets(wrong, QUICK)})


def test_another_network_fails(data, runs, failing):
    """Other initial weights, or other sequences, until the drop is over."""
    short = dataclasses.replace(QUICK, steps=1500)
    few = {**data, **{name: data[name].sel(step=slice(0, 1500)) for name in ("training", "held")}}
    right = runs[0]
    other_weights = [right._replace(model=model) for model in (runs[1].model, right.model.scaled(1 + 1e-8))]
    cut = {"published"}  # of which runs this short are no part
    assert failing({**few, "mlp": data["mlp"].sel(step=slice(0, 1500))}) == cut
    for wrong in (*other_weights, right._replace(experiment=runs[1].experiment)):
        assert failing({**few, "mlp": fig1.train_networks([wrong], short)}) == {"one-curve", *cut}


def test_blocks_that_move_are_not_held(data, failing):
    free = data["training"].isel(run=slice(QUICK.held_runs))
    assert failing({**data, "held": free}) == {"one-curve", "time-held", "free-from-held"}
    blocks = data["held"]["value"].isel(token_dim=slice(fig1.DIM))
    assert float(abs(blocks).max()) == 0.0
    assert float(abs(free["value"].isel(token_dim=slice(fig1.DIM))).max()) > 0.0


def test_a_network_with_other_weights_is_not_attention(data, failing):
    """Curves that are shifted against each other, in the picture and by the modes."""
    held = data["held"]
    late = held.assign_coords(step=held["step"] + 60)
    assert {"free-from-held", "time-held"} <= failing({**data, "held": late})
    far = held.assign(loss=(held["loss"].dims, np.roll(held["loss"].values, 6, axis=1)))
    assert "free-blocks" in failing({**data, "held": far})


def test_the_distance_of_curves_in_a_picture():
    """Of a fall that is 40 steps later, in units of 20; and of a level line that is 0.05 higher, in units of 0.02."""
    steps = np.arange(0.0, 1000.0, 10.0)
    drop = 1 / (1 + np.exp((steps - 500) / 2))
    later = 1 / (1 + np.exp((steps - 540) / 2))
    assert fig1.picture_distance(steps, drop, later) == pytest.approx(2.0, abs=0.15)
    assert fig1.picture_distance(steps, 0 * steps, 0 * steps + 0.05) == pytest.approx(2.5)
    assert fig1.picture_distance(steps, drop, drop) == 0.0


def test_losses_that_differ_under_one_optimizer_fail(data, failing):
    equal = data["equal"].copy(deep=True)
    equal["apart"].values[1, 0] = 1e-9
    assert failing({**data, "equal": equal}) == {"any-optimizer"}
    still = data["equal"].copy(deep=True)
    still["fallen"].values[2, 1] = 0.0
    assert failing({**data, "equal": still}) == {"any-optimizer-moves"}


def test_free_blocks_are_no_network_under_any_optimizer(monkeypatch):
    """Without holding them, attention is further off than rounding."""
    monkeypatch.setattr(_runs, "held_descent", lambda model, rate, rule: rule(rate))
    free = fig1.compare_optimizers(dataclasses.replace(QUICK, equal_sizes=(1e-2,), equal_steps=300))
    assert (free["apart"] > 1e-5).all()


def test_a_map_that_is_not_white_fails(data, failing):
    white = data["white"]
    assert failing({**data, "white": white.assign(off_identity=white["off_identity"] + 0.2)}) == {"white-map"}


def test_the_aligned_heads_are_balanced_and_their_layers_have_the_norm():
    model = fig1.aligned_model(3, 0.02)
    assert [float(np.linalg.norm(weight)) for weight in (model.value, model.key_query)] == pytest.approx([0.02, 0.02])


def test_equation_ten_with_another_norm_fails_from_aligned_heads(data, failing, monkeypatch):
    """One per cent off."""
    ten = fig1.equation_ten
    monkeypatch.setattr(fig1, "equation_ten", lambda times, w, context: ten(times, 1.01 * w, context))
    few = dataclasses.replace(QUICK, white_sizes=(1e-2,), white_runs=1)
    assert "white-aligned" in failing({**data, "white": fig1.white_runs(few)})


def test_a_trained_map_that_is_three_per_cent_off_fails(data, failing):
    """Or one that is not shrunk for contexts of 31 tokens."""
    training = data["training"]
    for factor in (1.03, 1 + np.array([3.5, 13 / 3, 6.0, 11.0])[:, None] / 31):
        assert failing({**data, "training": training.assign(map=factor * training["map"])}) == {"trained-map"}


def test_a_run_has_one_seed_in_every_claim(data):
    labels = {claim.id: [value.label for value in claim.values] for claim in fig1.claims(data, QUICK)}
    assert labels["population-end"] == labels["course"] == labels["one-curve"] == ["seed 100"]
    assert labels["time-held"] == labels["free-blocks"] == [f"seed {seed}" for seed in QUICK.seeds[: QUICK.held_runs]]


def test_two_drops_fail(data, failing):
    training = data["training"].copy(deep=True)
    late = 0.1 / (1 + np.exp(-(training["time"].values - 250) / 2))
    training["loss"] = training["loss"] - late
    assert "one-drop" in failing({**data, "training": training})


def test_equation_ten_for_another_context_or_start_fails(data, failing):
    white = data["white"]
    starts = (2 * white["predicted"].values[:, :, 0]) ** 0.5

    def predicted_for(context: int):
        pairs = zip(white["clock"].values, starts, strict=True)
        rows = [[fig1.equation_ten(t, w, context) for w in sizes] for t, sizes in pairs]
        return white.assign(predicted=(white["predicted"].dims, np.array(rows)))

    assert failing({**data, "white": predicted_for(31)}) == set()
    assert failing({**data, "white": predicted_for(15)}) == {"white-course"}
    early = white.assign(predicted=white["predicted"].shift(time=1, fill_value=0.0))
    assert failing({**data, "white": early}) == {"white-course"}


def test_equation_ten_is_the_closed_form_of_the_theory():
    times = np.linspace(0, 6, 13)
    course = theory.white_course(InContextRegression(np.eye(4), 31), times, 0.01)
    np.testing.assert_allclose(course.value * course.key_query[:, 0], fig1.equation_ten(times, 0.01, 31), rtol=1e-10)


def test_recorded_losses_are_those_of_passing_every_token():
    """At the end of a descent by moments."""
    from stepwell.objectives import Sampled
    from stepwell.papers.linear._runs import train_together

    (start,) = runs_of(QUICK.experiment.replace(training={"steps": 900}), QUICK.seeds[:1])
    run = train_together([start], record=Record(every=900, snapshots=2))
    model = start.model.with_weights({name: run[name].values[0, -1] for name in start.model.weights()})
    batch = start.task.sample(QUICK.sequences, key=Keys(start.experiment.seed).train)
    assert abs(float(eqx.filter_jit(Sampled(batch))(model)) - float(run["loss"][0, -1])) < fig1.ROUNDING
    assert isinstance(start.objective, Moments) and float(run["loss"][0, -1]) < 0.99 * float(run["loss"][0, 0])


def test_twice_the_same(data, runs):
    again = fig1.train(runs, QUICK)
    np.testing.assert_allclose(again["loss"], data["training"]["loss"].isel(run=slice(2)), rtol=1e-9)


def test_the_drawing_has_a_scheme_and_four_panels(data, tmp_path):
    from stepwell.analysis.style import save_figure

    drawn = fig1.draw(data, QUICK)
    assert len(drawn.axes) == 5
    assert all(axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes[1:])
    for name in ("a.svg", "b.svg", "a.pdf", "b.pdf", "a.png", "b.png"):
        save_figure(drawn if name.startswith("a") else fig1.draw(data, QUICK), tmp_path / name)
    for ending in ("svg", "pdf", "png"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
