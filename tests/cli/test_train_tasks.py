"""What words and files describe: one experiment, every value of which is used or refused; and what becomes of it."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
import optax
import pytest

import stepwell as sw
from stepwell import analysis
from stepwell.cli import main
from stepwell.experiments import seeds_of
from stepwell.theory import Lengths, Regression, linear

SMALL = "--dim 2 --context 6 --objective moments --sequences 60 --training descent --steps 40 --rate 0.05".split()


def meant(*words: str) -> sw.Experiment:
    """The experiment of a command."""
    from stepwell.experiments._flags import parsed

    return parsed(list(words))


def trained(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> dict[str, Any]:
    assert main(["train", *words, "--json", "--out", str(folder)]) == 0
    return json.loads(capsys.readouterr().out)


# One experiment, whatever words describe it.

SAME = {
    "published spectrum": ("--eigenvalues .4 .3 .2 .1", ""),
    "published by name": ("--spectrum published --dim 5", "--dim 5"),
    "white": ("--spectrum white", "--eigenvalues .25 .25 .25 .25"),
    "power 0": ("--spectrum power --exponent 0 --dim 2", "--spectrum white --dim 2"),
    "spiked": ("--spectrum spiked --ratio 2 --spikes 1 --dim 3", "--eigenvalues .5 .25 .25"),
    "task eigenvalues of 1": ("--task-eigenvalues 1 1 1 1", ""),
    "order of lengths": ("--context 9 5", "--context 5 9"),
    "one length": ("--context 7", "--task.context 7"),
    "sgd": ("--training descent --optimizer sgd --schedule constant", "--training descent"),
    "spaces": ("--training descent --optimizer 'adam: b1=0.8'", "--training descent --optimizer adam:b1=0.8"),
    "a time for steps": ("--training descent --rate .01 --until 2", "--training descent --rate .01 --steps 100"),
    "one strength for all": (
        "--task multitask --dims 4 2 --strengths 2",
        "--task multitask --dims 4 2 --strengths 2 2",
    ),
    "heads by default": ("--dim 3", "--dim 3 --heads 3"),
    "dashes": ("--value-weights --test_sequences 50", "--value_weights true --record.test_sequences 50"),
}


@pytest.mark.parametrize("one, other", SAME.values(), ids=SAME)
def test_the_same_run_in_other_words(one: str, other: str):
    assert meant(*shlex.split(one)) == meant(*shlex.split(other))


DESCRIBED = {
    "default": "",
    "figure 3": "--heads 5 --scale 1e-2 --training descent --steps 10001 --rate 0.02 --objective moments",
    "spectrum": "--spectrum power --exponent 1.5 --noise 0.1 --task-eigenvalues 2 1 1 .5",
    "mixture of lengths": "--context 5 10 --heads 2",
    "mixture of tasks": "--task mixture --in-context 0.4 --test-sequences 30 --value-weights",
    "network": "--model mlp --spectrum white",
    "softmax": "--model merged --activation softmax --context 2 4 --normalization 1/tokens --outputs 2",
    "optimizer": "--training descent --optimizer adam:b1=0.8 --schedule cosine --seed 20",
    "regressions": "--task multitask --dims 4 10 --strengths 2 .6 --noise .8",
    "one head": "--task multitask --dims 4 10 --heads 1",
    "online": "--objective online --batch-size 16",
    "recorded": "--points 50 --spacing log --snapshots 7 --training descent",
}


@pytest.mark.parametrize("line", DESCRIBED.values(), ids=DESCRIBED)
@pytest.mark.parametrize("verb", ["train", "train.json"])
def test_a_file_holds_the_run(verb: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = line.split()
    path = tmp_path / ("run.json" if verb.endswith("json") else "run.toml")
    if verb.endswith("json"):
        path.write_text(json.dumps(meant(*words).to_dict()))
    else:
        assert main(["train", *words, "--dry-run", "--out", str(tmp_path / "none")]) == 0
        path.write_text(capsys.readouterr().out)
    assert meant(str(path)) == sw.Experiment.read(path) == meant(*words)
    assert main(["train", str(path), "--dry-run"]) == 0
    assert sw.Experiment.from_dict(tomllib.loads(capsys.readouterr().out)) == meant(*words)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "line",
    [
        "--training descent --optimizer lbfgs",
        "--training descent --optimizer adam:learning_rate=3",
        "--training descent --optimizer adam:b3=0.9",
        "--training descent --optimizer sgd:nesterov=true",
        "--training descent --schedule constant:value=5",
        "--training descent --schedule warmup:warmup_steps=0",
        "--training descent --optimizer adam --until 3",
        "--objective online --seeds 2",
        "--task mixture --test-sequences 9 --seeds 2",
        "--dim 2000 --snapshots 1000000 --heads 2000 --training descent --steps 1000000",
    ],
)
def test_dry_run_refuses_what_the_run_refuses(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["train", *line.split(), "--store", "off", "--out", str(tmp_path)]
    assert main([*words, "--dry-run"]) == 2
    dry = capsys.readouterr()
    assert dry.out == "" and main(words) == 2
    free = r"[\d.]+ GiB are"  # memory that others use meanwhile
    assert re.sub(free, "", capsys.readouterr().err) == re.sub(free, "", dry.err)


def test_dry_run_says_the_seeds(capsys: pytest.CaptureFixture[str]):
    assert main(["train", "--seeds", "3:5", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# --seeds 3 4\n") and "seed = 3\n" in out


def test_flags_count_before_the_file(tmp_path: Path):
    path = tmp_path / "run.toml"
    path.write_text(
        "[task]\neigenvalues = [0.5, 0.3]\ncontext = 9\n"
        '[model]\nkind = "merged"\n[training]\nkind = "descent"\nrate = 0.5\n'
    )
    white = meant(str(path), "--spectrum", "white", "--dim", "3")
    assert (white.training.rate, white.model.kind, white.task.context) == (0.5, "merged", 9)
    assert white.task.eigenvalues == (1 / 3,) * 3 and white.model.heads == 3
    other = meant(str(path), "--context", "4", "--task-eigenvalues", "1", "2")
    assert (other.task.context, other.task.eigenvalues, other.task.task_eigenvalues) == (4, (0.5, 0.3), (1.0, 2.0))


FILES = {
    "no file": (None, "cannot read"),
    "not TOML": ("rate = ", "not a TOML file"),
    "unknown key": ("[training]\nlearning_rat = 1", "'learning_rat'"),
    "a near key": ("[task]\neigenvalue = [1]", "did you mean eigenvalues?"),
    "unknown table": ("[tusk]\nnoise = 1", "did you mean task?"),
    "a field outside of its table": ("noise = 1", "'noise'; it is a field of the section task"),
    "a study": ("[sweep]\nscale = [0.1, 0.2]", "run it with `stepwell sweep`"),
    "list for a number": ('[training]\nkind = "descent"\nrate = [1, 2]', "a number above 0"),
    "empty list": ("[task]\neigenvalues = []", "a list of number"),
    "number for a switch": ("[model]\nbalanced = 1", "true or false"),
    "text for a number": ('[training]\nkind = "descent"\nrate = "fast"', "a number"),
    "published word": ("[training]\nlr = 0.1", "'lr'"),
    "unknown kind": ('model = "attnS"', "attnS"),
    "output": ('out = "x"', "'out'"),
}


@pytest.mark.parametrize("content, words", FILES.values(), ids=FILES)
@pytest.mark.parametrize("verb", ["train", "predict"])
def test_a_file_that_is_wrong(verb: str, content: str | None, words: str, tmp_path: Path, capsys):
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_text(content)
    assert main([verb, str(path)]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


# What was silent once: a value that was given, and became another or had no effect.

SILENT = {
    "dimension beside eigenvalues": ("--eigenvalues .6 .4 --dim 3", "dim is given as 3"),
    "dimension beside a custom spectrum": ("--spectrum custom --eigenvalues .6 .4 --dim 2", "leave it out"),
    "exponent of another spectrum": ("--spectrum white --exponent 2", "exponent is given as 2"),
    "eigenvalues beside a spectrum": ("--eigenvalues .6 .4 --spectrum white", "eigenvalues"),
    "seq_len": ("--context 20 --seq_len 32", "no flag --seq_len"),
    "head_num": ("--heads 3 --head_num 4", "no flag --head_num"),
    "in_dim": ("--dim 3 --in_dim 4", "no flag --in_dim"),
    "epoch": ("--training descent --until 5 --epoch 100", "no flag --epoch"),
    "lr": ("--lr 0.1", "no flag --lr"),
    "abbreviation": ("--head 3", "no flag --head"),
    "steps beside a time": ("--training descent --until 5 --steps 100", "steps and until are both given"),
    "steps of a flow": ("--steps 100", "the training kind flow has no field 'steps'"),
    "rate of a flow": ("--rate 0.1", "the training kind flow has no field 'rate'"),
    "optimizer of a flow": ("--training flow --optimizer adam", "'optimizer'"),
    "tolerance of a descent": ("--training descent --tolerance 1e-3", "'tolerance'"),
    "rank of merged attention": ("--model merged --rank 2", "the model kind merged has no field 'rank'"),
    "scheme of merged attention": ("--model merged --scheme stacked", "'scheme'"),
    "sequences in population": ("--sequences 100", "the objective kind population has no field 'sequences'"),
    "batch of moments": ("--objective moments --batch-size 10", "'batch_size'"),
    "dims of one regression": ("--dims 4 10", "give --task multitask"),
    "strengths of one regression": ("--strengths 1", "give --task multitask"),
    "softmax beside dims": ("--task multitask --dims 4 10 --activation softmax", "'activation'"),
    "dimension beside dims": ("--task multitask --dims 4 10 --dim 14", "'dim'"),
    "outputs beside dims": ("--task multitask --dims 4 10 --outputs 2", "'outputs'"),
    "rank beside dims": ("--task multitask --dims 4 10 --rank 2", "'rank'"),
    "linear model beside dims": ("--task multitask --dims 4 10 --model separate --objective moments", "one regression"),
    "noise of a mixture": ("--task mixture --noise 1", "'noise'"),
    "noise beside tests": ("--noise 1 --test-sequences 50", "test_sequences"),
    "spacing of a descent": ("--training descent --spacing steps", "spacing is steps"),
    "a length twice": ("--context 5 5", "twice"),
    "seed beside seeds": ("--seed 3 --seeds 5", "not allowed with"),
}


@pytest.mark.parametrize("line, told", SILENT.values(), ids=SILENT)
@pytest.mark.parametrize("verb", ["train", "predict"])
def test_what_has_no_effect_is_refused(verb: str, line: str, told: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    told = "no flag --seeds" if verb == "predict" and "--seeds" in line else told
    assert main([verb, *line.split()]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and told in error and not list(tmp_path.iterdir())


def test_what_is_given_is_what_is_trained():
    several = meant("--task", "multitask", "--dims", "4", "10", "--context", "31", "--heads", "1")
    assert (several.task.context, several.model.heads) == (31, 1)  # and not 100 and 2
    separate = meant("--task", "multitask", "--dims", "4", "10", "--model", "separate", "--activation", "softmax")
    assert (separate.model.kind, separate.objective.kind, separate.model.heads) == ("separate", "sampled", 14)


REFUSED = {
    "no heads": ("--heads 0", "--heads is '0'"),
    "fraction of heads": ("--heads 1.5", "an integer"),
    "negative scale": ("--scale -1", "from 0"),
    "infinite rate": ("--training descent --rate inf", "--rate"),
    "no rate": ("--training descent --rate 0", "above 0"),
    "no steps": ("--training descent --steps 0", "from 1"),
    "no sequences": ("--objective moments --sequences 0", "from 1"),
    "negative noise": ("--noise -1", "from 0"),
    "not a number": ("--noise nan", "--noise"),
    "mixture above one": ("--task mixture --in-context 1.5", "from 0 to 1"),
    "negative seed": ("--seed -1", "--seed"),
    "huge seed": (f"--seed {2**40}", "4294967295"),
    "unknown model": ("--model attnS", "there is no model kind 'attnS'"),
    "near model": ("--model merge", "did you mean merged?"),
    "unknown objective": ("--objective steam", "'steam'"),
    "unknown flag": ("--headz 3", "did you mean --heads?"),
    "tokens of the published script": ("--seq_len 32", "no flag --seq_len here; write --context"),
    "rate of the published script": ("--lr=0.1", "no flag --lr here; write --training descent --rate"),
    "missing value": ("--training descent --rate", "expected one argument"),
    "unknown spectrum": ("--spectrum pink", "published"),
    "steep": ("--spectrum power --exponent steep", "--exponent"),
    "all spikes": ("--spectrum spiked --spikes 4 --dim 4", "below 4"),
    "too few tasks": ("--task-eigenvalues 1 2", "4 eigenvalues and 2 task_eigenvalues"),
    "nothing to learn": ("--task-eigenvalues 0 0 0 0", "nothing to learn"),
    "flow from zero": ("--scale 0", "fixed point"),
    "softmax in closed form": ("--activation softmax --objective population", "sampled"),
    "softmax moments": ("--activation softmax --objective moments", "sampled"),
    "mixture in closed form": ("--task mixture --objective population", "moments"),
    "moments of regressions": ("--task multitask --objective moments", "linear attention"),
    "spectral on one regression": ("--model spectral", "multitask"),
    "flow on new sequences": ("--objective online --training flow", "descent"),
    "too few to whiten": ("--whitened --objective moments --sequences 3", "at least 5"),
    "balanced above the dimension": ("--rank 5 --balanced", "at most the dimension"),
    "time of adam": ("--training descent --until 9 --optimizer adam", "give steps"),
    "text for a time": ("--until later", "converged"),
}
ONLY_TRAIN = {
    "no seeds": ("--seeds 0", "from 1"),
    "seeds backwards": ("--seeds 9:3", "from 1"),
    "text for seeds": ("--seeds many", "20:40"),
    "a seed twice": ("--seeds 3 3", "twice"),
    "huge seeds": (f"--seeds 5 {2**32}", "4294967295"),
    "tests of many": ("--seeds 3 --test-sequences 50", "one run"),
    "unknown format": ("--format jpg", "svg"),
    "unknown optimizer": ("--training descent --optimizer adm", "did you mean adam?"),
    "unknown parameter": ("--training descent --optimizer adam:b3=1", "has no parameter b3"),
    "text for a parameter": ("--training descent --optimizer adam:b1=x", "finite number"),
    "needs the loss": ("--training descent --optimizer lbfgs", "gradient alone"),
    "unknown schedule": ("--training descent --schedule cosinus", "did you mean cosine?"),
    "incomplete schedule": ("--training descent --schedule exponential", "exponential:decay_rate=NUMBER"),
}


@pytest.mark.parametrize(
    "verb, line, told",
    [
        *((v, *case) for v in ("train", "predict") for case in REFUSED.values()),
        *(("train", *c) for c in ONLY_TRAIN.values()),
    ],
)
def test_refused_with_one_line(verb: str, line: str, told: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([verb, *line.split()]) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and told in error and error.startswith(f"stepwell {verb}: ")
    assert not list(tmp_path.iterdir())


def test_seeds():
    assert seeds_of(["3"], 5) == [5, 6, 7] and seeds_of(["2:4"], 5) == [2, 3] and seeds_of(["9", "1"], 0) == [9, 1]


def test_the_task_is_the_one_described():
    words = "--eigenvalues .5 .2 .1 --task-eigenvalues 1 3 .5 --noise .3 --context 5 12".split()
    task = meant(*words).build().task
    described = Regression(np.diag([0.5, 0.2, 0.1]), np.diag([1, 3, 0.5]), 0.3, Lengths.uniform([5, 12]))
    np.testing.assert_allclose(linear.levels(task), linear.levels(described), rtol=1e-12)  # pyright: ignore


def test_a_run_on_another_task_ends_at_its_level(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = "--eigenvalues 1 .6 --noise .2 --task-eigenvalues 1 2 --context 5 9 --model merged --scale .3".split()
    found = trained(capsys, tmp_path, *words, *"--training descent --steps 3000 --rate .05".split())
    level = linear.levels(Regression(np.diag([1, 0.6]), np.diag([1.0, 2.0]), 0.2, Lengths.uniform([5, 9])))[-1]
    assert found["final_loss"]["train"] == pytest.approx(level, rel=1e-6)
    assert found["levels"][-1] == pytest.approx(level, rel=1e-12)


def test_an_ensemble_is_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    found = trained(capsys, tmp_path, *SMALL, "--seeds", "4:7")
    run = sw.load(found["files"]["trajectory"])
    assert run["run"].values.tolist() == found["seeds"] == [4, 5, 6]
    for place, seed in enumerate((4, 5, 6)):
        alone = trained(capsys, tmp_path / str(seed), *SMALL, "--seed", str(seed))
        single = sw.load(alone["files"]["trajectory"])["loss"].values[0]
        np.testing.assert_allclose(run["loss"].values[place], single, rtol=1e-12)
        assert found["final_losses"][place] == pytest.approx(alone["final_loss"]["train"], rel=1e-12)


@pytest.mark.parametrize("name", ["adam", "momentum"])
def test_an_optimizer_is_optaxs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The first steps from the initial weights, by optax itself."""
    words = [*SMALL, "--optimizer", name, "--schedule", "linear", "--rate", ".02"]
    found = trained(capsys, tmp_path, *words)
    run = sw.load(found["files"]["trajectory"])
    assert found["time"] is None and found["time_unit"] is None and "time" not in run.coords
    rate = optax.linear_schedule(0.02, 0.0, 40)
    rule = optax.adam(rate) if name == "adam" else optax.sgd(rate, momentum=0.9)
    _, model, loss = meant(*words).build()
    state = rule.init(eqx.filter(model, eqx.is_array))
    for step in range(5):
        assert float(run["loss"][0, step]) == pytest.approx(float(loss(model)), rel=1e-10)
        updates, state = rule.update(eqx.filter_grad(loss)(model), state, model)
        model = eqx.apply_updates(model, updates)
    kept = json.loads(run.attrs["configuration"])["optimizer"]
    assert kept["schedule"]["parameters"]["transition_steps"] == 40 and kept["optax"] == optax.__version__


def test_regressions_follow_the_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Half of the drop comes between the bounds that `stepwell predict` gives, and the end is the flow's limit."""
    task = "--task multitask --dims 30 --context 300 --noise 1 --heads 2 --scale 1e-4".split()
    assert main(["predict", *task, "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    early, late = predicted["emergence_times"][0], predicted["emergence_times_with_equal_heads"][0]
    found = trained(capsys, tmp_path, *task, "--until", str(3 * late))
    time, loss = np.loadtxt(found["files"]["losses"]).T
    half = time[np.argmax(loss < (loss[0] + loss[-1]) / 2)]
    assert 0.95 * early < half < 1.05 * late and found["time_unit"] == predicted["time_unit"]
    assert found["final_loss"]["train"] == pytest.approx(predicted["gf_loss"]["total"], rel=1e-3)
    assert found["levels"] == pytest.approx([30.0, predicted["gf_loss"]["total"]])


def test_until(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = "--dim 2 --spectrum white --scale .3".split()
    found = trained(capsys, tmp_path, *words)
    assert found["outcome"] == "converged" and found["final_loss"]["train"] == pytest.approx(
        found["levels"][-1], abs=1e-6
    )
    unnormalized = [*words, "--normalization", "none", "--context", "31"]
    timed = trained(capsys, tmp_path, *unnormalized, *"--training descent --rate .001 --until 3.5".split())
    # t/τ of attention divided by N: a step at rate η is 2 η N^(2/3) of it for three weights in a product.
    assert timed["steps"] == int(np.ceil(3.5 / (0.002 * 31 ** (2 / 3))))
    assert timed["time"] == pytest.approx(timed["steps"] * 0.002 * 31 ** (2 / 3), rel=1e-12)


@pytest.mark.usefixtures("drawn_plots")
def test_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from PIL import Image

    words = [*SMALL, "--steps", "10", "--format", "pdf", "svg", "png", "gif"]
    found = trained(capsys, tmp_path, *words)["files"]
    starts = {".pdf": b"%PDF", ".svg": b"<?xml", ".png": b"\x89PNG", ".gif": b"GIF8"}
    written = {path.suffix: path.read_bytes() for path in tmp_path.iterdir()}
    assert all(written[ending].startswith(start) for ending, start in starts.items())
    with Image.open(found["animation"]) as animation:
        assert animation.n_frames > 5  # pyright: ignore
    trained(capsys, tmp_path, *words)
    assert {path.suffix: path.read_bytes() for path in tmp_path.iterdir() if path.suffix != ".nc"} == {
        ending: content for ending, content in written.items() if ending != ".nc"
    }


@pytest.mark.usefixtures("drawn_plots")
def test_the_axes_say_their_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    stepped = Path(trained(capsys, tmp_path, *SMALL, "--format", "svg")["files"]["plot"]).read_text()
    assert "<!-- step -->" in stepped and "<!-- flow time t/τ (attention divided by N) -->" in stepped
    assert "<!-- loss (mean squared error) -->" in stepped
    flow = Path(trained(capsys, tmp_path, "--dim", "2", "--until", "3", "--format", "svg")["files"]["plot"]).read_text()
    assert "<!-- step -->" not in flow and "<!-- flow time t/τ (attention divided by N) -->" in flow


def test_muon_gets_matrices():
    """Its update of a matrix is near orthogonal: singular values are alike. One vector would get that of Adam."""
    import jax
    import jax.numpy as jnp

    from stepwell.dynamics import named_optimizer
    from stepwell.dynamics._ensemble import flatten
    from stepwell.models import SeparateAttention

    model = SeparateAttention.random(dim=3, heads=2, rank=3, scale=1.0, key=jax.random.key(0))
    muon = named_optimizer("muon", rate=0.1, steps=10, model=model).optimizer
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
    words = "--eigenvalues .8 .1 --objective moments --training descent --steps 2 --theory".split()
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
        (["--eigenvalues", ".8", ".1", "--activation", "softmax"], None),
    ],
)
def test_an_animation_has_the_theory_of_its_task_where_there_is_one(words, eigenvalues, tmp_path: Path, monkeypatch):
    tasks, animate = [], analysis.animate

    def watched(run, task):
        tasks.append(task)
        return animate(run, task, frames=2)

    monkeypatch.setattr(analysis, "animate", watched, raising=False)
    small = "--training descent --steps 3 --objective sampled --sequences 60 --context 6 --format gif".split()
    assert main(["train", *words, *small, "--out", str(tmp_path)]) == 0
    (task,) = tasks
    assert (task is None) == (eigenvalues is None)
    if eigenvalues is not None:
        np.testing.assert_allclose(np.linalg.eigvalsh(task.covariance), eigenvalues)
