"""What `stepwell.configure` sets in this process: how JAX compiles and dispatches, and where it keeps programs."""

import importlib.util
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Literal, TypeVar

from .cache import cache as cache_folder
from .cache import folder_name
from .errors import InvalidInput

Function = TypeVar("Function")


def _is_known() -> bool:
    """Whether XLA has the options below: it ends a process that names one that it lacks."""
    found = importlib.util.find_spec("jaxlib")  # `importlib.metadata` takes a quarter of the time that help takes
    return bool(found and found.origin and list(Path(found.origin).parents[1].glob("jaxlib-0.10.*.dist-info")))


_KNOWN = _is_known()
_QUICK = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")
_COMPILERS = {"default": (), "quick": _QUICK, "unoptimized": (*_QUICK, "--xla_backend_optimization_level=0")}

_LONG_LOOP: dict[str, Any] | None = {"xla_cpu_use_fusion_emitters": True} if _KNOWN else None
_SHORT_LOOP: dict[str, Any] | None = (
    {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1} if _KNOWN else None
)


def quick_jit(function: Function, *, long: bool = False) -> Function:
    """Return a function compiled as by `equinox.filter_jit`, by XLA's older way of fusing unless it runs for `long`.

    That takes half as long to compile. Of the programs here only the loop of merged attention runs faster by the newer
    one, by 1.6 µs a step, which the compiler takes 0.3 s to gain.
    """
    import equinox as eqx

    return eqx.filter_jit(function, compiler_options=_LONG_LOOP if long else _SHORT_LOOP)  # pyright: ignore


def configure(
    *,
    cache: bool = True,
    dispatch: Literal["sync", "async"] = "sync",
    compiler: Literal["default", "quick", "unoptimized"] = "quick",
) -> None:
    """Set up JAX in this process as the command line has it, so that small programs start and answer sooner.

    Importing `stepwell` switches float64 on and changes nothing else. This call is for scripts and notebooks that
    start often or run many small flows; processes that they start inherit it. The numbers change in their last digits
    at most. Call it before JAX computes anything: `dispatch` and `compiler` have no effect later. It may be called
    again. Options in `XLA_FLAGS` and a folder in `JAX_COMPILATION_CACHE_DIR` that you have set yourself are left alone.

    **Arguments:**

    - `cache`: whether compiled programs are stored in the user's cache folder, such as `~/.cache/stepwell`, and read
      from there by later processes. The variable `STEPWELL_CACHE` names another folder, or is `off`.
    - `dispatch`: `"sync"` returns from a call when its result is there, which is faster for small programs; `"async"`
      is JAX's default.
    - `compiler`: `"quick"` compiles in about half the time, by XLA's older way of fusing, as the loops of descent and
      flow are always; `"default"` leaves other programs to XLA's default; `"unoptimized"` disables XLA's optimization
      as well, for programs that run for a moment.

    **Example:**

    >>> import stepwell
    >>> stepwell.configure()
    """
    for name, value, allowed in (("dispatch", dispatch, ("sync", "async")), ("compiler", compiler, tuple(_COMPILERS))):
        if value not in allowed:
            raise InvalidInput(f"{name} is {value!r}; it must be {' or '.join(map(repr, allowed))}")
    _set("jax_cpu_enable_async_dispatch", dispatch == "async")
    _set_compiler(_COMPILERS[compiler])
    _set_cache(cache)


def _set(name: str, value: Any) -> None:
    """Set an option of JAX, which reads the environment when it is imported, as do the processes started here."""
    os.environ[name.upper()] = str(value).lower() if isinstance(value, bool) else str(value)
    if "jax" in sys.modules:
        sys.modules["jax"].config.update(name, value)


def _set_compiler(options: tuple[str, ...]) -> None:
    """Put options into `XLA_FLAGS` in place of those of an earlier call; a name of a file there is left alone."""
    flags = os.environ.get("XLA_FLAGS", "").split()
    if _KNOWN and (not flags or flags[0].startswith("-")):
        flags = [flag for flag in flags if flag not in _COMPILERS["unoptimized"]]
        names = {flag.partition("=")[0] for flag in flags}
        os.environ["XLA_FLAGS"] = " ".join([*flags, *(one for one in options if one.partition("=")[0] not in names)])


def _set_cache(wanted: bool) -> None:
    folder, reason, unsafe = cache_folder()
    if wanted and unsafe:
        warnings.warn(reason, RuntimeWarning, stacklevel=3)
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if "jax" in sys.modules:
        chosen = sys.modules["jax"].config.jax_compilation_cache_dir
    if chosen and Path(chosen).name != folder_name():
        return
    if wanted and folder is not None:
        _set("jax_compilation_cache_dir", folder)
        # Most programs here are small and many: reading one is ten times faster than compiling it.
        _set("jax_persistent_cache_min_compile_time_secs", 0.0)
        # A program that another process is just writing, or left half-written, is compiled anew: nothing to warn of.
        warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    elif chosen:  # by an earlier call, or by the process that started this one
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        if "jax" in sys.modules:
            sys.modules["jax"].config.update("jax_compilation_cache_dir", None)
