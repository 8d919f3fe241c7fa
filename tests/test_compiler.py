"""How XLA is asked to compile."""

import os
import subprocess
import sys

import jax
import numpy as np
import numpy_descent
import pytest

from stepwell._util import compiler
from stepwell.dynamics import Record, _loop, descend
from stepwell.models import MergedAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression


def test_a_choice_of_the_user_stands(monkeypatch: pytest.MonkeyPatch):
    older, whole = "--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"
    monkeypatch.setattr(compiler, "_KNOWN", True)
    monkeypatch.setenv("XLA_FLAGS", "--xla_other=1")
    compiler.compile_quickly()
    assert os.environ["XLA_FLAGS"] == f"--xla_other=1 {older} {whole}"
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    compiler.compile_quickly()
    assert os.environ["XLA_FLAGS"] == f"--xla_cpu_use_fusion_emitters=true {whole}"
    compiler.disable_optimization()
    assert os.environ["XLA_FLAGS"].endswith(f"{whole} --xla_backend_optimization_level=0")
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3")
    compiler.disable_optimization()
    assert os.environ["XLA_FLAGS"] == "--xla_backend_optimization_level=3"
    monkeypatch.setenv("XLA_FLAGS", "file-of-options")
    compiler.compile_quickly()
    assert os.environ["XLA_FLAGS"] == "file-of-options"
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(compiler, "_KNOWN", False)
    compiler.compile_quickly()
    assert os.environ["XLA_FLAGS"] == ""


def test_xla_knows_the_options():
    """An unknown one would end the process."""
    environment = {key: value for key, value in os.environ.items() if key != "XLA_FLAGS"}
    program = (
        "import stepwell._util.compiler, os, jax; stepwell._util.compiler.disable_optimization(); "
        "jax.numpy.zeros(1) + 1; print(os.environ.get('XLA_FLAGS', ''))"
    )
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert len(run.stdout.split()) == (3 if compiler._KNOWN else 0) and run.stderr == ""


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
