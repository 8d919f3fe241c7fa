"""The loss on contexts of other lengths than that of training."""

from ._length import DividedBy as DividedBy
from ._length import exact_length_loss as exact_length_loss
from ._length import linear_length_loss as linear_length_loss
from ._length import softmax_length_loss as softmax_length_loss
