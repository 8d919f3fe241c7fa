"""Kinds from a user's own file."""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from stepwell._util.errors import InvalidInput
from stepwell._util.text import error_line

LOADED: list[str] = []
"""Absolute paths of the files that were loaded, in order: workers load them too."""


def load_kinds(path: str | os.PathLike) -> Any:
    """Import a Python file, so that the kinds which it registers are known.

    **Arguments:**

    - `path`: the file; what follows `--with` on the command line.

    **Returns:** the module. `InvalidInput` is raised if it cannot be imported, or is named like another module.

    **Example:**

    >>> from pathlib import Path
    >>> text = "from stepwell.experiments import register\\n@register('task', 'mine')\\ndef mine(*, dim: int = 2): ..."
    >>> _ = Path("my_lab.py").write_text(text)
    >>> sw.experiments.load_kinds("my_lab.py").__name__
    'my_lab'
    """
    file = Path(path).resolve()
    name = file.stem
    known = sys.modules.get(name)
    origin = getattr(known, "__file__", None)
    if origin is not None and Path(origin).resolve() == file:
        _note(file)
        return known
    if not file.is_file() or file.suffix != ".py" or not name.isidentifier():
        raise InvalidInput(f"cannot load {path}; give a Python file that is there, such as my_lab.py")
    if known is not None or _is_installed(name):
        raise InvalidInput(f"{path} is named like the module {name}; give it another name, such as my_{name}.py")
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as an import would: files name its classes by it
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, InvalidInput):
            raise
        if isinstance(error, Exception):
            raise InvalidInput(f"{path} cannot be imported ({error_line(error)}); mend it and try again") from error
        raise
    _note(file)
    return module


def _is_installed(name: str) -> bool:
    """Whether an import of this name would be of the standard library or of an installed package."""
    spec = importlib.util.find_spec(name)
    places = Path(spec.origin).parts if spec is not None and spec.origin is not None else ()
    return name in sys.stdlib_module_names or "site-packages" in places or "dist-packages" in places


def _note(file: Path) -> None:
    if str(file) not in LOADED:
        LOADED.append(str(file))
