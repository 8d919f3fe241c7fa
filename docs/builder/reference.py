"""Pages of the reference: a Markdown file for each public module, from the source and the docstrings.

Docstrings here are Markdown, which autodoc does not read. Signatures are those of the source, with the types and the
defaults as they are written there. Backticks around a public name become a link to it.
"""

import ast
import functools
import importlib.util
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import stepwell

_FENCE = ":" * 6
_CODE = re.compile(r"(?<![`\w}])`([A-Za-z_][\w.]*)(\(\))?`(?!`)")


class Entry(NamedTuple):
    """A public name: where it is exported, where it is defined, and its syntax tree there."""

    module: str
    name: str
    source: str
    node: ast.stmt
    remark: str

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}"


def public_modules() -> Iterator[ModuleType]:
    """Packages and modules without an underscore, but for the figures, which have pages of their own."""
    yield stepwell
    for module in pkgutil.walk_packages(stepwell.__path__, "stepwell."):
        if not re.search(r"\._|papers\.|templates", module.name):
            yield importlib.import_module(module.name)


@functools.cache
def _tree(module: str) -> ast.Module:
    path = importlib.import_module(module).__file__
    assert path is not None
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def _defined(module: str) -> dict[str, tuple[ast.stmt, str]]:
    """What the body of a module defines, with the string that stands below a constant."""
    body = _tree(module).body
    names: dict[str, tuple[ast.stmt, str]] = {}
    for node, below in zip(body, [*body[1:], None], strict=True):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] = (node, "")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names[name] = (node, _string(below))
            case ast.Assign(targets=[ast.Tuple(elts=targets)]):
                names |= {target.id: (node, _string(below)) for target in targets if isinstance(target, ast.Name)}
    return names


def _string(node: ast.stmt | None) -> str:
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
    return ""


def _exports(module: ModuleType) -> Iterator[tuple[str, str, str]]:
    """Public names of a module, each with the module that defines it and its name there."""
    here = module.__name__
    package = here if hasattr(module, "__path__") else here.rpartition(".")[0]
    for name in _defined(here):
        if not name.startswith("_"):
            yield name, here, name
    for node in ast.walk(_tree(here)):
        # `from ._file import name as name` exports a name; other imports are for use.
        if isinstance(node, ast.ImportFrom) and node.module:
            origin = importlib.util.resolve_name("." * node.level + node.module, package)
            for alias in node.names:
                if alias.asname == alias.name and origin.startswith("stepwell"):
                    yield alias.name, *_origin(origin, alias.name)


def _origin(module: str, name: str) -> tuple[str, str]:
    """The module that defines a name, through any number of imports."""
    if name in _defined(module):
        return module, name
    package = module if hasattr(importlib.import_module(module), "__path__") else module.rpartition(".")[0]
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    place = "." * node.level + (node.module or "")
                    return _origin(importlib.util.resolve_name(place, package), alias.name)
    raise LookupError(f"{module} exports {name}, and it is not found where that comes from")


@functools.cache
def entries() -> dict[str, dict[str, Entry]]:
    """By module, then by name. A name that several modules export is an entry of the first, the shallowest."""
    seen: dict[tuple[str, str], Entry] = {}
    found: dict[str, dict[str, Entry]] = {}
    for module in public_modules():
        here = found.setdefault(module.__name__, {})
        for name, source, original in _exports(module):
            if module is stepwell and not source.startswith("stepwell._util"):
                continue  # it passes on what rooms export, and its page lists these
            node, remark = _defined(source)[original]
            here[name] = seen.setdefault((source, original), Entry(module.__name__, name, source, node, remark))
    return found


@functools.cache
def _index() -> dict[str, list[Entry]]:
    """The entries of each name, without their modules."""
    index: dict[str, list[Entry]] = {}
    for names in entries().values():
        for entry in names.values():
            if entry not in index.setdefault(entry.name, []):
                index[entry.name].append(entry)
    return index


def _target(name: str, module: str) -> str | None:
    """The full name that a name in backticks means in a module, if it means one for sure."""
    if name.startswith("stepwell.") or "." in name:
        full = name if name.startswith("stepwell.") else f"stepwell.{name}"
        place, _, last = full.rpartition(".")
        entry = entries().get(place, {}).get(last)
        return entry.full if entry else None
    if name in entries().get(module, {}):
        return entries()[module][name].full
    same = _index().get(name, [])
    if len(same) > 1:  # the one of the package that this module is in
        same = [entry for entry in same if module.startswith(f"{entry.module}.")]
    return same[0].full if len(same) == 1 else None


def _markdown(text: str, module: str, own: set[str]) -> str:
    """A docstring as MyST reads it: doctests fenced, public names linked, but for the names of its own arguments."""
    lines: list[str] = []
    example = False
    for line in text.splitlines():
        if not example and line.lstrip().startswith(">>>"):
            lines += ["```pycon"]
            example = True
        elif example and not line.strip():
            lines += ["```"]
            example = False
        if not example:
            line = _CODE.sub(lambda match: _linked(match, module, own), line)
        lines.append(line)
    return "\n".join(lines + ["```"] * example)


def _linked(match: re.Match, module: str, own: set[str]) -> str:
    full = None if match[1] in own else _target(match[1], module)
    return match[0] if full is None else f"{{py:obj}}`{match[1]}{match[2] or ''} <{full}>`"


class _Qualify(ast.NodeTransformer):
    """Names of ours in annotations become full names, so that they are links."""

    def __init__(self, module: str):
        self.module = module

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(_target(node.id, self.module) or node.id)


def _annotation(node: ast.expr, module: str) -> str:
    return ast.unparse(_Qualify(module).visit(ast.parse(ast.unparse(node), mode="eval").body))


def _signature(function: ast.FunctionDef, module: str, *, method: bool) -> str:
    copy = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(copy, ast.FunctionDef)
    arguments = copy.args
    if method:
        (arguments.posonlyargs or arguments.args or [None]).pop(0)
    for argument in ast.walk(arguments):
        if isinstance(argument, ast.arg) and argument.annotation is not None:
            argument.annotation = _Qualify(module).visit(argument.annotation)
    returns = f" -> {_annotation(copy.returns, module)}" if copy.returns else ""
    return f"({ast.unparse(arguments)}){returns}"


def _directive(kind: str, head: str, options: list[str], body: str, depth: int = 0) -> str:
    fence = _FENCE[depth:]
    return "\n".join([f"{fence}{{py:{kind}}} {head}", *options, "", body, fence, ""])


def _names(function: ast.FunctionDef) -> set[str]:
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def _function(entry: Entry, node: ast.FunctionDef) -> str:
    body = _markdown(ast.get_docstring(node) or "", entry.module, _names(node) | {entry.name})
    return _directive("function", entry.name + _signature(node, entry.module, method=False), [], body)


def _decorators(node: ast.FunctionDef) -> set[str]:
    return {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}


def _class(entry: Entry, node: ast.ClassDef) -> str:
    methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
    fields = [
        (each, _string(below))
        for each, below in zip(node.body, [*node.body[1:], None], strict=True)
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_")
    ]
    bases = [_annotation(base, entry.module) for base in node.bases]
    head = entry.name
    own = {ast.unparse(each.target) for each, _ in fields} | {entry.name} | set(methods)
    if "__init__" in methods:
        head += _signature(methods["__init__"], entry.module, method=True)
        own |= _names(methods["__init__"])
    parts = [f"Bases: {', '.join(_base(base) for base in bases)}\n"] if bases else []
    parts.append(_markdown(ast.get_docstring(node) or "", entry.module, own) + "\n")
    for each, text in fields:
        name = ast.unparse(each.target)
        options = [f":type: {_annotation(each.annotation, entry.module)}"]
        parts.append(_directive("attribute", name, options, _markdown(text, entry.module, own), 1))
    for name, method in methods.items():
        if not name.startswith("_") and ast.get_docstring(method):
            parts.append(_method(entry, method, own))
    return _directive("class", head, [], "\n".join(parts))


def _base(text: str) -> str:
    return f"{{py:obj}}`{text}`" if re.fullmatch(r"stepwell\.[\w.]+", text) else f"`{text}`"


def _method(entry: Entry, method: ast.FunctionDef, own: set[str]) -> str:
    decorators = _decorators(method)
    abstract = [":abstractmethod:"] * ("abstractmethod" in decorators)
    options = [f":{name}:" for name in ("classmethod", "staticmethod") if name in decorators] + abstract
    body = _markdown(ast.get_docstring(method) or "", entry.module, own | _names(method))
    if decorators & {"property", "cached_property"}:
        kind = [f":type: {_annotation(method.returns, entry.module)}"] if method.returns else []
        return _directive("property", method.name, kind + abstract, body, 1)
    signature = _signature(method, entry.module, method="staticmethod" not in decorators)
    return _directive("method", method.name + signature, options, body, 1)


def _constant(entry: Entry) -> str:
    node = entry.node
    assert isinstance(node, ast.Assign | ast.AnnAssign)
    single = isinstance(node, ast.AnnAssign) or isinstance(node.targets[0], ast.Name)
    value = ast.unparse(node.value) if single and node.value is not None else ""
    options = [f":value: {value}"] if 0 < len(value) <= 80 and "\n" not in value else []
    return _directive("data", entry.name, options, _markdown(entry.remark, entry.module, {entry.name}))


def _item(entry: Entry) -> str:
    match entry.node:
        case ast.FunctionDef() as node:
            return _function(entry, node)
        case ast.ClassDef() as node:
            return _class(entry, node)
    return _constant(entry)


def _summary(entry: Entry) -> str:
    """The first sentence of a docstring, for a table."""
    node = entry.node
    text = ast.get_docstring(node) if isinstance(node, ast.FunctionDef | ast.ClassDef) else entry.remark
    paragraph = " ".join((text or "").partition("\n\n")[0].split())
    return paragraph.replace("|", "\\|")


def _table(names: dict[str, Entry]) -> list[str]:
    if not names:
        return []
    rows = [f"| {{py:obj}}`{name} <{entry.full}>` | {_summary(entry)} |" for name, entry in names.items()]
    return ["| name | what it is |", "|---|---|", *rows, ""]


def page(module: str) -> str:
    """The page of a module, as Markdown."""
    names = entries()[module]
    if module == "stepwell":
        by_source = {(entry.source, entry.name): entry for names in entries().values() for entry in names.values()}
        names = {name: by_source[source, original] for name, source, original in _exports(stepwell)}
    text = inspect.cleandoc(importlib.import_module(module).__doc__ or "")
    lines = [f"# `{module}`", "", f"```{{py:module}} {module}", "```", "", _markdown(text, module, set()), ""]
    lines += _table(names)
    lines += [_item(entry) for entry in names.values() if entry.module == module]
    return "\n".join(lines)


def write(folder: Path) -> list[str]:
    """Write all pages, each only if it changed, and return the names of the modules."""
    folder.mkdir(parents=True, exist_ok=True)
    modules = [*entries()]
    pages = {f"{module}.md": page(module) for module in modules}
    listed = "\n".join(modules)
    pages["index.md"] = textwrap.dedent("""\
        # Reference

        Every public name, from its docstring. Examples there are run by the tests; they assume `import jax`,
        `import jax.numpy as jnp`, `import numpy as np` and `import stepwell as sw`. What one needs most is at the top
        of the package, {py:mod}`stepwell`; each room has more.

        ```{toctree}
        %s
        ```
        """).replace("%s", listed)
    for name, text in pages.items():
        write_if_changed(folder / name, text)
    for stale in set(folder.glob("*.md")) - {folder / name for name in pages}:
        stale.unlink()
    return modules


def write_if_changed(path: Path, text: str) -> None:
    """Sphinx reads again what is newer than its last build."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def documented() -> set[str]:
    """The full names that have an entry, in any module that exports them."""
    return {f"{module}.{name}" for module, names in entries().items() for name in names}
