"""The command line: `stepwell VERB …`. One file a verb, imported when it is called."""

import importlib
import sys
from collections.abc import Sequence

from stepwell import __version__, _interrupt
from stepwell._errors import InvalidInput

from ._parser import Parser

VERBS = {
    "reproduce": "run the papers' figures and check their claims",
    "train": "train one model: the published script's flags and a few more",
    "predict": "what theory says before anything is trained: levels, drops, limits",
    "replay": "re-run recorded training runs and report the deviation",
    "doctor": "what this installation runs on: versions, processor, kernels, cache",
}
"""Each verb is a module `_verb` with `configure(parser)` and `run(arguments) -> exit status`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of the command line.

    **Arguments:**

    - `arguments`: the words after `stepwell`, a verb and its flags; by default those of the process, `sys.argv[1:]`.

    **Returns:** the exit status: 0 done, 1 a claim or check failed, 2 bad usage, 3 could not finish, 130
    interrupted.

    **Example:**

    >>> from stepwell.cli import main
    >>> main(["predict", "--eigenvalues", "0.6", "0.4", "--context", "31"])
    in-context regression in dimension 2, context 31
    ...
    final loss 0.08810446
    0
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help"):
        print(_overview())
        return 0 if given else 2
    if given[0] in ("-V", "--version"):
        print(f"stepwell {__version__}")
        return 0
    verb = given[0]
    parser = Parser(prog=f"stepwell {verb}", description=VERBS.get(verb, ""))
    try:
        if verb not in VERBS:
            parser.unknown("verb", verb, VERBS)
        with _interrupt.delivering_interrupts():
            module = importlib.import_module(f"stepwell.cli._{verb}")
            module.configure(parser)
            return module.run(parser.parse_args(given[1:]))
    except InvalidInput as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has gone: not worth a message
        return 0


def _overview() -> str:
    lines = ["stepwell VERB …", "", "How attention acquires in-context learning while it trains.", ""]
    lines += [f"  {name:<10} {text}" for name, text in VERBS.items()]
    lines += ["", "stepwell VERB --help says more."]
    lines += ["Exit status: 0 done, 1 a claim or check failed, 2 bad usage, 3 could not finish."]
    return "\n".join(lines)
