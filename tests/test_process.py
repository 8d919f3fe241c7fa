"""Importing `stepwell` changes float64 and nothing else; `configure` sets what it says."""

import json
import os
import subprocess
import sys

import jax
import jaxtyping
import numpy as np
import numpy_descent
import pytest

import stepwell
from stepwell._util import process
from stepwell.dynamics import Record, _loop, descend
from stepwell.models import MergedAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression

OLDER, WHOLE = process._QUICK

_PROGRAM = """
import json, os, sys, warnings
if "first" in sys.argv:
    import jax
def state():
    jax = sys.modules.get("jax")
    return dict(os.environ), list(map(str, warnings.filters)), dict(jax.config.values) if jax else None
before = state()
import stepwell
after = state()
import jax
bare = {name: value for name, value in jax.config.values.items()}
import stepwell.dynamics, stepwell.analysis, stepwell.experiments, stepwell.theory
rooms = {name: [str(bare[name]), str(value)] for name, value in jax.config.values.items() if bare[name] != value}
changed = {name for name in {*before[0], *after[0]} if before[0].get(name) != after[0].get(name)}
options = [] if before[2] is None else [name for name, value in after[2].items() if before[2][name] != value]
print(json.dumps([sorted(changed), before[1] == after[1], options, rooms, jax.numpy.ones(2).dtype.name]))
stepwell.configure()
jax.numpy.ones(2) + 1
named = ("jax_cpu_enable_async_dispatch", "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
print(json.dumps([os.environ["XLA_FLAGS"].split(), *(jax.config.values[name] for name in named)]))
stepwell.configure(cache=False, compiler="unoptimized", dispatch="async")
print(json.dumps([os.environ["XLA_FLAGS"].split(), *(jax.config.values[name] for name in named)]))
"""


@pytest.mark.parametrize("order", ["first", "later"])
def test_importing_changes_float64_and_nothing_else_and_configure_does(order: str, tmp_path):
    """JAX is imported first, or later, when it reads its variable; XLA knows the options, or would end the process."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XLA_"))}
    environment["STEPWELL_CACHE"] = str(tmp_path)
    run = subprocess.run([sys.executable, "-c", _PROGRAM, order], env=environment, capture_output=True, text=True)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    importing, configured, again = map(json.loads, run.stdout.splitlines())
    first = order == "first"
    assert importing == [[] if first else ["JAX_ENABLE_X64"], True, ["jax_enable_x64"] if first else [], {}, "float64"]
    (folder,) = tmp_path.iterdir()
    quick = list(process._QUICK) if process._KNOWN else []
    assert configured == [quick, False, str(folder), 0.0]
    assert again == [[*quick, "--xla_backend_optimization_level=0"] if quick else [], True, None, 0.0]
    assert any(folder.glob("*-cache"))


@pytest.mark.parametrize(
    ("flags", "compiler", "expected"),
    [
        ("--xla_other=1", "quick", f"--xla_other=1 {OLDER} {WHOLE}"),
        ("--xla_cpu_use_fusion_emitters=true", "quick", f"--xla_cpu_use_fusion_emitters=true {WHOLE}"),
        (f"{OLDER} {WHOLE}", "default", ""),
        (f"{OLDER} {WHOLE}", "unoptimized", f"{OLDER} {WHOLE} --xla_backend_optimization_level=0"),
        ("--xla_backend_optimization_level=3", "unoptimized", f"--xla_backend_optimization_level=3 {OLDER} {WHOLE}"),
        ("file-of-options", "quick", "file-of-options"),
    ],
)
def test_a_choice_of_the_user_stands(flags: str, compiler: str, expected: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_KNOWN", True)
    monkeypatch.setenv("XLA_FLAGS", flags)
    process._set_compiler(process._COMPILERS[compiler])
    assert os.environ["XLA_FLAGS"] == expected


def test_an_xla_that_lacks_the_options_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_KNOWN", False)
    monkeypatch.setenv("XLA_FLAGS", "")
    process._set_compiler(process._QUICK)
    assert os.environ["XLA_FLAGS"] == ""


def test_what_is_not_offered_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(ValueError, match="dispatch is 'later'; it must be 'sync' or 'async'"):
        stepwell.configure(dispatch="later")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="compiler is 'slow'; it must be 'default' or 'quick' or 'unoptimized'"):
        stepwell.configure(compiler="slow")  # pyright: ignore[reportArgumentType]


def test_long_loops_take_the_same_steps(monkeypatch: pytest.MonkeyPatch):
    """Merged attention, whose loop the compiler makes; beside it NumPy's loop."""
    model = MergedAttention.random(dim=2, heads=2, scale=0.3, key=jax.random.key(0))
    objective = Population(InContextRegression(np.diag([0.7, 0.3]), 10))
    compiled, asked = _loop._compiled, []
    monkeypatch.setattr(_loop, "_compiled", lambda long: asked.append(long) or compiled(long))
    weights = np.asarray(model.value)[:, 0, -1], np.asarray(model.key_query)[:, :2]
    expected, _ = numpy_descent.merged(objective, *weights, 0.1, 50)
    for shortest in (100_000, 1):
        monkeypatch.setattr(_loop, "_LONG_RUN", shortest)
        found = descend(model, objective, rate=0.1, steps=50, record=Record(every=10), progress=False)[
            "loss"
        ].values.ravel()
        np.testing.assert_allclose(found, expected[::10], rtol=1e-13)
    assert set(asked) == {False, True}
    assert expected[-1] < 0.9 * expected[0]
