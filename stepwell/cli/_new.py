"""`stepwell new`: a figure, model, task or study of your own to begin from."""

import argparse
import contextlib
import keyword
import re
from pathlib import Path

from stepwell._util.errors import InvalidInput
from stepwell._util.files import writable_folder, write_text
from stepwell._util.parser import Parser

_RUN = {
    "model": "stepwell train --with {path} --model {name} --sequences 500 --rate 0.5 --steps 500",
    "task": "stepwell train --with {path} --task {name}",
    "figure": "stepwell reproduce {path} --quick",
    "study": "stepwell sweep {path} --plot regime rate scale",
}
"""Each kind has a file in `_templates`, and this is how what was made of it is run."""


def configure(parser: Parser) -> None:
    parser.add_argument("kind", choices=[*_RUN], help="what to begin")
    parser.add_argument(
        "name",
        metavar="NAME",
        help="its name, such as gated-keys: the file is gated_keys.py, or gated_keys.toml of a study",
    )
    parser.add_argument("--out", metavar="DIR", default=".", help="the folder of the file")


def run(arguments: argparse.Namespace) -> int:
    ending = ".toml" if arguments.kind == "study" else ".py"
    name = arguments.name.removesuffix(ending)
    words = re.findall("[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    stem = "_".join(words).lower()
    if re.fullmatch("[A-Za-z][A-Za-z0-9_-]{0,60}", name) is None or keyword.iskeyword(stem):
        raise InvalidInput(
            f"{arguments.name[:80]!r} cannot be the name of a {arguments.kind}; take letters, digits and hyphens, a "
            "letter first, such as gated-keys"
        )
    path = writable_folder(arguments.out) / f"{stem}{ending}"
    if path.exists():
        raise InvalidInput(f"{path} is there already; choose another name, or remove it")
    _check_free(arguments.kind, stem)
    text = (Path(__file__).parent / "_templates" / f"{arguments.kind}{ending}").read_text(encoding="utf-8")
    names = {
        f"Own{arguments.kind.capitalize()}": "".join(word[0].upper() + word[1:] for word in words),
        f"own_{arguments.kind}": stem,
        f"own/own-{arguments.kind}": f"own/{stem.replace('_', '-')}",
    }
    for given, wanted in names.items():
        text = text.replace(given, wanted)
    write_text(path, text)
    print(f"written: {path}\nrun it:  {_RUN[arguments.kind].format(path=path, name=stem)}")
    return 0


def _check_free(kind: str, stem: str) -> None:
    """Refuse the name of a module or of a kind that is known: the file would be taken for it, or refused."""
    from importlib.util import find_spec

    from stepwell.experiments import find_kind

    known = find_spec(stem) is not None and kind != "study"
    if not known and (kind == "model" or kind == "task"):
        with contextlib.suppress(InvalidInput):
            known = find_kind(kind, stem) is not None
    if known:
        raise InvalidInput(f"{stem} is the name of another module or {kind}; choose another, such as my_{stem}")
