"""What all tests share: watched types, Hypothesis profiles, no screen, Ctrl-C, slow tests, no skips, native or not."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import hypothesis
import jax
import jaxtyping
import pytest
from slow_tests import SLOW
from traces import traced_as
from typechecking import watched

Result = TypeVar("Result")

# In the environment, so that the commands started by tests inherit it.
os.environ["MPLBACKEND"] = "Agg"
os.environ["STEPWELL_STORE"] = "off"  # tests that want a store name one

# A suite started in the background may have Ctrl-C ignored, and one under nohup SIGHUP, and so would the commands it
# starts; some tests send them.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# The import hook of jaxtyping (pyproject.toml) decorates all of the package with this.
jaxtyping.jaxtyped = watched

# Most of a test's time would be XLA's optimization of programs that run once, and numbers differ in their last digits
# alone. Commands started by tests do not inherit this, and run as users run them.
jax.config.update("jax_disable_most_optimizations", True)

# Modules and compiled programs are no garbage, and make the search for it long: none while tests are collected, and
# later seldom, among what is new.
gc.disable()

# No deadline: the first example of a test pays for JAX's compilation.
hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_sessionstart() -> None:
    """Compiled programs are kept between runs of the tests, as between commands."""
    import stepwell  # not before its types are watched

    stepwell.configure()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.name != "test_types.py")  # the longest first, or it may end last


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def _fail_skip(report: pytest.TestReport | pytest.CollectReport, remedy: str) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"{reason}\nA skip fails the run. {remedy}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    optional = item.get_closest_marker("optional")
    installed = optional is not None and optional.kwargs.get("installed_by_ci", False)
    if report.skipped and (optional is None or (installed and os.environ.get("CI"))):
        remedy = ".ci/run installs what it needs." if installed else "If it may be skipped, mark it optional."
        _fail_skip(report, remedy)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    report = yield
    if report.skipped:
        _fail_skip(report, "Skip tests, marked optional, rather than a whole file.")
    return report


def pytest_runtest_teardown() -> None:
    from stepwell._util.memory import free_programs_if_many  # not before its types are watched

    free_programs_if_many()


@pytest.fixture(autouse=True)
def no_kind_stays():
    """Kinds that a test registers, and the files that they came from, are forgotten at its end."""
    from stepwell.experiments import _kind, _plugins

    before = {section: dict(_kind.kinds(section)) for section in _kind.SECTIONS}
    files, modules = list(_plugins.LOADED), set(sys.modules)
    yield
    for section, known in before.items():
        _kind._REGISTRY[section].clear()
        _kind._REGISTRY[section].update(known)
    for name in set(sys.modules) - modules:  # also those that a document imports from its own folder
        file = getattr(sys.modules[name], "__file__", None) or ""
        if file in _plugins.LOADED or Path(file).stem in ("my_lab", "own_model", "own_task"):
            del sys.modules[name]
    _plugins.LOADED[:] = files


@pytest.fixture
def own_traces(request: pytest.FixtureRequest):
    """Nothing that was traced before the test is used in it, and nothing that is traced in it after it."""
    with traced_as(request.node.nodeid):
        yield


@pytest.fixture
def optimized():
    """XLA's optimization is on: for a test that computes for longer than that takes."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def with_and_without(monkeypatch: pytest.MonkeyPatch):
    """Call a function with the native passes and without them: both results."""
    from stepwell.native import _kernels  # not before its types are watched

    def both(run: Callable[[], Result]) -> tuple[Result, Result]:
        found = []
        for switch in ("on", "off"):
            with monkeypatch.context() as patch, traced_as(switch):
                patch.setenv("STEPWELL_NATIVE", switch)
                _kernels.state.cache_clear()
                found.append(run())
        _kernels.state.cache_clear()
        return found[0], found[1]

    return both


@pytest.fixture
def store(tmp_path: Path):
    """An empty store."""
    from stepwell.store import Store

    return Store(tmp_path / "store")
