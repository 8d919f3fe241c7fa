"""Work begun ahead comes in order, no more of it than threads can do, and fails where it is used."""

import os
import threading

import pytest

from stepwell.tasks._random import ahead


def test_results_come_in_order_whichever_is_ready_first():
    second = threading.Event()

    def make(number):
        if number == 0 and (os.cpu_count() or 1) > 1:
            assert second.wait(30)  # the first is ready after the second
        if number == 1:
            second.set()
        return number**2

    assert list(ahead(make, range(20))) == [number**2 for number in range(20)]


def test_no_more_is_begun_than_threads_can_do():
    begun = []
    results = ahead(lambda number: begun.append(number), iter(range(1000)))
    assert begun == []
    next(results)
    assert len(begun) <= 1 + (os.cpu_count() or 1)
    results.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert len(begun) <= 1 + (os.cpu_count() or 1)


def test_a_failure_is_raised_where_the_result_is_used():
    results = ahead(lambda number: 1 / (2 - number), range(5))
    assert [next(results), next(results)] == [0.5, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_nothing_gives_nothing():
    assert list(ahead(str, [])) == []
