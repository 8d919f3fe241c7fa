"""Figs 4 and 12: one figure, for two sets of ranks."""

from dataclasses import dataclass
from typing import Any

import xarray as xr
from matplotlib.figure import Figure

from stepwell.papers._claim import Claim

from . import _low_rank
from ._low_rank_claims import claims
from ._low_rank_drawing import draw_ranks
from ._low_rank_settings import FULL, PAPER_SETTINGS, QUICK


@dataclass(frozen=True)
class LowRankFigure:
    """What the module of a figure needs, for separate attention of these ranks; `_low_rank` has the mechanism."""

    name: str
    ranks: tuple[int, ...]

    @property
    def title(self) -> str:
        ranks = ", ".join(str(rank) for rank in self.ranks)
        return f"Attention of rank R = {ranks} learns R components at a time, and waits for a fresh head in between"

    @property
    def caption(self) -> str:
        return _low_rank.CAPTION.format(seeds=FULL.seeds, first=self.ranks[0])

    @property
    def paper_settings(self) -> dict[str, Any]:
        return {**PAPER_SETTINGS, "ranks R": list(self.ranks)}

    def settings(self, quick: bool) -> dict[str, Any]:
        return _low_rank.settings(self.ranks, QUICK if quick else FULL)

    def simulate(self, quick: bool) -> dict[str, xr.Dataset]:
        return _low_rank.simulate(self.name, self.ranks, QUICK if quick else FULL)

    def claims(self, data: dict[str, xr.Dataset]) -> list[Claim]:
        return claims(self.name, self.ranks, data)

    def draw(self, data: dict[str, xr.Dataset]) -> Figure:
        return draw_ranks(self.ranks, data)
