"""Claims by name."""

from collections.abc import Iterable

from stepwell.figures import Claim


def failing_claims(claims: Iterable[Claim]) -> set[str]:
    """Those that fail, each by the last part of its identifier."""
    return {claim.id.rpartition("/")[2] for claim in claims if not claim.passed}
