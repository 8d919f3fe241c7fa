"""Which reduced equations the training of a model follows."""

from ._model import AbstractModel, Theory


def theory_of(model_class: type) -> Theory | None:
    """Return the equations of `theory.linear` that linear models of a class follow.

    **Arguments:**

    - `model_class`: the class of a model.

    **Returns:** "separate" or "merged", a name in `theory.linear.PREDICTORS`, where the class declares `theory`, or the
    form "separate", in its own body; the static method `theory_weights` of the class has what these equations read.
    None where it does not: a subclass may change the dynamics, and inherits no declaration.

    **Example:**

    >>> import stepwell as sw
    >>> class Own(sw.SeparateAttention): pass
    >>> [sw.models.theory_of(each) for each in (sw.SeparateAttention, sw.models.CubicMLP, Own)]
    ['separate', 'merged', None]
    """
    if not issubclass(model_class, AbstractModel):
        return None
    own = vars(model_class)
    return own.get("theory") or ("separate" if own.get("declared_form") == "separate" else None)
