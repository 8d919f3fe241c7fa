"""The models that recordings of other programs have, by the names that these give them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from stepwell.models import CubicMLP, MergedAttention, MultiHeadAttention, SeparateAttention

Layout = Literal["tokens", "features", "context"]
"""What a model reads, as a recording holds it (docs/recordings.md): whole sequences; cubic features of them; or, in
recordings of the softmax paper's setting, contexts beside queries."""


@dataclass(frozen=True)
class Kind:
    """A model in recordings.

    - `name`: in the `config` of a recording, where all names that begin with `prefixes` mean it too; `recorded_name` is
      the one that messages recommend.
    - `model`: its class, whose `from_recording` takes whole matrices shaped as `recorded` says.
    - `recorded`: its weights, and the shape of each in a recording. H heads, E width of a token, O outputs, R rank,
      F features; V and R are a head's widths, which may differ.
    - `last_rows`: the weights of which the model trains the last rows. Of others it trains the first rows and columns.
    """

    name: str
    model: Any
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


KINDS = (
    Kind("attnM", MergedAttention, "tokens", {"value": "H E E", "key_query": "H E E"}, last_rows=("value",)),
    Kind(
        "attnS",
        SeparateAttention,
        "tokens",
        {"value": "H E E", "key": "H R E", "query": "H R E"},
        last_rows=("value",),
    ),
    Kind("mlp", CubicMLP, "features", {"hidden": "H F", "readout": "O H"}),
    Kind(
        "multihead",
        MultiHeadAttention,
        "context",
        {"query": "H R E", "key": "H R E", "value": "H V E", "output": "H O V"},
        prefixes=("multihead", "msattn"),
        recorded_name="multihead_softmax",
    ),
)


def listed(words: Iterable[str], conjunction: str = "or") -> str:
    """Words in a sentence: "a, b or c"."""
    *most, last = words
    return f"{', '.join(most)} {conjunction} {last}" if most else last
