"""The exponential of the native passes against that of extended precision."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from native_code import LEVELS, Compiled, pointer

FAR = {"double": 400, "float": 50}
SOURCE = """
#include "native.h"

void each(int fraction, const REAL *given, REAL *found, int blocks)
{
    for (int k = 0; k < blocks; k++) {
        vec x;
        memcpy(&x, given + k * LANES, sizeof(vec));
        x = fraction ? fraction_of_two(x) : power_of_two(x);
        memcpy(found + k * LANES, &x, sizeof(vec));
    }
}
"""


class Built:
    """The functions of the header for one element type, on arrays."""

    def __init__(self, folder: Path, element: str, level: str):
        self.element, self._compiled = element, Compiled(SOURCE, folder, element, level)
        self.dtype = self._compiled.dtype

    def power(self, x, *, fraction: bool = False) -> np.ndarray:
        given, found = self._compiled.in_groups(x, 1)
        blocks = given.size // self._compiled.lanes
        self._compiled.call.each(ctypes.c_int(fraction), pointer(given), pointer(found), ctypes.c_int(blocks))
        return found[: np.size(x)]


@pytest.fixture(scope="module", params=LEVELS, ids=str)
def level(request) -> str | None:
    return request.param


@pytest.fixture(scope="module", params=["double", "float"])
def built(request, level: str, tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("powers"), request.param, level)


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, None])
def test_right_to_little_more_than_a_unit_of_the_last_digit(built: Built, size: float | None):
    """Half a unit is the rounding of the result, another half that of the number in the table."""
    largest = size or FAR[built.element]
    x = np.random.default_rng(0).uniform(-largest, largest, 100_000).astype(built.dtype)
    exact = np.exp2(x.astype(np.longdouble))
    unit = np.spacing(exact.astype(built.dtype)).astype(np.longdouble)
    assert float(np.max(np.abs(built.power(x) - exact) / unit)) < 1.3


def test_whole_powers_are_exact(built: Built):
    x = np.arange(-FAR[built.element], FAR[built.element] + 1)
    np.testing.assert_array_equal(built.power(x), np.exp2(x.astype(built.dtype)))


def test_fractions_end_where_they_count_nothing(built: Built):
    far = FAR[built.element]
    found = built.power([0.0, -1.0, -far, -far - 1.0, -1e30, -np.inf], fraction=True)
    np.testing.assert_array_equal(found, np.exp2(np.array([0.0, -1.0, -far, -far, -far, -far], built.dtype)))
    assert np.finfo(built.dtype).eps ** 2 > 2.0**-far > 0


def test_what_is_not_a_number_stays_so(built: Built):
    for fraction in (False, True):
        assert np.all(np.isnan(built.power([np.nan], fraction=fraction)))
