"""Pages of the papers, from a folder that `stepwell reproduce` wrote: one for each figure, and a gallery.

A figure that the folder lacks has a page too, with what it is and the command that makes it, so that links to it hold
whatever was reproduced. Statements are those of the claims, in words of ours, each with the place that it comes from.
"""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepwell.figures import FIGURES, PAPERS, as_setting, coverage, expected, figure, number, tallies

from .reference import write_if_changed

_SAYS = {
    "paper": "What the paper says",
    "other": "What another paper says",
    "theory": "What our theory adds",
    "check": "Internal consistency",
}
_THUMBNAIL = (480, 360)


def write(folder: Path, reproduction: Path) -> None:
    """Write the gallery, a page for each paper, and one for each figure."""
    document = _read(reproduction)
    made = {entry["name"]: entry for entry in document["figures"] if entry["status"] == "done"}
    folder.mkdir(parents=True, exist_ok=True)
    kept = set()
    for name in FIGURES:
        claims = [claim for claim in document["claims"] if claim["id"].rpartition("/")[0] == name]
        if name in made:
            _copy_pictures(made[name], reproduction, folder)
        kept.add(_write(folder / f"{_stem(name)}.md", "\n".join(_page(name, made.get(name), claims, reproduction))))
    kept.add(_write(folder / "index.md", "\n".join(_gallery(made, document))))
    for paper in PAPERS:
        kept.add(_write(folder / f"{paper}.md", "\n".join(_paper(paper, made, document))))
    for stale in set(folder.glob("*.md")) - kept:
        stale.unlink()


def _read(reproduction: Path) -> dict[str, Any]:
    path = reproduction / "claims.json"
    if not path.exists():
        return {"claims": [], "figures": [], "made": {}}
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, text: str) -> Path:
    write_if_changed(path, text)
    return path


def _stem(name: str) -> str:
    return name.replace("/", "-")


def _label(name: str) -> str:
    """`linear/fig3` as a reader calls it: Fig 3; a figure without a number by its name."""
    short = name.partition("/")[2]
    numbered = re.fullmatch(r"fig(\d+)", short)
    return f"Fig {numbered[1]}" if numbered else short.replace("-", " ").capitalize()


def _text(words: str) -> str:
    """Plain text as Markdown that reads the same."""
    return re.sub(r"([\\`*_{}\[\]<>$|#~])", r"\\\1", words)


def _copy_pictures(entry: dict[str, Any], reproduction: Path, folder: Path) -> None:
    from PIL import Image

    stem = _stem(entry["name"])
    for ending in ("svg", "gif"):
        if ending in entry["files"]:
            _copy(reproduction / entry["files"][ending], folder / f"{stem}.{ending}")
    small, large = folder / f"{stem}-small.png", reproduction / entry["files"]["png"]
    if not small.exists() or small.stat().st_mtime_ns < large.stat().st_mtime_ns:
        with Image.open(large) as picture:
            picture = picture.convert("RGB")
            picture.thumbnail(_THUMBNAIL)
            picture.save(small, optimize=True)


def _copy(source: Path, target: Path) -> None:
    if not target.exists() or target.read_bytes() != source.read_bytes():
        shutil.copyfile(source, target)


def _page(name: str, entry: dict[str, Any] | None, claims: list[dict[str, Any]], folder: Path) -> Iterator[str]:
    shown = figure(name)
    paper = name.partition("/")[0]
    yield f"(figure-{_stem(name)})="
    yield f"# {_label(name)}: {_text(shown.title)}\n"
    yield f"Of [{_text(PAPERS[paper])}]({paper}.md). `stepwell reproduce {name}` reproduces it.\n"
    if entry is None:
        yield "This copy of the site was built without a reproduction of this figure.\n"
        yield f"{_text(shown.caption)}\n"
        return
    picture = f"{_stem(name)}.svg"  # which opens by itself at any size, for its labels are small here
    yield f"```{{image}} {picture}\n:alt: {_one_line(shown.title)}\n:class: figure"
    yield f":target: ../../_images/{picture}\n```\n"
    if "gif" in entry["files"]:
        yield f"```{{image}} {_stem(name)}.gif\n:alt: {_one_line(shown.title)}, animated\n:class: figure\n```\n"
    yield f"{_text(entry['caption'])}\n"
    for kind, title in _SAYS.items():
        mine = [claim for claim in claims if claim["kind"] == kind]
        if mine:
            yield f"## {title}\n"
            yield from _claims(mine)
    yield "## What was done\n"
    yield from _settings(entry, dict(shown.paper_settings))
    yield "## Data\n"
    yield "In the folder that `stepwell reproduce` writes; `xarray.open_dataset` reads them.\n"
    for path in entry["data"]:
        size = (folder / path).stat().st_size if (folder / path).exists() else 0
        yield f"- `{path}`, {max(1, round(size / 1024)):,} kB"
    yield ""


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _claims(claims: list[dict[str, Any]]) -> Iterator[str]:
    yield "| | claim | predicted | measured |"
    yield "|---|---|---|---|"
    for claim in claims:
        statement = _text(claim["statement"])
        source = claim["source"]
        source = f"{{py:obj}}`{source}`" if re.fullmatch(r"stepwell\.[\w.]+", source) else _text(source)
        words = f"{statement} ({source}; `{claim['id'].rpartition('/')[2]}`)"
        if claim["known"] is not None and not claim["passed"]:
            known = claim["known"]
            words += f" Known: {_text(known['reason'])} [Why](../../differences.md#{known['heading']})."
        counted = ""
        if claim["count"] is not None:
            held = round(claim["count"] * claim["pass_rate"])
            counted = f" ({held} of {claim['count']} {claim['counted']})"
        wanted = expected(claim["relation"], claim["predicted"], claim["tolerance"])
        numbers = f"{wanted} | {number(claim['measured'])}{_text(counted)}" if claim["judged"] else "|"
        yield f"| {_verdict(claim)} | {words} | {numbers} |"
    yield ""


def _verdict(claim: dict[str, Any]) -> str:
    if not claim["judged"]:
        return "not judged"
    if claim["passed"]:
        return "✓ holds"
    return "✗ fails" if claim["unexpected"] else "✗ fails, as known"


def _settings(entry: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    ours = entry["settings"]
    yield ("The quick settings, smaller than the paper's." if entry["quick"] else "The full settings.") + (
        f" It took {entry['seconds']:.0f} s.\n" if entry["seconds"] else "\n"
    )
    if entry.get("explored"):
        judging = "; ".join(f"{name} {as_setting(value)}" for name, value in entry["judged_on"].items())
        yield (
            f"Seeds on which settings and thresholds were chosen: {_text(entry['explored'])}. Thresholds were fixed: "
            f"{_text(entry['fixed'])}. Claims are judged on: {_text(judging)}.\n"
        )
    yield "| setting | here | in the paper |"
    yield "|---|---|---|"
    for key in {**ours, **theirs}:
        cells = (_text(as_setting(each[key])) if key in each else "" for each in (ours, theirs))
        yield f"| {_text(key)} | {' | '.join(cells)} |"
    yield ""


def _card(name: str, made: dict[str, Any]) -> str:
    title = f"{_label(name)}: {_text(_one_line(figure(name).title))}"
    if name not in made:
        return f"[{title}]({_stem(name)}.md)\n"
    return f"[![{title}]({_stem(name)}-small.png)]({_stem(name)}.md)\n[{title}]({_stem(name)}.md)\n"


def _gallery(made: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    yield "# The papers\n"
    yield "Every figure as a program: what is simulated, what is claimed, and whether the claims hold.\n"
    if made:
        origin = document["made"]
        counts = "; ".join(f"{one['name']}: {one['held']} of {one['total']}" for one in tallies(document["claims"]))
        quick = any(entry["quick"] for entry in made.values())
        yield (
            f"These pages are built from a reproduction of {len(made)} of {len(FIGURES)} figures"
            f"{' with `--quick`' if quick else ''}. Claims that hold, {counts}. {_text(origin.get('date', ''))},"
            f" {_text(origin.get('machine', ''))}.\n"
        )
    listed = (f"{paper.replace('-', ' ').capitalize()} <{paper}>" for paper in PAPERS)
    yield "```{toctree}\n:hidden:\n" + "\n".join(listed) + "\n```\n"
    for paper, title in PAPERS.items():
        yield f"## [{_text(title)}]({paper}.md)\n"
        yield ":::{container} gallery"
        yield from (_card(name, made) for name in FIGURES if name.startswith(f"{paper}/"))
        yield ":::\n"


def _paper(paper: str, made: dict[str, Any], document: dict[str, Any]) -> Iterator[str]:
    claims = document["claims"]
    names = [name for name in FIGURES if name.startswith(f"{paper}/")]
    yield f"# {_text(PAPERS[paper])}\n"
    yield f"`stepwell reproduce {paper}` reproduces all of its figures.\n"
    yield "| figure | claims that hold |"
    yield "|---|---|"
    for name in names:
        mine = [claim for claim in claims if claim["id"].rpartition("/")[0] == name and claim["judged"]]
        count = f"{sum(claim['passed'] for claim in mine)} of {len(mine)}" if name in made else "not in this copy"
        yield f"| [{_label(name)}: {_text(_one_line(figure(name).title))}]({_stem(name)}.md) | {count} |"
    yield "\n```{toctree}\n:hidden:\n" + "\n".join(f"{_label(name)} <{_stem(name)}>" for name in names) + "\n```"
    yield from _statements(paper, document)


def _statements(paper: str, document: dict[str, Any]) -> Iterator[str]:
    """What the paper says, statement by statement, and the claims that check it."""
    for stated in coverage(document):
        if stated["paper"] == paper:
            whose = "the paper" if stated["anchor"] == paper else f"another paper, {_text(stated['title'])},"
            yield f"## What {whose} says, and what checks it\n"
            counts = "; ".join(f"{words}: {count}" for count, words in stated["counts"])
            yield f"{len(stated['rows'])} statements, in our words. {counts.capitalize()}. {_text(stated['basis'])}\n"
            yield "| where | statement | checked by | settings | |"
            yield "|---|---|---|---|---|"
            for row in stated["rows"]:
                checks = "; ".join([f"`{one}`" for one in (*row["claims"], *row["tests"])])
                says = " ".join(_text(words) for words in (row["says"], row["note"]) if words)
                settings = _text("; ".join(words for words in (row["settings"], row["how"]) if words))
                yield f"| {_text(row['where'])} | {says} | {checks} | {settings} | {row['words']} |"
            yield ""
