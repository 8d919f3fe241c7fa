"""Shapes of arrays that several formulas share."""

import numpy as np
from jaxtyping import Float

Matrix = Float[np.ndarray, "dim dim"]
PerTime = Float[np.ndarray, " time"]
PerComponent = Float[np.ndarray, " component"]
PerMode = Float[np.ndarray, " mode"]
PerTask = Float[np.ndarray, " task"]
HeadTask = Float[np.ndarray, "head task"]
LeadTask = Float[np.ndarray, "*lead task"]
LeadHeadTask = Float[np.ndarray, "*lead head task"]
