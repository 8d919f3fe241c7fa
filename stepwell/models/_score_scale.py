"""What a head's scores are multiplied by."""

from typing import Literal, get_args

from stepwell._util import checks

ScoreScale = Literal["head", "token"]
"""Over the root of the width of a head, $1/\\sqrt{d_e}$ (Chen et al.), or of a token, $1/\\sqrt{d + d_y}$ (the
published simulation)."""


def score_scale_of(given: float | ScoreScale, *, embedding: int, width: int) -> float:
    """The factor, given as a number or by name."""
    if isinstance(given, str):
        checks.one_of("score_scale", given, get_args(ScoreScale))
        return (embedding if given == "head" else width) ** -0.5
    return checks.number("score_scale", given, least=0.0, above=True)
