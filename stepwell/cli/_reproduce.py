"""`stepwell reproduce`: figures, claims and the report."""

import argparse
import contextlib
import gc
import json
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any

from stepwell._util.errors import InvalidInput
from stepwell._util.parser import Parser
from stepwell._util.text import shown
from stepwell.figures import FIGURES, PAPERS, Claim, SeedWords, add_figure, add_offered, select

from ._flags import add_store_flag, chosen_store

if TYPE_CHECKING:
    from stepwell.figures import Progress

_LINE_EVERY = 15.0
"""Seconds between lines where there is no terminal."""
_ENOUGH = 2.0
"""Seconds after which time left is worth telling."""


def configure(parser: Parser) -> None:
    add_offered()
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        f"targets: {', '.join([*PAPERS, *FIGURES])}\n"
        "Exit status: 0 all claims are as expected, 1 one is not (it fails, or is known to fail and holds),\n"
        "2 bad usage, 3 could not finish, 130 interrupted.\n"
        "A run could not finish if files cannot be written or a figure ended in an error; what was done is kept."
    )
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="a paper or a figure of it, such as linear, linear/fig3 or fig14; or the file of a figure of your own, "
        "such as first.py, which `stepwell new figure first` writes (default: all papers, and figures of installed "
        "packages)",
    )
    parser.add_argument("--quick", action="store_true", help="less data and fewer steps, the same claims")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a setting of the figures, as in --set context=60 --set inits=1e-3,1e-4; a wrong name lists those "
        "there are",
    )
    parser.add_argument("--seeds", metavar="SEEDS", help="other seeds: how many (20), a range (20:40), or each (3,5,8)")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="run figures again that the folder or the store has already, from the same program and settings",
    )
    add_store_flag(parser, "figures that are done")
    parser.add_argument(
        "--out", metavar="DIR", default="reproduction", help="folder of the report (default: reproduction)"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="figures run at a time, each in a process of its own (default: the cores)"
    )
    parser.add_argument(
        "--against", metavar="DIR", help="compare with the report of an earlier run, and list what changed"
    )
    parser.add_argument(
        "--json", action="store_true", help="print claims.json on standard output, and nothing else there"
    )


def run(arguments: argparse.Namespace) -> int:
    names = select([add_figure(target) if target.endswith(".py") else target for target in arguments.targets])
    changes: dict[str, Any] = dict(parsed_changes(arguments.set))
    if arguments.seeds is not None:
        if "seeds" in changes:
            raise InvalidInput("--seeds and --set seeds=… say the same; give one of them")
        changes["seeds"] = SeedWords(arguments.seeds.split(","))
    from stepwell.figures import reproduce

    options: dict[str, Any] = {name: getattr(arguments, name) for name in ("quick", "out", "against", "jobs", "fresh")}
    store = chosen_store(arguments)
    options |= {"changes": changes, "warn": _complain, "store": None if store is None else store.path}
    if options["jobs"] is None:  # the cores that this process may use
        options["jobs"] = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if arguments.json:
        done = reproduce(names, **options, begin=lambda name, title: _freeze_imports())
        _say(json.dumps(done.document, indent=1, allow_nan=False) + "\n")
    else:
        status = Status()

        def begin(name: str, title: str) -> None:
            _freeze_imports()
            status.clear()
            _say(f"begun: {name}, {title}\n")

        def tell(entry: dict[str, Any], claims: list[Claim]) -> None:
            status.remove(entry["name"])
            _say(_text(entry, claims))

        def skip(name: str) -> None:
            _say(f"kept: {name}, done before by the same program with the same settings (--fresh runs it again)\n")

        done = reproduce(names, **options, begin=begin, tell=tell, skip=skip, progress=status.show)
        status.clear()
        _say(_summary(done.document, names) + (f"report: {done.page}\n" if done.page is not None else ""))
    if done.interrupted:
        _complain("interrupted; the figures that were done are kept, and the same command runs the others")
        return 130
    if done.problem is not None:
        _complain(f"could not finish: {done.problem}")
        return 3
    return 0 if done.passed else 1


def parsed_changes(words: list[str]) -> dict[str, str]:
    """Changed settings by name, from words such as context=60."""
    changes: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name.isidentifier() or not value.strip():
            raise InvalidInput(
                f"malformed setting --set {shown(word)}; write NAME=VALUE, for instance --set context=60"
            )
        if name in changes:
            raise InvalidInput(f"--set has {name} twice; give it once")
        changes[name] = value.strip()
    return changes


def _freeze_imports() -> None:
    """Leave what was imported out of the search for garbage, which takes a fifth of the time of a quick figure."""
    if gc.get_freeze_count() == 0:
        gc.freeze()


def _complain(message: str) -> None:
    print(f"stepwell reproduce: {message}", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    """Print at once; `main` sees to a stream that goes away, and to letters that it lacks."""
    if (sys.stdout.encoding or "utf-8").lower().replace("-", "") != "utf8":
        text = text.replace("✓", "ok").replace("✗", "FAILS")
    print(text, end="", flush=True)


def _summary(document: dict[str, Any], names: list[str]) -> str:
    """How many claims hold of each kind, those that are unexpected, and what changed since an earlier report."""
    from stepwell.figures import tallies

    claims = [claim for claim in document["claims"] if claim["id"].rpartition("/")[0] in names]
    if not claims:
        return ""
    known = [claim for claim in claims if claim["judged"] and not claim["passed"] and not claim["unexpected"]]
    aside = sum(not claim["judged"] for claim in claims)
    lines = ["; ".join(f"{tally['name']}: {tally['held']} of {tally['total']} hold" for tally in tallies(claims))]
    if known:
        pages = ", ".join(dict.fromkeys(f"documents/differences.html#{claim['known']['heading']}" for claim in known))
        lines.append(f"known to fail: {len(known)} ({pages})")
    if aside:
        lines.append(f"not at these settings: {aside}")
    for claim in claims:
        if claim["unexpected"]:
            what = "is known to fail, and holds" if claim["passed"] else "does not hold"
            lines.append(f"unexpected: {claim['id']} {what}")
    if "against" in document:
        movements = document["against"]["movements"]
        lines.append(f"since {document['against']['before']}: " + ("" if movements else "nothing changed"))
        lines += [f"  {one['what']}: {one['name']}, {one['before']} → {one['after']}" for one in movements]
    return "\n".join(lines) + "\n"


def _text(entry: dict[str, Any], claims: list[Claim]) -> str:
    """What came of a figure: a line for it, and two for each claim."""
    from stepwell.figures import as_setting, expected, number

    if entry["error"] is not None:
        return f"{entry['name']}\n  ✗ error in {entry['name']}: {entry['error']}\n"

    judged = [claim for claim in claims if claim.judged(entry["changed"])]
    held = sum(claim.passed for claim in judged)
    lines = [f"{entry['name']}, {entry['seconds']} s: {held} of {len(judged)} claims hold"]
    if entry["changed"]:
        listed = "; ".join(f"{name} = {as_setting(value)}" for name, value in entry["changed"].items())
        lines.append(f"  settings changed: {listed}")
    for claim in claims:
        why = claim.why_not_judged(entry["changed"])
        if why:
            lines.append(f"  - {claim.statement}\n      not judged at these settings: {why}")
            continue
        mark = "✓" if claim.passed else "✗"
        counted = ""
        if claim.count is not None and claim.pass_rate is not None:
            counted = f", {round(claim.pass_rate * claim.count)} of {claim.count} {claim.counted} hold"
        lines.append(f"  {mark} {claim.statement}")
        if claim.known is not None and not claim.passed:
            lines.append(f"      known: {claim.known.reason} (documents/differences.html#{claim.known.heading})")
        wanted = expected(claim.relation, claim.predicted, claim.tolerance)
        lines.append(f"      measured {number(claim.measured)}, predicted {wanted}{counted}")
    return "\n".join(lines) + "\n"


class Status:
    """How far figures are, on standard error: a line that changes on a terminal, elsewhere a line now and then."""

    def __init__(self) -> None:
        self._latest: dict[str, Progress] = {}
        self._line = False
        self._last = time.monotonic()

    def show(self, progress: "Progress") -> None:
        self._latest[progress.name] = progress
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.isatty():
                width = shutil.get_terminal_size().columns - 1
                line = " | ".join(map(_progress_text, self._latest.values()))[:width]
                print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
                self._line = True
            elif time.monotonic() - self._last >= _LINE_EVERY:
                self._last = time.monotonic()
                print("; ".join(map(_progress_text, self._latest.values())), file=sys.stderr, flush=True)

    def remove(self, name: str) -> None:
        self._latest.pop(name, None)
        self.clear()

    def clear(self) -> None:
        """Take the line away, for what is printed next."""
        if self._line:
            self._line = False
            with contextlib.suppress(OSError, ValueError):
                print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _progress_text(progress: "Progress") -> str:
    left, rest = progress.left, ""
    if left is not None and progress.seconds + left > _ENOUGH:
        rest = f", {left:.0f} s left of it" if left < 100 else f", {left / 60:.0f} min left of it"
    return f"{progress.name}: {progress.what}, {100 * min(max(progress.part, 0.0), 1.0):.0f} %{rest}"
