"""The types of the package are watched while the tests run: sizes of axes too, of arguments, results and fields."""

import dataclasses
import inspect
from collections.abc import Iterator

import jaxtyping
import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import Float
from typechecking import watched

from stepwell.theory import Regression, linear

Row = Float[np.ndarray, " n"]
REFUSED = pytest.raises(BeartypeCallHintViolation)


@watched(typechecker=None)
def added(first: Row, second: Row, *, extra: "int | Pair" = 0) -> Row:
    return np.append(first + second[:1], np.zeros(extra))  # pyright: ignore


@watched
class Point:
    @watched
    def scaled(self, by: float) -> "Point":
        return self if by else None  # pyright: ignore

    @staticmethod
    @watched
    def named(name: str) -> str:
        return name

    @property
    @watched
    def size(self) -> int:
        return "1"  # pyright: ignore


Point.shifted = watched(classmethod(lambda cls: cls))  # pyright: ignore


@watched
@dataclasses.dataclass
class Pair:
    first: Row
    second: Row


@watched
def counted(until: int) -> Iterator[int]:
    yield from range(until)


def test_axes_of_one_name_agree():
    assert added(np.ones(2), np.ones(2)).tolist() == [2, 2]
    with REFUSED:
        added(np.ones(2), np.ones(3))
    with REFUSED:
        added(np.ones(2), np.ones(2), extra=1)
    with REFUSED:
        added(np.ones((2, 2)), np.ones(2))
    added(np.ones(3), np.ones(3))  # each call has its own n


def test_an_inner_call_has_axes_of_its_own():
    @watched
    def outer(row: Row) -> Row:
        added(np.ones(5), np.ones(5))
        return row

    outer(np.ones(2))


def test_what_has_no_axes_is_checked_too():
    assert Point().scaled(1)
    with REFUSED:
        Point().scaled("a")  # pyright: ignore
    with REFUSED:
        Point().scaled(0)
    with REFUSED:
        Point.named(1)  # pyright: ignore
    with REFUSED:
        _ = Point().size
    assert Point.shifted() is Point  # pyright: ignore
    assert list(counted(2)) == [0, 1]
    with pytest.raises(jaxtyping.TypeCheckError):
        counted("a")  # pyright: ignore


def test_fields_agree():
    Pair(np.ones(2), np.ones(2))
    with REFUSED:
        Pair(np.ones(2), np.ones(3))


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    added(np.ones(2), np.ones(3))


def test_annotations_stay_as_they_are_written():
    assert inspect.signature(added).parameters["extra"].annotation == "int | Pair"


def test_the_package_is_watched():
    task = Regression(np.eye(2), np.eye(2), 0.0, 31)
    inner = linear.loss_at.__wrapped__  # pyright: ignore[reportFunctionMemberAccess]
    inner(task, np.eye(2))
    with REFUSED:
        inner(task, np.ones(2))
