"""Which head serves which task, and how tasks share heads."""

from ._allocation import Advantage as Advantage
from ._allocation import amplification_exponent as amplification_exponent
from ._allocation import head_advantage as head_advantage
from ._allocation import winners as winners
from ._sharing import Partition as Partition
from ._sharing import best_partition as best_partition
from ._sharing import revival_threshold as revival_threshold
from ._sharing import revives as revives
from ._sharing import shared_loss as shared_loss
