"""Linear attention on in-context regression: fixed points, levels, landscape, time courses and the schedule of drops.

After Zhang, Singh, Latham and Saxe, "Training Dynamics of In-Context Learning in Linear Attention" (arXiv 2501.16265).
Conventions are the paper's: attention is divided by the context length N, and time is t/τ in τ dW/dt = -½ ∂L/∂W.
"""

from ._context_moments import TaskMoments as TaskMoments
from ._context_moments import mean_inverse_length as mean_inverse_length
from ._context_moments import moments as moments
from ._fixed_points import ClosestRegression as ClosestRegression
from ._fixed_points import FixedPoints as FixedPoints
from ._fixed_points import Nearest as Nearest
from ._fixed_points import closest_pcr as closest_pcr
from ._fixed_points import fixed_points as fixed_points
from ._fixed_points import nearest_fixed_point as nearest_fixed_point
from ._fixed_points import prediction_distance as prediction_distance
from ._fixed_points import principal_component_regression_map as principal_component_regression_map
from ._fixed_points import regression_difference as regression_difference
from ._fixed_points import shares as shares
from ._fixed_points import total_share as total_share
from ._landscape import CriticalRates as CriticalRates
from ._landscape import Landscape as Landscape
from ._landscape import fixed_point_landscape as fixed_point_landscape
from ._landscape import merged_critical_rates as merged_critical_rates
from ._landscape import merged_hessian as merged_hessian
from ._landscape import merged_landscape as merged_landscape
from ._landscape import separate_hessian as separate_hessian
from ._levels import Components as Components
from ._levels import FixedPoint as FixedPoint
from ._levels import components as components
from ._levels import escape_rates as escape_rates
from ._levels import fixed_point as fixed_point
from ._levels import levels as levels
from ._levels import loss_at as loss_at
from ._levels import minimal_loss as minimal_loss
from ._levels import minimizer as minimizer
from ._merged_course import MergedCourse as MergedCourse
from ._merged_course import half_drop_time as half_drop_time
from ._merged_course import merged_course as merged_course
from ._merged_course import merged_escape_rate as merged_escape_rate
from ._merged_course import merged_escape_time as merged_escape_time
from ._merged_course import merged_initial as merged_initial
from ._merged_course import white_course as white_course
from ._merged_course import white_half_drop_time as white_half_drop_time
from ._modes import Modes as Modes
from ._modes import modes as modes
from ._predictors import PREDICTORS as PREDICTORS
from ._predictors import AbstractPredictor as AbstractPredictor
from ._predictors import PredictedCourse as PredictedCourse
from ._predictors import PredictedDrop as PredictedDrop
from ._schedule import Drop as Drop
from ._schedule import Drops as Drops
from ._schedule import Schedules as Schedules
from ._schedule import drop_schedule as drop_schedule
from ._schedule import predicted_staircase as predicted_staircase
from ._separate_course import HeadCourse as HeadCourse
from ._separate_course import aligned_end as aligned_end
from ._separate_course import aligned_time as aligned_time
from ._separate_course import aligned_value as aligned_value
from ._separate_course import head_course as head_course
from ._separate_course import new_head_time as new_head_time
from ._separate_course import new_pair_time as new_pair_time
from ._weights import SeparateConserved as SeparateConserved
from ._weights import aligned_weights as aligned_weights
from ._weights import merged_conserved as merged_conserved
from ._weights import merged_map as merged_map
from ._weights import separate_conserved as separate_conserved
from ._weights import separate_map as separate_map
