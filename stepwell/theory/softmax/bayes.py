"""What can be known at all: the risk of the posterior mean and of ridge regression."""

from ._bayes import Estimate as Estimate
from ._bayes import Penalized as Penalized
from ._bayes import bayes_risk as bayes_risk
from ._bayes import ridge_risk as ridge_risk
from ._bayes import sampled_bayes_risk as sampled_bayes_risk
from ._bayes import sampled_ridge_risk as sampled_ridge_risk
