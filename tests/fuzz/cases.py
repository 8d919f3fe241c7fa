"""Cases: words of a command line, and the files that it finds in its folder. Each is made from a seed and a number."""

import argparse
import importlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from stepwell._util.parser import Parser
from stepwell.cli import VERBS
from stepwell.experiments import SECTIONS, kinds
from stepwell.figures import FIGURES

DATA = Path(__file__).parents[1] / "data"

_USUAL = ("1", "2", "3", "4", "0.5", "0.1", "0.01", "1e-3")
_WHOLE = ("1", "2", "3", "4", "5")
_ODD = (
    *("0", "-1", "1.5", "nan", "inf", "-inf", "1e400", "-1e400", "1e308", "1e-320", "1e30", "99999999999999999999"),
    *("", " ", "a", "é", "١", "0x10", "1_0", "--", "-", "=", "1,2", "[1]", "None", "\N{SNOWMAN}" * 50, "9" * 5000),
)
_CHEAP = {
    "train": ["--training", "descent", "--steps", "20"],
    "predict": [],
    "replay": [],
    "reproduce": [],
    "doctor": [],
}
"""Words that keep a command line small unless later ones, which count, say otherwise."""
_KINDS = {f"{section}.kind": tuple(kinds(section)) for section in SECTIONS if section != "record"}
"""What follows the flags of kinds."""


class Case(NamedTuple):
    """One command line in a folder with these files."""

    words: list[str]
    files: dict[str, bytes]


def make(seed: int, number: int) -> Case:
    """The case of these two numbers."""
    draw = random.Random(f"{seed}:{number}")
    return draw.choices([_command, _replay, _resume, _reproduce], [6, 2, 2, 1])[0](draw)


def _command(draw: random.Random) -> Case:
    verb = draw.choices(["train", "predict", "doctor", "replay", draw.choice(_ODD)], [5, 6, 0.1, 0.5, 0.2])[0]
    if verb not in VERBS:
        return Case([verb, *draw.sample(_ODD, 2)], {})
    words = list(_CHEAP[verb])
    for action in _actions(verb):
        if draw.random() < (0.35 if action.option_strings else 0.8):
            words += _flag(draw, action)
    if draw.random() < 0.1:
        words.insert(draw.randrange(len(words) + 1), draw.choice(_ODD))
    return Case([verb, *words], {})


def _actions(verb: str) -> list[argparse.Action]:
    parser = Parser(prog=f"stepwell {verb}")
    importlib.import_module(f"stepwell.cli._{verb}").configure(parser)
    return [action for action in parser._actions if action.help != argparse.SUPPRESS and action.dest != "help"]


def _flag(draw: random.Random, action: argparse.Action) -> list[str]:
    name = draw.choice(action.option_strings) if action.option_strings else None
    if len(name or "") > 4 and draw.random() < 0.1:
        assert name is not None
        name = name[: draw.randrange(3, len(name))]  # an abbreviation, perhaps ambiguous
    head = [] if name is None else [name]
    if action.nargs == 0:
        return head
    count = draw.randint(0, 5) if action.nargs in ("+", "*") else 1
    return head + [_value(draw, action) for _ in range(count)]


def _value(draw: random.Random, action: argparse.Action) -> str:
    if draw.random() < 0.15:
        return draw.choice(_ODD)
    section, _, name = action.dest.partition(".")
    known = kinds(section).values() if section in SECTIONS else ()
    field = next((kind.fields[name] for kind in known if name in kind.fields), None)
    choices = action.choices or _KINDS.get(action.dest) or (field.choices if field is not None else None)
    if choices:
        return draw.choice([str(choice) for choice in choices])
    if action.type is int or action.dest in ("seed", "seeds") or "int" in str(field and field.kind):
        return draw.choice(_WHOLE)
    if action.type is float or "float" in str(field and field.kind):
        power = draw.choice(("", "e-1", "e-3", "e-9", "e3", "e-30", "e30"))
        return f"{draw.choice(_WHOLE)}{power if draw.random() < 0.4 else 'e-1'}"
    return draw.choice((*_USUAL, "out", "a/b", "/dev/null", "/proc/nothing"))


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Bytes flipped, cut off, removed, repeated, or replaced by others."""
    kind = draw.randrange(5)
    place = draw.randrange(len(data)) if data else 0
    if kind == 0:
        changed = bytearray(data)
        for _ in range(draw.choice((1, 1, 1, 5, 100))):
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        return bytes(changed)
    length = draw.choice((1, 8, 100, 4096))
    cut: dict[int, Callable[[], bytes]] = {
        1: lambda: data[:place],
        2: lambda: data[:place] + data[place + length :],
        3: lambda: data[:place] + data[place : place + length] * 2 + data[place + length :],
        4: lambda: data[:place] + draw.randbytes(length) + data[place + length :],
    }
    return cut[kind]()


def _replay(draw: random.Random) -> Case:
    name = draw.choice(["attnM_linear.npz", "attnS_rank1.npz", "mlp_cubic.npz"])
    data = (DATA / name).read_bytes()
    return Case(["replay", "run.npz", *(["--json"] if draw.random() < 0.3 else [])], {"run.npz": damaged(data, draw)})


_TRAIN = ["train", "--dim", "2", "--training", "descent"]


def _resume(draw: random.Random) -> Case:
    """A run whose trajectory is damaged and that is then resumed; `oracle.run` makes the trajectory."""
    return Case([*_TRAIN, "--steps", "40", "--resume"], {"seed": str(draw.randrange(2**32)).encode()})


def _reproduce(draw: random.Random) -> Case:
    """Targets that do not exist, and reports that nobody made."""
    near = draw.choice([*FIGURES, "linear", "softmax"])
    target = draw.choice([f"{near}x", near.upper(), near[:-1] + "é", "../" + near, draw.choice(_ODD)])
    words = ["reproduce", target, "--quick", "--out", draw.choice([".", "out", "claims.json", "/dev/null", ""])]
    document: Any = draw.choice([[], {}, {"figures": [{"name": near, "files": {"svg": "/etc/passwd"}}], "claims": []}])
    return Case(words, {"claims.json": damaged(json.dumps(document).encode(), draw)})
