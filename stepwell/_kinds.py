"""The kinds of model that the command line and recordings know by name, each declared once.

A declaration is plain data: help, and a mistake in a flag, need no JAX. What has to be computed is in the class that it
names, in `stepwell.models`:

- `random(…)`, the initial weights, with the keywords that `start_options` lists;
- `from_recording(weights, outputs=…, activation=…, normalisation=…)`, from whole matrices shaped as `recorded` says;
- `theory_weights(weights)`, where it is `trained` or has a `theory`: the arrays that its equations start from, among
  them `values`, the weight of each head on the label, which `--track_value` records.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Layout = Literal["tokens", "features", "context"]
"""What a model reads, as a recording holds it (docs/recordings.md): whole sequences; cubic features of them; or, in
recordings of the softmax paper's setting, contexts beside queries."""

Theory = Literal["merged", "separate"]
"""The reduced equations that a linear model follows, by their name in `theory.linear.PREDICTORS`."""


@dataclass(frozen=True)
class Kind:
    """One kind of model.

    - `name`: after `--model`, and in the `config` of a recording, where all names that begin with `prefixes` mean it
      too; `recorded_name` is the one that messages recommend.
    - `class_name`: its class in `stepwell.models`.
    - `description`: one word for its key and query, or for itself.
    - `recorded`: its weights, and the shape of each in a recording. H heads, E width of a token, O outputs, R rank,
      F features; V and R are a head's widths, which may differ.
    - `last_rows`: the weights of which the model trains the last rows. Of others it trains the first rows and columns.
    - `trained`: whether `stepwell train` offers it.
    - `has_rank`: whether the number of key and query pairs in a head can be chosen. If not, it is the dimension.
    - `starts`: the rules of its random initial weights, by name, the one that the published script has today last.
      Where there are several, `random` takes the name as `start`.
    """

    name: str
    class_name: str
    description: str
    layout: Layout
    recorded: dict[str, str]
    last_rows: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    recorded_name: str = ""
    trained: bool = True
    has_rank: bool = False
    theory: Theory | None = None
    starts: tuple[str, ...] = ("plain",)

    @property
    def is_attention(self) -> bool:
        """Whether it attends to tokens, and so has an activation and a normalisation."""
        return self.layout != "features"

    @property
    def is_predicted(self) -> bool:
        """Whether `stepwell predict` offers it."""
        return self.is_attention and self.theory is not None

    def pairs(self, dim: int, rank: int) -> int:
        """Pairs of key and query in a head."""
        return rank if self.has_rank else dim

    def is_called(self, name: Any) -> bool:
        """Whether a recording means this kind by `name`."""
        return name == self.name or (isinstance(name, str) and bool(self.prefixes) and name.startswith(self.prefixes))

    def start_options(self, *, rank: int, start: str | None = None, **attention: Any) -> dict[str, Any]:
        """The keywords of `random` that only some kinds have: those of attention, the rank, and the rule of the start.

        By default `start` is left to `random`, which takes "plain".
        """
        own: dict[str, Any] = {"rank": rank} if self.has_rank else {}
        if start is not None and len(self.starts) > 1:
            own["start"] = start
        return {**(attention if self.is_attention else {}), **own}


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            name="attnM",
            class_name="MergedAttention",
            description="merged",
            layout="tokens",
            recorded={"value": "H E E", "key_query": "H E E"},
            last_rows=("value",),
            theory="merged",
        ),
        Kind(
            name="attnS",
            class_name="SeparateAttention",
            description="separate",
            layout="tokens",
            recorded={"value": "H E E", "key": "H R E", "query": "H R E"},
            last_rows=("value",),
            has_rank=True,
            theory="separate",
            starts=("plain", "per-head", "stacked"),
        ),
        Kind(
            name="mlp",
            class_name="CubicMLP",
            description="MLP",
            layout="features",
            recorded={"hidden": "H F", "readout": "O H"},
            theory="merged",
        ),
        Kind(
            name="multihead",
            class_name="MultiHeadAttention",
            description="multi-head",
            layout="context",
            recorded={"query": "H R E", "key": "H R E", "value": "H V E", "output": "H O V"},
            prefixes=("multihead", "msattn"),
            recorded_name="multihead_softmax",
            trained=False,
        ),
    )
}
"""All kinds, by name."""


def listed(words: Iterable[str], conjunction: str = "or") -> str:
    """Words in a sentence: "a, b or c"."""
    *most, last = words
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def names(*, layout: Layout | None = None, trained: bool = False, predicted: bool = False) -> list[str]:
    """The names of the kinds that have all that is asked for."""
    return [
        kind.name
        for kind in KINDS.values()
        if (layout is None or kind.layout == layout)
        and (kind.trained or not trained)
        and (kind.is_predicted or not predicted)
    ]
