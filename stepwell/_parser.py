"""argparse with errors of one line that suggest what was meant.

argparse rather than a newer library: the published script's flags and their prefix abbreviations are argparse's own,
and it is imported in no time.
"""

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from stepwell._errors import InvalidInput
from stepwell._text import shortened


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, but for those that say nothing: None, and False of a switch."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """Raises `InvalidInput` instead of printing the usage and leaving.

    `expand` is set by a verb whose words may come from a file: it gets the parser and the words that were typed, and
    returns all that are meant. `examples` are command lines that its help ends with.
    """

    def __init__(self, **options):
        super().__init__(**options, formatter_class=_Formatter)
        self.expand: Callable[[Parser, list[str]], list[str]] | None = None
        self.examples: tuple[str, ...] = ()

    def format_help(self) -> str:
        lines = ["", "examples:", *(f"  $ {example}" for example in self.examples), ""] if self.examples else []
        return super().format_help() + "\n".join(lines)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        return super().parse_args(words if self.expand is None else self.expand(self, words), namespace)

    def given(self, words: list[str]) -> dict[str, Any]:
        """What the words say themselves, defaults left out, by the name of the argument."""
        absent = object()
        seen = argparse.Namespace(**{action.dest: absent for action in self._actions})
        super().parse_args(words, seen)
        return {name: value for name, value in vars(seen).items() if value is not absent}

    def action_of(self, name: str) -> argparse.Action | None:
        """The argument of a flag, whose name may be written with either of - and _."""
        named = (f"--{name}", f"--{name.replace('_', '-')}", f"--{name.replace('-', '_')}")
        return next((self._option_string_actions[flag] for flag in named if flag in self._option_string_actions), None)

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            self.unknown("flag" if unknown[1].startswith("-") else "argument", unknown[1].split("=")[0], flags)
        raise InvalidInput(f"{shortened(message)}; see {self.prog} --help")

    def unknown(self, kind: str, given: str, allowed: Iterable[str]) -> NoReturn:
        """Refuse a word that is not known, and name the nearest that is."""
        near = difflib.get_close_matches(given, list(allowed), n=1, cutoff=0.5)
        raise InvalidInput(
            f"there is no {kind} {shortened(given)}; "
            + (f"did you mean {near[0]}?" if near else f"see {self.prog.split()[0]} --help")
        )
