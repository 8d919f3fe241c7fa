"""Time courses: the flow of the eigenvalues, its reduced equations, and its end."""

from ._flow import FlowCourse as FlowCourse
from ._flow import Weights as Weights
from ._flow import spectral_flow as spectral_flow
from ._flow import spectral_velocity as spectral_velocity
from ._late import LateRates as LateRates
from ._late import late_rates as late_rates
from ._late import losing_head_rate as losing_head_rate
from ._late import off_task_fading as off_task_fading
from ._reduced import SingleHeadCourse as SingleHeadCourse
from ._reduced import mu_lag as mu_lag
from ._reduced import nullcline as nullcline
from ._reduced import reduced_course as reduced_course
from ._reduced import reduced_velocity as reduced_velocity
from ._reduced import single_head_course as single_head_course
