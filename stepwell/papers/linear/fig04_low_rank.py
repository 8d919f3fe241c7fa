"""Fig 4: separate attention of rank R = 1, 2, 4, 8."""

from ._low_rank import low_rank_figure

FIGURE = low_rank_figure("Fig 4", 1, 2, 4, 8)
