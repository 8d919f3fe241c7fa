"""Predictions from the task alone, in NumPy and SciPy: nothing here is trained, and JAX is not needed."""

from . import linear as linear
from . import softmax as softmax
from ._description import Lengths as Lengths
from ._description import MultiRegression as MultiRegression
from ._description import Regression as Regression
from ._integrate import IntegrationFailed as IntegrationFailed
from ._task import ContextLengthsLike as ContextLengthsLike
from ._task import LinearTask as LinearTask
from ._task import MultiTask as MultiTask
from ._task import RegressionTask as RegressionTask
