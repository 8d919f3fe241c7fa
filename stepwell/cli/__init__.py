"""The command line: `stepwell VERB …`. One file a verb, imported when it is called."""

import errno
import importlib
import sys
import warnings
from collections.abc import Sequence

from stepwell import __version__
from stepwell._util import interrupt
from stepwell._util.errors import InvalidInput
from stepwell._util.parser import Parser
from stepwell._util.process import configure as _configure_process

from . import _output

VERBS = {
    "reproduce": "run the papers' figures and check their claims",
    "train": "train one experiment",
    "predict": "what theory says of the same experiment before it is trained: levels, drops, limits",
    "replay": "re-run recorded training runs and report the deviation",
    "sweep": "run a study: thousands of runs that differ in some fields, kept in a store",
    "runs": "what a store of runs holds: list, show, open, export, verify, merge, remove",
    "explore": "open a page in the browser on which runs answer while a slider moves",
    "new": "begin a figure, model, task or study of your own, from a file that runs as it is",
    "completion": "print what a shell needs to complete verbs, flags and figures with the Tab key",
    "doctor": "what this installation runs on: versions, processor, kernels, cache",
}
"""Each verb is a module `_verb` with `configure(parser)` and `run(arguments) -> exit status`."""

ELSEWHERE = {
    "compare": "`stepwell train --theory` compares a run with the theory, and `stepwell.compare` in Python",
    "run": "`stepwell train` trains an experiment, and `stepwell sweep` a study",
    "list": "`stepwell runs ls` lists runs, and `stepwell reproduce --help` figures",
    "plot": "`stepwell train` and `stepwell sweep --plot` draw what they compute",
    "help": "`stepwell --help` lists the verbs",
    "version": "write `stepwell --version`",
}
"""Words that are no verbs, and may be expected to be: what to write instead."""

EXAMPLES = {
    "reproduce": (
        "stepwell reproduce linear/fig3 --quick --out reproduction",
        "stepwell reproduce linear/conservation --set context=60 --out changed",
        "stepwell new figure first  # writes first.py",
        "stepwell reproduce first.py --quick --seeds 20:25",
        "stepwell reproduce softmax --jobs 2 --against reproduction --out again",
    ),
    "explore": (
        "stepwell explore",
        "stepwell explore --model merged --heads 8 --scale 1e-3",
        "stepwell explore --port 8000 --no-browser --store runs --reproduction reproduction",
    ),
    "train": (
        "stepwell train --model merged --heads 8 --scale 1e-6 --show",
        "stepwell train --heads 5 --scale 0.01 --training descent --rate 0.02 --steps 10000 --theory --out runs",
        "stepwell train --spectrum power --exponent 1.5 --noise 0.1 --training descent --optimizer adam --dry-run",
    ),
    "predict": (
        "stepwell predict --eigenvalues .4 .3 .2 .1 --context 31 --heads 4 --scale 1e-3 --seed 0",
        "stepwell predict --task multitask --dims 4 10 7 --strengths 2 .6 .05 --noise .8 --heads 3 --context 50",
    ),
    "replay": ("stepwell replay tests/data/attnM_linear.npz --engine moments  # a recording in the repository",),
    "sweep": (
        "stepwell new study first  # writes first.toml",
        "stepwell sweep first.toml --dry-run",
        "stepwell sweep first.toml --plot regime rate scale --out diagram.pdf",
        "stepwell sweep first.toml --shard 1/4 --store part-1  # as job 1 of 4",
    ),
    "runs": (
        "stepwell train --heads 4 --scale 0.1  # keeps its run in the store stepwell-runs",
        "stepwell runs ls model=separate 'final_loss<0.9' --sort final_loss --columns heads,scale,final_loss",
        "stepwell runs export table.csv model=separate --format csv",
        "stepwell runs verify",
    ),
    "new": ("stepwell new model gated-keys", "stepwell new study first", "stepwell new figure first --out figures"),
    "completion": ('eval "$(stepwell completion bash)"', "stepwell completion fish | source"),
    "doctor": ("stepwell doctor --json",),
}
"""Command lines that the help of each verb ends with."""
SCRIPT = "train.py"
"""The published script's door: in place of a verb, it names the module `_published`."""
_SCRIPT_EXAMPLES = (
    "python train.py --model attnM --head 8 --init 1e-6 --show",
    "python train.py --model attnS --head 5 --init 1e-2 --epoch 10001 --lr 0.02 --theory --out runs",
)

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
"""What a disk answers on which nothing more can be written."""
_INTERRUPTED = 130
"""What a verb returns that Ctrl-C, SIGTERM or SIGHUP ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of the command line.

    **Arguments:**

    - `arguments`: the words after `stepwell`, a verb and its flags; by default those of the process, `sys.argv[1:]`.

    **Returns:** the exit status: 0 done, 1 a claim or check failed, 2 bad usage or no way to write the output, 3 a
    reproduction that could not finish, 128 and the number of the signal that ended it (130 for Ctrl-C).

    **Example:**

    >>> from stepwell.cli import main
    >>> main(["predict", "--eigenvalues", "0.6", "0.4", "--context", "31"])
    in-context regression in dimension 2, context 31
    ...
    final loss 0.08810446
    0
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    with _output.surviving_output() as (output, errors):
        status = _run(given)
        output.flush()
        if output.error is None or isinstance(output.error, BrokenPipeError):
            return status  # the reader of a pipe has gone: not worth a message
        reason = getattr(output.error, "strerror", None) or output.error
        print(f"stepwell: cannot write to standard output ({reason})", file=errors)
        return max(status, 2)


def _run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(_overview())
        return 0 if given else 2
    if given[0] in ("-V", "--version"):
        print(_version())
        return 0
    verb = given[0]
    program = verb if verb == SCRIPT else f"stepwell {verb}" if verb in VERBS else "stepwell"
    parser = Parser(prog=program, description=VERBS.get(verb, ""))
    try:
        if verb in ELSEWHERE:
            raise InvalidInput(f"there is no verb {verb}; {ELSEWHERE[verb]}")
        if verb not in VERBS and verb != SCRIPT:
            parser.unknown("verb", verb, VERBS)
        with interrupt.delivering_interrupts(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: print(f"{parser.prog}: {message}", file=sys.stderr, flush=True)
            _configure_process()
            words = _with_kinds(given[1:])
            module = importlib.import_module(f"stepwell.cli._{'published' if verb == SCRIPT else verb}")
            parser.examples = _SCRIPT_EXAMPLES if verb == SCRIPT else EXAMPLES[verb]
            module.configure(parser)
            status = module.run(parser.parse_args(words))
            return interrupt.exit_status() if status == _INTERRUPTED else status
    except InvalidInput as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        print(f"{parser.prog}: cannot write {error.filename or 'a file'} ({error.strerror})", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return interrupt.exit_status()
    except SystemExit as leaving:  # after --help
        return leaving.code if isinstance(leaving.code, int) else 2


def _with_kinds(words: list[str]) -> list[str]:
    """Load the files after `--with`, before flags are made of the kinds that they register; return the other words."""
    rest, left = [], iter(words)
    for word in left:
        if word != "--with" and not word.startswith("--with="):
            rest.append(word)
            continue
        file = next(left, None) if word == "--with" else word.partition("=")[2]
        if file is None:
            raise InvalidInput("--with names no file; give a Python file that registers kinds, such as my_lab.py")
        from stepwell.experiments import load_kinds

        load_kinds(file)
    return rest


def _version() -> str:
    from stepwell import native
    from stepwell._util.versions import commit, installed

    source = f" (commit {commit()})" if commit() else ""
    return f"stepwell {__version__}{source}\njax {installed('jax') or 'missing'}; engine: {native.engine()}"


def _overview() -> str:
    lines = ["stepwell VERB …", "", "How attention acquires in-context learning while it trains.", ""]
    lines += [f"  {name:<10} {text}" for name, text in VERBS.items()]
    lines += ["", "  -V, --version  version, commit and engine"]
    lines += ["  --with FILE.py (with any verb) kinds of task, model, objective or training of your own"]
    lines += ["", "stepwell VERB --help says more. Exit status: 0 done, 1 a claim or check failed, 2 bad usage or"]
    lines += ["a file that cannot be written, 3 a reproduction that could not finish, 128 and the number of a signal"]
    lines += ["that ended it."]
    return "\n".join(lines)
