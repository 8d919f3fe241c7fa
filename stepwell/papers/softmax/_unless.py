"""Claims about which some settings say nothing."""

from collections.abc import Callable
from typing import Any

from stepwell.figures import Claim


def unless(why: str, make: Callable[..., Claim], id: str, statement: str, **values: Any) -> Claim:
    """The claim that `make`, such as `Claim.close`, has of these values; if `why` is given, one that is not judged."""
    if not why:
        return make(id, statement, **values)
    origin: Any = {name: values[name] for name in ("kind", "source", "known", "explored") if name in values}
    return Claim.cannot_be_judged(id, statement, why=why, **origin)
