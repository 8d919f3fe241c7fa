"""C kernels for what XLA does badly, each with a plain JAX twin; see README.md in this folder."""

from ._kernels import KERNELS as KERNELS
from ._kernels import Kernel as Kernel
from ._kernels import engine as engine
from ._kernels import kernel as kernel
from ._kernels import report_elsewhere as report_elsewhere
from ._kernels import state as state
from ._kernels import states as states
from ._processor import cores as cores
from ._processor import levels as levels
from ._processor import processor_name as processor_name
