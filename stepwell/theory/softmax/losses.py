"""What attention with given weights costs: to leading order, to first order, exactly, and of linear attention."""

from ._approximation import ApproximationErrors as ApproximationErrors
from ._approximation import approximation_errors as approximation_errors
from ._exact import ExactOptimum as ExactOptimum
from ._exact import exact_loss as exact_loss
from ._exact import exact_optimum as exact_optimum
from ._first_order import first_order_loss as first_order_loss
from ._linear_limit import linear_attention_loss as linear_attention_loss
from ._linear_limit import linear_heads_loss as linear_heads_loss
from ._spectral import spectral_loss as spectral_loss
