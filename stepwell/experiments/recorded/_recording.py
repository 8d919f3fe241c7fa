"""A recording: its model, data, initial and final weights, and the losses in between. Loaded and checked."""

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.text import listed, shown
from stepwell._util.types import Activation
from stepwell.models import CubicMLP, MergedAttention, MultiHeadAttention, SeparateAttention

from ._npz import Archive

Layout = Literal["tokens", "features", "context"]
"""What a model reads, as a recording holds it (docs/recordings.md): whole sequences; cubic features of them; or, in
recordings of the softmax paper's setting, contexts beside queries."""


@dataclass(frozen=True)
class Kind:
    """A model in recordings.

    - `name`: in the `config` of a recording, as are names that begin with `prefixes`; messages say `recorded_name`.
    - `build`: makes the model of whole matrices shaped as `recorded` says, `outputs` and the settings of attention.
    - `recorded`: its weights, and the shape of each in a recording. H heads, E width of a token, O outputs, R rank,
      F features; V and R are a head's widths, which may differ.
    - `last_rows`: the weights of which the model trains the last rows. Of others it trains the first rows and columns.
    """

    name: str
    build: Callable[..., Any]
    layout: Layout
    recorded: dict[str, str]
    last_rows: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    recorded_name: str = ""

    @property
    def is_attention(self) -> bool:
        """Whether it attends to tokens, and so has an activation and a normalization."""
        return self.layout != "features"

    def is_called(self, name: Any) -> bool:
        """Whether a recording means this kind by `name`."""
        return name == self.name or (isinstance(name, str) and bool(self.prefixes) and name.startswith(self.prefixes))


def _network(readout: Array, hidden: Array, *, outputs: int, **_: Any) -> CubicMLP:
    """With several outputs the published features are only dim² in number. Zeros are appended to the weights up to the
    next number of features that the class allows, and stay zero where those features are zero."""
    features = outputs * math.ceil((hidden.shape[1] / outputs) ** 0.5) ** 2
    return CubicMLP(readout, jnp.pad(hidden, ((0, 0), (0, features - hidden.shape[1]))))


def _multihead(*, outputs: int, activation: Any, normalization: Any, **weights: Array) -> MultiHeadAttention:
    """Recorded keys and values may be of different width: rows of zeros make them equal, and stay zero, as each meets
    zeros in the matrix that it is multiplied with. The recorded score is over the root of the token's width."""
    width = max(weights["key"].shape[1], weights["value"].shape[1])

    def padded(name: str, axis: int) -> Array:
        missing = [(0, 0)] * 3
        missing[axis] = (0, width - weights[name].shape[axis])
        return jnp.pad(weights[name], missing)

    rows = {name: padded(name, 2 if name == "output" else 1) for name in weights}
    options = {"activation": activation, "normalization": normalization}
    return MultiHeadAttention.from_matrices(**rows, **options, score_scale=weights["key"].shape[2] ** -0.5)


_MERGED = {"value": "H E E", "key_query": "H E E"}
_SEPARATE = {"value": "H E E", "key": "H R E", "query": "H R E"}
_WHOLE = {"query": "H R E", "key": "H R E", "value": "H V E", "output": "H O V"}
KINDS = (
    Kind("attnM", MergedAttention.from_matrices, "tokens", _MERGED, ("value",)),
    Kind("attnS", SeparateAttention.from_matrices, "tokens", _SEPARATE, ("value",)),
    Kind("mlp", _network, "features", {"hidden": "H F", "readout": "O H"}),
    Kind("multihead", _multihead, "context", _WHOLE, (), ("multihead", "msattn"), "multihead_softmax"),
)


@dataclass(frozen=True)
class Examples:
    """A data set: tokens (sequences, tokens, width), the query last, and labels of each; or features, and labels."""

    inputs: Float[np.ndarray, "sequences ..."]
    labels: Float[np.ndarray, "sequences ..."]


@dataclass(frozen=True)
class Recording:
    """What a file holds, in float64. `tests` and `curves` go by the name of the loss: `loss` itself, `loss_iwl`, …

    `optimizer` is "sgd", or "adam" with its parameters, as `dynamics.named_optimizer` takes it.
    """

    path: str
    kind: Kind
    activation: Activation
    vary_len: bool
    optimizer: str
    rate: float
    outputs: int
    train: Examples
    tests: dict[str, Examples]
    curves: dict[str, Float[np.ndarray, " steps"]]
    initial: dict[str, Float[np.ndarray, "..."]]
    final: dict[str, Float[np.ndarray, "..."]]

    @property
    def steps(self) -> int:
        return self.curves["loss"].size


@checked
def load(path: str | os.PathLike) -> Recording:
    """Return a recorded training run, read from its file and checked; docs/recordings.md has the format.

    **Arguments:**

    - `path`: the .npz file.

    **Returns:** the `Recording`, all numbers in float64. Raises `InvalidInput`, with one line that names the file, if
    it is not a recording.

    **Example:**

    Merged attention at zero weights, a fixed point: the loss stays at the squared label.

    >>> import json
    >>> weights = {"init_value": np.zeros((1, 2, 2)), "init_key_query": np.zeros((1, 2, 2))}
    >>> data = {"tokens": [[[1.0, 2.0], [1.0, 0.0]]], "labels": [[2.0, 2.0]], "loss": [4.0, 4.0, 4.0]}
    >>> np.savez("zero.npz", config=json.dumps({"model": "attnM", "lr": 0.1}), **data, **weights)
    >>> recording = sw.experiments.recorded.load("zero.npz")
    >>> recording.steps, recording.rate, recording.activation
    (3, 0.1, 'linear')
    """
    archive = Archive(path)
    config = archive.configuration()
    kind = _kind(archive, config)
    curves = {name: archive.numbers(name, "T") for name in ["loss", *archive.names("loss_")]}
    _check_agree(archive, config, {"epoch": curves["loss"].size, "steps": curves["loss"].size}, "loss has {} entries")

    initial = {name: archive.numbers(f"init_{name}", letters) for name, letters in kind.recorded.items()}
    kept = {name: letters for name, letters in kind.recorded.items() if f"final_{name}" in archive}
    final = {name: archive.numbers(f"final_{name}", letters) for name, letters in kept.items()}
    examples = {name: _EXAMPLES[kind.layout](archive, name.removeprefix("loss")) for name in curves}
    vary_len = _vary_len(archive, config, kind)
    _check_widths(archive, config, kind)
    _check_queries(archive, {name: e for name, e in examples.items() if not (vary_len and name == "loss")})
    return Recording(
        path=str(path),
        kind=kind,
        activation=_activation(archive, config, kind),
        vary_len=vary_len,
        optimizer=_optimizer(archive, config),
        rate=_of_config(archive, config, "lr", lambda name, value: checks.number(name, value, least=0.0, above=True)),
        outputs=archive.size("O"),
        train=examples.pop("loss"),
        tests=examples,
        curves=curves,
        initial=initial,
        final=final,
    )


def _token_examples(archive: Archive, suffix: str) -> Examples:
    tokens = archive.numbers(f"tokens{suffix}", f"P{suffix} S{suffix} E")
    labels = _labels(archive, suffix)
    if tokens.shape[1] < 2:
        raise archive.refuse(f"tokens{suffix} has sequences of one token; a context and a query are needed")
    return Examples(tokens, labels)


def _feature_examples(archive: Archive, suffix: str) -> Examples:
    """Cubic features; for a test set of tokens they are made, vec of (sum of y x over the context) times the query."""
    if f"features{suffix}" in archive or f"tokens{suffix}" not in archive:
        features = archive.numbers(f"features{suffix}", f"P{suffix} F")
    else:
        tokens = archive.numbers(f"tokens{suffix}", f"P{suffix} S{suffix} E")
        inputs = tokens[:, :, : tokens.shape[2] - archive.size("O")]
        sums = np.einsum("psd,ps->pd", inputs[:, :-1], tokens[:, :-1, -1])
        features = (sums[:, :, None] * inputs[:, -1, None, :]).reshape(len(tokens), -1)
        if features.shape[1] != archive.size("F"):
            raise archive.refuse(
                f"tokens{suffix} of shape {tokens.shape} have {features.shape[1]} cubic features; "
                f"init_hidden is for {archive.size('F')}"
            )
    return Examples(features, _labels(archive, suffix)[:, -1])


def _context_examples(archive: Archive, suffix: str) -> Examples:
    context = archive.numbers(f"context{suffix}", f"P{suffix} S{suffix} E")
    query = archive.numbers(f"query{suffix}", f"P{suffix} E")
    target = archive.numbers(f"target{suffix}", f"P{suffix} O")
    labels = np.zeros((*context.shape[:2], target.shape[1]))
    tokens = np.concatenate([context, query[:, None]], axis=1)
    return Examples(tokens, np.concatenate([labels, target[:, None]], axis=1))


_EXAMPLES = {"tokens": _token_examples, "features": _feature_examples, "context": _context_examples}


def _labels(archive: Archive, suffix: str) -> Float[np.ndarray, "sequences tokens outputs"]:
    """Labels of shape (P, S, O), or (P, S) for one output."""
    name, letters = f"labels{suffix}", f"P{suffix} S{suffix}"
    if name in archive and archive.axes(name) == 3:
        return archive.numbers(name, f"{letters} O")
    labels = archive.numbers(name, letters)[:, :, None]
    archive.bind("O", 1, f"{name} of shape {labels.shape[:2]}")
    return labels


def _kind(archive: Archive, config: dict[str, Any]) -> Kind:
    name = _of_config(archive, config, "model")
    for kind in KINDS:
        if kind.is_called(name):
            return kind
    allowed = listed(kind.recorded_name or kind.name for kind in KINDS)
    raise archive.refuse(f"config names the model {shown(name)}; it must be {allowed}")


def _activation(archive: Archive, config: dict[str, Any], kind: Kind) -> Activation:
    if kind.layout == "context":
        name: Any = config.get("attention", "softmax")
        if name not in ("softmax", "linear", "relu"):
            raise archive.refuse(f"config names the attention {shown(name)}; it must be softmax, linear or relu")
        return name
    return "softmax" if _flag(archive, config, "softmax") and kind.is_attention else "linear"


def _optimizer(archive: Archive, config: dict[str, Any]) -> str:
    """Adam's parameters are those of PyTorch, also by default."""
    name = config.get("optimizer", config.get("optimiser", "sgd"))
    if name not in ("sgd", "adam"):
        raise archive.refuse(f"config names the optimizer {shown(name)}; it must be sgd or adam")
    for extra in ("momentum", "nesterov", "weight_decay", "amsgrad"):
        if config.get(extra):
            raise archive.refuse(f"config has {extra} = {shown(config[extra])}; {name} is replayed without it")
    if name == "sgd":
        return name
    betas = config.get("betas", [0.9, 0.999])
    if not isinstance(betas, list) or len(betas) != 2:
        raise archive.refuse(f"config has betas = {shown(betas)}; they must be two numbers")
    given = {"b1": betas[0], "b2": betas[1], "eps": config.get("eps", 1e-8)}
    check = functools.partial(checks.number, least=0.0, most=1.0)
    read = {key: _of_config(archive, given, key, check) for key in given}
    return f"adam:{','.join(f'{key}={value!r}' for key, value in read.items())}"


def _vary_len(archive: Archive, config: dict[str, Any], kind: Kind) -> bool:
    varies = _flag(archive, config, "vary_len")
    if varies and kind.layout != "tokens":
        having = listed((kind.name for kind in KINDS if kind.layout == "tokens"), "and")
        raise archive.refuse(f"config has vary_len with the model {config['model']}; only {having} have it")
    return varies


def _flag(archive: Archive, config: dict[str, Any], name: str) -> bool:
    value = config.get(name, False)
    if value not in (True, False):
        raise archive.refuse(f"config has {name} = {shown(value)}; it must be true or false")
    return bool(value)


def _check_agree(archive: Archive, config: dict[str, Any], sizes: dict[str, int], arrays: str) -> None:
    """Numbers of the configuration must be those of the arrays."""
    for name, size in sizes.items():
        if name in config and config[name] != size:
            raise archive.refuse(
                f"config has {name} = {shown(config[name])}, and {arrays.format(size)}; they must agree"
            )


def _check_widths(archive: Archive, config: dict[str, Any], kind: Kind) -> None:
    """A token holds inputs and labels."""
    if not kind.is_attention:
        return
    width, outputs = archive.size("E"), archive.size("O")
    if width <= outputs:
        raise archive.refuse(
            f"tokens of width {width} hold no inputs beside {outputs} labels; the width must be inputs plus labels"
        )
    sizes = {"in_dim": width - outputs, "dx": width - outputs, "out_dim": outputs, "dy": outputs}
    _check_agree(archive, config, sizes, f"tokens of width {width} with {outputs} outputs make it {{}}")


def _check_queries(archive: Archive, examples: dict[str, Examples]) -> None:
    """No model here reads the query's labels, so a run whose model did could not be replayed."""
    outputs = archive.size("O")
    for name, data in examples.items():
        if data.inputs.ndim == 3 and data.inputs[:, -1, -outputs:].any():
            raise archive.refuse(f"the queries of {name} show their labels; set the labels in the last token to zero")


def _of_config(archive: Archive, config: dict[str, Any], name: str, check=lambda name, value: value) -> Any:
    if name not in config:
        raise archive.refuse(f"config has no {name}; see docs/recordings.md for what it must have")
    try:
        return check(f"{name} in config", config[name])
    except InvalidInput as error:
        raise archive.refuse(str(error)) from None
