"""Every public function called with arguments that make no sense, without the import hook that checks types in tests.

`python tests/public_calls.py [ROOM…]` prints a line for each call that neither worked nor was refused by
`InvalidInput` in one line. Arguments that are right are made from the annotations: sizes by the names of axes, and the
rest by the name of the parameter or its class.
"""

import collections.abc
import contextlib
import importlib
import inspect
import math
import os
import pkgutil
import re
import signal
import sys
import tempfile
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import AbstractArray

import stepwell
from stepwell import dynamics, experiments, models, objectives, store, tasks, theory, trajectory
from stepwell._util.errors import InvalidInput

SECONDS = 60
"""How long a call may take: what takes longer was accepted, and should not have been."""

WRONG: dict[str, Any] = {
    "None": None,
    "text": "a",
    "bytes": b"a",
    "fraction": 1.5,
    "minus one": -1,
    "zero": 0,
    "nan": math.nan,
    "infinity": math.inf,
    "twenty digits": 10**20,
    "four hundred digits": 10**400,
    "six thousand digits": 10**6000,
    "trillion": 10**12,
    "complex": 1j,
    "flag": True,
    "empty list": [],
    "ragged list": [[1.0], [1.0, 2.0]],
    "list of None": [None],
    "list of text": ["a"],
    "dictionary": {"a": 1},
    "object": object(),
    "class": dict,
    "array of four axes": np.ones((1, 2, 3, 4)),
    "empty array": np.zeros(0),
    "array of nan": np.full((2, 2), np.nan),
    "array of text": np.array(["a"]),
}

SIZES = {"dim": 2, "head": 2, "task": 2, "outputs": 1, "labels": 1, "width": 3, "time": 4, "point": 50, "component": 2}
"""Axes of arrays; all others have two entries."""

KEY = jax.random.key(0)
RECORDING = str(Path(__file__).parent / "data" / "attnM_linear.npz")
REGRESSION = tasks.InContextRegression(np.diag([0.6, 0.4]), 5)
WHITE = tasks.InContextRegression(np.eye(2), 5)
TEACHER = tasks.GaussianTeacher([1.0], [1.0, 1.0])
MULTI = tasks.MultiTaskRegression((2, 2), 1.0, 10)
SEPARATE = models.SeparateAttention.random(dim=2, heads=2, scale=0.1, key=KEY)
MERGED = models.MergedAttention.random(dim=2, heads=2, scale=0.1, key=KEY)
SPECTRAL = models.SpectralAttention.balanced(np.eye(2), np.eye(2), (2, 2))
BATCH = REGRESSION.sample(8, key=KEY)
RUN = dynamics.descend(SEPARATE, objectives.Population(REGRESSION), rate=0.1, steps=4, progress=False)

EXPERIMENT = experiments.Experiment(task={"dim": 2, "context": 5}, training={"until": 1.0}, record={"points": 5})

SHARD = store.Shard({"model.kind": "separate"}, {"seed": [0, 1]}, {"final_loss": [0.5, 0.4]})

BY_NAME: dict[str, Any] = {
    "key": KEY,
    "covariance": np.diag([0.6, 0.4]),
    "task_covariance": np.eye(2),
    "fixed_task": np.ones(2),
    "in_context": 0.5,
    "eigenvalues": [0.6, 0.4],
    "eigenvectors": np.eye(2),
    "counts": [5],
    "probabilities": None,
    "longest": 5,
    "link": (0.0, 1.0),
    "dims": (2, 2),
    "strengths": (1.0, 1.0),
    "scale": 0.1,
    "rate": 0.05,
    "steps": 3,
    "sequences": 8,
    "batch_size": 8,
    "size": 8,
    "context": 10,
    "contexts": [10, 20],
    "noise_variance": 0.1,
    "progress": False,
    "until": 1.0,
    "times": np.linspace(0.0, 1.0, 4),
    "time": np.linspace(1.0, 50.0, 50),
    "loss": np.concatenate([np.ones(20), np.full(30, 0.1)]),
    "path": "saved.nc",
    "trajectory": RUN,
    "thing": REGRESSION,
    "names": [],
    "out": "report",
    "folder": "stepwell-runs",
    "source": "normals",
    "element": "double",
    "given": "1/N",
    "wanted": "none",
    "factors": 3,
    "length": 5,
    "component": 0,
    "learned": (0,),
    "along": (0,),
    "shares": np.array([0.5, 0.5]),
    "groups": [(0,), (1,)],
    "ratios": np.full((3, 2), 0.5),
    "rng": np.random.default_rng(0),
    "samples": 4,
    "penalized": "mean",
    "divided_by": "test",
    "target": np.tanh,
    "degree": 3,
    "head": theory.softmax.HeadWeights(0.1, 0.5),
    "document": {},
    "targets": [],
    "value": 0.5,
    "level": 0.5,
    "levels": np.array([1.0, 0.1]),
    "run": 0,
    "share": 0.5,
    "overlap": 0.1,
    "initial": 0.1,
    "reach": 60.0,
}
"""Arguments that are right, by the name of the parameter."""

EXAMPLES: list[Any] = [
    REGRESSION,
    MULTI,
    tasks.InContextInWeightMixture.random(np.eye(2), 0.5, 5, key=KEY),
    tasks.SingleIndexRegression(2, (0.0, 1.0), 5),
    tasks.ContextLengths(5),
    SEPARATE,
    MERGED,
    SPECTRAL,
    models.CubicMLP.from_merged(MERGED),
    models.ConvolutionalAttention.from_separate(SEPARATE),
    models.MultiHeadAttention.random(dim=2, outputs=1, heads=2, scale=0.1, key=KEY),
    BATCH,
    BATCH.cubic_features(),
    objectives.Population(REGRESSION, basis="eigen"),
    objectives.Moments.of_batch(BATCH),
    objectives.Sampled(BATCH),
    objectives.Spectral(MULTI),
    objectives.Exact(MULTI),
    objectives.ReducedSampled(MULTI, 64, key=KEY),
    dynamics.Ensemble.of([SEPARATE, SEPARATE]),
    RUN,
    EXPERIMENT,
    store.Store("store"),
    SHARD,
]
"""An object of each class that users construct. The first that fits is the argument where one is asked for."""

INPUTS, RELATION, NOISE = jnp.ones((2, 6, 2)), jnp.ones((2, 2, 1)), jnp.ones((2, 6, 1))
COMPOSED = {"inputs": INPUTS, "tasks": RELATION, "noise": NOISE, "index": jnp.arange(2), "total": 2}
SPECIAL: dict[str, dict[str, Any]] = {
    "dynamics.rate_for": {"time": 1.0},
    "experiments.full_name": {"name": "heads"},
    "experiments.Experiment": {"task": "regression"},
    "experiments.Experiment.from_canonical": {"canonical": EXPERIMENT.canonical()},
    "experiments.Experiment.from_dict": {"document": EXPERIMENT.to_dict()},
    "experiments.Experiment.of": {"trajectory": EXPERIMENT.run(progress=False)},
    "experiments.compare_run": {"trajectory": EXPERIMENT.run(progress=False)},
    "dynamics.renormalized": {"normalization": "none"},
    "models.ConvolutionalAttention": {"key": jnp.ones((2, 2))},
    "models.CubicMLP": {"hidden": jnp.ones((2, 4))},
    "models.decompose": {"model": SPECTRAL},
    "objectives.eigenvalues": {"model": SPECTRAL},
    **{
        f"objectives.{owner}.{method}": {"model": SPECTRAL}
        for owner in ("Exact", "ReducedSampled", "Spectral")
        for method in ("__call__", "check", "floor", "per_task", "per_sequence", "standard_error")
    },
    "objectives.Moments": {
        "gram": jnp.eye(12),
        "cross": jnp.ones((1, 12)),
        "dim": 2,
        "outputs": 1,
        "features": "full",
        "normalization": "1/N",
    },
    "objectives.ReducedSampled": {"sequences": 64},
    "dynamics.named_optimizer": {"optimizer": "adam"},
    "figures.figure": {"name": "linear/fig2"},
    "figures.parsed_changes": {"words": []},
    "figures.reproduce": {"progress": lambda *_: None},
    "analysis.head_task_allocation": {"omega": np.ones((2, 2)), "mu": np.ones((2, 2))},
    "experiments.recorded.load": {"path": RECORDING},
    "experiments.recorded.replay": {"recording": experiments.recorded.load(RECORDING)},
    "tasks.assemble": {"inputs": INPUTS, "shown": NOISE, "truth": NOISE},
    "tasks.prefix": {"tokens": jnp.ones((2, 6, 3)), "length": 3},
    "tasks.InContextInWeightMixture.compose": COMPOSED,
    "tasks.SingleIndexRegression.compose": COMPOSED,
    "tasks.InContextRegression.compose": COMPOSED,
    "trajectory.provenance": {"configuration": {}},
    "store.export": {"path": "exported"},
    "theory.units.direction_schedule": {"task": TEACHER, "outer": np.full((2, 1, 1), 0.1)},
    "theory.units.unit_schedule": {"task": TEACHER, "outer": np.full((2, 1, 1), 0.1)},
    "theory.units.ray_schedule": {"inputs": np.eye(2), "labels": np.ones(2), "inner": np.full((2, 2), 0.1)},
    "analysis.unit_drops": {"task": TEACHER, "model": models.PolynomialUnits(jnp.ones((2, 1, 1)), jnp.ones((2, 2)))},
    "theory.softmax.flow_end": {"omega": np.array([[0.01, 0.004], [0.004, 0.01]]), "mu": np.full((2, 2), 0.3)},
    "figures.expected": {"relation": "=", "predicted": 1.0, "tolerance": 0.1},
    "store.Shard": {"common": {"a": 1}, "fields": {"b": [1, 2]}},
    "store.Shard.take": {"rows": np.array([1])},
    "store.Store.known": {"names": np.zeros((1, 16), np.uint8)},
    "store.Store.lookup": {"names": np.zeros((1, 16), np.uint8)},
    "store.Store.merge": {"other": "."},
    "sweeps.sweep": {"study": {"task": {"dim": 2}, "training": {"kind": "descent", "steps": 2}}},
    "dynamics.Ensemble.like": {"template": SEPARATE, "weights": np.ones((2, 16))},
    "dynamics.Ensemble": {"stacked": SEPARATE, "size": 2},
    "dynamics.Ensemble.member": {"number": 1},
    "dynamics.Ensemble.of": {"members": [SEPARATE, SEPARATE]},
    "models.require_linear": {"measured": models.measured_map(SEPARATE, BATCH)},
    "figures.add_figure": {"path": __file__},
    "models.ConvolutionalAttention.__call__": {"example": jnp.ones(4)},
    **{
        f"models.{owner}.predict": {"inputs": jnp.ones((3, 2)), "labels": jnp.ones(3), "query": jnp.ones(2)}
        for owner in ("MergedAttention", "MultiHeadAttention", "SeparateAttention")
    },
    "models.SpectralAttention.predict": {
        "inputs": jnp.ones((3, 4)),
        "labels": jnp.ones((3, 2)),
        "query": jnp.ones(4),
    },
    "models.ConvolutionalAttention.with_weights": {
        "weights": models.ConvolutionalAttention.from_separate(SEPARATE).weights()
    },
    "models.CubicMLP.__call__": {"example": jnp.ones(4)},
    "models.CubicMLP.with_weights": {"weights": models.CubicMLP.from_merged(MERGED).weights()},
    "models.MergedAttention.from_matrices": {"outputs": 1},
    "models.MergedAttention.with_weights": {"weights": MERGED.weights()},
    "models.MultiHeadAttention": {"key": jnp.ones((2, 2, 3))},
    "models.MultiHeadAttention.from_matrices": {"key": jnp.ones((2, 2, 3))},
    "models.MultiHeadAttention.with_weights": {
        "weights": models.MultiHeadAttention.random(dim=2, outputs=1, heads=2, scale=0.1, key=KEY).weights()
    },
    "models.SeparateAttention": {"key": jnp.ones((2, 2, 3))},
    "models.SeparateAttention.from_matrices": {"key": jnp.ones((2, 2, 3)), "outputs": 1},
    "models.SeparateAttention.with_weights": {"weights": SEPARATE.weights()},
    "models.SpectralAttention": {"key": jnp.ones((2, 2))},
    "models.SpectralAttention.__call__": {"example": jnp.ones((4, 6))},
    "models.SpectralAttention.with_weights": {"weights": SPECTRAL.weights()},
    "objectives.Moments.of_chunks": {"chunks": [BATCH]},
    "tasks.concatenate": {"batches": [BATCH]},
    "tasks.MultiTaskRegression.compose": {
        **COMPOSED,
        "inputs": jnp.ones((2, 11, 4)),
        "tasks": jnp.ones((2, 4, 2)),
        "noise": jnp.ones((2, 11, 2)),
    },
    "theory.linear.drop_schedule": {"values": SEPARATE},
    "theory.linear.head_course": {"pairs": np.array([0.1])},
    "theory.linear.white_course": {"task": WHITE, "initial_weight": 0.01},
    "theory.linear.white_half_drop_time": {"task": WHITE, "initial_weight": 0.01},
    "theory.softmax.warm_up_path": {
        "omega": np.full(2, 0.01),
        "mu": np.full(2, 0.01),
        "ratios": np.full((2, 2), 1.1),
    },
    "theory.softmax.approximation_errors": {"task": tasks.MultiTaskRegression((20, 20), 1.0, 1000)},
    "theory.softmax.exact_heads": {"task": tasks.MultiTaskRegression((2,), 1.0, 10), "omega": np.full((2, 1), 0.1)},
    "theory.softmax.heads_needed": {"supports": np.eye(2, dtype=bool)},
    "theory.softmax.flat_heads_loss": {"supports": np.eye(2, dtype=bool)},
    "theory.softmax.valley_omega": {"times": np.array([1.0, 2.0])},
    "theory.softmax.exact_loss": {"omega": np.eye(2), "mu": np.eye(2)},
    "theory.linear.new_head_time": {"target": 0.5},
    "theory.linear.new_pair_time": {"target": 0.5},
    "theory.linear.predicted_staircase": {"drops": []},
    "theory.softmax.nonlinear_leading_loss": {"head": theory.softmax.HeadWeights(0.1, 0.5)},
    "theory.softmax.nonlinear_loss": {"head": theory.softmax.HeadWeights(0.1, 0.5)},
}
"""Arguments of single functions, where those by name would not do."""

AS_IT_IS = {
    "experiments.Experiment.from_dict(source=None)",
    "experiments.Experiment.from_dict(source=object)",
    "objectives.Moments.of_task(sequences=trillion)",
    "tasks.check_moments(sequences=trillion)",
    "theory.softmax.spectral_flow(loss_factor=twenty digits)",
    "theory.softmax.hermite_coefficients(target=class)",
    "theory.softmax.nonlinear_loss(target=class)",
}
"""Calls that take long because they are asked to, call what was given, whose errors are its own, or take any name."""

LEFT_OUT = re.compile(
    r"^(experiments\.published|native|dynamics\.fast|analysis\.style)|(trajectory\.build|"
    r"figures\.(moved|tallies|coverage|as_setting)|"
    r"figures\.(slug|Figure\w*)|tasks\.attention_scale|models\.is_proved)$|"
    r"(CubicMLP|ConvolutionalAttention)\.predict|(directions|quadratic|theory_weights|freeze_imports)$|"
    r"(Mixture|Task\w*|Index\w*)\.moments$|\.(closed_form|drawn_blocks)$|Store\.(describe|experiment)$|"
    r"sweeps\.(table_of|short_name|plan_sweep|run_job|scalars_in)$|"
    r"(correction_of|correction_sums|of_parts|prepare_lsoda|theory_of)$|explorer\.explore$|"
    r"experiments\.(add_experiment_flags|experiment_from|seeds_of|find_kind|note_of|kinds|register|load_kinds|sample_of|"
    r"theory_task|Experiment\.(read|command|build_\w+|resume))$"
)
"""What the rooms call of each other, is for the command line or for developers, takes nothing, or is always refused."""


def public() -> Iterator[tuple[str, Callable]]:
    """Every public function, and of the classes that users construct the constructor and the public methods."""
    seen: set[int] = set()
    constructed = {type(example) for example in EXAMPLES}
    for package in pkgutil.walk_packages(stepwell.__path__, "stepwell."):
        if re.search(r"\._|papers\.|cli|__main__", package.name):
            continue
        for name, value in [*vars(importlib.import_module(package.name)).items()]:
            full = f"{package.name.removeprefix('stepwell.')}.{name}"
            ours = (getattr(value, "__module__", None) or "").startswith("stepwell")
            if name.startswith("_") or not ours or id(value) in seen or LEFT_OUT.search(full):
                continue
            seen.add(id(value))
            if inspect.isroutine(value):
                yield full, value
            elif inspect.isclass(value) and value in constructed:
                yield full, value
                yield from _methods(full, value)


def _methods(full: str, owner: type) -> Iterator[tuple[str, Callable]]:
    example = next(one for one in EXAMPLES if type(one) is owner)
    for name in dir(owner):
        public = not name.startswith("_") or name == "__call__"
        if public and not LEFT_OUT.search(f"{full}.{name}") and callable(getattr(example, name)):
            yield f"{full}.{name}", getattr(example, name)


def parameters(function: Callable) -> dict[str, Any]:
    """The annotations of the parameters by name, with those of `**options`; and which must be given."""
    hints: dict[str, tuple[Any, bool]] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            if typing.get_origin(parameter.annotation) is typing.Unpack:
                options = typing.get_type_hints(typing.get_args(parameter.annotation)[0])
                hints.update({name: (hint, False) for name, hint in options.items()})
        else:
            hints[parameter.name] = parameter.annotation, parameter.default is parameter.empty
    return hints


def right(full: str, name: str, hint: Any) -> Any:
    """An argument that the function should take."""
    if name in SPECIAL.get(full, {}):
        return SPECIAL[full][name]
    for one in typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,):
        if isinstance(one, typing.TypeVar):
            one = one.__bound__
        if isinstance(one, type) and issubclass(one, AbstractArray) and name != "key":
            axes = [axis for axis in one.dim_str.split() if not axis.startswith(("*", "..."))]
            shape = tuple(int(axis) if axis.isdigit() else SIZES.get(axis, 2) for axis in axes)
            if name in BY_NAME and np.shape(BY_NAME[name]) == shape:
                return BY_NAME[name]
            return np.full(shape, 0.1) if "ndarray" in str(one) else jnp.full(shape, 0.1)
        if getattr(one, "_is_protocol", False):
            return MULTI if "Multi" in str(one) else REGRESSION
        if isinstance(one, type) and one.__module__.startswith(("stepwell", "xarray")):
            return next((example for example in EXAMPLES if isinstance(example, one)), None)
    if name in BY_NAME:
        return BY_NAME[name]
    return {int: 2, float: 0.5, bool: True, str: "a"}.get(hint)


def outcome(call: Callable[[], Any]) -> str:
    """What came of a call: "accepted", "refused: …" as it should be, or something else."""
    signal.alarm(SECONDS)
    try:
        result = call()
        if isinstance(result, collections.abc.Iterator):
            next(result, None)
    except (theory.IntegrationFailed, dynamics.RunFailed):
        return "refused: numbers for which the integration fails"
    except InvalidInput as error:
        message = str(error)
        return (
            f"refused: {message}"
            if "\n" not in message and 20 < len(message) < 1000
            else f"a message of this kind: {message!r}"
        )
    except BaseException as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
    finally:
        signal.alarm(0)
    return "accepted"


def asks_for_something(hint: Any) -> bool:
    """Whether an annotation says that neither None nor any object will do."""
    allowed = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return not {Any, type(None), inspect.Parameter.empty}.intersection(allowed)


def check(full: str, function: Callable) -> Iterator[str]:
    hints = parameters(function)
    base = {name: right(full, name, hint) for name, (hint, required) in hints.items() if required}
    base |= {name: right(full, name, hints[name][0]) for name in ("progress", "out", "until", "rate") if name in hints}
    problem = outcome(lambda: function(**base))
    if problem != "accepted":
        yield f"{full}: what is right is refused: {problem}; {' '.join(str(base).split())}"
        return
    for name, (hint, _) in hints.items():
        for kind, value in WRONG.items():
            if f"{full}({name}={kind})" in AS_IT_IS:
                continue
            problem = outcome(lambda name=name, value=value: function(**{**base, name: value}))
            nonsense = kind in ("None", "object") and asks_for_something(hint)
            if not problem.startswith("refused: ") and (problem != "accepted" or nonsense):
                yield f"{full}({name}={kind}): {problem}"


def main(wanted: list[str]) -> None:
    def late(*_: Any) -> None:
        raise TimeoutError(f"it takes more than {SECONDS} seconds")

    signal.signal(signal.SIGALRM, late)
    os.environ.pop("STEPWELL_STORE", None)  # calls are made in folders of their own
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        saved = trajectory.save(RUN, Path(folder) / "saved.nc").read_bytes()
    for full, function in public():
        if not wanted or full.startswith(tuple(f"{name}." for name in wanted)):
            with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
                Path("saved.nc").write_bytes(saved)
                for line in check(full, function):
                    print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
