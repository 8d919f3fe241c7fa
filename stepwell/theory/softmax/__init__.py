"""Softmax attention on several regressions at once.

After Chen, Sheen, Wang and Yang, "Training Dynamics of Multi-Head Softmax Attention for In-Context Learning"
(arXiv 2402.19442). The paper's full text could not be consulted, so the formulas are derived anew, and three of its
conventions are inferred from captions: that strengths are those of one coordinate, that the flow is that of the plain
squared loss, and the constant of its lower bound.

Heads of one task from random weights, and debiased gradient descent, are after He, Pan, Chen and Yang, "In-Context
Linear Regression Demystified" (arXiv 2503.12734), whose full text could not be consulted either.

Weights are arrays (head, task). A loss is given for each task; the loss is their sum.
"""

from ._allocation import FlowEnd as FlowEnd
from ._allocation import HeadAdvantage as HeadAdvantage
from ._allocation import Partition as Partition
from ._allocation import best_partition as best_partition
from ._allocation import flow_end as flow_end
from ._allocation import head_advantage as head_advantage
from ._allocation import revival_threshold as revival_threshold
from ._allocation import revives as revives
from ._allocation import shared_loss as shared_loss
from ._allocation import winners as winners
from ._bayes import Penalized as Penalized
from ._bayes import RiskEstimate as RiskEstimate
from ._bayes import bayes_risk as bayes_risk
from ._bayes import exact_bayes_risk as exact_bayes_risk
from ._bayes import ridge_risk as ridge_risk
from ._bayes import sampled_bayes_risk as sampled_bayes_risk
from ._bayes import sampled_ridge_risk as sampled_ridge_risk
from ._debiased import GradientStep as GradientStep
from ._debiased import bayes_gap as bayes_gap
from ._debiased import best_gradient_step as best_gradient_step
from ._debiased import best_preconditioner as best_preconditioner
from ._debiased import gradient_step_loss as gradient_step_loss
from ._debiased import preconditioned_loss as preconditioned_loss
from ._direct_flow import both_signs_probability as both_signs_probability
from ._direct_flow import direct_emergence_time as direct_emergence_time
from ._direct_flow import direct_flow as direct_flow
from ._direct_flow import direct_velocity as direct_velocity
from ._direct_flow import dummy_growth as dummy_growth
from ._direct_flow import valley_omega as valley_omega
from ._emergence import EmergenceBracket as EmergenceBracket
from ._emergence import WarmUp as WarmUp
from ._emergence import WarmUpPath as WarmUpPath
from ._emergence import emergence_bracket as emergence_bracket
from ._emergence import emergence_time as emergence_time
from ._emergence import loss_drop_width as loss_drop_width
from ._emergence import omega_climb_width as omega_climb_width
from ._emergence import warm_up as warm_up
from ._emergence import warm_up_path as warm_up_path
from ._exact_loss import ApproximationErrors as ApproximationErrors
from ._exact_loss import DividedBy as DividedBy
from ._exact_loss import approximation_errors as approximation_errors
from ._exact_loss import exact_length_loss as exact_length_loss
from ._exact_loss import exact_loss as exact_loss
from ._exact_loss import exact_optimum as exact_optimum
from ._exact_loss import linear_length_loss as linear_length_loss
from ._exact_loss import softmax_length_loss as softmax_length_loss
from ._flow import FlowCourse as FlowCourse
from ._flow import LateRates as LateRates
from ._flow import SpectralWeights as SpectralWeights
from ._flow import late_rates as late_rates
from ._flow import losing_head_rate as losing_head_rate
from ._flow import mu_lag as mu_lag
from ._flow import nullcline as nullcline
from ._flow import off_task_fading as off_task_fading
from ._flow import reduced_course as reduced_course
from ._flow import reduced_velocity as reduced_velocity
from ._flow import single_head_course as single_head_course
from ._flow import spectral_flow as spectral_flow
from ._flow import spectral_velocity as spectral_velocity
from ._limits import OneHeadEach as OneHeadEach
from ._limits import ProfileLoss as ProfileLoss
from ._limits import SingleHead as SingleHead
from ._limits import attention_budget as attention_budget
from ._limits import equiangular_budget as equiangular_budget
from ._limits import filled_shares as filled_shares
from ._limits import flow_limit as flow_limit
from ._limits import flow_limit_loss as flow_limit_loss
from ._limits import loss_of_shares as loss_of_shares
from ._limits import lower_bound as lower_bound
from ._limits import profile_loss as profile_loss
from ._limits import sign_pair_loss as sign_pair_loss
from ._limits import single_head_optimum as single_head_optimum
from ._losses import first_order_loss as first_order_loss
from ._losses import linear_attention_loss as linear_attention_loss
from ._losses import linear_heads_loss as linear_heads_loss
from ._losses import spectral_loss as spectral_loss
from ._nonlinear import HeadWeights as HeadWeights
from ._nonlinear import hermite_coefficients as hermite_coefficients
from ._nonlinear import hermite_target as hermite_target
from ._nonlinear import linear_head as linear_head
from ._nonlinear import nonlinear_leading_loss as nonlinear_leading_loss
from ._nonlinear import nonlinear_loss as nonlinear_loss
from ._several_heads import HeadsLoss as HeadsLoss
from ._several_heads import exact_heads as exact_heads
from ._softmax_weights import SoftmaxMoments as SoftmaxMoments
from ._softmax_weights import Thresholds as Thresholds
from ._softmax_weights import concentration_exponent as concentration_exponent
from ._softmax_weights import concentration_ratio as concentration_ratio
from ._softmax_weights import expected_maximum as expected_maximum
from ._softmax_weights import hardmax_concentration as hardmax_concentration
from ._softmax_weights import saturation_point as saturation_point
from ._softmax_weights import softmax_moments as softmax_moments
from ._softmax_weights import thresholds as thresholds
from ._supports import flat_heads_loss as flat_heads_loss
from ._supports import heads_needed as heads_needed
from ._task_numbers import FlowOptions as FlowOptions
from ._task_numbers import TaskNumbers as TaskNumbers
from ._task_numbers import task_numbers as task_numbers
