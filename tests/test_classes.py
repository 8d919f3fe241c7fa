"""Abstract or final: no class of the package overrides a concrete method of an abstract class of the package."""

import importlib
import inspect
import pkgutil

import pytest

import stepwell


def modules() -> list[str]:
    """All modules of the package but commands, which run when they are imported, and templates of users' files."""
    found = (module.name for module in pkgutil.walk_packages(stepwell.__path__, "stepwell."))
    return [name for name in found if not name.endswith(".__main__") and "._templates" not in name]


def classes() -> list[type]:
    made = {
        each
        for name in modules()
        for each in vars(importlib.import_module(name)).values()
        if inspect.isclass(each) and each.__module__.startswith("stepwell.")
    }
    return sorted(made, key=lambda each: (each.__module__, each.__qualname__))


def concrete(owner: type) -> set[str]:
    """The methods and properties that a class defines and does not leave to others; names of Python's own machinery
    are those that `dataclass` and Equinox write into every class."""
    written = {"__init__", "__check_init__", "__post_init__", "__repr__", "__eq__", "__hash__", "__getstate__"}
    return {
        name
        for name, value in vars(owner).items()
        if (callable(value) or isinstance(value, property | classmethod | staticmethod))
        and not getattr(value, "__isabstractmethod__", False)
        and not inspect.isclass(value)
        and name not in written
        and (not name.startswith("__") or name == "__call__")
    }


def overridden(kind: type) -> list[str]:
    bases = [
        base
        for base in kind.__mro__[1:]
        if base.__module__.startswith("stepwell.") and base.__name__.startswith("Abstract")
    ]
    own = concrete(kind)
    return [f"{kind.__name__}.{name} of {base.__name__}" for base in bases for name in sorted(own & concrete(base))]


def test_no_concrete_method_of_an_abstract_class_is_overridden():
    found = classes()
    assert len(found) > 100
    assert [each for kind in found for each in overridden(kind)] == []


class AbstractOne:
    def spoken(self) -> int:
        return 1


AbstractOne.__module__ = "stepwell.nowhere"


@pytest.mark.parametrize("value", [lambda self: 2, property(lambda self: 2), staticmethod(lambda: 2)])
def test_what_is_overridden_is_found(value):
    kind = type("Two", (AbstractOne,), {"spoken": value})
    assert overridden(kind) == ["Two.spoken of AbstractOne"]
    assert overridden(type("Three", (AbstractOne,), {"spoken": 3, "told": value})) == []
