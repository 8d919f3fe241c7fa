"""SIGTERM and SIGHUP end a run as Ctrl-C does: with what it has done."""

import os
import signal
import subprocess
import sys

import diffrax
import jax
import numpy as np
import pytest

from stepwell._util.progress import Meter
from stepwell.dynamics import Interrupted, descend, flow, online
from stepwell.models import SeparateAttention
from stepwell.objectives import Population
from stepwell.tasks import InContextRegression
from stepwell.trajectory import load

TASK = InContextRegression(np.diag([0.6, 0.4]), 6)
MODEL = SeparateAttention.random(dim=2, heads=2, scale=1e-5, key=jax.random.key(0))

RUNS = {
    "descend": lambda: descend(MODEL, Population(TASK), rate=0.01, steps=100_000),
    "online": lambda: online(MODEL, TASK, batch_size=4, rate=0.01, steps=10_000, key=jax.random.key(1)),
    "rodas5p": lambda: flow(MODEL, Population(TASK), solver="rodas5p"),
    "lsoda": lambda: flow(MODEL, Population(TASK), solver="lsoda"),
    "diffrax": lambda: flow(MODEL, Population(TASK), solver=diffrax.Tsit5()),
    "diffrax to a time": lambda: flow(MODEL, Population(TASK), solver=diffrax.Tsit5(), until=1e6),
}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_a_signal_ends_a_run_which_is_kept(run, number: int, monkeypatch: pytest.MonkeyPatch):
    update = Meter.update

    def struck(self: Meter, done: float, note: str = "") -> None:
        signal.raise_signal(number)
        update(self, done, note)

    monkeypatch.setattr(Meter, "update", struck)
    with pytest.raises(Interrupted) as stopped:
        run()
    trajectory = stopped.value.trajectory
    assert trajectory.attrs["outcome"] == "interrupted"
    assert signal.Signals(number).name in trajectory.attrs["message"] and "kept" in trajectory.attrs["message"]
    assert trajectory["loss"].size > 0 and np.all(np.isfinite(trajectory["loss"]))
    assert signal.getsignal(number) is signal.SIG_DFL


_SCRIPT = """
import os, signal, sys
import jax, numpy as np
import stepwell as sw
from stepwell._util.progress import Meter

update = Meter.update
def struck(self, *arguments):
    Meter.update = update
    os.kill(os.getpid(), signal.SIGTERM)
    update(self, *arguments)
Meter.update = struck

objective = sw.objectives.Population(sw.tasks.InContextRegression(np.eye(2), 10))
model = sw.models.MergedAttention.random(dim=2, heads=1, scale=0.1, key=jax.random.key(0))
try:
    sw.dynamics.descend(model, objective, rate=1e-4, steps=10**6, record=sw.Record(every=1000))
except sw.Interrupted as stopped:
    sw.trajectory.save(stopped.trajectory, sys.argv[1])
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_script_has_the_time_to_save_and_the_next_signal_has_its_usual_effect(tmp_path):
    path = tmp_path / "run.nc"
    done = subprocess.run([sys.executable, "-c", _SCRIPT, path], capture_output=True, text=True, env=os.environ)
    assert done.returncode == -signal.SIGTERM, done.stderr
    assert load(path).attrs["outcome"] == "interrupted" and "SIGTERM" in load(path).attrs["message"]
