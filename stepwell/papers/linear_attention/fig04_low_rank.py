"""Fig 4: separate attention of rank R = 1, 2, 4, 8."""

from ._low_rank_figure import LowRankFigure

FIGURE = LowRankFigure("linear/fig4", ranks=(1, 2, 4, 8))
TITLE, CAPTION, PAPER_SETTINGS = FIGURE.title, FIGURE.caption, FIGURE.paper_settings
settings, simulate, claims, draw = FIGURE.settings, FIGURE.simulate, FIGURE.claims, FIGURE.draw
