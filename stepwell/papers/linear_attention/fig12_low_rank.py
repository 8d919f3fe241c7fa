"""Fig 12: separate attention of rank R = 3, 5, 6, 7."""

from ._low_rank_figure import LowRankFigure

FIGURE = LowRankFigure("linear/fig12", ranks=(3, 5, 6, 7))
TITLE, CAPTION, PAPER_SETTINGS = FIGURE.title, FIGURE.caption, FIGURE.paper_settings
settings, simulate, claims, draw = FIGURE.settings, FIGURE.simulate, FIGURE.claims, FIGURE.draw
