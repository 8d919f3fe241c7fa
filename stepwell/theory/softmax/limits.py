"""Where training ends: the limit of the flow, and the best that a single head can do."""

from ._limit import OneHeadEach as OneHeadEach
from ._limit import as_heads as as_heads
from ._limit import flow_limit as flow_limit
from ._limit import flow_limit_loss as flow_limit_loss
from ._single_head import SingleHead as SingleHead
from ._single_head import single_head_optimum as single_head_optimum
