"""Fig 1 holds, is the same twice, and each claim fails when its physics is broken."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.models import MergedAttention
from stepwell.papers.linear_attention import fig01_merged_is_mlp as fig1

FIGURE = "linear/fig1"


@pytest.fixture(scope="module")
def starts():
    return fig1.prepare(fig1.QUICK)


def test_half_the_context_in_the_prediction_fails(data, starts, failing):
    wrong = fig1.predict(starts, context=15)
    wrong = wrong.interp(time=data["population"]["time"])
    assert failing({**data, "theory": wrong}) >= {"population-end", "training-end", "course", "population-time"}


def test_a_wrong_convention_fails(data, starts, failing):
    """Weights taken as if attention were divided by N already: the drop is predicted too late."""
    factor = 31**-0.5
    small = [start._replace(model=start.model.scaled(factor)) for start in starts]
    wrong = fig1.predict(small).interp(time=data["population"]["time"])
    assert failing({**data, "theory": wrong}) >= {"course", "population-time"}


def test_a_time_without_the_factor_n_fails(data, failing):
    held = data["attention_held"]
    wrong = held.assign_coords(time=held["time"] / 31)
    assert failing({**data, "attention_held": wrong}) >= {"time", "mean-time"}


def test_another_start_of_the_network_fails(data, starts, failing):
    wrong = fig1.train_network(starts[0]._replace(model=starts[1].model), fig1.QUICK)
    assert failing({**data, "mlp": wrong}) == {"one-curve"}


def test_a_change_of_the_start_in_the_ninth_digit_fails(data, starts, failing):
    wrong = fig1.train_network(starts[0]._replace(model=starts[0].model.scaled(1 + 1e-8)), fig1.QUICK)
    assert failing({**data, "mlp": wrong}) == {"one-curve"}


def test_another_data_set_of_the_network_fails(data, starts, failing):
    batch = starts[0].batch
    other = eqx.tree_at(lambda b: b.labels, batch, batch.labels.at[0, -1, 0].add(0.01))
    wrong = fig1.train_network(starts[0]._replace(batch=other), fig1.QUICK)
    assert failing({**data, "mlp": wrong}) == {"one-curve"}


def test_random_label_blocks_fail(data, failing):
    """At the paper's P: a small sample lets free blocks grow so much that the claim says little."""
    chosen = dataclasses.replace(fig1.QUICK, sequences=fig1.PUBLISHED.sequences)
    starts = fig1.prepare(chosen)
    wild = []
    for start, random in zip(starts, fig1.prepare(chosen, label_blocks="random"), strict=True):
        value = start.model.value.at[:, :, : fig1.DIM].set(30 * random.model.value[:, :, : fig1.DIM])
        key_query = start.model.key_query.at[:, fig1.DIM :].set(30 * random.model.key_query[:, fig1.DIM :])
        wild.append(start._replace(model=MergedAttention(value, key_query, normalisation="none")))
    tame = {
        **data,
        "attention_held": fig1.train_attention(starts, chosen, held=True),
        "attention_free": fig1.train_attention(starts, chosen, held=False),
        "sampling": fig1.sampling_errors(starts, chosen),
    }
    assert "free-blocks" not in failing(tame)
    assert failing({**tame, "attention_free": fig1.train_attention(wild, chosen, held=False)}) >= {"free-blocks"}


def test_blocks_that_move_are_not_held(data, failing):
    assert failing({**data, "attention_held": data["attention_free"]}) == {"one-curve"}
    blocks = data["attention_held"]["value"].isel(token_dim=slice(fig1.DIM))
    assert float(abs(blocks).max()) == 0.0
    assert float(abs(data["attention_free"]["value"].isel(token_dim=slice(fig1.DIM))).max()) > 0.0


def test_two_drops_fail(data, failing):
    free = data["attention_free"].copy(deep=True)
    late = 0.1 / (1 + np.exp(-(free["time"].values - 250) / 2))
    free["loss"] = free["loss"] - late
    assert "one-drop" in failing({**data, "attention_free": free})


def test_losses_of_other_weights_fail(data, failing):
    free = data["attention_free"]
    assert failing({**data, "attention_free": free.assign(token_loss=free["token_loss"] + 1e-9)}) == {"by-tokens"}


def test_the_shift_of_free_blocks_is_of_order_one_over_p():
    """Mean of the estimate over seeds, at P and 4 P: a ratio of 4."""
    few = fig1.Settings(seeds=tuple(range(12)), sequences=500)
    many = fig1.Settings(seeds=tuple(range(12)), sequences=2000)
    shifts = [fig1.sampling_errors(fig1.prepare(s), s)["blocks_shift"].values for s in (few, many)]
    ratio = shifts[0].mean() / shifts[1].mean()
    errors = [s.std(ddof=1) / s.size**0.5 / s.mean() for s in shifts]
    assert abs(np.log(ratio / 4)) < 3 * np.hypot(*errors)


def test_twice_the_same(data, starts):
    again = fig1.train_attention(fig1.prepare(fig1.QUICK), fig1.QUICK, held=False)
    np.testing.assert_array_equal(again["loss"], data["attention_free"]["loss"])
    np.testing.assert_array_equal(jnp.asarray(starts[0].batch.tokens), fig1.prepare(fig1.QUICK)[0].batch.tokens)


def test_the_drawing_has_two_panels_with_words(data, tmp_path):
    from stepwell.papers._style import save_figure

    drawn = fig1.draw(data)
    assert len(drawn.axes) == 2
    assert all(axes.get_ylabel() and axes.get_title(loc="left") for axes in drawn.axes)
    for name in ("a.svg", "b.svg", "a.pdf", "b.pdf", "a.png", "b.png"):
        save_figure(drawn if name.startswith("a") else fig1.draw(data), tmp_path / name)
    for ending in ("svg", "pdf", "png"):
        assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
