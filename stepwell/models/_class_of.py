"""From the declaration of a kind of model to its class."""

import sys
from typing import Any

from stepwell._arguments import checked
from stepwell._kinds import Kind


@checked
def class_of(kind: Kind) -> Any:
    """The class that a kind of model names; it has the methods that `stepwell._kinds` lists.

    **Arguments:**

    - `kind`: the declaration, one of `stepwell._kinds.KINDS`.

    **Returns:** the class in `stepwell.models`.

    **Example:**

    >>> import stepwell as sw
    >>> from stepwell._kinds import KINDS
    >>> sw.models.class_of(KINDS["attnS"]).__name__
    'SeparateAttention'
    """
    return getattr(sys.modules["stepwell.models"], kind.class_name)
