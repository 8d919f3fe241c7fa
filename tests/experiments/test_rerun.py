"""A run made again from its file is the same run."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import stepwell as sw
from stepwell._util.errors import InvalidInput
from stepwell.tasks import ContextLengths

TASK = sw.InContextRegression(sw.covariance([1.0, 0.5, 0.25], key=jax.random.key(5)), ContextLengths([5, 10], [3, 1]))
MODEL = sw.SeparateAttention.random(dim=3, heads=2, scale=0.3, key=jax.random.key(0))
OTHER = sw.SeparateAttention.random(dim=3, heads=2, scale=0.3, key=jax.random.key(1))
KEY = jax.random.key(2)


def _descend(model, objective, **options):
    return sw.descend(model, objective, **{"rate": 0.05, "steps": 30, "progress": False} | options)


RUNS = {
    "population": lambda: _descend(MODEL, sw.Population(TASK)),
    "eigenvectors": lambda: _descend(MODEL, sw.Population(TASK, basis="eigen")),
    "moments": lambda: _descend(MODEL, sw.Moments.of_task(TASK, 40, progress=False, key=KEY)),
    "moments of a batch": lambda: _descend(MODEL, sw.Moments.of_batch(TASK.sample(40, key=KEY))),
    "sampled": lambda: _descend(MODEL, sw.Sampled(TASK.sample(20, key=KEY)), configuration={"note": "why"}),
    "ensemble": lambda: _descend(sw.Ensemble.of([MODEL, OTHER]), sw.Population(TASK), rate=[0.05, 0.02]),
    "adam": lambda: _descend(MODEL, sw.Population(TASK), optimizer="adam", rate=0.01),
    "some steps": lambda: _descend(
        MODEL, sw.Population(TASK), record=sw.Record(every=7, snapshots=[3, 9]), first_step=4
    ),
    "online": lambda: sw.online(MODEL, TASK, batch_size=8, rate=0.05, steps=20, progress=False, key=KEY),
    "flow": lambda: sw.flow(MODEL, sw.Population(TASK), progress=False),
    "flow to a time": lambda: sw.flow(
        MODEL, sw.Population(TASK), until=3.0, record=sw.Record(points=7, spacing="log"), progress=False
    ),
    "flow at times": lambda: sw.flow(
        MODEL, sw.Population(TASK), until=3.0, record=sw.Record(points=np.array([0.0, 3.0])), progress=False
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_bit_for_bit(name: str, tmp_path):
    run = RUNS[name]()
    again = sw.rerun(sw.save(run, tmp_path / "run.nc"), progress=False)
    assert again.identical(run)


SHORT = {"kind": "descent", "steps": 20}
FEW = {"kind": "moments", "sequences": 50}
EXPERIMENTS = {
    "flow": {"task": {"dim": 2}},
    "flow to a time": {"task": {"dim": 2}, "training": {"until": 9.0}, "record": {"points": 7, "spacing": "log"}},
    "moments": {"task": {"dim": 2, "centered": True}, "objective": FEW, "training": SHORT, "record": {"snapshots": 3}},
    "unnormalized": {"model": {"kind": "merged", "normalization": "none"}, "training": SHORT},
    "network": {"task": {"dim": 2}, "model": "mlp", "objective": FEW, "training": SHORT},
    "adam": {"task": {"dim": 2}, "training": SHORT | {"optimizer": "adam", "schedule": "cosine"}},
    "softmax": {"model": {"activation": "softmax"}, "objective": {"sequences": 30}, "training": SHORT},
    "online": {"task": {"dim": 2}, "objective": {"kind": "online", "batch_size": 4}, "training": SHORT},
    "spectral": {"task": {"kind": "multitask", "dims": [2, 3]}, "training": {"until": 3.0}},
    "tests": {"task": {"kind": "mixture", "dim": 2}, "objective": FEW, "training": SHORT,
              "record": {"test_sequences": 20, "value_weights": True}},
}  # fmt: skip


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_is_all_that_a_file_has_to_hold(name: str, tmp_path):
    run = sw.Experiment(**EXPERIMENTS[name], seed=3).run(progress=False)
    file = sw.save(run, tmp_path / "run.nc")
    assert sw.rerun(file, progress=False).identical(sw.load(file))
    run.attrs = {"experiment": run.attrs["experiment"]}
    again = sw.rerun(run, progress=False)
    np.testing.assert_array_equal(again["loss"], run["loss"])


@pytest.mark.parametrize("name", ["flow to a time", "moments"])
def test_several_seeds_of_an_experiment(name: str, tmp_path):
    run = sw.Experiment(**EXPERIMENTS[name], seed=3).run(seeds=[8, 2], progress=False)
    again = sw.rerun(sw.save(run, tmp_path / "run.nc"), progress=False)
    assert again.identical(run) and again["run"].values.tolist() == [8, 2]


def test_a_run_of_an_experiment_takes_no_other_parts():
    run = sw.Experiment(**EXPERIMENTS["moments"]).run(progress=False)
    with pytest.raises(InvalidInput, match="task is given, and the run is of an experiment"):
        sw.rerun(run, task=TASK)


def test_a_file_of_an_earlier_version_is_refused():
    run = _descend(MODEL, sw.Population(TASK), configuration={"flags": {"lr": 0.1}})
    with pytest.raises(InvalidInput, match="earlier version"):
        sw.rerun(run)


SCHEDULES = {
    "cosine": optax.cosine_decay_schedule(0.1, 30),
    "exponential": optax.exponential_decay(0.1, 10, 0.5, staircase=True),
    "warm-up": optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, 30),
    "pieces": optax.piecewise_constant_schedule(0.1, {10: 0.5}),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_of_optax_are_recorded_with_their_numbers(name: str, tmp_path):
    run = _descend(MODEL, sw.Population(TASK), rate=SCHEDULES[name])
    again = sw.rerun(sw.save(run, tmp_path / "run.nc"), progress=False)
    assert again.identical(run)


@pytest.mark.parametrize(
    ("options", "words", "given"),
    [
        ({"rate": lambda step: 0.1 / (step + 1)}, "was the function .*lambda.* give it: rate=", "rate"),
        ({"rate": None, "optimizer": optax.sgd(0.1)}, "an object of optax.* give it: optimizer=", "optimizer"),
    ],
)
def test_what_a_file_does_not_hold_has_to_be_given(options, words, given):
    run = _descend(MODEL, sw.Population(TASK), **options)
    with pytest.raises(InvalidInput, match=words):
        sw.rerun(run, progress=False)
    np.testing.assert_array_equal(sw.rerun(run, progress=False, **{given: options[given]})["loss"], run["loss"])


def test_a_schedule_that_optax_does_not_make_is_not_claimed():
    """It has the name of a function of optax and other values."""

    def cosine_decay_schedule(init_value, decay_steps):
        def schedule(step):
            return init_value / (decay_steps + step)

        return schedule

    mine = cosine_decay_schedule(0.1, 30)
    mine.__qualname__, mine.__module__ = SCHEDULES["cosine"].__qualname__, SCHEDULES["cosine"].__module__
    with pytest.raises(InvalidInput, match="was the function"):
        sw.rerun(_descend(MODEL, sw.Population(TASK), rate=mine))


def test_sequences_from_elsewhere_have_to_be_given():
    batch = sw.tasks.Batch(jnp.ones((400, 6, 4)), jnp.ones((400, 6, 1)))
    run = _descend(MODEL, sw.Sampled(batch), rate=0.001)
    with pytest.raises(InvalidInput, match=r"does not hold tokens, labels of the Batch.*rerun\(…, objective=…\)"):
        sw.rerun(run)
    assert sw.rerun(run, objective=sw.Sampled(batch), progress=False).identical(run)


def _sample(n, key):
    x = jax.random.normal(key, (n, 6, 3))
    return x, x.sum(axis=-1)


class Signs(sw.tasks.AbstractTask):
    """A task of one's own, of plain fields."""

    context: ContextLengths
    dim: int = 3
    outputs: int = 1
    spread: float = 0.5
    powers: tuple[int, ...] = (1, 2)

    def draw(self, sequences, *, key):
        x = self.spread * jax.random.rademacher(key, (sequences, self.context.tokens, self.dim), float)
        y = jnp.sum(jnp.stack([x**power for power in self.powers]), axis=(0, -1))[..., None]
        return sw.tasks.assemble(x, y, y, self.context)


def _online(task, model: sw.models.AbstractModel = MODEL):
    return sw.online(model, task, batch_size=8, rate=0.05, steps=20, progress=False, key=KEY)


def test_a_task_of_ones_own_whose_class_is_imported(tmp_path):
    run = _online(Signs(ContextLengths(5)))
    assert sw.rerun(sw.save(run, tmp_path / "run.nc"), progress=False).identical(run)


@pytest.mark.parametrize("task", [Signs(ContextLengths(5)), sw.tasks.SamplerTask(_sample)], ids=["class", "function"])
@pytest.mark.parametrize("of", [_online, lambda task: _descend(MODEL, sw.Sampled(task.sample(20, key=KEY)))])
def test_a_file_does_not_import_modules(task, of, tmp_path, monkeypatch):
    """Though one of this name could be imported, which would then say that it was."""
    (tmp_path / "from_a_file.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    run = of(task)
    run.attrs["configuration"] = run.attrs["configuration"].replace(__name__, "from_a_file")
    with pytest.raises(InvalidInput, match=r"(not imported|function _sample).*rerun\(…, task=…\)"):
        sw.rerun(run)
    np.testing.assert_array_equal(sw.rerun(run, task=task, progress=False)["loss"], run["loss"])


class Own(sw.models.AbstractModel):
    scores: jax.Array

    def __call__(self, tokens):
        return (tokens[:-1, :-1] @ self.scores @ tokens[-1, :-1]) @ tokens[:-1, -1:]


def test_a_model_of_ones_own_is_asked_for():
    model = Own(0.01 * jnp.eye(3))
    run = _online(TASK, model)
    assert sw.rerun(run, progress=False).identical(run)
    run.attrs["configuration"] = run.attrs["configuration"].replace(__name__, "from_a_file")
    with pytest.raises(InvalidInput, match=r"template.*rerun\(…, model=…\)"):
        sw.rerun(run)
    np.testing.assert_array_equal(sw.rerun(run, model=model, progress=False)["loss"], run["loss"])


def test_large_matrices_of_a_task():
    """More entries than are written out."""
    task = sw.InContextRegression(sw.covariance(np.linspace(1.0, 2.0, 40), key=KEY), 10)
    model = sw.SeparateAttention.random(dim=40, heads=1, scale=0.1, key=KEY)
    run = _descend(model, sw.Population(task), rate=1e-4)
    assert sw.rerun(run, progress=False).identical(run)


MULTI = sw.tasks.MultiTaskRegression((2, 3), context=10)
SPECTRAL = sw.models.SpectralAttention.balanced(np.full((2, 2), 0.2), 0.3 * np.eye(2), MULTI.dims)
CUBIC = sw.models.CubicMLP.random(dim=3, heads=2, scale=0.3, key=KEY)


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        (SPECTRAL, lambda: sw.objectives.ReducedSampled(MULTI, 64, key=KEY)),
        (SPECTRAL, lambda: sw.objectives.Exact(MULTI, reach=20.0)),
        (SPECTRAL, lambda: sw.objectives.Spectral(MULTI)),
        (CUBIC, lambda: sw.Sampled(TASK.sample(200, key=KEY).cubic_features())),
    ],
)
def test_other_objectives(model, objective):
    run = _descend(model, objective(), rate=0.01)
    assert sw.rerun(run, progress=False).identical(run)
