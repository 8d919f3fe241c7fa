"""The import rules of ARCHITECTURE.md: dependencies between rooms point left only, and at public modules only."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "stepwell"

_RUN = {"tasks", "models", "objectives", "dynamics", "trajectory"}
MAY_IMPORT: dict[str, set[str]] = {
    "native": set(),
    "tasks": {"native"},
    "models": {"tasks"},
    "objectives": {"native", "tasks", "models"},
    "trajectory": {"tasks", "models"},
    "dynamics": {"native", "tasks", "models", "objectives", "trajectory"},
    "theory": {"tasks"},
    "analysis": _RUN | {"theory"},
    "experiments": _RUN | {"theory", "analysis"},
    "store": {"experiments"},
    "sweeps": _RUN | {"theory", "analysis", "experiments", "store"},
    "figures": {"native", "trajectory", "analysis", "experiments"},
    "papers": _RUN | {"theory", "analysis", "experiments", "figures"},
    "explorer": _RUN | {"theory", "analysis", "experiments", "store", "sweeps"},
}
MAY_IMPORT["cli"] = set(MAY_IMPORT)


def _absolute(node: ast.ImportFrom, package: list[str]) -> str:
    """The full dotted name that a `from … import` reads from, given the package its file is in."""
    if node.level == 0:
        return node.module or ""
    parts = package[: len(package) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def _imported(tree: ast.Module, package: list[str]) -> list[tuple[int, str]]:
    """Line and full dotted name of everything imported, at any depth of the file."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = _absolute(node, package)
            found += [(node.lineno, f"{source}.{alias.name}") for alias in node.names]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__"):
                found.append((node.lineno, str(node.args[0].value)))
    return found


def violations(source: str, path: Path) -> list[str]:
    """What is wrong with the imports of a file; `path` is relative to the package, as `tasks/_batch.py`."""
    room = path.parts[0].removesuffix(".py")
    if room in ("__init__", "__main__"):
        return []
    helper = room == "_util"
    if not helper and room not in MAY_IMPORT:
        return [f"{path}: `{room}` is not a room; add it to ARCHITECTURE.md and to the table in tests/test_imports.py"]
    allowed = set() if helper else MAY_IMPORT[room] | {room}

    wrong = []
    for line, name in _imported(ast.parse(source), ["stepwell", *path.parent.parts]):
        top, *rest = name.split(".")
        if top != "stepwell" or rest == ["__version__"]:
            continue
        target = rest[0] if rest else ""
        if target in MAY_IMPORT:
            if target not in allowed:
                wrong.append(f"{path}:{line}: `{room}` may not import `{target}`")
            elif target != room and any(part.startswith("_") for part in rest[1:]):
                wrong.append(f"{path}:{line}: `{name}` is private to `{target}`; import what it exports")
        elif not target.startswith("_"):
            wrong.append(f"{path}:{line}: `{name}` is not a room; import from the room that has it")
    return wrong


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_left(path: Path):
    assert violations(path.read_text(encoding="utf-8"), path.relative_to(PACKAGE)) == []


def test_rooms_are_the_folders():
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name not in ("__pycache__", "_util")}
    assert folders == set(MAY_IMPORT)


def test_the_table_has_no_cycle():
    placed: set[str] = set()
    while len(placed) < len(MAY_IMPORT):
        ready = {room for room, needs in MAY_IMPORT.items() if room not in placed and needs - {room} <= placed}
        assert ready, f"these rooms import each other: {set(MAY_IMPORT) - placed}"
        placed |= ready


def test_architecture_has_the_same_table():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", text, flags=re.MULTILINE)
    special = {"nothing": set(), "every other room": set(MAY_IMPORT) - {"cli"}}
    assert len(rows) == len(MAY_IMPORT)
    assert {room: special.get(cell, set(re.findall(r"`(\w+)`", cell))) for room, cell in rows} == MAY_IMPORT


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("theory/linear/_levels.py", "import stepwell.models"),
        ("theory/linear/_levels.py", "from stepwell.models import MergedAttention"),
        ("theory/linear/_levels.py", "from stepwell import dynamics"),
        ("theory/linear/_levels.py", "from ...models import MergedAttention"),
        ("theory/linear/__init__.py", "from ... import models"),
        ("theory/_levels.py", "def f():\n    from ..dynamics._flow import flow"),
        ("theory/_levels.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..models import Merged"),
        ("theory/_levels.py", "import importlib\nimportlib.import_module('stepwell.models')"),
        ("theory/_levels.py", "import stepwell"),
        ("theory/_levels.py", "from .. import something_else"),
        ("figures/_claim.py", "from ..papers import linear"),
        ("cli/_train.py", "def run():\n    from stepwell.experiments._run import run"),
        ("cli/_train.py", "from ..experiments import _run"),
        ("experiments/_run.py", "from stepwell.store import Store"),
        ("dynamics/_flow.py", "from ..experiments import Experiment"),
        ("papers/linear/fig01.py", "import stepwell.figures._claim"),
        ("analysis/_maps.py", "from stepwell.theory.linear._levels import levels"),
        ("_util/errors.py", "from ..tasks import Regression"),
        ("_util.py", "from .tasks import Regression"),
        ("kitchen/_stove.py", ""),
        ("kitchen.py", ""),
    ],
)
def test_the_checker_catches(path: str, source: str):
    assert len(violations(source, Path(path))) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "theory/linear/_levels.py",
            "from ...tasks import Regression\nfrom ._other import level\nfrom .. import softmax",
        ),
        (
            "theory/_levels.py",
            "import numpy as np\nfrom stepwell._util import errors\nfrom stepwell import __version__",
        ),
        ("trajectory.py", "from .models import MergedAttention"),
        ("_util/types.py", "from .errors import StepwellError"),
        ("cli/_train.py", "def run():\n    from ..dynamics import descend\n    from ..figures import reproduce"),
        ("cli/_train.py", "from stepwell._util import checks\nfrom stepwell._util.memory import require_memory"),
        ("cli/_predict.py", "from ._parser import Parser\nfrom stepwell.experiments import Experiment"),
        ("__init__.py", "from . import tasks"),
    ],
)
def test_the_checker_allows(path: str, source: str):
    assert violations(source, Path(path)) == []
