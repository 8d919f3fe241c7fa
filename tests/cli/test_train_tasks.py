"""`stepwell train` on other tasks, with other optimisers, and with many seeds; and the file that describes a run."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

from stepwell import plots
from stepwell._description import seeds_of, spectrum
from stepwell._errors import InvalidInput
from stepwell._parser import Parser
from stepwell.cli import _train, main
from stepwell.published import engine_for, resolve
from stepwell.published._names import identity
from stepwell.published.training import set_up
from stepwell.theory import Lengths, Regression, linear
from stepwell.trajectory import load

SMALL = ["--in_dim", "2", "--epoch", "40", "--trainset_size", "60", "--context", "6"]


def meant(*words: str) -> tuple[Any, ...]:
    """The configuration of a command: flags, what is beyond them, engine."""
    parser = Parser(prog="stepwell train")
    _train.configure(parser)
    arguments = parser.parse_args(list(words))
    flags, beyond = resolve(arguments)
    return flags, beyond, engine_for(flags, arguments.engine)


def trained(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> dict[str, Any]:
    assert main(["train", *words, "--json", "--out", str(folder)]) == 0
    return json.loads(capsys.readouterr().out)


# One configuration, whatever words describe it.

SAME = {
    "context": (["--context", "20"], ["--seq_len", "21"]),
    "heads": (["--heads", "3"], ["--head", "3"]),
    "published spectrum": (["--eigenvalues", ".4", ".3", ".2", ".1"], []),
    "published by name": (["--spectrum", "published", "--dim", "5"], ["--in_dim", "5"]),
    "white": (["--spectrum", "white"], ["--white_cov"]),
    "power 0": (["--spectrum", "power:0", "--dim", "3"], ["--white_cov", "--in_dim", "3"]),
    "task eigenvalues of 1": (["--task-eigenvalues", "1", "1", "1", "1"], []),
    "order of lengths": (["--context", "9", "5"], ["--context", "5", "9"]),
    "one seed": (["--seeds", "7:8"], ["--seed", "7"]),
    "seeds by number": (["--seeds", "3", "--seed", "7"], ["--seeds", "7", "8", "9"]),
    "sgd": (["--optimiser", "sgd", "--schedule", "constant"], []),
    "total strengths": (
        ["--dims", "4", "2", "--strengths", "2", "--convention", "total"],
        ["--dims", "4", "2", "--strengths", ".5", "1"],
    ),
}


@pytest.mark.parametrize("one, other", SAME.values(), ids=SAME)
def test_the_same_run_in_other_words(one: list[str], other: list[str]):
    assert meant(*one) == meant(*other)


DESCRIBED = {
    "published": [],
    "figure 3": "--model attnS --head 5 --init 1e-2 --epoch 10001 --lr 0.02 --start paper".split(),
    "spectrum": ["--spectrum", "power:1.5", "--noise", "0.1", "--task-eigenvalues", "2", "1", "1", ".5"],
    "mixture of lengths": ["--context", "5", "10", "--heads", "2"],
    "mixture of tasks": ["--icl", "0.4", "--testset_size", "30", "--track_value"],
    "network": ["--model", "mlp", "--cubic_feat", "--white_cov"],
    "softmax": ["--softmax", "--vary_len", "--out_dim", "2"],
    "optimiser": ["--optimiser", "adam:b1=0.8", "--schedule", "cosine", "--seeds", "20:40"],
    "regressions": ["--dims", "4", "10", "--strengths", "2", ".6", "--noise", ".8", "--engine", "flow"],
    "one head": ["--dims", "4", "10", "--heads", "1"],
}


@pytest.mark.parametrize("words", DESCRIBED.values(), ids=DESCRIBED)
def test_a_file_holds_the_run(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["train", *words, "--dry-run", "--out", str(tmp_path / "none")]) == 0
    printed = capsys.readouterr().out
    path = tmp_path / "run.toml"
    path.write_text(printed)
    assert meant("--task", str(path)) == meant(*words)
    assert main(["train", "--task", str(path), "--dry-run"]) == 0
    assert capsys.readouterr().out == printed
    assert not (tmp_path / "none").exists()


def test_flags_count_before_the_file(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text('lr = 0.5\n[task]\neigenvalues = [0.5, 0.3]\ncontext = 9\n[model]\nmodel = "attnS"\n')
    flags, beyond, _ = meant("--task", str(path), "--spectrum", "white", "--dim", "3")
    assert (flags.lr, flags.model, flags.in_dim, flags.context, flags.white_cov) == (0.5, "attnS", 3, 9, True)
    flags, beyond, _ = meant("--task", str(path), "--seq_len", "5", "--task-eigenvalues", "1", "2")
    assert (flags.context, beyond.task.eigenvalues, beyond.task.task_eigenvalues) == (4, (0.5, 0.3), (1.0, 2.0))


FILES = {
    "no file": (None, "cannot read"),
    "not TOML": ("lr = ", "not a TOML file"),
    "unknown key": ("[training]\nlearning_rat = 1", "'learning_rat'"),
    "a near key": ("[task]\neigenvalue = [1]", "did you mean eigenvalues?"),
    "unknown table": ("[tusk]\nnoise = 1", "task, model, training"),
    "twice": ("noise = 1\n[task]\nnoise = 2", "twice"),
    "list for a number": ("lr = [1, 2]", "a number or a text"),
    "empty list": ("[task]\neigenvalues = []", "not empty"),
    "number for a switch": ("softmax = 1", "true or false"),
    "text for a number": ('lr = "fast"', "invalid float value"),
    "not a flag of a run": ('out = "x"', "'out'"),
}


@pytest.mark.parametrize("content, words", FILES.values(), ids=FILES)
def test_a_file_that_is_wrong(content: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_text(content)
    assert main(["train", "--task", str(path), "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_predict_reads_the_same_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path, words = tmp_path / "run.toml", ["--eigenvalues", ".6", ".3", "--noise", ".2", "--context", "5", "9"]
    assert main(["train", *words, "--model", "attnS", "--heads", "3", "--dry-run"]) == 0
    path.write_text(capsys.readouterr().out)
    assert main(["predict", "--task", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["predict", *words, "--json"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert (found["task"], found["levels"]) == (alone["task"], alone["levels"])
    assert (found["model"]["name"], found["model"]["heads"], found["model"]["seed"]) == ("attnS", 3, 10)


def test_predict_refuses_what_it_has_no_theory_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "run.toml"
    path.write_text("[task]\neigenvalues = [0.6, 0.4]\n[model]\nsoftmax = true\n")
    assert main(["predict", "--task", str(path)]) == 2
    assert "softmax" in capsys.readouterr().err


REFUSED = {
    "no dimension": (["predict", "--spectrum", "white"], "--dim"),
    "unknown spectrum": (["train", "--spectrum", "pink"], "power:EXPONENT"),
    "no exponent": (["train", "--spectrum", "power"], "power:EXPONENT"),
    "text for an exponent": (["train", "--spectrum", "power:steep"], "power:EXPONENT"),
    "all spikes": (["train", "--spectrum", "spiked:10,4"], "from 1 to 3"),
    "two spectra": (["train", "--spectrum", "white", "--eigenvalues", "1"], "not allowed with"),
    "white twice": (["train", "--white_cov", "--eigenvalues", ".6", ".4"], "contradict"),
    "lengths twice": (["train", "--vary_len", "--context", "5", "9"], "contradict"),
    "a length twice": (["train", "--context", "5", "5"], "once"),
    "too few tasks": (["train", "--task-eigenvalues", "1", "2"], "in dimension 4"),
    "other dimension": (["train", "--eigenvalues", "1", ".5", "--dim", "3"], "leave out --dim"),
    "noisy mixture": (["train", "--noise", "1", "--icl", ".5"], "--icl"),
    "strengths of one": (["train", "--strengths", "1"], "--dims only"),
    "white regressions": (["train", "--dims", "2", "3", "--white_cov"], "with --dims"),
    "moments of regressions": (["train", "--dims", "2", "3", "--engine", "moments"], "population, flow or sampled"),
    "tests of many": (["train", "--seeds", "3", "--testset_size", "50"], "--seeds"),
    "no seeds": (["train", "--seeds", "0"], "from 1"),
    "seeds backwards": (["train", "--seeds", "9:3"], "from 1"),
    "text for seeds": (["train", "--seeds", "many"], "20:40"),
    "a seed twice": (["train", "--seeds", "3", "3"], "twice"),
    "converged steps": (["train", "--until", "converged"], "--engine flow"),
    "text for a time": (["train", "--until", "later"], "converged"),
    "flow of adam": (["train", "--engine", "flow", "--optimiser", "adam"], "leave out --optimiser"),
    "time of adam": (["train", "--until", "9", "--optimiser", "adam"], "--epoch"),
    "unknown optimiser": (["train", "--optimiser", "adm"], "did you mean adam?"),
    "unknown parameter": (["train", "--optimiser", "adam:b3=1"], "has no parameter b3"),
    "text for a parameter": (["train", "--optimiser", "adam:b1=x"], "finite number"),
    "needs the loss": (["train", "--optimiser", "lbfgs"], "gradient alone"),
    "unknown schedule": (["train", "--schedule", "cosinus"], "did you mean cosine?"),
    "incomplete schedule": (["train", "--schedule", "exponential"], "exponential:decay_rate=NUMBER"),
    "unknown format": (["train", "--format", "jpg"], "svg"),
}


@pytest.mark.parametrize("words, message", REFUSED.values(), ids=REFUSED)
def test_refused_with_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert main([*words, *(["--trainset_size", "50"] if words[0] == "train" else [])]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and message in error
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".nc", ".txt")]


def test_spectra():
    np.testing.assert_allclose(np.array(spectrum("power:2", 3)) * (1 + 1 / 4 + 1 / 9), [1, 1 / 4, 1 / 9])
    np.testing.assert_allclose(np.array(spectrum("spiked:5,2", 4)) * 12, [5, 5, 1, 1])
    assert all(sum(spectrum(name, 7)) == pytest.approx(1) for name in ("white", "power:1.5", "spiked:10", "published"))


def test_seeds():
    assert seeds_of(["3"], 5) == (5, 6, 7) and seeds_of(["2:4"], 5) == (2, 3) and seeds_of(["9", "1"], 0) == (9, 1)
    with pytest.raises(InvalidInput, match="2\\*\\*32"):
        seeds_of(["5", str(2**32)], 0)


def test_the_task_is_the_one_described():
    words = ["--eigenvalues", ".5", ".2", ".1", "--task-eigenvalues", "1", "3", ".5", "--noise", ".3"]
    flags, beyond, engine = meant(*words, "--context", "5", "12")
    task = set_up(flags, engine, beyond).task
    described = Regression(np.diag([0.5, 0.2, 0.1]), np.diag([1, 3, 0.5]), 0.3, Lengths.uniform([5, 12]))
    np.testing.assert_allclose(linear.levels(task), linear.levels(described), rtol=1e-12)  # pyright: ignore
    assert set_up(flags, engine, beyond).normalisation == "1/N"


def test_a_run_on_another_task_ends_at_its_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--eigenvalues", "1", ".6", "--noise", ".2", "--task-eigenvalues", "1", "2", "--context", "5", "9"]
    found = trained(
        capsys, tmp_path, *words, "--engine", "population", "--epoch", "3000", "--lr", ".05", "--init", ".3"
    )
    level = linear.levels(Regression(np.diag([1, 0.6]), np.diag([1.0, 2.0]), 0.2, Lengths.uniform([5, 9])))[-1]
    assert found["final_loss"]["train"] == pytest.approx(level, rel=1e-6)
    assert found["levels"]["2"] == pytest.approx(level, rel=1e-12)


def test_an_ensemble_is_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    found = trained(capsys, tmp_path, *SMALL, "--seeds", "4:7")
    run = load(tmp_path / Path(found["files"]["trajectory"]).name)
    assert run["run"].values.tolist() == [4, 5, 6]
    table = np.loadtxt(found["files"]["loss"])
    np.testing.assert_array_equal(table, run["loss"].values[:, :40].T)
    for place, seed in enumerate((4, 5, 6)):
        alone = trained(capsys, tmp_path / str(seed), *SMALL, "--seed", str(seed))
        single = np.loadtxt(alone["files"]["loss"])
        np.testing.assert_allclose(table[:, place], single, rtol=1e-12)
        assert found["beyond"]["final_losses"][place] == pytest.approx(alone["final_loss"]["train"], rel=1e-12)


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_an_optimiser_is_optaxs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The first steps from the initial weights, by optax itself."""
    found = trained(capsys, tmp_path, *SMALL, "--optimiser", name, "--schedule", "linear", "--lr", ".02")
    run = load(tmp_path / Path(found["files"]["trajectory"]).name)
    from stepwell.published._setup import objective

    flags, beyond, engine = meant(*SMALL, "--optimiser", name, "--schedule", "linear", "--lr", ".02")
    setup = set_up(flags, engine, beyond)
    rate = optax.linear_schedule(0.02, 0.0, 40)
    rule = optax.adam(rate) if name == "adam" else optax.sgd(rate, momentum=0.9)
    import equinox as eqx

    model, loss = setup.model, objective(setup)
    state = rule.init(eqx.filter(model, eqx.is_array))
    for step in range(5):
        assert float(run["loss"][0, step]) == pytest.approx(float(loss(model)), rel=1e-10)
        updates, state = rule.update(eqx.filter_grad(loss)(model), state, model)
        model = eqx.apply_updates(model, updates)
    kept = json.loads(run.attrs["configuration"])["optimiser"]
    assert kept["schedule"]["parameters"]["transition_steps"] == 40 and kept["optax"] == optax.__version__
    assert kept["optimiser"]["parameters"]["learning_rate"] == 0.02


def test_regressions_follow_the_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Half of the drop comes between the bounds that `stepwell predict` gives, and the end is the flow's limit."""
    task = ["--dims", "30", "--strengths", "1", "--context", "300", "--noise", "1", "--heads", "2", "--init", "1e-4"]
    assert main(["predict", *task, "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    words = [*task, "--engine", "flow", "--until", str(3 * predicted["emergence_times_with_equal_heads"][0])]
    found = trained(capsys, tmp_path, *words, "--lr", "0.01")
    time = np.arange(found["epochs"]) * 0.01
    loss = np.loadtxt(found["files"]["loss"])
    half = time[np.argmax(loss < (loss[0] + loss[-1]) / 2)]
    early, late = predicted["emergence_times"][0], predicted["emergence_times_with_equal_heads"][0]
    assert 0.95 * early < half < 1.05 * late
    assert found["final_loss"]["train"] == pytest.approx(predicted["gf_loss"]["total"], rel=1e-3)


def test_until(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--in_dim", "2", "--white_cov", "--engine", "flow", "--trainset_size", "60", "--lr", ".01", "--init", ".3"]
    found = trained(capsys, tmp_path, *words, "--until", "converged")
    level, loss = found["levels"]["2"], []
    for part in (1, 4):  # all but 10⁻⁸ of the way is gone at the end, and not at a quarter of it
        shorter = [*words, "--engine", "population", "--epoch", str(found["epochs"] // part)]
        loss.append(trained(capsys, tmp_path / str(part), *shorter)["final_loss"]["train"] - level)
    assert loss[0] < 1e-5 < loss[1]
    # The unit is that of the plot and of `stepwell predict`.
    from stepwell.published.training import paper_time

    flags, beyond, engine = meant(*words)
    setup = set_up(flags, engine, beyond)
    timed = trained(capsys, tmp_path / "c", *words, "--until", "3.5")
    assert timed["epochs"] == int(np.ceil(3.5 / float(paper_time(setup, 1.0))))


def test_the_flow_over_infinitely_many_sequences_ends_at_the_lowest_level(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["--in_dim", "2", "--white_cov", "--trainset_size", "60", "--lr", ".01", "--init", ".3"]
    ends = {}
    for engine in ("flow", "population-flow"):
        found = trained(capsys, tmp_path / engine, *words, "--engine", engine, "--until", "converged")
        ends[engine] = abs(found["final_loss"]["train"] - found["levels"]["2"])
    assert ends["population-flow"] < 1e-6 < ends["flow"]


def test_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from PIL import Image

    words = [*SMALL, "--epoch", "10", "--format", "pdf", "svg", "png", "gif", "--model", "attnS"]
    found = trained(capsys, tmp_path, *words)["files"]
    starts = {".pdf": b"%PDF", ".svg": b"<?xml", ".png": b"\x89PNG", ".gif": b"GIF8"}
    written = {path.suffix: path.read_bytes() for path in tmp_path.iterdir()}
    assert all(written[ending].startswith(start) for ending, start in starts.items())
    with Image.open(found["film"]) as film:
        assert film.n_frames > 5  # pyright: ignore
    trained(capsys, tmp_path, *words)
    assert {path.suffix: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".nc"} == {
        ending: content for ending, content in written.items() if ending != ".nc"
    }


NAMES = {
    "noise": ["--noise", "0.1"],
    "eigenvalues": ["--eigenvalues", ".7", ".3"],
    "adam": ["--optimiser", "adam"],
    "schedule": ["--schedule", "cosine"],
    "seeds": ["--seeds", "2"],
    "lengths": ["--context", "3", "6"],
}


def test_what_the_script_cannot_do_gets_a_name_of_its_own_always(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    names = set()
    for words in NAMES.values():
        small = SMALL[:-2] if "--context" in words else SMALL
        small = small[2:] if "--eigenvalues" in words else small
        for folder in ("first", "second"):  # alone in its folder, and after others
            path = Path(trained(capsys, tmp_path / folder, *small, *words)["files"]["trajectory"])
            assert re.search(r"_[0-9a-f]{8}$", path.stem)
            names.add(path.name)
    assert len(names) == len(NAMES)


def test_overwrite(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    first = trained(capsys, tmp_path, *SMALL)["files"]["trajectory"]
    other = trained(capsys, tmp_path, *SMALL, "--lr", ".002")["files"]["trajectory"]
    assert other != first
    assert trained(capsys, tmp_path, *SMALL, "--lr", ".003", "--overwrite")["files"]["trajectory"] == first
    assert json.loads(load(Path(first)).attrs["configuration"])["flags"]["lr"] == 0.003


def test_published_files_have_the_configuration_that_they_had():
    """Other words in it would make every earlier run another run."""
    flags, beyond, engine = meant(*SMALL)
    assert set(identity(set_up(flags, engine, beyond))) == {*flags.__dict__, "engine"}


def test_an_optimisers_run_is_not_continued_without_its_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trained(capsys, tmp_path, *SMALL, "--optimiser", "adam")
    longer = ["train", *SMALL[:2], "--epoch", "60", *SMALL[4:], "--optimiser", "adam", "--resume"]
    assert main([*longer, "--out", str(tmp_path)]) == 2
    assert "leave out --resume" in capsys.readouterr().err


def test_muon_gets_matrices():
    """Its update of a matrix is near orthogonal: singular values are alike. One vector would get that of Adam."""
    import jax
    import jax.numpy as jnp

    from stepwell.dynamics import named_optimiser
    from stepwell.dynamics._ensemble import flatten
    from stepwell.models import SeparateAttention

    model = SeparateAttention.random(dim=3, heads=2, rank=3, scale=1.0, key=jax.random.key(0))
    muon = named_optimiser("muon", rate=0.1, steps=10, model=model).optimiser
    weights = flatten(model)
    updates, _ = muon.update(weights, muon.init(weights), weights)
    assert updates.shape == weights.shape
    shape, start = jnp.shape(model.query), 0
    for name in model.weight_dims:
        if name == "query":
            break
        start += jnp.size(getattr(model, name))
    for matrix in np.asarray(updates)[start : start + int(np.prod(shape))].reshape(shape):
        values = np.linalg.svd(matrix)[1]
        assert values.max() / values.min() < 2  # five Newton-Schulz steps bring them to 0.7 to 1.2


def test_the_theory_is_that_of_the_sample_of_the_task_described(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """And not of the published script's: its levels are within the scatter of a sample of those of the population."""
    words = ["--eigenvalues", ".8", ".1", "--model", "attnS", "--heads", "2", "--epoch", "2", "--theory"]
    assert main(["train", *words, "--out", str(tmp_path)]) == 0
    said = re.search(r"its levels are ([\d., ]+); those of the population, ([\d., ]+)", capsys.readouterr().out)
    assert said is not None
    own, population = ([float(number) for number in part.strip(" ,").split(", ")] for part in said.groups())
    np.testing.assert_allclose(own, population, rtol=0.1)  # 5000 sequences: some parts in a hundred


@pytest.mark.parametrize(
    ("words", "eigenvalues"),
    [
        (["--eigenvalues", ".8", ".1"], [0.1, 0.8]),
        (["--eigenvalues", ".8", ".1", "--seeds", "2"], [0.1, 0.8]),
        (["--eigenvalues", ".8", ".1", "--softmax"], None),
    ],
)
def test_a_film_has_the_theory_of_its_task_where_there_is_one(words, eigenvalues, tmp_path: Path, monkeypatch):
    tasks, animate = [], plots.animate

    def watched(run, task):
        tasks.append(task)
        return animate(run, task, frames=2)

    monkeypatch.setattr(plots, "animate", watched)
    small = ["--epoch", "3", "--trainset_size", "60", "--context", "6", "--format", "gif"]
    assert main(["train", *words, *small, "--out", str(tmp_path)]) == 0
    (task,) = tasks
    assert (task is None) == (eigenvalues is None)
    if eigenvalues is not None:
        np.testing.assert_allclose(np.linalg.eigvalsh(task.covariance), eigenvalues)
