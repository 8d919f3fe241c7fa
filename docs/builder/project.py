"""Documents of the repository as pages of the site, and links between files as links between pages."""

import os
import re
from pathlib import Path

from .reference import write_if_changed

PAGES = {
    "ARCHITECTURE.md": "architecture",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "SECURITY.md": "security",
    "benchmarks/README.md": "benchmarks",
    "benchmarks/results.md": "results",
    "examples/README.md": "examples",
    "stepwell/native/README.md": "kernels",
    "stepwell/papers/README.md": "figures",
}
"""Documents outside of docs/, with the names of their pages."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:|/)([^)#\s]+)(#[^)\s]*)?\)")


def rewritten(text: str, folder: Path, root: Path) -> str:
    """Markdown of a file in `folder`, with links as the site has them; what has no page is named instead."""

    def link(match: re.Match) -> str:
        words, path, heading = match[1], match[2], match[3] or ""
        target = Path(os.path.normpath(folder / path))
        if not target.exists():
            return match[0]  # Sphinx says so
        name = target.relative_to(root).as_posix()
        if name == "README.md":
            return f"[{words}](/index.md)"
        if name in PAGES:
            return f"[{words}](/generated/project/{PAGES[name]}.md{heading})"
        if name.startswith("docs/") and target.is_file():
            return f"[{words}](/{name.removeprefix('docs/')}{heading})"
        return f"{words} (`{name}`)" if words.strip("`") != name else f"`{name}`"

    return _LINK.sub(link, text)


def write(folder: Path, root: Path) -> None:
    """Write the pages of the documents outside of docs/."""
    for name, page in PAGES.items():
        if (root / name).exists():
            text = (root / name).read_text(encoding="utf-8")
            write_if_changed(folder / f"{page}.md", rewritten(text, (root / name).parent, root))
