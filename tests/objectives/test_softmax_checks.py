"""What the losses of softmax attention refuse, and what they say."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stepwell._util.errors import InvalidInput
from stepwell.models import CubicMLP, MultiHeadAttention, SpectralAttention, decomposable
from stepwell.objectives import Exact, ReducedSampled, Spectral
from stepwell.tasks import ContextLengths, MultiTaskRegression

KEY = jax.random.key(0)
TASK = MultiTaskRegression((2, 3), context=8)
SEVERAL = MultiTaskRegression((2, 3), context=ContextLengths([4, 8]))


def attention(omega=0.1, mu=None, dims=(2, 3), **options):
    readout = np.eye(2) if mu is None else mu
    return SpectralAttention.balanced(np.full((2, 2), omega), readout, dims, **options)


def off_structure():
    whole = decomposable(attention(), TASK)
    return whole.with_weights(whole.weights() | {"key": whole.key.at[0, 0, 1].add(0.3)})


@pytest.fixture(scope="module", params=["spectral", "exact", "reduced"])
def objective(request: pytest.FixtureRequest):
    make = {
        "spectral": lambda: Spectral(TASK),
        "exact": lambda: Exact(TASK),
        "reduced": lambda: ReducedSampled(TASK, 32, key=KEY),
    }
    return make[request.param]()


def test_decomposable_attention_is_accepted_however_it_is_given(objective):
    objective.check(attention())
    objective.check(decomposable(attention(), TASK, embedding=9, key=KEY))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (off_structure, "score_inputs is off by"),
        (lambda: MultiHeadAttention.random(dim=5, outputs=2, heads=2, scale=0.1, key=KEY), "use Sampled"),
        (lambda: CubicMLP.random(dim=2, heads=2, scale=0.1, key=KEY), "not an attention"),
        (lambda: attention(activation="linear"), "activation is 'linear'"),
        (lambda: attention(normalization="1/N"), "normalization='none'"),
        (lambda: attention(dims=(3, 2)), "must agree"),
    ],
)
def test_a_model_that_is_not_meant_is_refused(objective, make, words):
    model = make()
    with pytest.raises(InvalidInput) as refusal:
        objective.check(model)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_attention_to_the_query_is_refused():
    whole = decomposable(attention(), TASK)
    model = MultiHeadAttention(whole.query, whole.key, whole.value, whole.output, attends_query=True)
    with pytest.raises(InvalidInput, match="attends_query=False"):
        Spectral(TASK).check(model)


def test_a_task_with_two_heads_is_named_and_sharp_weights_are_measured():
    with pytest.raises(InvalidInput, match="task 2 is served by several"):
        Exact(TASK).check(attention(mu=np.array([[1.0, 0.5], [0.0, 0.5]])))
    # A weight beside a zero would be moved by a gradient that leaves the other head out.
    model = attention()
    with pytest.raises(InvalidInput, match="task 1 is served by several"):
        Exact(TASK).check(model.with_weights(model.weights() | {"value": jnp.ones((2, 2))}))
    with pytest.raises(InvalidInput, match="reach="):
        Exact(TASK).check(attention(omega=2.0))
    assert np.isnan(Exact(TASK)(attention(omega=2.0)))
    Exact(TASK, reach=120.0).check(attention(omega=1.0))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ReducedSampled(TASK, 8, key=KEY), "at least 32"),
        (lambda: ReducedSampled(SEVERAL, 64, key=KEY), "2 context lengths"),
        (lambda: Exact(SEVERAL), "2 context lengths"),
        (lambda: Exact(TASK, reach=1.0), "reach"),
        (lambda: ReducedSampled(TASK, 10**13, key=KEY), "GiB"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, words):
    with pytest.raises(InvalidInput) as refusal:
        make()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)
