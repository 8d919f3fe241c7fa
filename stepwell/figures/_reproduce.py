"""Run figures and write the report anew as soon as each is done."""

import contextlib
import functools
import json
import os
import platform
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwell._util import checks
from stepwell._util.arguments import checked
from stepwell._util.errors import InvalidInput
from stepwell._util.files import writable_folder, write_text
from stepwell._util.store_path import store_path
from stepwell._util.versions import commit, machine, versions

from ._archive import fetch, keep
from ._claim import Claim
from ._page import pages
from ._registry import FIGURES, figure
from ._report import CLAIMS, earlier, is_same, moved
from ._run import CannotWrite, Progress, Request, Result, as_plain, run
from ._workers import side_by_side

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


_warn = functools.partial(warnings.warn, category=RuntimeWarning, stacklevel=2)


@dataclass(frozen=True)
class Reproduction:
    """What `reproduce` did: the `document` of `claims.json`, the path of the `page`, None if none was written; whether
    all figures are done and none of their claims is unexpected (`passed`), whether it was `interrupted`, and the
    `problem` in one line, if it could not finish.
    """

    document: dict[str, Any]
    page: Path | None
    passed: bool
    interrupted: bool
    problem: str | None


@checked
def reproduce(
    names: Sequence[str],
    *,
    quick: bool = False,
    out: str | os.PathLike = "reproduction",
    jobs: int = 1,
    changes: dict[str, Any] | None = None,
    fresh: bool = True,
    store: str | os.PathLike | None = None,
    begin: Callable[[str, str], None] = lambda name, title: None,
    tell: Callable[[dict[str, Any], list[Claim]], None] = lambda entry, claims: None,
    skip: Callable[[str], None] = lambda name: None,
    progress: Callable[[Progress], None] = lambda done: None,
    against: str | os.PathLike | None = None,
    warn: Callable[[str], None] = _warn,
) -> Reproduction:
    """Run figures, check their claims and write the report.

    Into the folder `out` go `figures/`, `data/`, `claims.json`, and pages for a browser: `index.html`, a summary;
    `coverage.html`, what the papers say and what checks it; one for each figure, and `documents/`, to which they link.
    They are rewritten after each figure. Figures of an earlier run into the same folder, or
    of another at the same time, stay in the report until they are run again. A `claims.json` that is not a report is
    kept under another name. A figure that raises an error is reported as such. Ctrl-C, or a disk that is full, ends the
    run and keeps the figures that are done.

    **Arguments:**

    - `names`: the figures, as `stepwell.figures.select` lists them.
    - `quick`: whether to use the smaller settings, for the same claims.
    - `out`: the folder of the report, which is created if need be.
    - `jobs`: how many figures run at a time, each in a process of its own if there are several.
    - `changes`: other settings by name, as values or strings (`stepwell.figures.Figure`); every figure must have them.
    - `fresh`: whether to run all figures. Otherwise those that the folder has, from the same program and settings and
      with all their data, are left as they are, and those that the store has are copied.
    - `store`: the folder of a store, where figures are kept for other reports; none if it is `"off"`, as by default.
    - `begin`: called as `begin(name, title)` before each figure.
    - `tell`: called as `tell(entry, claims)` after each figure, with its entry in `claims.json` and its `Claim`s.
    - `skip`: called as `skip(name)` for each figure that is left as it is or copied.
    - `progress`: called now and then with a `Progress`.
    - `against`: the folder of an earlier report; differences from it become part of this one.
    - `warn`: called with a message if something in the folder is left out; by default issues a `RuntimeWarning`.

    **Returns:** a `Reproduction`: the `document` of `claims.json`, the path of the `page`, and what came of it.

    **Example:** the report of no figures; `select(["linear/fig2"])` takes some seconds.

    >>> from stepwell.figures import reproduce
    >>> done = reproduce([], quick=True, out="reproduction")
    >>> done.passed, done.page.name, done.document["claims"]
    (True, 'index.html', [])
    """
    jobs = checks.whole("jobs", jobs)
    place = None if store is None else store_path(store)
    names = list(dict.fromkeys(checks.one_of("the name of a figure", name, FIGURES) for name in names))
    former = {} if against is None else earlier(Path(against), warn, rename=False)
    if against is not None and not former:
        raise InvalidInput(f"there is no report in {against} to compare with; name the --out of an earlier run")
    before = None if against is None else (str(Path(against)), _document(former, {}, time.monotonic()))
    changed = {name: as_plain(dict(figure(name).with_changes(changes or {}).changes)) for name in names if changes}
    folder = writable_folder(out)
    for part in ("figures", "data"):
        writable_folder(folder / part)
    begun = time.monotonic()
    kept = {} if fresh else earlier(folder, warn, with_data=True)
    done: dict[str, dict[str, Any]] = {}
    interrupted, problem, written = False, None, None
    document = _document({}, done, begun)
    asked = Request(quick, changes or {}, folder)
    try:
        for name in names if not fresh else []:
            settings = changed.get(name, {})
            if name in kept and is_same(kept[name], quick, settings):
                done[name] = kept[name]
            elif place is not None and (result := fetch(place, folder, name, quick, settings, warn)) is not None:
                done[name] = result
        for name in done:
            skip(name)
        wanted = [name for name in names if name not in done]
        results: Generator[Result] = (
            side_by_side(wanted, asked, begin, progress, jobs)
            if jobs > 1 and len(wanted) > 1
            else (run(name, asked, begin, progress) for name in wanted)
        )
        document = _update(folder, done, begun, warn, before)
        written = folder / "index.html"
        with contextlib.closing(results):
            for entry, claims in results:
                judged = [_judged(claim, quick, entry["changed"]) for claim in claims]
                together = {**done, entry["name"]: {**entry, "claims": judged}}
                document = _update(folder, together, begun, warn, before, (entry["name"],))
                done = together
                if place is not None and entry["error"] is None:
                    keep(place, folder, done[entry["name"]], warn)
                tell(entry, claims)
    except KeyboardInterrupt:
        interrupted = True
    except CannotWrite as error:
        finished = sum(result["error"] is None for result in done.values())
        problem = f"{error}; {finished} of {len(names)} figures were done before"
    failed = [name for name, result in done.items() if result["error"] is not None]
    if failed and problem is None:
        problem = f"{len(failed)} of {len(names)} figures ended in an error ({', '.join(failed)})"
    unexpected = any(claim["unexpected"] for result in done.values() for claim in result["claims"])
    passed = len(done) == len(names) and problem is None and not unexpected
    return Reproduction(document, written, passed, interrupted, problem)


def _judged(claim: Claim, quick: bool, changed: dict[str, Any]) -> dict[str, Any]:
    """A claim as in `claims.json`, with whether it was judged at these settings, and whether that is unexpected."""
    why = claim.why_not_judged(changed)
    return {**claim.as_json(), "unjudged": why, "judged": not why, "unexpected": claim.unexpected(quick, changed)}


def _document(kept: dict[str, Any], done: dict[str, Any], begun: float) -> dict[str, Any]:
    """`claims.json`, in the order of the registry, others last."""
    together = {**kept, **done}
    ordered = [together[name] for name in dict.fromkeys([*FIGURES, *together]) if name in together]
    return {
        "claims": [claim for result in ordered for claim in result["claims"]],
        "figures": [{k: v for k, v in result.items() if k != "claims"} for result in ordered],
        "seconds": round(time.monotonic() - begun, 2),
        "versions": {**versions(), "python": platform.python_version()},
        "made": {"date": time.strftime("%Y-%m-%d %H:%M %Z"), "commit": commit(), "machine": machine()},
    }


def _update(
    folder: Path,
    done: dict[str, Any],
    begun: float,
    warn: Callable[[str], None],
    before: tuple[str, dict[str, Any]] | None,
    latest: tuple[str, ...] | None = None,
) -> dict[str, Any]:
    """Write the report of what was done and of all else in the folder, and return its document; `before` is the folder
    and the document of a report to compare with. Pages of other figures than the `latest`, if any are named, stay."""
    try:
        with _alone(folder):
            document = _document(earlier(folder, warn), done, begun)
            if before is not None:
                document["against"] = {"before": before[0], "movements": moved(before[1], document, done)}
            write_text(folder / CLAIMS, json.dumps(document, indent=1, allow_nan=False) + "\n")
            for path, text in pages(document, folder, latest):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                write_text(folder / path, text)
    except OSError as error:
        raise CannotWrite(f"cannot write the report to {folder} ({error.strerror or error})") from error
    return document


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time reads and rewrites a report, where the system and the disk have such locks: or one of two
    runs might leave out what the other has just added."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
