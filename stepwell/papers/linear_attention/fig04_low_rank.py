"""Fig 4: separate attention of rank R = 1, 2, 4, 8; the mechanism and its claims are in `_low_rank`."""

from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from stepwell.papers._claim import Claim

from . import _low_rank
from ._low_rank_drawing import draw_ranks

NAME = "linear/fig4"
RANKS = (1, 2, 4, 8)

TITLE = "Attention of rank R = 1, 2, 4, 8 learns R components at a time, and waits for a fresh head in between"
CAPTION = _low_rank.CAPTION


def settings(quick: bool) -> dict[str, Any]:
    return _low_rank.settings(RANKS, quick)


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    return _low_rank.simulate(NAME, RANKS, _low_rank.QUICK if quick else _low_rank.FULL)


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    return _low_rank.claims(NAME, RANKS, data)


def draw(data: dict[str, xr.Dataset]) -> Figure:
    return draw_ranks(RANKS, data)
