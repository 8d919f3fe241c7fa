"""BLAS threads are limited where they would wait for each other, and given back."""

import threading

import jax
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from stepwell._util.threads import limit_blas_threads, one_blas_thread
from stepwell.dynamics import LSODA, Record, Rodas5P, flow
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression


@pytest.fixture(autouse=True)
def several_threads():
    """Three in every library, whatever the machine has."""
    import scipy.linalg  # noqa: F401

    with threadpool_limits(3, user_api="blas"):
        yield


def counts():
    found = {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
    assert found
    return found


def test_one_thread_within_and_as_many_as_before_afterwards():
    with one_blas_thread():
        assert counts() == {1}
        with one_blas_thread():
            assert counts() == {1}
        assert counts() == {1}
    assert counts() == {3}
    with pytest.raises(RuntimeError), one_blas_thread():
        raise RuntimeError
    assert counts() == {3}


def test_the_last_of_several_threads_gives_them_back():
    """The one that entered first leaves first."""
    entered, may_leave = threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            entered.set()
            may_leave.wait(10)

    with one_blas_thread():
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(10)
    assert counts() == {1}
    may_leave.set()
    thread.join()
    assert counts() == {3}


def test_a_limit_for_the_process_set_in_any_thread():
    limit_blas_threads(2)
    assert counts() == {2}
    thread = threading.Thread(target=limit_blas_threads, args=(4,))
    thread.start()
    thread.join()
    assert counts() == {4}


@pytest.mark.parametrize("solver", [Rodas5P(), LSODA()])
@pytest.mark.parametrize("fails", [False, True])
def test_a_flow_is_solved_with_one_thread(solver, fails, monkeypatch):
    solve, observed = type(solver).solve, []

    def watched(*given):
        observed.append(counts())
        if fails:
            raise ZeroDivisionError
        return solve(*given)

    monkeypatch.setattr(type(solver), "solve", watched)
    model = SeparateAttention.random(dim=2, heads=2, scale=0.1, key=jax.random.key(0))
    objective = Population(InContextRegression(np.eye(2), 7))
    try:
        flow(model, objective, until=0.1, record=Record(points=2), solver=solver, progress=False)
    except ZeroDivisionError:
        assert fails
    assert observed == [{1}]
    assert counts() == {3}
