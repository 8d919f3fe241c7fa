"""How many threads BLAS uses.

OpenBLAS divides even small factorizations among threads that wait for each other in a loop. Beside another busy process
one of them is not running: a flow in 16 dimensions took ten times as long with two threads as with one.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator

from threadpoolctl import OpenBLASController, ThreadpoolController

_LOCK = threading.Lock()
_USERS = 0
_LIMIT: contextlib.ExitStack = contextlib.ExitStack()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Return a context in which the BLAS of NumPy and of SciPy, which XLA calls too, uses one thread.

    Threads of small factorizations wait for each other. The number is one of the whole process: where several threads
    are in such a context, the first to enter sets it, and the last to leave sets it back.

    **Returns:** the context.

    **Example:**

    >>> from stepwell.figures import one_blas_thread
    >>> with one_blas_thread():
    ...     solution = np.linalg.solve(np.eye(3), np.ones(3))
    """
    global _USERS
    with _LOCK:
        if _USERS == 0:
            _take_control()
            _LIMIT.enter_context(_controller().limit(limits=1, user_api="blas"))
        _USERS += 1
    try:
        yield
    finally:
        with _LOCK:
            _USERS -= 1
            if _USERS == 0:
                _take_control()
                _LIMIT.close()


def limit_blas_threads(count: int) -> None:
    """Let BLAS use at most `count` threads from now on, in this process."""
    _take_control()
    _controller().limit(limits=count, user_api="blas")


def _take_control() -> None:
    """threadpoolctl lets the thread that set a limit first, and no other, set another; here any of them may."""
    OpenBLASController.clear_controlling_thread(force=True)


@functools.cache
def _controller() -> ThreadpoolController:
    """The controller of all BLAS libraries, made once, which takes a millisecond. SciPy's must be loaded by then."""
    import scipy.linalg  # noqa: F401

    return ThreadpoolController()
