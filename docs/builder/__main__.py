"""`python -m builder REPRODUCTION`, from docs/: write the pages that are made of something else, into generated/.

A process of its own: it imports JAX, and Sphinx forks to read pages side by side.
"""

import shutil
import sys
from pathlib import Path

from . import papers, project, reference

DOCS = Path(__file__).parents[1]


def main(reproduction: Path) -> None:
    made = DOCS / "generated"
    reference.write(made / "reference")
    papers.write(made / "papers", reproduction)
    project.write(made / "project", DOCS.parent)
    (made / "notebooks").mkdir(parents=True, exist_ok=True)
    for notebook in (DOCS.parent / "examples").glob("*.ipynb"):
        shutil.copy2(notebook, made / "notebooks")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
