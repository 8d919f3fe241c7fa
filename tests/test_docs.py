"""Every code block of the documents works.

A document's blocks run in order, in one temporary folder: `python` blocks in one namespace, and in shell blocks the
`$` commands that call `stepwell` or `python train.py`. Those that need a shell run as processes of their own; the
others are called here, which spares them the import of JAX. A `toml` or `python` block that begins with the name of a
file as a comment is that file. `<!-- not run: reason -->` above a block leaves it out.
`{code-cell}` blocks are run when the site is built.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from stepwell.cli import main
from stepwell.experiments import LOADED, SECTIONS, kinds
from stepwell.figures import FIGURES

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
DOCUMENTS += [path for path in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in path.parts]

_SHELL = ("console", "bash", "sh", "shell")
_FENCE = re.compile(r"^\s*```+\s*(\w*)")
_NOT_RUN = re.compile(r"^\s*<!--\s*not run\b:?(.*)-->\s*$")
# At the start of a command, in a pipe or list, or inside a loop.
_OURS = re.compile(r"(?:^|[;&|(]\s*|\bdo\s+)(?:stepwell|python train\.py)(?:\s|$)")
_TIMEOUT_SECONDS = 300


class Block(NamedTuple):
    language: str
    line: int  # of the fence that opens it, counted from 1
    text: str


def blocks(text: str) -> list[Block]:
    """The blocks of a Markdown document that are to be run."""
    found: list[Block] = []
    lines = text.splitlines()
    above = ""
    start = None
    language = ""
    for number, line in enumerate(lines, start=1):
        fence = _FENCE.match(line)
        if start is not None:
            if fence:
                excuse = _NOT_RUN.match(above)
                assert not excuse or excuse[1].strip(), f"line {start}: `not run` needs a reason"
                if not excuse:
                    found.append(Block(language, start, "\n".join(lines[start : number - 1])))
                start, above = None, ""
        elif fence:
            start, language = number, fence[1]
        elif line.strip():
            above = line
    assert start is None, f"line {start}: the code block is never closed"
    return found


def is_notebook(text: str) -> bool:
    """Whether the cells of a page are run when the site is built."""
    return text.startswith("---\nfile_format: mystnb\n")


def commands(block: Block) -> list[str]:
    """The commands of a shell block that are to be run: those after `$` that call Stepwell, the rest being output."""
    joined = re.sub(r"\\\n\s*", "", block.text)
    found = []
    for line in joined.splitlines():
        assert not _OURS.match(line), f"line {block.line}: write `$ {line}`, so that the command is run"
        if line.startswith("$ ") and _OURS.search(line[2:]):
            found.append(line[2:])
    return found


def arguments_of(command: str) -> list[str] | None:
    """The arguments of `main`, if the command is nothing else; None if it takes a shell."""
    words = command.removeprefix("python ")
    if not words.startswith(("stepwell ", "train.py ")) or re.search(
        r"[|&;<>$`*?~(){}\[\]]", re.sub("'[^']*'", "", command)
    ):
        return None
    return shlex.split(words, comments=True)[words.startswith("stepwell") :]


def _call(arguments: list[str], place: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(arguments)
    except SystemExit as end:  # of --help
        status = end.code
    printed = capsys.readouterr()
    assert not status, f"{place}: $ {shlex.join(arguments)}\nexit {status}\n{printed.out}\n{printed.err}"


def _run_command(command: str, place: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "STEPWELL_STORE")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", command], env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
    )
    assert done.returncode == 0, f"{place}: $ {command}\nexit {done.returncode}\n{done.stdout}\n{done.stderr}"


@pytest.fixture
def nothing_stays(tmp_path: Path):
    """Figures, kinds and modules that a document adds go at the end."""
    lists = [FIGURES, *(kinds(section) for section in SECTIONS)]
    before, files, path = [dict(each) for each in lists], list(LOADED), list(sys.path)
    yield
    for each, earlier in zip(lists, before, strict=True):
        each.clear()
        each.update(earlier)
    LOADED[:], sys.path[:] = files, path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.usefixtures("nothing_stays")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_document(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    for name in ("STEPWELL_STORE", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if (ROOT / "train.py").exists():
        shutil.copy(ROOT / "train.py", tmp_path)
    # A real module, since classes defined in a block look theirs up.
    module = ModuleType("document")
    monkeypatch.setitem(sys.modules, "document", module)
    for block in blocks(document.read_text(encoding="utf-8")):
        named = re.match(r"# (\S+\.(?:toml|py))\n", block.text)
        if named and block.language in ("toml", "python"):
            (tmp_path / named[1]).write_text(block.text)
        elif block.language == "python":
            # The empty lines make a traceback point at the line of the document.
            exec(compile("\n" * block.line + block.text, document, "exec"), module.__dict__)
        elif block.language in _SHELL:
            for command in commands(block):
                arguments, place = arguments_of(command), f"{document.name}:{block.line}"
                if arguments is None:
                    _run_command(command, place)
                else:
                    _call(arguments, place, capsys)


def test_blocks_are_found():
    text = """
```python
a = 1
```
<!-- not run: needs a screen -->

```console
$ stepwell explore
```
```text
$ stepwell
```
"""
    assert blocks(text) == [Block("python", 2, "a = 1"), Block("text", 10, "$ stepwell")]


@pytest.mark.parametrize(
    "text", ["<!-- not run -->\n```python\n```", "<!-- not run: -->\n```python\n```", "```python\n"]
)
def test_bad_documents_are_refused(text: str):
    with pytest.raises(AssertionError):
        blocks(text)


def test_commands_are_found():
    text = r"""$ make test
$ stepwell predict \
    --in_dim 4
stepwells are deep
$ cd stepwell
$ for r in 2 1; do python train.py --rank $r; done
$ stepwell --help | head"""
    assert commands(Block("console", 1, text)) == [
        "stepwell predict --in_dim 4",
        "for r in 2 1; do python train.py --rank $r; done",
        "stepwell --help | head",
    ]


def test_a_command_without_its_dollar_is_refused():
    with pytest.raises(AssertionError, match="write `\\$ stepwell"):
        commands(Block("bash", 1, "stepwell --help"))


def test_commands_that_need_no_shell_are_known():
    assert arguments_of("stepwell runs ls 'final_loss<0.3' --limit 5") == [
        "runs",
        "ls",
        "final_loss<0.3",
        "--limit",
        "5",
    ]
    assert arguments_of("python train.py --head 3 --show") == ["train.py", "--head", "3", "--show"]
    for command in ("stepwell --help | head", "python other.py", "stepwell replay *.npz", "A=b stepwell doctor"):
        assert arguments_of(command) is None
