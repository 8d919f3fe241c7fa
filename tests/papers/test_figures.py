"""On what a figure simulates, its claims hold, but for those that are known not to."""

import pytest
from failing_claims import failing_claims

from stepwell.papers import FIGURES, figure

DO_NOT_HOLD = {
    "linear/fig3": {"keys"},
    "linear/fig4": {"rank-1-waits", "rank-2-waits", "middle-seed"},
    "linear/fig12": {"rank-3-waits", "rank-6-waits", "rank-7-waits", "middle-seed"},
    "softmax/fig1": {"three-phases", "emergence-whole"},
    "softmax/fig2": {"noise-u-x"},
}
"""With `--quick`, by figure; docs/differences.md says why."""


@pytest.mark.parametrize("name", FIGURES)
def test_claims_hold_but_for_the_known(simulated, name: str):
    assert failing_claims(figure(name).claims(simulated(name))) == DO_NOT_HOLD.get(name, set())


@pytest.mark.parametrize("name", FIGURES)
def test_an_identifier_belongs_to_one_claim(simulated, name: str):
    names = [claim.id for claim in figure(name).claims(simulated(name))]
    assert names and len(set(names)) == len(names) and all(each.startswith(f"{name}/") for each in names)
