"""When tasks emerge, and how long it lasts."""

from ._emergence import loss_drop_width as loss_drop_width
from ._emergence import omega_climb_width as omega_climb_width
from ._warm_up import Bracket as Bracket
from ._warm_up import WarmUp as WarmUp
from ._warm_up import WarmUpPath as WarmUpPath
from ._warm_up import emergence_bracket as emergence_bracket
from ._warm_up import emergence_time as emergence_time
from ._warm_up import warm_up as warm_up
from ._warm_up import warm_up_path as warm_up_path
