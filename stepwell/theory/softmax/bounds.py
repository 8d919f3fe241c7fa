"""Lower bounds on the loss of any weights, and how a budget of attention is best divided."""

from ._bounds import Profile as Profile
from ._bounds import attention_budget as attention_budget
from ._bounds import equiangular_budget as equiangular_budget
from ._bounds import lower_bound as lower_bound
from ._bounds import profile_loss as profile_loss
from ._bounds import sign_pair_loss as sign_pair_loss
from ._water_filling import filled_shares as filled_shares
from ._water_filling import loss_of_shares as loss_of_shares
