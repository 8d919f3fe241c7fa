"""What the fast forms of `Population` share: which models they know."""

import numpy as np

from stepwell.models import AbstractModel, is_separate
from stepwell.objectives import Population


def applies(population: Population, model: AbstractModel, dimension: int) -> bool:
    """Whether this is the loss of separate attention with one output, in double precision, up to a dimension."""
    if type(population) is not Population or not is_separate(model):
        return False
    double = all(weight.dtype == np.float64 for weight in (model.value, model.key, model.query))
    return population.outputs == 1 and model.dim <= dimension and double
