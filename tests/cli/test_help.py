"""Help, version and completion: what a user meets first."""

import importlib
import shlex
import shutil
import subprocess
import sys

import pytest

from stepwell._util.errors import InvalidInput
from stepwell._util.parser import Parser
from stepwell.cli import EXAMPLES, VERBS, main


def _parser(verb: str) -> Parser:
    parser = Parser(prog=f"stepwell {verb}")
    importlib.import_module(f"stepwell.cli._{verb}").configure(parser)
    return parser


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_ends_with_examples_and_names_no_empty_defaults(verb: str, capsys):
    assert main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.rstrip().endswith(f"$ {EXAMPLES[verb][-1]}")
    assert "(default: None)" not in text and "(default: False)" not in text


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "completion"])
def test_examples_are_understood(verb: str):
    assert any(example.startswith(f"stepwell {verb}") for example in EXAMPLES[verb])
    for example in EXAMPLES[verb]:
        program, named, *words = shlex.split(example, comments=True)
        assert program == "stepwell"
        _parser(named).parse_args(words)


def test_an_example_that_is_not_understood_would_be_noticed():
    with pytest.raises(InvalidInput):
        _parser("new").parse_args(["new", "figures"])


def test_the_version_has_the_commit_and_the_engine(capsys, monkeypatch):
    from stepwell._util import versions

    monkeypatch.setattr(versions, "commit", lambda: "0123456789ab")
    monkeypatch.setenv("STEPWELL_NATIVE", "off")
    assert main(["--version"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("stepwell ") and first.endswith("(commit 0123456789ab)")
    assert second.startswith("jax ") and second.endswith("engine: plain JAX, since STEPWELL_NATIVE is off")


def test_the_engine_without_a_compiler(monkeypatch, tmp_path):
    from stepwell import native

    monkeypatch.delenv("STEPWELL_NATIVE", raising=False)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert native.engine().endswith("there is no C compiler (no-such-compiler)")
    monkeypatch.setattr(native._kernels, "SHIPPED", tmp_path)
    (tmp_path / "normals-double-baseline.so").touch()
    assert native.engine() == "JAX with kernels for baseline, which came with this installation"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["stepwell", "rep"], ["reproduce", "replay"]),
        (["stepwell", "reproduce", "linear/fig1"], ["linear/fig1", "linear/fig11", "linear/fig12", "linear/fig14"]),
        (["stepwell", "train", "--head"], ["--heads"]),
        (["stepwell", "train", "--objective", "po"], ["population"]),
        (["stepwell", "predict", "--model", "m"], ["merged", "mlp", "multihead"]),
        (["stepwell", "train", "--activation", "s"], ["softmax"]),
        (["stepwell", "runs", "ver"], ["verify"]),
    ],
    ids=lambda words: words[-1],
)
def test_bash_completes(words: list[str], expected: list[str], capsys):
    bash = shutil.which("bash")
    assert bash is not None
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    line = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_stepwell; echo ${{COMPREPLY[@]}}"
    done = subprocess.run([bash, "-c", f"{script}\n{line}"], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == expected, done.stderr


@pytest.mark.parametrize(("shell", "beginning"), [("zsh", "#compdef stepwell"), ("fish", "complete -c stepwell")])
def test_other_shells(shell: str, beginning: str, capsys):
    assert main(["completion", shell]) == 0
    assert f"\n{beginning}" in f"\n{capsys.readouterr().out}"


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "--help"],
        ["train", "--help"],
        ["train", "--headz", "3"],
        ["train", "--heads", "0"],
        ["train.py", "--lr"],
    ],
    ids=" ".join,
)
def test_help_and_mistakes_import_nothing_heavy(words: list[str]):
    script = (
        "import sys\nfrom stepwell.cli import main\nmain(sys.argv[1:])\n"
        "sys.exit(bool({'jax', 'numpy', 'importlib.metadata'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
