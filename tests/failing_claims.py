"""What tests ask of claims."""

from collections.abc import Iterable

from stepwell.figures import Claim


def failing_claims(claims: Iterable[Claim]) -> set[str]:
    """Those that fail, each by the last part of its identifier."""
    return {claim.id.rpartition("/")[2] for claim in claims if not claim.passed}


def badly_labeled(claims: Iterable[Claim]) -> dict[str, list[str | None]]:
    """The labels of claims of which some value does not say what it belongs to, or two say the same."""
    labels = {claim.id: [value.label for value in claim.values] for claim in claims}
    return {claim: each for claim, each in labels.items() if not all(each) or len(set(each)) < len(each)}
