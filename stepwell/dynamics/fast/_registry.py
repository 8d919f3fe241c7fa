"""Which fast form serves an objective; the only place that dynamics ask.

A fast form is another objective that computes the same loss, for models that were proved to be of a form it knows
(`is_attention`, `is_separate` and their like, never `isinstance`). It is registered for the type of the objective in
its own file; without one the objective serves itself:

    @gradient_form.register
    def _(objective: Sampled, model: AbstractModel) -> AbstractObjective:
        return FusedSampled.of(objective, model) or objective

A registration serves subclasses too, and those may compute something else: `of` refuses them.
"""

import functools

from stepwell.models import AbstractModel
from stepwell.objectives import AbstractObjective


@functools.singledispatch
def gradient_form(objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
    """The same loss of models like this one, in the form whose first gradient is fastest; it may have no second."""
    return objective


@functools.singledispatch
def multi_step_form(objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
    """The same loss in the form that descends fastest: an `AbstractMultiStep` where there is one."""
    return gradient_form(objective, model)


@functools.singledispatch
def stiff_form(objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
    """The same loss in the form whose stiff steps are fastest: an `AbstractRosenbrock` or an `AbstractResolvent` where
    there is one."""
    return objective
