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
    """The same loss of models like this one, in the form whose first gradient is fastest; it may have no second.

    **Arguments:**

    - `objective`: the loss.
    - `model`: a model of the class and shape that is trained; its weights do not matter.

    **Returns:** an objective that computes the same loss, or `objective` itself where there is none faster.

    **Example:**

    >>> import jax
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 8)
    >>> options = {"activation": "softmax", "key": jax.random.key(0)}
    >>> model = sw.models.SeparateAttention.random(dim=2, heads=2, scale=0.1, **options)
    >>> loss = sw.objectives.Sampled(task.sample(16, key=jax.random.key(1)))
    >>> fast = sw.dynamics.fast.gradient_form(loss, model)
    >>> abs(float(fast(model)) - float(loss(model))) < 1e-12
    True
    """
    return objective


@functools.singledispatch
def multi_step_form(objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
    """The same loss in the form that descends fastest: an `AbstractMultiStep` where there is one.

    **Arguments:**

    - `objective`: the loss.
    - `model`: a model of the class and shape that is trained; its weights do not matter.

    **Returns:** an objective that computes the same loss; where there is no `AbstractMultiStep`, that of
    `gradient_form`.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=1.0)
    >>> loss = sw.objectives.Population(task)
    >>> fast = sw.dynamics.fast.multi_step_form(loss, model)
    >>> abs(float(fast(model)) - float(loss(model))) < 1e-12
    True
    """
    return gradient_form(objective, model)


@functools.singledispatch
def stiff_form(objective: AbstractObjective, model: AbstractModel) -> AbstractObjective:
    """The same loss in the form whose stiff steps are fastest.

    That is an `AbstractRosenbrock` or an `AbstractResolvent` where there is one.

    **Arguments:**

    - `objective`: the loss.
    - `model`: a model of the class and shape that is trained; its weights do not matter.

    **Returns:** an objective that computes the same loss, or `objective` itself where there is none faster.

    **Example:**

    >>> import jax.numpy as jnp
    >>> import stepwell as sw
    >>> task = sw.tasks.InContextRegression(sw.tasks.covariance([1.0, 0.5]), 31)
    >>> model = sw.models.SeparateAttention.aligned(jnp.eye(2), heads=2, scale=1.0)
    >>> loss = sw.objectives.Population(task)
    >>> fast = sw.dynamics.fast.stiff_form(loss, model)
    >>> abs(float(fast(model)) - float(loss(model))) < 1e-12
    True
    """
    return objective
