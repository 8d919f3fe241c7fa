"""How weights move: gradient descent, gradient flow, fresh data at each step; one run or an ensemble."""

from stepwell._util.outcomes import Interrupted as Interrupted
from stepwell._util.outcomes import RunFailed as RunFailed

from ._checkpoint import Checkpoint as Checkpoint
from ._conversions import flow_time as flow_time
from ._conversions import rate_for as rate_for
from ._conversions import renormalized as renormalized
from ._conversions import steps_for as steps_for
from ._conversions import time_factor as time_factor
from ._conversions import weight_factor as weight_factor
from ._descend import descend as descend
from ._diffrax import Diffrax as Diffrax
from ._ensemble import Ensemble as Ensemble
from ._flow import flow as flow
from ._lsoda import LSODA as LSODA
from ._lsoda import prepare_lsoda as prepare_lsoda
from ._named_optimizer import named_optimizer as named_optimizer
from ._online import online as online
from ._plan import AbstractFlowSolver as AbstractFlowSolver
from ._record import Record as Record
from ._rodas import Rodas5P as Rodas5P
