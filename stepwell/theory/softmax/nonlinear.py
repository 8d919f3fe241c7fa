"""Nonlinear targets, in Hermite coefficients."""

from ._nonlinear import Head as Head
from ._nonlinear import hermite_coefficients as hermite_coefficients
from ._nonlinear import hermite_target as hermite_target
from ._nonlinear import linear_head as linear_head
from ._nonlinear import nonlinear_leading_loss as nonlinear_leading_loss
from ._nonlinear import nonlinear_loss as nonlinear_loss
