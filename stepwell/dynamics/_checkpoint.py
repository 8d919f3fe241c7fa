"""Checkpoints of a run: when its state is saved, and to which run it belongs."""

import dataclasses
import hashlib
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from stepwell import native
from stepwell._util.cache import folder_name
from stepwell._util.errors import AnotherRun, InvalidInput
from stepwell._util.files import write_bytes
from stepwell._util.versions import NUMERICS, versions

from ._checkpoint_format import Contents, owner, pack, unpack
from ._ensemble import is_key
from ._fingerprint import fingerprint

_EVERY = 30.0
"""Seconds between two saves, at the least."""
_SHARE = 100
"""Saves take one part in so many of the time: each waits so many times as long as it will take."""
_SPEED = 1e8
"""Bytes that are saved in a second, as far as not known from the last save."""
_QUOTED = 40
"""A refusal quotes arguments of up to so many letters; of others it says that they differ."""
_NAMED = 4
"""How many arguments that differ a refusal names."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A file in which `descend`, `online` and `flow` save the state of a long run, given to them as `checkpoint=`.

    A path in its place means `Checkpoint(path)`. The run saves its whole state about every half minute, at less than
    one hundredth of its time, and when it ends or is interrupted by Ctrl-C. The same call after that, in the same or
    another process, continues from the file, and returns the trajectory of a run that was never interrupted, bit for
    bit. If the run had ended, it returns the trajectory at once.

    The file belongs to one run. One of a run with other arguments, or made by other versions of the libraries, is
    refused with `InvalidInput`, and left as it is. Models, tasks, objectives and arrays are compared by all they hold;
    functions, such as observables and optax optimizers, by their code and the values they close over, but not by what
    they read from their module; of objects of your own the class and what `pickle` would keep are compared, but not the
    code.
    `progress` and `configuration` may differ. On another kind of processor the run continues with a warning: its last
    digits may differ.

    If the file cannot be saved, for example because the disk is full, a warning says so and the run goes on.

    **Arguments:**

    - `path`: the name of the file. Its folder must exist.
    - `resume`: whether to continue from a checkpoint that is there. If not, the run starts anew, and the checkpoint is
      replaced when the run first saves its own.

    **Example:**

    The second call finds the run finished, and takes no step.

    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=0.1)
    >>> def run(checkpoint):
    ...     objective = sw.objectives.Population(task)
    ...     return sw.dynamics.descend(model, objective, rate=0.05, steps=600, progress=False, checkpoint=checkpoint)
    >>> checkpoint = sw.dynamics.Checkpoint("run.checkpoint")
    >>> run(checkpoint).identical(run(checkpoint))
    True
    """

    path: str | os.PathLike
    resume: bool = True

    @property
    def file(self) -> Path:
        """The path, as an object that can say whether the file exists, and remove it."""
        return Path(self.path)


CheckpointPath = str | os.PathLike | Checkpoint | None


class Saves:
    """The saved states of one run; without a path nothing is saved.

    `state` is what was saved before the run began, or None. Training loop and solvers call `save_if_due` where their
    state is complete, with a function that returns it: a dictionary of arrays and plain values.
    """

    def __init__(
        self, path: Path | None = None, run: "_Run | None" = None, state: Any = None, *, replace: bool = False
    ):
        self.state = state
        self._path = path
        self._run = run
        self._replace = replace
        self._last = time.monotonic()
        self._next = self._last + _EVERY
        self._took, self._bytes = 0.0, 0  # of the last save
        self._warned = False

    def save_if_due(self, state: Callable[[], dict[str, Any]]) -> None:
        """Save, if the last time was long enough ago for what it takes."""
        if time.monotonic() >= self._next:
            self._save(state, wait=True)

    def save(self, state: Callable[[], dict[str, Any]]) -> None:
        """Save now."""
        self._save(state, wait=False)

    def _save(self, state: Callable[[], dict[str, Any]], *, wait: bool) -> None:
        """If it fails, a warning says so the first time, and the run goes on."""
        if self._path is None or self._run is None:
            return
        begun = time.monotonic()
        try:
            current = state()
            size = sum(leaf.nbytes for leaf in jax.tree.leaves(current) if isinstance(leaf, np.ndarray))
            takes = self._took + max(0, size - self._bytes) / _SPEED
            self._next = self._last + max(_EVERY, _SHARE * takes)
            if wait and begun < self._next:
                return
            if not self._replace and self._path.exists() and owner(self._path) != self._run.digest:
                raise InvalidInput("another file has come in its place")
            data = pack(Contents(self._run.digest, self._run._asdict(), current))
            write_bytes(self._path, data)
            self._replace, self._bytes = False, len(data)
        except (OSError, MemoryError, InvalidInput) as error:
            if not self._warned:
                reason = getattr(error, "strerror", None) or error
                message = f"the checkpoint {self._path} cannot be saved ({reason}); the run goes on"
                warnings.warn(message, RuntimeWarning, stacklevel=4)
            self._warned = True
        self._last = time.monotonic()
        self._took = self._last - begun
        self._next = self._last + max(_EVERY, _SHARE * self._took)


class _Run(NamedTuple):
    """What determines a run: a digest of each argument by name, those that are short as texts, and beside the arguments
    what the last digits depend on."""

    digests: dict[str, str]
    texts: dict[str, str]
    machine: dict[str, str]

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> "_Run":
        libraries = {f"version of {name}": number for name, number in versions().items() if name != "xarray"}
        arguments = {**arguments, **libraries, "version of the numerics": NUMERICS}
        texts = {name: str(value) for name, value in arguments.items() if isinstance(value, int | float | str)}
        return cls(
            digests={name: fingerprint(value) for name, value in arguments.items()},
            texts={name: text for name, text in texts.items() if len(text) <= _QUOTED},
            machine=_machine(),
        )

    @property
    def digest(self) -> bytes:
        """One of all arguments."""
        return hashlib.sha256(repr(sorted(self.digests.items())).encode()).digest()

    def compare(self, stored: "_Run") -> str:
        """How the arguments of a stored run differ from those of this one, in words."""
        names = dict.fromkeys([*self.digests, *stored.digests])
        different = [name for name in names if self.digests.get(name) != stored.digests.get(name)]
        words = []
        for name in different[:_NAMED]:
            there, here = stored.texts.get(name), self.texts.get(name)
            words.append(f"different {name}" if None in (there, here) else f"{name} {there} there and {here} here")
        return ", ".join(words) + (" and more" if len(different) > _NAMED else "")


def open_saves(checkpoint: CheckpointPath, arguments: dict[str, Any]) -> Saves:
    """The saves of the run with these arguments: all that its numbers depend on.

    A file that is no checkpoint, is damaged or belongs to another run is refused.
    """
    if checkpoint is None:
        return Saves()
    if not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)
    path = checkpoint.file
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InvalidInput(f"the folder {path.parent} of the checkpoint cannot be written to; give another path")
    run = _Run.of(arguments)
    if not path.exists():
        return Saves(path, run)
    if not checkpoint.resume and path.is_file() and owner(path) is not None:
        return Saves(path, run, replace=True)
    contents = unpack(path)
    stored = _Run(*(contents.about.get(name, {}) for name in _Run._fields))
    if contents.run != run.digest:
        raise AnotherRun(
            f"{path} is the checkpoint of another run ({run.compare(stored)}); give the same arguments to continue "
            "it, or another path, or remove the file"
        )
    changed = [name for name, value in run.machine.items() if stored.machine.get(name) != value]
    if changed:
        warnings.warn(
            f"the checkpoint {path} was saved with another {', another '.join(changed)}; the run continues, and may "
            "differ in its last digits from one that was not interrupted",
            RuntimeWarning,
            stacklevel=2,
        )
    return Saves(path, run, contents.state)


def _machine() -> dict[str, str]:
    variables = ("XLA_FLAGS", "STEPWELL_NATIVE", "STEPWELL_NATIVE_WITHOUT")
    return {
        "processor": folder_name(),
        "number of cores": str(native.cores()),
        "set of devices": f"{jax.local_device_count()} {jax.default_backend()}",
        "jax_disable_most_optimizations": str(jax.config.read("jax_disable_most_optimizations")),
        **{name: os.environ.get(name, "") for name in variables},
    }


def arrays_of(tree: Any) -> list[np.ndarray]:
    """The arrays of a state, in order; of random keys their words."""
    leaves = jax.tree.leaves(eqx.filter(tree, _is_array))
    return [np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf) for leaf in leaves]


def with_arrays(tree: Any, arrays: list[np.ndarray]) -> Any:
    """A state like `tree` with these arrays, which `arrays_of` returned of one like it."""
    own, rest = eqx.partition(tree, _is_array)
    leaves, structure = jax.tree.flatten(own)
    made = [
        jax.random.wrap_key_data(jnp.asarray(new), impl=jax.random.key_impl(old)) if is_key(old) else new
        for old, new in zip(leaves, arrays, strict=True)
    ]
    if any((old.shape, old.dtype) != (new.shape, new.dtype) for old, new in zip(leaves, made, strict=True)):
        raise InvalidInput("the checkpoint has arrays of other shapes than the run; remove it to start anew")
    return eqx.combine(jax.tree.unflatten(structure, made), rest)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)
