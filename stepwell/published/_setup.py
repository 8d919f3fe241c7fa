"""From the published flags to a task, a model and objectives, by the published script's conventions."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from stepwell._types import Normalisation, RandomKey
from stepwell.models import AbstractCubicModel, AbstractModel, SpectralAttention, class_of
from stepwell.objectives import AbstractObjective, Moments, Population, ReducedSampled, Sampled, Spectral
from stepwell.tasks import (
    AbstractTask,
    ContextLengths,
    InContextInWeightMixture,
    InContextRegression,
    MultiTaskRegression,
    covariance,
    published_covariance,
    random_rotation,
)
from stepwell.theory import softmax

from ._beyond import NOTHING, Beyond
from ._flags import Engine, Published, infinite

IN_WEIGHT, IN_CONTEXT, TRACKED = "in_weight_test_loss", "in_context_test_loss", "tracked_value"
"""Names of curves in a trajectory, beside `loss`."""


class Keys(NamedTuple):
    """A random key for each thing that is drawn: two of the task, three of data, one of initial weights."""

    initialisation: RandomKey
    train: RandomKey
    in_weight_test: RandomKey
    in_context_test: RandomKey
    covariance: RandomKey
    fixed_task: RandomKey


class Setup(NamedTuple):
    """What is to be trained: the task, the mixture that test sets are drawn from (or None), the initial model, keys.

    Of several seeds it is the first; `members` are all.
    """

    flags: Published
    engine: Engine
    task: AbstractTask
    tested: InContextInWeightMixture | None
    model: AbstractModel
    keys: Keys
    beyond: Beyond = NOTHING

    @property
    def normalisation(self) -> Normalisation:
        return normalisation_of(self.flags, self.beyond)

    @property
    def members(self) -> "list[Setup]":
        """One for each seed, with its own covariance, sequences and initial weights."""
        if self.beyond.seeds is None:
            return [self]
        alone = dataclasses.replace(self.beyond, seeds=None)
        return [set_up(dataclasses.replace(self.flags, seed=seed), self.engine, alone) for seed in self.beyond.seeds]


def normalisation_of(flags: Published, beyond: Beyond) -> Normalisation:
    """The published script divides by nothing, and with varying lengths by the number of tokens.

    With given lengths of a mixture attention is divided by the context pairs, as the theory has it.
    """
    return "1/tokens" if flags.vary_len else "none" if beyond.task.context is None else "1/N"


def set_up(flags: Published, engine: Engine, beyond: Beyond = NOTHING) -> Setup:
    """Build what the flags describe: the task, the initial model and random keys.

    **Arguments:**

    - `flags`: the published flags, which `check` has accepted.
    - `engine`: how the loss will be computed, as `engine_for` returns it.
    - `beyond`: what the published flags cannot say, as `resolve` returns it; by default nothing.

    **Returns:** the `Setup`, from which `train` starts.

    **Example:**

    >>> import argparse
    >>> from stepwell.published import Published, add_published_flags, training
    >>> parser = argparse.ArgumentParser()
    >>> actions = add_published_flags(parser)
    >>> setup = training.set_up(Published.of(parser.parse_args(["--in_dim", "2", "--head_num", "3"])), "moments")
    >>> {name: weight.shape for name, weight in setup.model.weights().items()}
    {'value': (3, 1, 3), 'key_query': (3, 3, 2)}
    """
    keys = keys_of(flags.seed)
    if beyond.several:
        task, model = _regressions(flags, beyond, keys)
        return Setup(flags, engine, task, None, model, keys, beyond)
    lam, omega = _covariances(flags, beyond, keys.covariance)
    lengths = ContextLengths.uniform(flags.context) if flags.vary_len else ContextLengths(flags.context)
    if beyond.task.context is not None:
        lengths = ContextLengths(beyond.task.context)
    task: AbstractTask = InContextRegression(
        lam,
        lengths,
        task_covariance=omega,
        noise_variance=beyond.task.noise,
        outputs=flags.out_dim,
        centred=True,
        whitened=True,
    )
    tested = None
    if flags.icl != 1 or flags.testset_size:
        # Test sets are always of whole sequences, as in the published script.
        tested = InContextInWeightMixture.random(
            lam, float(flags.icl), flags.context, outputs=flags.out_dim, centred=True, key=keys.fixed_task
        )
    if tested is not None and flags.icl != 1:
        task = InContextInWeightMixture(lam, tested.fixed_task, float(flags.icl), lengths, centred=True)
    model = initial_model(flags, keys.initialisation, normalisation_of(flags, beyond))
    return Setup(flags, engine, task, tested, model, keys, beyond)


def _covariances(flags: Published, beyond: Beyond, key: RandomKey) -> tuple[np.ndarray, np.ndarray | None]:
    """Of inputs and of task vectors (or None, the identity), with the same random eigenvectors."""
    lam, omega = beyond.task.eigenvalues, beyond.task.task_eigenvalues
    inputs = published_covariance(flags.in_dim, white=flags.white_cov, key=key)
    if lam is None and omega is None:
        return inputs, None
    vectors = np.eye(flags.in_dim) if flags.white_cov else random_rotation(flags.in_dim, key=key)
    if lam is not None:
        inputs = covariance(lam, vectors)
    return inputs, None if omega is None else covariance(omega, vectors)


def _regressions(flags: Published, beyond: Beyond, keys: Keys) -> tuple[MultiTaskRegression, SpectralAttention]:
    r"""Several regressions, and softmax attention on them by its eigenvalues.

    $\omega_i^h$ is uniform between 0 and `--init`, and for the strongest head of each task `--init` itself;
    $\mu = \rho^*\omega$ is on the ray of the warm-up. It is the start of which `stepwell predict --dims` gives times.
    """
    dims, strengths = beyond.task.dims, beyond.task.strengths
    assert dims is not None and strengths is not None
    task = MultiTaskRegression(dims, np.array(strengths), flags.context, noise_variance=beyond.task.noise)
    drawn = np.asarray(jax.random.uniform(keys.initialisation, (flags.head_num, len(dims)), minval=1e-3))
    omega = flags.init * drawn / drawn.max(axis=0)
    return task, SpectralAttention.balanced(omega, softmax.emergence.warm_up(task).ratio * omega, dims)


def keys_of(seed) -> Keys:
    """The random keys of a seed, or of many.

    **Arguments:**

    - `seed`: the flag `--seed`, or an array of seeds.

    **Returns:** the `Keys`, each of the shape of `seed`.

    **Example:**

    >>> import numpy as np
    >>> from stepwell.published import training
    >>> training.keys_of(np.arange(5)).initialisation.shape
    (5,)
    """

    def key(number: int) -> Any:
        """The key of two words: another number, another key. (Splitting would have to be compiled.)"""
        seeds = np.asarray(seed, dtype=np.uint32)
        return jax.random.wrap_key_data(jax.device_put(np.stack([np.full_like(seeds, number), seeds], axis=-1)))

    return Keys(*map(key, range(len(Keys._fields))))


def initial_model(flags: Published, key: RandomKey, normalisation: Normalisation = "none") -> AbstractCubicModel:
    """Gaussian weights of scale `init`, label blocks zero."""
    kind = flags.kind
    options = kind.start_options(
        rank=flags.rank,
        start=flags.start_rule,
        activation="softmax" if flags.softmax else "linear",
        normalisation=normalisation,
    )
    with warnings.catch_warnings(action="ignore"):  # of a rank above the dimension, which the command line reports
        return class_of(kind).random(
            dim=flags.in_dim,
            heads=flags.head_num,
            outputs=flags.out_dim,
            scale=flags.init,
            key=key,
            **options,
        )


def objective(setup: Setup) -> AbstractObjective:
    """The training loss, by the engine chosen.

    **Arguments:**

    - `setup`: what is to be trained, as `set_up` builds it.

    **Returns:** the loss, for `descend` or `flow`.

    **Example:**

    >>> from stepwell.published import run_in, training
    >>> flags, beyond, engine, until = run_in({"engine": "population", "init": 0.0})
    >>> setup = training.set_up(flags, engine, beyond)
    >>> print(f"{training.objective(setup)(setup.model):.3f}")
    1.000
    """
    if isinstance(setup.task, MultiTaskRegression):
        if setup.engine == "sampled":
            return ReducedSampled(setup.task, setup.flags.trainset_size, key=setup.keys.train)
        return Spectral(setup.task)
    if infinite(setup.engine):
        return Population(setup.task, setup.normalisation)
    return _measured(setup, setup.task, setup.flags.trainset_size, setup.keys.train)


def observables(setup: Setup) -> dict[str, Callable[[Any], Any]]:
    """Curves to observe, by name: test losses and the tracked value weights, where the flags ask for them."""
    curves: dict[str, Callable[[Any], Any]] = {}
    if setup.tested is not None and setup.flags.testset_size:
        tests = {
            IN_WEIGHT: (setup.tested.in_weight_test(), setup.keys.in_weight_test),
            IN_CONTEXT: (setup.tested.in_context_test(), setup.keys.in_context_test),
        }
        for name, (task, key) in tests.items():
            curves[name] = _measured(setup, task, setup.flags.testset_size, key)
    if setup.flags.track_value:
        adapter = class_of(setup.flags.kind)

        def tracked_value(model: AbstractModel) -> jax.Array:
            r"""$v_i$, the last entry of $W^V_i$, for each head."""
            return adapter.theory_weights(model.weights())["values"]

        curves[TRACKED] = tracked_value
    return curves


def _measured(setup: Setup, task: AbstractTask, size: int, key: RandomKey) -> AbstractObjective:
    cubic = setup.flags.kind.layout == "features"
    if setup.engine == "sampled":
        batch = task.sample(size, key=key)
        return Sampled(batch.cubic_features(setup.normalisation) if cubic else batch)
    return Moments.of_task(
        task, size, features="cubic" if cubic else "full", normalisation=setup.normalisation, key=key
    )
