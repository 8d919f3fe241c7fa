"""Shape aliases used in several rooms. Dimension names: see ARCHITECTURE.md."""

from typing import Literal

from jaxtyping import Array, Float, Key, Scalar, UInt32

Tokens = Float[Array, "tokens width"]
"""One sequence: its context pairs and, last, the query. `width` is dim + outputs."""

SequenceTokens = Float[Array, "sequences tokens width"]
SequenceLabels = Float[Array, "sequences tokens outputs"]

RandomKey = Key[Array, ""] | UInt32[Array, "2"]
"""A JAX random key, of the new kind or the old."""

Loss = Scalar

Activation = Literal["linear", "softmax", "relu"]
"""What turns scores into attention weights."""

Precision = Literal["float64", "float32"]
Normalization = Literal["1/N", "none", "1/tokens"]
"""What the attention is divided by: the context length N, nothing, or the number of tokens, query included."""
