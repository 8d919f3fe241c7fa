"""The site is whole: every public name has an entry, and what its pages name exists."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from test_docs import ROOT, is_notebook

from docs.builder import fields, papers, project, reference
from stepwell.figures import FIGURES

PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in path.parts]


def _of_stepwell(value: object) -> bool:
    return (getattr(value, "__module__", None) or "").startswith("stepwell")


@pytest.mark.parametrize("module", [*reference.public_modules()], ids=lambda module: module.__name__)
def test_every_public_name_is_in_the_reference(module: ModuleType):
    names = {name for name, value in vars(module).items() if not name.startswith("_") and _of_stepwell(value)}
    names -= {"InvalidInput", "Parser"} if module.__name__ == "stepwell.cli" else set()  # used there, of other modules
    page = reference.page(module.__name__)
    for name in sorted(names):
        entry = reference.entries()[module.__name__].get(name)
        assert entry is not None, f"{module.__name__}.{name} is not in the reference"
        home = page if entry.module == module.__name__ else reference.page(entry.module)
        assert re.search(rf"^:::+{{py:\w+}} {entry.name}\b", home, re.MULTILINE), name


def test_the_table_of_fields_and_the_schema_are_those_of_the_declarations():
    """Renewed by `python -m docs.builder.fields`."""
    text = fields.PAGE.read_text(encoding="utf-8")
    assert fields.page(text) == text
    printed = subprocess.run([sys.executable, "-m", "stepwell.experiments"], capture_output=True, text=True, check=True)
    assert printed.stdout == fields.SCHEMA.read_text(encoding="utf-8")


def test_names_of_the_package_itself_are_listed():
    page = reference.page("stepwell")
    assert "{py:obj}`flow <stepwell.dynamics.flow>`" in page
    assert "{py:obj}`levels <stepwell.theory.linear.levels>`" in page


def test_a_signature_is_as_it_is_written():
    page = reference.page("stepwell.dynamics")
    assert re.search(r"{py:function} flow\(model: stepwell.models.AbstractModel \| .*until: float \| Literal\[", page)
    assert "```pycon\n>>> " in page


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name == "theory"], ids=lambda page: page.name)
def test_the_tests_that_check_equations_exist(page: Path):
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")):
        assert re.search(rf"def {name}\b", (ROOT / file).read_text(encoding="utf-8")), (file, name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_a_page_is_run_by_the_build_or_by_the_tests(page: Path):
    text = page.read_text(encoding="utf-8")
    if is_notebook(text):
        assert "\n```python" not in text, "a notebook's code is in {code-cell}, which the build runs"
    else:
        assert "{code-cell}" not in text, "no kernel is named at the top, so that the build would not run the cells"


def test_links_between_documents_are_links_between_pages():
    text = "[a](docs/own.md#a-model), [b](CHANGELOG.md), [c](LICENSE), [d](https://e.org), [f](g.md)"
    pages = "[a](/own.md#a-model), [b](/generated/project/changelog.md), c (`LICENSE`), [d](https://e.org), [f](g.md)"
    assert project.rewritten(text, ROOT, ROOT) == pages


def test_pages_of_the_papers(tmp_path: Path):
    from PIL import Image

    claim = {
        "id": "linear/fig1/levels",
        "statement": "The loss ends at 0 < L_1 | all",
        "kind": "paper",
        "source": "stepwell.theory.linear.levels",
        "relation": "<=",
        "predicted": 0.5,
        "tolerance": 0.01,
        "measured": 0.25,
        "count": 4,
        "pass_rate": 0.75,
        "counted": "seeds",
        "known": {"reason": "One is stuck.", "heading": "data", "quick": None},
        "passed": False,
        "judged": True,
        "unexpected": False,
    }
    made = tmp_path / "made"
    (made / "figures").mkdir(parents=True)
    (made / "figures" / "one.svg").write_text("<svg/>")
    Image.new("RGB", (900, 600)).save(made / "figures" / "one.png")
    entry = {
        "name": "linear/fig1",
        "status": "done",
        "caption": "What *it* shows.",
        "quick": True,
        "seconds": 3.2,
        "settings": {"heads H": 8},
        "files": {"svg": "figures/one.svg", "png": "figures/one.png"},
        "data": [],
    }
    (made / "claims.json").write_text(json.dumps({"claims": [claim], "figures": [entry], "made": {"date": "today"}}))
    papers.write(tmp_path / "pages", made)
    page = (tmp_path / "pages" / "linear-fig1.md").read_text()
    row = r"| ✗ fails, as known | The loss ends at 0 \< L\_1 \| all ({py:obj}`stepwell.theory.linear.levels`; `levels`)"
    assert row in page and "at most 0.5 ± 0.01 | 0.25 (3 of 4 seeds) |" in page
    assert r"What \*it\* shows." in page and (tmp_path / "pages" / "linear-fig1.svg").exists()
    assert "without a reproduction" in (tmp_path / "pages" / "linear-fig3.md").read_text()
    assert f"1 of {len(FIGURES)} figures" in (tmp_path / "pages" / "index.md").read_text()
    assert (tmp_path / "pages" / "linear.md").read_text().startswith("# Training Dynamics of In-Context Learning")
    with Image.open(tmp_path / "pages" / "linear-fig1-small.png") as small:
        assert small.size == (480, 320)


@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_keeps_small_outputs(notebook: Path):
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] is None for cell in code), "run `python -m docs.builder.notebooks`"
    assert any("image/png" in output.get("data", {}) for cell in code for output in cell["outputs"])
    assert not any(output["output_type"] == "error" for cell in code for output in cell["outputs"])
    assert notebook.stat().st_size < 300_000


def test_the_pictures_of_the_readme_can_be_made(tmp_path: Path):
    spec = importlib.util.spec_from_file_location("make_images", ROOT / "docs" / "images" / "make.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.draw(tmp_path, frames=3)
    assert {path.name for path in made} == {path.name for path in (ROOT / "docs" / "images").glob("staircase.*")}
    assert all(path.stat().st_size > 1000 for path in made)
