"""Arguments of public functions are checked by their annotations, also where no test watches types."""

import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

from stepwell._util.arguments import checked, with_axes
from stepwell._util.errors import InvalidInput
from stepwell._util.text import shown
from stepwell._util.types import RandomKey
from stepwell.models import AbstractModel

KEY = jax.random.key(0)


def asking(hint: Any) -> Callable[[Any], Any]:
    """A function of one argument `x` with this annotation, which returns what it gets."""

    def function(x):
        return x

    function.__annotations__["x"] = hint
    return checked(function)


@pytest.mark.parametrize(
    ("hint", "right"),
    [
        (int, [3, np.int64(3), -1]),
        (float, [3, 0.5, np.float32(0.5), np.array(0.5), jnp.array(0.5), float("nan")]),
        (bool, [True, np.True_]),
        (Literal["a", "b"], ["a"]),
        (float | Literal["converged"], [1.0, "converged"]),
        (str | None, ["a", None]),
        (RandomKey, [KEY, jax.random.PRNGKey(0)]),
        (Sequence[int], [[1, 2], (1, 2), range(3), np.array([1, 2])]),
        (Iterable[int], [{1, 2}, range(10**12)]),
        (dict[str, float], [{}, {"a": 1.0}]),
        (Callable[[int], int], [abs]),
        (Any, [None, object()]),
    ],
)
def test_what_is_right_is_taken_as_it_is(hint: Any, right: list[Any]):
    for value in right:
        taken = asking(hint)(value)
        assert taken is value or taken == value


@pytest.mark.parametrize(
    ("hint", "wrong", "words"),
    [
        (int, [None, "a", 1.5, True, 10**20, [1]], "an integer below 2**63"),
        (float, [None, "1", True, 1j, 10**400, [1.0], np.ones(2), KEY], "a number"),
        (bool, [1, "True", None], "True or False"),
        (Literal["a", "b"], ["c", 1, None, np.ones(2)], "'a' or 'b'"),
        (RandomKey, [0, None, np.ones(2), jax.random.split(KEY)], "a random key, such as jax.random.key(0)"),
        (
            Sequence[int],
            ["12", 3, [1.5], {"a": 1}, np.ones((2, 2)), np.array([0.5])],
            "a list of integers below 2**63",
        ),
        (dict[str, float], [[], {"a": "b"}, {1: 1.0}], "a dictionary"),
        (AbstractModel, [None, dict], "a model of stepwell.models"),
        (Float[Array, "head dim"], [None, 2, "a", [[1.0], [1.0, 2.0]], 1j, KEY], "an array of numbers, (head, dim)"),
        (Int[Array, " head"], [[0.5]], "an array of integers, (head)"),
    ],
)
def test_what_is_wrong_is_refused_in_one_line(hint: Any, wrong: list[Any], words: str):
    for value in wrong:
        with pytest.raises(InvalidInput) as refusal:
            asking(hint)(value)
        assert str(refusal.value) == f"x is {shown(value)}; it must be {words}"


def test_arrays_are_converted_where_nothing_is_lost():
    for value in ([[1, 2]], np.array([[1, 2]]), np.array([[1.0, 2.0]]), jnp.array([[1, 2]])):
        taken = asking(Float[Array, "a b"])(value)
        assert isinstance(taken, jax.Array) and taken.dtype == jnp.float64 and taken.tolist() == [[1.0, 2.0]]
        taken = asking(Float[np.ndarray, "a b"])(value)
        assert isinstance(taken, np.ndarray) and taken.dtype == np.float64 and taken.tolist() == [[1.0, 2.0]]
    single = jnp.ones((1, 2), jnp.float32)
    assert asking(Float[Array, "a b"])(single) is single


def test_a_list_may_be_given_as_an_array():
    for value in (np.array([0, 2]), jnp.array([0, 2])):
        taken = asking(Collection[int])(value)
        assert set(taken) == {0, 2}


def test_nothing_is_asked_of_numbers_that_jax_traces():
    assert jax.jit(asking(float))(0.5) == 0.5
    assert jax.jit(asking(Float[Array, " a"]))(jnp.ones(2)).tolist() == [1.0, 1.0]


def test_axes_of_one_name_agree():
    @checked
    def pair(first: Float[np.ndarray, "*lead head dim"], second: Float[np.ndarray, "*lead dim 3"]) -> None: ...

    pair(np.ones((4, 5)), np.ones((5, 3)))
    pair(np.ones((2, 4, 5)), np.ones((2, 5, 3)))
    for first, second, words in (
        ((4,), (5, 3), "first has shape (4,); it must be an array of numbers, (*lead, head, dim)"),
        ((4, 5), (6, 3), "second has shape (6, 3), read as (*lead, dim, 3), but dim is 5 in first; they must agree"),
        ((4, 5), (5, 2), "second has shape (5, 2); it must be an array of numbers, (*lead, dim, 3)"),
        ((2, 4, 5), (5, 3), "but *lead is (2,) in first"),
    ):
        with pytest.raises(InvalidInput) as refusal:
            pair(np.ones(first), second=np.ones(second))
        assert words in str(refusal.value)


class Sized(Protocol):
    @property
    def size(self) -> int: ...


def test_axes_may_be_those_of_an_object():
    class Three:
        size = 3

    with_axes(Sized, lambda thing: {"dim": thing.size})

    @checked
    def scaled(thing: Sized, weights: Float[np.ndarray, " dim"]) -> None: ...

    scaled(Three(), np.ones(3))
    with pytest.raises(InvalidInput, match="dim is 3 in thing"):
        scaled(Three(), np.ones(2))
    with pytest.raises(InvalidInput, match="thing is None; it must be a Sized"):
        scaled(None, np.ones(2))  # pyright: ignore


class Options(TypedDict, total=False):
    color: Literal["red", "green"]


def test_options_that_are_passed_on_are_checked():
    @checked
    def model(**options: Unpack[Options]) -> dict:
        return dict(options)

    assert model(color="red") == {"color": "red"}
    with pytest.raises(InvalidInput, match="color is 'blue'; it must be 'red' or 'green'"):
        model(color="blue")  # pyright: ignore


def test_no_public_function_answers_nonsense_with_an_error_of_a_library():
    """Of each parameter all that it could not be: None, text, huge numbers, arrays of other shapes, and more."""
    script = Path(__file__).parent / "public_calls.py"
    environment = {**os.environ, "PYTHONPATH": str(script.parent.parent), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=600)
    assert run.returncode == 0, run.stderr
    assert run.stdout == ""
