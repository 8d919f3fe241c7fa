"""From an experiment to its objects, and the random keys that they are drawn from."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._experiment import Built, Experiment
from ._kind import find_kind

if TYPE_CHECKING:
    from stepwell._util.types import RandomKey

NAMES = ("initialization", "train", "in_weight_test", "in_context_test", "task", "fixed_task")
"""Of the keys, in the order of their numbers."""


class Keys:
    """A random key for each thing that is drawn: initial weights, data, test data and the task.

    A key is made when it is asked for: most runs need two or three.
    """

    __slots__ = ("_seeds",)

    initialization: "RandomKey"
    train: "RandomKey"
    in_weight_test: "RandomKey"
    in_context_test: "RandomKey"
    task: "RandomKey"
    fixed_task: "RandomKey"

    def __init__(self, seeds: Any):
        self._seeds = seeds

    def __getattr__(self, name: str) -> Any:
        if name not in NAMES:
            raise AttributeError(f"there is no key {name}; there are {', '.join(NAMES)}")
        import jax
        import numpy as np

        seeds = np.asarray(self._seeds, dtype=np.uint32)
        words = np.stack([np.full_like(seeds, NAMES.index(name)), seeds], axis=-1)
        return jax.random.wrap_key_data(jax.device_put(words))  # splitting would have to be compiled


def keys_of(seed: Any) -> Keys:
    """Return the random keys of a seed, or of an array of seeds.

    Key number i of seed s has the two words (i, s), so that the key of the initial weights is `jax.random.key(seed)`.

    **Arguments:**

    - `seed`: an integer from 0 to 2**32 - 1, or an array of them.

    **Returns:** the `Keys`, each of the shape of `seed`.

    **Example:**

    >>> import jax
    >>> from stepwell.experiments import keys_of
    >>> bool(keys_of(3).initialization == jax.random.key(3))
    True
    """
    return Keys(seed)


def build(experiment: Experiment) -> Built:
    """Task, initial model and objective of an experiment."""
    keys = keys_of(experiment.seed)
    task = build_task(experiment, keys)
    model = build_model(experiment, task, keys)
    return Built(task, model, build_objective(experiment, task, model, keys))


def build_task(experiment: Experiment, keys: Keys) -> Any:
    """The task alone."""
    return _made("task", experiment, keys, "task")


def build_model(experiment: Experiment, task: Any, keys: Keys) -> Any:
    """The model at its initial weights."""
    return _made("model", experiment, keys, "initialization", task=task)


def build_objective(experiment: Experiment, task: Any, model: Any, keys: Keys) -> Any:
    """The training loss."""
    context = {"task": task, "model": model, "normalization": normalization_of(experiment)}
    return _made("objective", experiment, keys, "train", **context)


def normalization_of(experiment: Experiment) -> Any:
    """What attention is divided by."""
    return experiment.model.get("normalization") or "1/N"


def _made(section: Any, experiment: Experiment, keys: Keys, key: str, **context: Any) -> Any:
    """What a builder makes of its fields and of what it asks for; a key is made only if it is asked for."""
    values = getattr(experiment, section)
    kind = find_kind(section, values.kind)
    context["keys"] = keys
    wanted = [getattr(keys, key) if name == "key" else context[name] for name in kind.wants]
    return kind.build(*wanted, **{name: values[name] for name in kind.fields})


def observables(experiment: Experiment, task: Any, keys: Keys) -> dict[str, Callable[[Any], Any]]:
    """Curves to observe, by name: test losses and value weights, where they are asked for."""
    record, curves = experiment.record, {}
    if record.test_sequences:
        from stepwell.tasks import InContextInWeightMixture

        context = experiment.task.context
        longest = max(context) if isinstance(context, tuple) else context
        # Test sets are of whole sequences, whatever the lengths trained on.
        tested = InContextInWeightMixture.random(
            task.covariance, 1.0, longest, outputs=task.outputs, centered=task.centered, key=keys.fixed_task
        )
        tests = {
            IN_WEIGHT: (tested.in_weight_test(), keys.in_weight_test),
            IN_CONTEXT: (tested.in_context_test(), keys.in_context_test),
        }
        sampled = experiment.objective.kind in ("sampled", "online")
        kind = find_kind("objective", "sampled" if sampled else "moments")
        model = build_model(experiment, task, keys)
        for name, (test, key) in tests.items():
            given = {"task": test, "model": model, "normalization": normalization_of(experiment), "key": key}
            curves[name] = kind.build(*(given[one] for one in kind.wants), sequences=record.test_sequences)
    if record.value_weights:
        curves[VALUE_WEIGHTS] = value_weights
    return curves


IN_WEIGHT, IN_CONTEXT, VALUE_WEIGHTS = "in_weight_test_loss", "in_context_test_loss", "value_weight"
"""Names of curves in a trajectory, beside `loss`."""


def value_weights(model: Any) -> Any:
    r"""$v_i$, the last entry of $W^V_i$, for each head."""
    return type(model).theory_weights(model.weights())["values"]
