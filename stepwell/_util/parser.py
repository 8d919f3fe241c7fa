"""argparse with errors of one line that suggest what was meant.

argparse rather than a newer library: the published script's flags and their prefix abbreviations are argparse's own,
and it is imported in no time.
"""

import argparse
import re
from collections.abc import Iterable, Mapping
from typing import NoReturn

from .errors import InvalidInput
from .text import nearest_of, shortened


class _Formatter(argparse.ArgumentDefaultsHelpFormatter):
    """Shows defaults, but for those that say nothing: None, and False of a switch."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """Raises `InvalidInput` instead of printing the usage and leaving; flags are not abbreviated unless asked for.

    `examples` are command lines that its help ends with; `renamed` has flags of the published script, each with what
    to write instead.
    """

    def __init__(self, **options):
        super().__init__(**{"allow_abbrev": False, **options}, formatter_class=_Formatter)
        self.examples: tuple[str, ...] = ()
        # argparse takes -1e-5 for a flag.
        self._negative_number_matcher = re.compile(r"^-(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
        self.renamed: Mapping[str, str] = {}

    def parse_known_args(self, args=None, namespace=None):  # pyright: ignore[reportIncompatibleMethodOverride]
        """argparse ends a list of words at the first flag; words after it that are no flags belong to the list, too."""
        found, rest = super().parse_known_args(args, namespace)
        lists = [one.dest for one in self._get_positional_actions() if one.nargs in ("*", "+")]
        if lists and rest and not any(word.startswith("-") for word in rest):
            setattr(found, lists[-1], [*getattr(found, lists[-1]), *rest])
            rest = []
        return found, rest

    def format_help(self) -> str:
        lines = ["", "examples:", *(f"  $ {example}" for example in self.examples), ""] if self.examples else []
        return super().format_help() + "\n".join(lines)

    def error(self, message: str) -> NoReturn:
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if unknown:
            given = unknown[1].split("=")[0]
            if instead := self.renamed.get("--" + given.removeprefix("--").replace("-", "_")):
                raise InvalidInput(f"there is no flag {given} here; write {instead}")
            if not given.startswith("-"):
                self.unknown("argument", given, ())
            listed = [action for action in self._actions if action.help != argparse.SUPPRESS]
            self.unknown("flag", given, [flag for action in listed for flag in action.option_strings])
        raise InvalidInput(f"{shortened(message)}; see {self.prog} --help")

    def unknown(self, kind: str, given: str, allowed: Iterable[str]) -> NoReturn:
        """Refuse a word that is not known, and name the nearest that is."""
        near = nearest_of(given, allowed)
        raise InvalidInput(
            f"there is no {kind} {shortened(given)}; "
            + (f"did you mean {near}?" if near else f"see {self.prog} --help")
        )
