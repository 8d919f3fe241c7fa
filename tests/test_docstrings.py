"""Public functions say what they take, what they return, and show it in an example that runs.

A docstring has, after its summary, `**Arguments:**` with a line "- `name`: …" for each parameter, `**Returns:**`, and
`**Example:**` with a doctest. Classes that users construct have the same, for the parameters of the constructor.
"""

import doctest
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stepwell

# Here users construct the classes themselves; elsewhere functions return them.
_CONSTRUCTED = ("stepwell.tasks", "stepwell.models", "stepwell.objectives", "stepwell.dynamics")


def _public_modules() -> Iterator[ModuleType]:
    """Packages and modules without an underscore, but for the figures, which all follow one protocol."""
    for module in pkgutil.walk_packages(stepwell.__path__, "stepwell."):
        if not re.search(r"\._|papers\.", module.name):
            yield importlib.import_module(module.name)
    yield stepwell  # last: what it passes on is known by its room


def _public_objects() -> dict[str, Any]:
    """By full name, everything of ours that a public module exports and that can be called."""
    names: dict[int, tuple[str, Any]] = {}
    for module in _public_modules():
        for name in dir(module):
            value = getattr(module, name)
            ours = getattr(value, "__module__", None) or ""
            if not name.startswith("_") and callable(value) and ours.startswith("stepwell"):
                names.setdefault(id(value), (f"{module.__name__}.{name}", value))
    return dict(names.values())


OBJECTS = _public_objects()
FUNCTIONS = {name: value for name, value in OBJECTS.items() if inspect.isroutine(value)}
CLASSES = {
    name: value
    for name, value in OBJECTS.items()
    if inspect.isclass(value)
    and name.rpartition(".")[0] in _CONSTRUCTED
    and not inspect.isabstract(value)
    and not value.__name__.startswith("Abstract")
}
MODULES = sorted({value.__module__ for value in OBJECTS.values()})


def _section(documentation: str, title: str) -> str:
    """What stands under a heading, to the next one or the end."""
    found = re.search(rf"^\*\*{title}:\*\*(.*?)(?=^\*\*\w+:\*\*|\Z)", documentation, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def _problems(value: Callable, *, returns: bool) -> list[str]:
    documentation = inspect.getdoc(value) or ""
    signature = inspect.signature(value)
    listed = re.findall(
        r"`\**(\w+)`", "\n".join(re.findall(r"^- (`[^:]*):", _section(documentation, "Arguments"), re.MULTILINE))
    )
    parameters = list(signature.parameters)
    problems = []
    if sorted(listed) != sorted(parameters):
        problems.append(f"parameters are {parameters}, **Arguments:** lists {listed}")
    if returns and signature.return_annotation not in (None, "None") and not _section(documentation, "Returns"):
        problems.append("**Returns:** is missing")
    if ">>>" not in _section(documentation, "Example"):
        problems.append("**Example:** has no doctest")
    return problems


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_says_what_it_takes_and_returns(name: str):
    assert not _problems(FUNCTIONS[name], returns=True)


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_says_what_it_is_made_of(name: str):
    assert not _problems(CLASSES[name], returns=False)


@pytest.mark.parametrize("name", MODULES)
def test_examples_work(name: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assumed = {"np": np, "jax": jax, "jnp": jnp, "sw": stepwell}  # as the docstring of `stepwell` says
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    result = doctest.testmod(importlib.import_module(name), extraglobs=assumed, optionflags=flags, report=False)
    assert not result.failed
