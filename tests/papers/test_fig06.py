"""Fig 6 holds, and its claims fail when the physics is broken."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from stepwell.models import MergedAttention, SeparateAttention
from stepwell.papers.linear import fig06_init_scale as fig6
from stepwell.papers.linear._runs import weights_of
from stepwell.papers.linear.fig06_init_scale import linearized, merged_jacobian, separate_jacobian

FIGURE = "linear/fig6"
QUICK = fig6.FIGURE.at(quick=True)


def test_other_settings(survives):
    claims = survives({"seeds": "1,3", "context": "5"})
    assert all(claim.judged() and np.isfinite(claim.measured) for claim in claims.values())
    assert claims["rich-merged"].passed and claims["moved-merged-pairs"].passed


def test_the_laws_exchanged_fail(data, failing):
    """A wait that is a power where a logarithm is due, and the other way round."""
    separate, merged = data["separate"], data["merged"]
    logarithm = separate.assign(wait=0 * separate["wait"] + 10 * np.log(100 / separate["scale"]))
    power = merged.assign(wait=0 * merged["wait"] + 1 / merged["scale"])
    assert failing({**data, "separate": logarithm}) == {"rich-separate"}
    assert failing({**data, "merged": power}) == {"rich-merged"}


def test_a_time_without_the_half_fails(data, failing):
    """Time in units of -∂L/∂W instead of -½ ∂L/∂W."""
    wrong = data["merged"].assign(wait=data["merged"]["wait"] / 2)
    assert failing({**data, "merged": wrong}) == {"rich-merged"}
    wrong = data["merged_pairs"].assign(rate=data["merged_pairs"]["rate"] * 2)
    assert failing({**data, "merged_pairs": wrong}) == {"lazy-merged-rate"}


def test_half_the_context_in_the_linearization_fails(data, monkeypatch, failing):
    lazy = list(fig6.LARGE["merged"][::2])
    monkeypatch.setattr(fig6.Settings, "scales", lambda self, kind, *, pairs: lazy)
    half = replace(QUICK, context=15).task
    wrong = fig6.sweep("merged", QUICK, pairs=True, theory_task=half)
    monkeypatch.undo()
    mixed = data["merged_pairs"].copy(deep=True)
    for name in ("difference", "rate", "predicted_rate"):
        mixed[name].loc[{"scale": lazy}] = wrong[name]
    assert failing({**data, "merged_pairs": mixed}) == {"lazy-merged-rate", "lazy-merged-curve"}


def test_a_kernel_of_another_order_fails(data, failing):
    pairs = data["separate_pairs"]
    wrong = pairs.assign(half=pairs["half"] * pairs["scale"])
    assert failing({**data, "separate_pairs": wrong}) == {"lazy-separate-power"}


@pytest.mark.parametrize("kind", fig6.KINDS)
def test_independent_heads_in_place_of_pairs_fail(data, failing, kind: str):
    """And the other way round: pairs move less and less, independent heads by as much at any scale."""
    independent, pairs = data[kind]["moved"], data[f"{kind}_pairs"]["moved"]
    large = {"scale": list(fig6.LARGE[kind][::2])}
    exchanged = {name: data[name].copy(deep=True) for name in (kind, f"{kind}_pairs")}
    exchanged[kind]["moved"].loc[large] = pairs.sel(large)
    exchanged[f"{kind}_pairs"]["moved"].loc[large] = independent.sel(large)
    assert failing({**data, **exchanged}) == {f"moved-{kind}-pairs", f"moved-{kind}-independent"}


def test_runs_begin_at_the_map_zero():
    for kind in fig6.KINDS:
        np.testing.assert_allclose(
            fig6.initial_model(kind, 3.0, 0, pairs=True).effective_map(), 0.0, atol=1e-13 * 3.0**3
        )


@pytest.mark.parametrize("kind", fig6.KINDS)
def test_the_kernel_is_that_of_automatic_differentiation(kind: str):
    model: MergedAttention | SeparateAttention = fig6.initial_model(kind, 1.0, 3, pairs=True)
    weights = weights_of(model)
    by_hand = (merged_jacobian if kind == "merged" else separate_jacobian)(weights)

    def flat_map(*parts):
        if kind == "merged":
            return jax.numpy.einsum("h,hab->ab", *parts).ravel()
        return jax.numpy.einsum("h,hra,hrb->ab", *parts).ravel()

    np.testing.assert_allclose(flat_map(*weights), np.asarray(model.effective_map()).ravel(), atol=1e-12)
    by_machine = jax.jacobian(flat_map, argnums=tuple(range(len(weights))))(*weights)
    joined = np.concatenate([np.asarray(part).reshape(by_hand.shape[0], -1) for part in by_machine], axis=1)
    np.testing.assert_allclose(by_hand, joined, atol=1e-12)


def test_the_linearized_excess_begins_at_the_whole_fall():
    levels = fig6.theory.levels(QUICK.task)
    expected = linearized(QUICK.task, weights_of(fig6.initial_model("separate", 2.0, 0, pairs=True)))
    assert expected.excess(np.zeros(1))[0] == pytest.approx(levels[0] - levels[-1], rel=1e-10)


def test_a_run_ends_at_the_lowest_level(data):
    for name, runs in data.items():
        np.testing.assert_allclose(runs["loss"][:, -1], fig6.theory.levels(QUICK.task)[-1], rtol=0.02, err_msg=name)


def test_the_drawing_has_six_panels_with_words(data):
    *panels, bar = fig6.draw(data, QUICK).axes
    assert len(panels) == 6 and bar.get_xlabel()
    assert all(axes.get_ylabel() and axes.get_xlabel() and axes.get_title(loc="left") for axes in panels)
