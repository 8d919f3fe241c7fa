"""Numbers that no computer can hold, in every flag that takes a number."""

import argparse
import importlib

import pytest

from stepwell._parser import Parser
from stepwell.cli import main

WORDS = {
    "train": [],
    "predict": ["--eigenvalues", ".6", ".4", "--model", "attnS"],
    "reproduce": ["linear/fig2"],
}


def flags(verb: str) -> list[tuple[str, str]]:
    """All flags of a verb that take whole numbers."""
    parser = Parser(prog=verb)
    importlib.import_module(f"stepwell.cli._{verb}").configure(parser)
    taken = [action for action in parser._actions if action.type is int and action.help != argparse.SUPPRESS]
    return [(verb, action.option_strings[-1]) for action in taken]


@pytest.mark.parametrize(("verb", "flag"), [pair for verb in WORDS for pair in flags(verb) if pair[1] != "--jobs"])
@pytest.mark.parametrize("number", ["9" * 20, "-" + "9" * 20, "9" * 400, "9" * 5000, "1e3", "nan", ""])
def test_a_whole_number_that_is_none(verb: str, flag: str, number: str, capsys: pytest.CaptureFixture[str]):
    words = WORDS[verb]
    if verb == "predict" and flag in ("--dims", "--embedding"):
        words = ["--dims", "2"] if flag == "--embedding" else []
    assert main([verb, *words, f"{flag}={number}"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and len(printed.err) < 400
    assert flag.strip("-") in printed.err or flag in ("--KQ_dim", "--heads")  # other names of the flag
