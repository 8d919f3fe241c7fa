"""The site: `make docs`. Offline: nothing is fetched when it is built, nor when it is read."""

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
GENERATED = DOCS / "generated"
sys.path.insert(0, str(DOCS))
# Also for the kernels that run the pages.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
sys.path.insert(0, str(ROOT))
os.environ["STEPWELL_STORE"] = "off"  # pages that want a store name one
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "true"  # most of their time would be XLA's, for programs that run once
# Not the user's IPython, which may have habits of its own. The kernel warns that it listens on this machine's ports.
os.environ["IPYTHONDIR"] = str(ROOT / "build" / "docs" / "ipython")
_profile = ROOT / "build" / "docs" / "ipython" / "profile_default"
_profile.mkdir(parents=True, exist_ok=True)
(_profile / "ipython_kernel_config.py").write_text("c.Application.log_level = 'ERROR'\n")

from builder import project as documents  # noqa: E402

import stepwell  # noqa: E402

stepwell.configure()  # also for the kernels that run the pages, which inherit the environment

project = "Stepwell"

author = "The Stepwell authors"
copyright = author
version = release = stepwell.__version__

extensions = ["myst_nb", "builder.mathml"]
exclude_patterns = ["builder", "images/README.md"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
nitpicky = True
# Names of other packages: their inventories would have to be fetched.
nitpick_ignore_regex = [(r"py:.*", r"(?!stepwell\b).*")]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
suppress_warnings = ["misc.highlighting_failure"]
smartquotes_action = "qe"  # dashes stay as they are: --flags


def _digest() -> str:
    """Of the package and of what makes the site: pages are run again where they could come out differently."""
    digest = hashlib.sha256()
    sources = [*(ROOT / "stepwell").rglob("*.py"), *(ROOT / "stepwell").rglob("*.c"), *(DOCS / "builder").glob("*.py")]
    for path in sorted(sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


PACKAGE = _digest()
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "docs" / f"executed-{PACKAGE}")
nb_execution_in_temp = True
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_output_stderr = "remove-warn"
nb_merge_streams = True

html_theme = "furo"
html_title = "Stepwell"
html_static_path = ["static"]
html_css_files = ["stepwell.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"source_repository": ""}

_reproduction = Path(os.environ.get("STEPWELL_REPRODUCTION", "reproduction"))
subprocess.run([sys.executable, "-m", "builder", ROOT / _reproduction], cwd=DOCS, check=True)
logging.getLogger("traitlets").setLevel(logging.WARNING)  # which would name every page that is run


def _links(app, name, source):
    page = DOCS / f"{name}.md"
    if page.exists() and GENERATED not in page.parents:
        source[0] = documents.rewritten(source[0], page.parent, ROOT)


def setup(app):
    app.connect("source-read", _links)
    app.add_config_value("package_digest", PACKAGE, "env")
