"""`python -m docs.builder.notebooks` runs the notebooks of examples/ and keeps their outputs in them.

The site runs them again when it is built. Cells keep no numbers and no times, so that a notebook changes where its
contents do.
"""

import tempfile
from pathlib import Path

import nbformat  # pyright: ignore[reportMissingImports]
from nbclient import NotebookClient  # pyright: ignore[reportMissingImports]

EXAMPLES = Path(__file__).parents[2] / "examples"


def refresh(path: Path) -> None:
    """Run a notebook in an empty folder, and write it back with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                if "execution_count" in output:
                    output["execution_count"] = None
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        refresh(path)
        print(path.name, f"{path.stat().st_size / 1024:.0f} kB")
