"""Run figures and write the report anew as soon as each is done."""

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell import _check
from stepwell._files import writable_folder, write_text
from stepwell._versions import versions
from stepwell.papers import FIGURES, Claim

from ._figure import Result, make
from ._page import page
from ._workers import side_by_side


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` did: `document` is `claims.json`; the rest concerns the figures that were asked for."""

    document: dict[str, Any]
    page: Path
    passed: bool
    interrupted: bool


def reproduce(
    names: Sequence[str],
    *,
    quick: bool = False,
    out: str | os.PathLike = "reproduction",
    jobs: int = 1,
    begin: Callable[[str, str], None] = lambda name, title: None,
    tell: Callable[[dict[str, Any], list[Claim]], None] = lambda entry, claims: None,
) -> Reproduction:
    """Run figures, check their claims and write the report.

    Into the folder `out` go `figures/`, `data/`, `claims.json` and `index.html`, the last two rewritten after each
    figure. Figures that are there from an earlier run stay in the report until they are run again. A figure that raises
    an error is reported as such, and the others go on. Ctrl-C ends the run and keeps the figures that are done.

    **Arguments:**

    - `names`: the figures, as `stepwell.papers.select` lists them.
    - `quick`: whether to take smaller settings, for the same claims.
    - `out`: the folder of the report, which is made if there is none.
    - `jobs`: how many figures run at a time, each in a process of its own if there are several. A script that asks for
      several does so under `if __name__ == "__main__":`, for each process imports it.
    - `begin`: called as `begin(name, title)` before each figure; by default nothing is done.
    - `tell`: called as `tell(entry, claims)` after each figure, with its entry in `claims.json` and its `Claim`
      objects; by default nothing is done.

    **Returns:** the `Reproduction`: the `document` in `claims.json`, the path of the `page`, whether all claims of all
    figures that were asked for hold (`passed`), and whether the run was `interrupted`.

    **Example:** the report of no figures; `select(["linear/fig2"])` takes some seconds.

    >>> from stepwell.report import reproduce
    >>> done = reproduce([], quick=True, out="reproduction")
    >>> done.passed, done.page.name, done.document["claims"]
    (True, 'index.html', [])
    """
    jobs = _check.whole("jobs", jobs)
    folder = writable_folder(out)
    for part in ("figures", "data"):
        writable_folder(folder / part)
    begun = time.monotonic()
    kept = _earlier(folder)
    done: dict[str, dict[str, Any]] = {}
    interrupted = False
    document = _document(kept, done, begun)
    parallel = jobs > 1 and len(names) > 1
    results: Generator[Result] = (
        side_by_side(names, quick, folder, begin, jobs)
        if parallel
        else (make(name, quick, folder, begin) for name in names)
    )
    try:
        with contextlib.closing(results):
            for entry, claims in results:
                done[entry["name"]] = {**entry, "claims": [claim.as_json() for claim in claims]}
                document = _document(kept, done, begun)
                _write(folder, document)
                tell(entry, claims)
    except KeyboardInterrupt:
        interrupted = True
    if not done:
        _write(folder, document)
    passed = len(done) == len(names) and all(_held(result) for result in done.values())
    return Reproduction(document, folder / "index.html", passed, interrupted)


def _held(result: dict[str, Any]) -> bool:
    return result["status"] == "done" and all(claim["passed"] for claim in result["claims"])


def _document(kept: dict[str, Any], done: dict[str, Any], begun: float) -> dict[str, Any]:
    """`claims.json`: claims and figures in the order of the registry, seconds of this run, versions."""
    together = {**kept, **done}
    ordered = [together[name] for name in FIGURES if name in together]
    return {
        "claims": [claim for result in ordered for claim in result["claims"]],
        "figures": [{k: v for k, v in result.items() if k != "claims"} for result in ordered],
        "seconds": round(time.monotonic() - begun, 2),
        "versions": {**versions(), "python": platform.python_version()},
    }


def _earlier(folder: Path) -> dict[str, dict[str, Any]]:
    """Figures of an earlier run in the folder, if all is there that the report needs."""
    try:
        document = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
        kept = {}
        for entry in document["figures"]:
            name = entry["name"]
            whole = entry["status"] == "done" and all((folder / path).is_file() for path in entry["files"].values())
            if whole and name in FIGURES:
                mine = [claim for claim in document["claims"] if claim["id"].startswith(f"{name}/")]
                kept[name] = {**entry, "claims": mine}
        return kept
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # there is none, or it is not ours: the report begins anew


def as_text(document: dict[str, Any]) -> str:
    """The text of `claims.json`, as it is written and printed.

    **Arguments:**

    - `document`: the document of a `Reproduction`; it must not hold numbers that are not finite.

    **Returns:** the document as JSON, ending in a newline.

    **Example:**

    >>> from stepwell.report import as_text
    >>> print(as_text({"claims": [], "seconds": 0.5}), end="")
    {
     "claims": [],
     "seconds": 0.5
    }
    """
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _write(folder: Path, document: dict[str, Any]) -> None:
    write_text(folder / "claims.json", as_text(document))
    write_text(folder / "index.html", page(document, folder))
