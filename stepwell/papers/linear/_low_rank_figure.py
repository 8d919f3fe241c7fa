"""Figs 4 and 12: one figure, for two sets of ranks."""

from functools import partial

from stepwell.figures import Figure

from ._low_rank import CAPTION, simulate
from ._low_rank_claims import claims
from ._low_rank_drawing import draw
from ._low_rank_settings import Settings, describe, paper_settings


def low_rank_figure(source: str, *ranks: int) -> Figure[Settings]:
    """Separate attention of these ranks; `source` is the paper's figure."""
    settings, listed = Settings(ranks), ", ".join(map(str, ranks))
    return Figure(
        title=f"Attention of rank R = {listed} learns R components at a time, and waits for a fresh head in between",
        caption=CAPTION.format(seeds=settings.seeds, first=ranks[0]),
        source=source,
        settings=settings,
        quick=Settings(ranks, seeds=4, shown=1, decades=(2,), draws=60),
        described=describe,
        paper_settings=paper_settings(settings),
        simulate=simulate,
        claims=partial(claims, source=source),
        draw=draw,
    )
