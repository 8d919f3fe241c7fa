"""The kinds that the package brings. Importing this registers them; nothing that computes is imported."""

from . import _models as _models
from . import _objectives as _objectives
from . import _record as _record
from . import _tasks as _tasks
from . import _trainings as _trainings
