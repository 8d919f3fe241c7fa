"""`stepwell completion SHELL`: a script for the shell, by shtab, from the parsers of all verbs; nothing is slower."""

import argparse
import importlib
from collections.abc import Iterator

from stepwell._util.parser import Parser
from stepwell.experiments import SECTIONS, kinds


def configure(parser: Parser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="the shell")


def run(arguments: argparse.Namespace) -> int:
    import shtab

    from stepwell.figures import FIGURES, PAPERS

    from . import VERBS

    whole = Parser(prog="stepwell")
    whole.add_argument("--version", action="store_true", help="version, commit and engine")
    verbs = whole.add_subparsers()
    for name, text in VERBS.items():
        verb = verbs.add_parser(name, help=text)
        importlib.import_module(f"stepwell.cli._{name}").configure(verb)
        for action in _actions(verb):
            words = [*PAPERS, *FIGURES] if action.dest == "targets" else _words(action.dest)
            action.choices = action.choices or words or None
            action.help = (action.help or "").split("; ")[0]
            if str(action.metavar).startswith(("FILE", "DIR", "STUDY")):
                setattr(action, "complete", shtab.DIRECTORY if action.metavar == "DIR" else shtab.FILE)  # noqa: B010
    print(shtab.complete(whole, shell=arguments.shell))
    return 0


def _words(name: str) -> list[str]:
    """The words that a field of an experiment may be, or the kinds of a section."""
    section, _, field = name.partition(".")
    if section not in SECTIONS:
        return []
    if field == "kind":
        return list(kinds(section))
    choices = (kind.fields[field].choices for kind in kinds(section).values() if field in kind.fields)
    return list(dict.fromkeys(str(word) for words in choices for word in words))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser, and those of the actions that it has."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)
        else:
            yield action
