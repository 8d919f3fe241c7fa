"""Fig 2 holds, and each claim fails when one of the two forms is broken."""

import jax.numpy as jnp
import numpy as np
import pytest

from stepwell.dynamics import Record, descend
from stepwell.models import ConvolutionalAttention
from stepwell.objectives import Sampled
from stepwell.papers.linear import fig02_convolution as fig2

FIGURE = "linear/fig2"
QUICK = fig2.FIGURE.at(quick=True)


@pytest.mark.parametrize(
    "changes, unjudged",
    [
        ({"eigenvalues": "1,0.5,0.3,0.2,0.1", "heads": "1", "context": "3", "rate": "0.05"}, set()),
        ({"eigenvalues": "2", "heads": "2", "init": "0.3", "rate": "0.01"}, set()),
        ({"sequences": "1", "checked": "7", "steps": "1"}, {"curve"}),
    ],
)
def test_other_settings(survives, changes, unjudged):
    claims = survives({"steps": "50", **changes})
    assert {name for name, claim in claims.items() if not claim.judged()} == unjudged
    assert {name for name, claim in claims.items() if not claim.passed} == unjudged


@pytest.fixture(scope="module")
def prepared():
    return fig2.prepare(QUICK)


def test_against_the_sum_written_out(prepared):
    """Over heads and stops, with loops."""
    batch, model = prepared
    convolved = ConvolutionalAttention.from_separate(model)
    tokens = np.asarray(batch.tokens[0])
    beta = tokens[:-1, 3] @ tokens[:-1, :3] / QUICK.context
    z = [beta[d] * tokens[-1, j] for j in range(3) for d in range(3)]
    wanted = 0.0
    for v, k, q in zip(convolved.value, convolved.key, convolved.query, strict=True):
        for stop in range(3):
            wanted += float(v * q[stop]) * sum(float(k[d]) * z[3 * stop + d] for d in range(3))
    prediction = fig2.slide(convolved, batch.cubic_features().features[:1])
    np.testing.assert_allclose(prediction, [wanted], rtol=1e-12)


@pytest.mark.parametrize("name", ["value", "key", "query"])
def test_heads_shuffled_in_one_weight_fail(data, prepared, name, failing):
    batch, model = prepared
    right = ConvolutionalAttention.from_separate(model.scaled(1 / QUICK.init))
    weights = right.weights()
    wrong = right.with_weights({**weights, name: jnp.roll(weights[name], 1, axis=0)})
    broken = fig2.compare(batch, model, QUICK, convolved=wrong)
    assert failing({**data, "one_by_one": broken}) == {"prediction", "sliding", "gradient"}


def test_a_wrong_sign_fails(data, prepared, failing):
    batch, model = prepared
    right = ConvolutionalAttention.from_separate(model.scaled(1 / QUICK.init))
    wrong = right.with_weights({**right.weights(), "value": -right.value})
    assert failing({**data, "one_by_one": fig2.compare(batch, model, QUICK, convolved=wrong)}) >= {
        "prediction",
        "sliding",
    }


def test_a_stride_of_one_fails(data, prepared, failing):
    batch, model = prepared
    convolved = ConvolutionalAttention.from_separate(model.scaled(1 / QUICK.init))
    slid = fig2.slide(convolved, batch.cubic_features().features, stride=1)
    broken = data["one_by_one"].assign(sliding=("sequence", np.asarray(slid)))
    assert failing({**data, "one_by_one": broken}) == {"sliding"}


def test_another_context_length_fails(data, prepared, failing):
    """Attention divided by 31, features by the 32 tokens."""
    batch, model = prepared
    features = batch.cubic_features("1/tokens").features
    convolved = ConvolutionalAttention.from_separate(model.scaled(1 / QUICK.init))
    broken = data["one_by_one"].assign(sliding=("sequence", np.asarray(fig2.slide(convolved, features))))
    assert failing({**data, "one_by_one": broken}) == {"sliding"}


def test_runs_that_stand_still_prove_nothing(data, failing):
    still = {name: data[name].isel(step=slice(1), snapshot=[0, 0]) for name in ("attention", "convolution")}
    assert failing({**data, **still}) == {"curve", "weights"}


def test_free_label_blocks_fail(data, prepared, failing):
    """What the claims say of blocks held at zero is needed: on few sequences free ones move, and with them the loss."""
    batch, model = prepared
    free = descend(
        model, Sampled(batch), rate=QUICK.rate, steps=QUICK.steps, record=Record(every=5, snapshots=2), progress=False
    )
    assert failing({**data, "attention": free}) == {"curve", "weights"}


def test_a_start_changed_in_the_ninth_digit_fails(data, prepared, failing):
    batch, model = prepared
    other = fig2.train_convolution(batch, model.scaled(1 + 1e-8), QUICK)
    assert failing({**data, "convolution": other}) == {"curve", "weights"}


def test_the_drawing(data):
    drawn = fig2.draw(data, QUICK)
    assert [axes.get_title(loc="left")[:3] for axes in drawn.axes] == ["(a)", "(b)"]
    words = [text.get_text() for text in drawn.axes[0].texts]
    assert sum(word.startswith("$\\beta_") for word in words) == 3
