"""Kernels by name: shipped or built, loaded, registered with XLA; and why there is none where there is none."""

import ctypes
import functools
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stepwell._util.errors import InvalidInput

from ._compile import BuildFailed, compiler, library
from ._processor import LEVELS, levels

SOURCES = Path(__file__).parent / "src"
SHIPPED = Path(__file__).parent / "built"
"""Libraries that came with a wheel, `KERNEL-ELEMENT-LEVEL.so`."""
VARIABLE = "STEPWELL_NATIVE"
_WITHOUT = "STEPWELL_NATIVE_WITHOUT"
"""Names of kernels to do without, separated by commas: how each is measured."""
_REPORTED = "STEPWELL_NATIVE_REPORTED"
"""Set once a failure was reported, for this process and those that it starts."""

KERNELS: dict[str, tuple[str, ...]] = {
    "normals": ("double", "float"),
    "population_descent": ("double",),
    "population_step": ("double",),
    "population_step_alone": ("double",),
    "reduced_sums": ("double", "float"),
    "softmax_loss": ("double", "float"),
}
"""Every kernel, a file of `src`, with the element types that it is compiled for."""


class Kernel(NamedTuple):
    """A function that XLA can call."""

    target: str
    """The name of the function for `jax.ffi.ffi_call`."""
    vector_bytes: int
    """Bytes of a vector of the processor it was compiled for: data in lanes have as many as fit."""


class State(NamedTuple):
    """A kernel and where it comes from, or why there is none."""

    kernel: Kernel | None
    reason: str
    failed: bool = False
    """Whether one should be here and could not be built or loaded."""


def kernel(source: str | Path, element: str, function: str | None = None) -> Kernel | None:
    """Return a kernel that XLA can call, or None where plain JAX has to do.

    It is loaded, and built if none was shipped for this processor. The first failure to do so is reported by a warning.

    **Arguments:**

    - `source`: a name of `KERNELS`, or the path of another C file.
    - `element`: the type of the elements, "double" or "float".
    - `function`: the name of the function in C; by default that of the file, without leading underscores.

    **Returns:** the `Kernel`, registered with XLA, or None.

    **Example:**

    >>> kernel = sw.native.kernel("normals", "double")
    >>> kernel is None or kernel.target.startswith("stepwell_normals_double")
    True
    """
    status = state(source, element, function)
    if status.failed and os.environ.get(_REPORTED) is None:  # the others most often fail for the same reason
        os.environ[_REPORTED] = "1"
        warnings.warn(
            f"the kernel {source} cannot be used, so plain JAX is used instead, which is slower: {status.reason}\n"
            f"`stepwell doctor` lists all kernels; set {VARIABLE}=off to use none of them",
            RuntimeWarning,
            stacklevel=2,
        )
    return status.kernel


def engine() -> str:
    """Return in a few words what computes here. No kernel is built or loaded for it, and JAX is not imported.

    **Returns:** whether kernels are used, for which vectors and where they come from, or why there are none.

    **Example:**

    >>> from unittest import mock
    >>> with mock.patch.dict("os.environ", STEPWELL_NATIVE="off"):
    ...     sw.native.engine()
    'plain JAX, since STEPWELL_NATIVE is off'
    """
    chosen = os.environ.get(VARIABLE, "")
    if chosen == "off":
        return f"plain JAX, since {VARIABLE} is off"
    wanted = (chosen,) if chosen in LEVELS else levels()
    shipped = next((level for level in wanted if any(SHIPPED.glob(f"*-{level}.so"))), None)
    if shipped is not None:
        return f"JAX with kernels for {shipped}, which came with this installation"
    if shutil.which(compiler()[0]) is None:
        return f"plain JAX: no kernels came with this installation, and there is no C compiler ({compiler()[0]})"
    return f"JAX with kernels for {wanted[0]}, compiled on this machine"


def report_elsewhere() -> None:
    """Issue no warning if a kernel fails, in this process and those that it starts: another process reports it.

    Of several processes that do the same work, one report is enough. The setting is in the environment.

    **Example:**

    >>> from unittest import mock
    >>> with mock.patch.dict("os.environ"):
    ...     sw.native.report_elsewhere()
    """
    os.environ[_REPORTED] = "1"


def states() -> Iterator[tuple[str, str, State]]:
    """Return every kernel with its state, one after the other. Those that are not built yet are built.

    **Returns:** an iterator over (name, element, state), the state as `state` returns it.

    **Example:**

    >>> name, element, state = next(sw.native.states())
    >>> name, element, state.failed
    ('normals', 'double', False)
    """
    for name, elements in KERNELS.items():
        for element in elements:
            yield name, element, state(name, element)


@functools.lru_cache
def state(source: str | Path, element: str, function: str | None = None) -> State:
    """Return a kernel and where it comes from, or why there is none. It is built if need be.

    The answer is kept: later calls with the same arguments return the same.

    **Arguments:**

    - `source`, `element`, `function`: as in `kernel`.

    **Returns:** a tuple of the `kernel` or None, the `reason` in words, and whether one should be here and `failed`.

    **Example:**

    >>> state = sw.native.state("normals", "double")
    >>> state.failed, state.reason != ""
    (False, True)
    """
    import jax

    chosen = _chosen_level()
    if chosen == "off":
        return State(None, f"{VARIABLE} is off")
    if source in os.environ.get(_WITHOUT, "").split(","):
        return State(None, f"{_WITHOUT} names it")
    if jax.default_backend() != "cpu":
        return State(None, f"JAX computes on {jax.default_backend()}, and kernels are for the CPU")
    level = chosen or levels()[0]
    if level not in levels():
        return State(None, f"{VARIABLE} is {level}, which this processor does not have")
    path = SOURCES / f"{source}.c" if isinstance(source, str) else source
    function = function or path.stem.lstrip("_")
    shipped = SHIPPED / f"{path.stem}-{element}-{level}.so"
    refused = ""
    if isinstance(source, str) and shipped.exists():
        try:
            return State(_loaded(shipped, function, element), f"shipped, for {level}")
        except (OSError, RuntimeError, AttributeError, ValueError) as error:
            refused = f"the one shipped does not fit this JAX ({error}); "
    try:
        with library(path, element, level) as file:
            return State(_loaded(file, function, element), f"built for {level}")
    except (OSError, RuntimeError, AttributeError, ValueError, BuildFailed) as error:
        if "CC" not in os.environ and shutil.which(compiler()[0]) is None:
            return State(None, f"{refused}there is no C compiler ({compiler()[0]})")
        return State(None, f"{refused}{error}", failed=True)


def _chosen_level() -> str | None:
    """What `STEPWELL_NATIVE` asks for: a level, `off`, or None for the best there is."""
    chosen = os.environ.get(VARIABLE, "").lower()
    if chosen in ("", "on"):
        return None
    if chosen != "off" and chosen not in LEVELS:
        raise InvalidInput(f"{VARIABLE} is {chosen!r}; it must be on, off or one of {', '.join(LEVELS)}")
    return chosen


@functools.lru_cache
def _loaded(file: Path, function: str, element: str) -> Kernel:
    """Load a library and register its function. Each gets a name of its own: XLA takes no second one under a name."""
    import jax

    opened = ctypes.CDLL(str(file))
    target = f"stepwell_{function}_{element}_{_loaded.cache_info().misses}"
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(opened, function)), platform="cpu")
    return Kernel(target, ctypes.c_int.in_dll(opened, "vector_bytes").value)
