"""The numbers of a task that formulas read, and the keywords of training."""

from ._numbers import TaskNumbers as TaskNumbers
from ._numbers import Training as Training
from ._numbers import numbers as numbers
