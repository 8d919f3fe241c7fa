"""Settings that most figures have, as the report shows them."""

from collections.abc import Sequence
from typing import Any


def described(
    *, dim: int, context: int, heads: int, rank: int | None = None, eigenvalues: Sequence[float] | None = None
) -> dict[str, Any]:
    """Sizes of a regression in context and of the model that is trained on it; what is not given is left out."""
    sizes = {
        "dimension D": dim,
        "context length N": context,
        "heads H": heads,
        "rank R": rank,
        "eigenvalues of the covariance": None if eigenvalues is None else list(eigenvalues),
    }
    return {name: value for name, value in sizes.items() if value is not None}
