"""Numbers that no computer can hold, in every flag that takes a number."""

import argparse
import importlib

import pytest

from stepwell._util.parser import Parser
from stepwell.cli import main
from stepwell.experiments import SECTIONS, kinds

WORDS = {
    "train": ["--training", "descent", "--objective", "moments"],
    "predict": ["--training", "descent", "--objective", "moments"],
    "train.py": [],
    "reproduce": ["linear/fig2"],
}
OTHERS = {
    "dims": ["--task", "multitask"],
    "batch-size": ["--objective", "online"],
    "spikes": ["--spectrum", "spiked"],
}
"""What must be said before a field has an effect."""


def flags(verb: str) -> list[tuple[str, str]]:
    """All flags of a verb that take integers."""
    parser = Parser(prog=verb)
    importlib.import_module(f"stepwell.cli._{'published' if verb == 'train.py' else verb}").configure(parser)
    if verb in ("train", "predict"):
        fields = {
            name
            for section in SECTIONS
            for kind in kinds(section).values()
            for name, field in kind.fields.items()
            if field.scalar is int or field.name in ("dims", "context")
        }
        return [(verb, f"--{name.replace('_', '-')}") for name in sorted(fields | {"seed"})]
    taken = [action for action in parser._actions if action.type is int and action.help != argparse.SUPPRESS]
    return [(verb, action.option_strings[-1]) for action in taken]


@pytest.mark.parametrize(("verb", "flag"), [pair for verb in WORDS for pair in flags(verb) if pair[1] != "--jobs"])
@pytest.mark.parametrize("number", ["9" * 20, "-" + "9" * 20, "9" * 400, "9" * 5000, "1.5", "nan", ""])
def test_a_whole_number_that_is_none(verb: str, flag: str, number: str, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([verb, *(OTHERS.get(flag.strip("-")) or WORDS[verb]), f"{flag}={number}"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and len(printed.err) < 500
    assert flag.strip("-") in printed.err or flag == "--KQ_dim"  # another name of the flag
