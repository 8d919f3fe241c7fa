"""Predictions from the task alone, in NumPy and SciPy: nothing here is trained, and JAX is not needed."""

from . import linear as linear
from . import softmax as softmax
from . import units as units
from ._integrate import IntegrationFailed as IntegrationFailed
from ._task_protocols import ContextLengthsLike as ContextLengthsLike
from ._task_protocols import Lengths as Lengths
from ._task_protocols import LinearTask as LinearTask
from ._task_protocols import MultiRegression as MultiRegression
from ._task_protocols import MultiTask as MultiTask
from ._task_protocols import Regression as Regression
from ._task_protocols import RegressionTask as RegressionTask
