r"""Two-layer networks of units from small initial weights, $f(x) = \sum_i \phi(x; u_i)\,v_i$, in closed form.

Losses are sums over outputs, and the flow is $\tau\dot W = -\tfrac12\,\partial L/\partial W$.
"""

from ._blow_up import blow_up_time as blow_up_time
from ._directions import LinearCourse as LinearCourse
from ._directions import direction_times as direction_times
from ._directions import riccati_course as riccati_course
from ._narrow import SupervisedTask as SupervisedTask
from ._rays import ray_schedule as ray_schedule
from ._schedule import UnitDrop as UnitDrop
from ._schedule import direction_schedule as direction_schedule
from ._schedule import unit_schedule as unit_schedule
