"""`stepwell completion SHELL`: a script for the shell, from the parsers of all verbs; nothing is slower for it."""

import argparse
import importlib
from collections.abc import Iterator
from typing import NamedTuple

from stepwell._util.parser import Parser
from stepwell.experiments import SECTIONS, kinds

_BASH = """_stepwell() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
    COMPREPLY=()
    case "${{COMP_WORDS[1]}} $before" in
{values}
    esac
    if [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$word")); return; fi
    if [[ $COMP_CWORD -eq 1 ]]; then COMPREPLY=($(compgen -W "{verbs} --help --version" -- "$word")); return; fi
    case "${{COMP_WORDS[1]}}" in
{flags}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -o bashdefault -F _stepwell stepwell
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n"


class _Flag(NamedTuple):
    names: list[str]
    help: str
    choices: list[str]


class _Verb(NamedTuple):
    name: str
    help: str
    flags: list[_Flag]
    words: list[str]
    """What may stand without a flag, as far as it is known."""


def configure(parser: Parser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(arguments: argparse.Namespace) -> int:
    verbs = list(_verbs())
    print(_fish(verbs) if arguments.shell == "fish" else _ZSH * (arguments.shell == "zsh") + _bash(verbs), end="")
    return 0


def _verbs() -> Iterator[_Verb]:
    from . import VERBS

    for name, text in VERBS.items():
        parser = Parser(prog=f"stepwell {name}")
        importlib.import_module(f"stepwell.cli._{name}").configure(parser)
        flags, words = [], []
        for action in _actions(parser):
            choices = [str(choice) for choice in action.choices or _words(action.dest)]
            if action.option_strings:
                flags.append(_Flag(list(action.option_strings), (action.help or "").split("; ")[0], choices))
            else:
                words += choices
        if name == "reproduce":
            from stepwell.figures import FIGURES, PAPERS

            words += [*PAPERS, *FIGURES]
        yield _Verb(name, text, flags, words)


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
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)


def _bash(verbs: list[_Verb]) -> str:
    values, flags = [], []
    for verb in verbs:
        for flag in verb.flags:
            if flag.choices:
                patterns = "|".join(f'"{verb.name} {name}"' for name in flag.names)
                values.append(f'        {patterns}) words="{" ".join(flag.choices)}" ;;')
        known = dict.fromkeys([*verb.words, *(name for flag in verb.flags for name in flag.names)])
        flags.append(f'        {verb.name}) words="{" ".join(known)}" ;;')
    return _BASH.format(
        values="\n".join(dict.fromkeys(values)), flags="\n".join(flags), verbs=" ".join(verb.name for verb in verbs)
    )


def _fish(verbs: list[_Verb]) -> str:
    lines = []
    for verb in verbs:
        lines.append(f"complete -c stepwell -n __fish_use_subcommand -f -a {verb.name} -d {_quoted(verb.help)}")
        begin = f"complete -c stepwell -n '__fish_seen_subcommand_from {verb.name}'"
        if verb.words:
            lines.append(f"{begin} -f -a {_quoted(' '.join(verb.words))}")
        for flag in verb.flags:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" if len(name) == 2 else f"-o {name[1:]}"
                for name in flag.names
            )
            taken = f" -x -a {_quoted(' '.join(flag.choices))}" if flag.choices else ""
            lines.append(f"{begin} {names}{taken} -d {_quoted(flag.help)}")
    return "\n".join(dict.fromkeys(lines)) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%") + "'"
