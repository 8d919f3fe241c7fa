r"""Two-layer networks of units from small initial weights, $f(x) = \sum_i \phi(x; u_i)\,v_i$, in closed form.

Losses are sums over outputs, and the flow is $\tau\dot W = -\tfrac12\,\partial L/\partial W$.
"""

from ._blow_up import blow_up_time as blow_up_time
from ._directions import LinearCourse as LinearCourse
from ._directions import direction_times as direction_times
from ._directions import riccati_course as riccati_course
