"""Where softmax weights concentrate on few tokens, and leading order ends."""

from ._saturation import annealed_threshold as annealed_threshold
from ._saturation import concentration_exponent as concentration_exponent
from ._saturation import concentration_ratio as concentration_ratio
from ._saturation import expected_maximum as expected_maximum
from ._saturation import hardmax_concentration as hardmax_concentration
from ._saturation import saturation_point as saturation_point
from ._saturation import typical_threshold as typical_threshold
