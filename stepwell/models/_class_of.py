"""From the declaration of a kind of model to its class."""

import sys
from typing import Any

from stepwell._kinds import Kind


def class_of(kind: Kind) -> Any:
    """The class that a kind names; it has the methods that `stepwell._kinds` lists."""
    return getattr(sys.modules["stepwell.models"], kind.class_name)
