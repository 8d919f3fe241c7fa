"""Linear attention on in-context regression: levels, time courses and the schedule of drops.

After Zhang, Singh, Latham and Saxe, "Training Dynamics of In-Context Learning in Linear Attention" (arXiv 2501.16265).
Conventions are the paper's: attention is divided by the context length N, and time is t/τ in τ dW/dt = -½ ∂L/∂W.
"""

from ._components import Components as Components
from ._components import components as components
from ._levels import component_gains as component_gains
from ._levels import escape_rates as escape_rates
from ._levels import fixed_point as fixed_point
from ._levels import level as level
from ._levels import levels as levels
from ._loss import loss_at as loss_at
from ._loss import minimal_loss as minimal_loss
from ._loss import minimiser as minimiser
from ._merged import MergedCourse as MergedCourse
from ._merged import half_drop_time as half_drop_time
from ._merged import merged_course as merged_course
from ._merged import merged_escape_rate as merged_escape_rate
from ._merged import merged_escape_time as merged_escape_time
from ._merged import merged_start as merged_start
from ._modes import Modes as Modes
from ._modes import modes as modes
from ._moments import cross_moment as cross_moment
from ._moments import label_power as label_power
from ._moments import mean_inverse_length as mean_inverse_length
from ._moments import second_moment as second_moment
from ._schedule import Drop as Drop
from ._schedule import drop_schedule as drop_schedule
from ._schedule import predicted_staircase as predicted_staircase
from ._separate import aligned_end as aligned_end
from ._separate import aligned_escape_time as aligned_escape_time
from ._separate import aligned_time as aligned_time
from ._separate import aligned_value as aligned_value
from ._white import white_course as white_course
from ._white import white_half_drop_time as white_half_drop_time
