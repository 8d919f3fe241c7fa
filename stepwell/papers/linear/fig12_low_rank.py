"""Fig 12: separate attention of rank R = 3, 5, 6, 7."""

from ._low_rank import low_rank_figure

FIGURE = low_rank_figure("Fig 12", 3, 5, 6, 7)
