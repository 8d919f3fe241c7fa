"""`python tests/experiments/judge.py`: what users get, judged by `numpy_oracle.py`, over random experiments.

Each experiment goes through the library, `train` and `predict`, and in turn through objects made by hand, a sweep that
is exported, and the page. Printed is the worst error of each quantity at each door, relative or in standard errors, the
worst share of what is allowed, and what failed with the command that repeats it; the status is then 1. What is allowed:

- A step of a descent errs by rounding, γ = (numbers summed)·ε of each weight, that of a flow by its solver's tolerance.
  The oracle changes weights at random by a part δ of themselves, after each step of a descent, at the start of a flow,
  and where losses and weights are compared, and finds how these change: that over δ, times the error of a step, the
  number of steps, and √weights, by which a direction may be worse than a random one.
- A time at which a loss passes a level: what the loss may err by, over its slope. Drops of the flow itself lie between
  the same recorded points.
- Levels are eigenvalues: rounding times the condition of the moments. Monte Carlo: 6 standard errors.
- Some 95 of 100 predicted drops of each kind of model lie within their uncertainty: no fewer than by chance with
  probability 1e-6.
"""

import argparse
import asyncio
import contextlib
import csv
import json
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import doors
import numpy as np
import numpy_oracle as oracle
import xarray as xr
from numpy_oracle import EPS
from oracle_draws import FACTORS, described
from scipy.stats import binom
from tornado.websocket import websocket_connect

import stepwell as sw
from stepwell.experiments import Experiment, Keys
from stepwell.explorer._state import State

SEEDS, EXPERIMENTS = (0, 1, 2), 108
"""By default: so many experiments of each of these seeds."""
ERRORS = 6.0
"""Standard errors that are allowed: of 1000 Gaussians one is beyond with probability 2e-6."""
CHANGE = 1e-8
"""The part δ: far above rounding, and small enough that changes are in proportion to it."""


class Truth:
    """What the oracle says of an experiment: losses, last weights and levels, each with what is allowed.

    The initial weights, eigenvectors and sequences drawn are taken from what was run; `_task` judges those.
    """

    def __init__(self, experiment: Experiment, run: xr.Dataset, lengths: oracle.Lengths | None = None):
        self.settings, made = experiment.to_dict(), json.loads(run.attrs["configuration"])
        self.axis = "step" if "step" in run.dims else "time"
        self.moments: oracle.Moments | None = None
        self._of, training = self._loss(experiment, made, lengths), self.settings["training"]
        start = {name: run[name].values[0, 0] for name in experiment.build().model.weights()}
        flowing, self.last = self.axis == "time", run[self.axis].values[-1]
        each, steps = (made["rtol"], made["work"]["steps"]) if flowing else (self.rounding, training["steps"])
        self._least = made["atol"] / each if flowing else 0.0
        self._amplified = each * steps * sum(w.size for w in start.values()) ** 0.5 / CHANGE
        rng = np.random.default_rng(experiment.seed)
        self._signs = [{name: rng.choice([-1, 1], w.shape) for name, w in start.items()} for _ in range(2)]
        if flowing:
            until, balanced = self.last / self.factor, self.settings["model"]["kind"] == "spectral"
            self.flows = [
                oracle.Flow(self._of, start, until, balanced=balanced) for start in (start, *self._changed(start))
            ]
        else:
            rates = oracle.rates(training["schedule"], training["rate"], steps)
            rule, changes = training["optimizer"], (0.0, CHANGE, CHANGE)
            self._paths = [oracle.descend(self._of, start, rates, rule, rng, change) for change in changes]

    def _changed(self, weights: oracle.Weights) -> list[oracle.Weights]:
        """Weights that are changed at random."""
        sizes = {name: CHANGE * (np.abs(w) + self._least) for name, w in weights.items()}
        return [{name: w + signs[name] * sizes[name] for name, w in weights.items()} for signs in self._signs]

    def _loss(self, experiment: Experiment, made: dict[str, Any], lengths: oracle.Lengths | None) -> oracle.Loss:
        task, model, objective = (self.settings[name] for name in ("task", "model", "objective"))
        context = task["context"] if isinstance(task["context"], list) else [task["context"]]
        self.lengths = {n: 1 / len(context) for n in context} if lengths is None else lengths
        self.activation = model.get("activation", "linear" if model["kind"] in FACTORS else "softmax")
        self.divided, self.rounding, self.factor = model.get("normalization", "none"), 64 * EPS, 1.0
        if model["kind"] == "spectral":
            self.top = float(np.dot(task["strengths"], task["dims"]))
            return oracle.spectral(task)
        if self.activation == "linear" and lengths is None:
            self.factor = oracle.paper_time(self.divided, self.lengths, FACTORS[model["kind"]])
        if task["kind"] == "regression":
            held = made["task"] if "task" in made else made["objective"]["made_by"]["task"]
            self.inputs, self.tasks = np.array(held["covariance"]), np.array(held["task_covariance"])
        if objective["kind"] == "population":
            self.moments = oracle.moments(self.inputs, self.tasks, task["noise"], self.lengths, self.divided)
            self.top = self.moments.power
            return oracle.of_weights(model["kind"], oracle.population(self.moments))
        batch = experiment.build_task().sample(objective["sequences"], key=Keys(experiment.seed).train)
        tokens, labels = np.asarray(batch.tokens), np.asarray(batch.labels)
        self.rounding, self.top = tokens.size * EPS, float(np.mean(labels**2))
        return self.over(tokens, labels)

    def over(self, tokens: np.ndarray, labels: np.ndarray) -> oracle.Loss:
        kind = self.settings["model"]["kind"]
        loss = oracle.sequences(tokens, labels, self.lengths, self.activation, self.divided, kind != "multihead")
        return oracle.of_weights(kind, loss)

    def _read(self, point: float, read: Callable[[oracle.Weights], Any]) -> tuple[np.ndarray, np.ndarray]:
        """What is read off the weights at a point, and what changes of them amount to: made at the start, and there."""
        if self.axis == "time":
            weights = [flow.weights(point / self.factor) for flow in self.flows]
        else:
            weights = [path[int(point)] for path in self._paths]
        right, *others = (np.asarray(read(each)) for each in (*weights, *self._changed(weights[0])))
        return right, self._amplified * np.sqrt(2 * np.mean([(other - right) ** 2 for other in others], axis=0))

    def losses(self, points: Any) -> tuple[np.ndarray, np.ndarray]:
        """At times or steps; where a change happens to be zero, those of the points beside count."""
        right, allowed = np.transpose([self._read(point, lambda weights: self._of(weights)[0]) for point in points])
        beside = np.pad(allowed, 1, mode="edge")
        return right, np.max([beside[:-2], allowed, beside[2:]], axis=0) + self.rounding * self.top

    def at_end(self, read: Callable[[oracle.Weights], Any]) -> tuple[np.ndarray, float]:
        """What is read off the last weights."""
        right, allowed = self._read(self.last, read)
        return right, float(np.max(allowed) + self.rounding * np.abs(right).max())

    @property
    def begin(self) -> oracle.Weights:
        return self.flows[0].weights(0.0) if self.axis == "time" else self._paths[0][0]

    @property
    def end(self) -> oracle.Weights:
        return self.flows[0].weights(self.last / self.factor) if self.axis == "time" else self._paths[0][-1]

    def levels(self) -> tuple[np.ndarray, float]:
        """Of the plateaus that the model visits: a component a drop, and of merged attention all at once."""
        assert self.moments is not None
        model, dim = self.settings["model"], len(self.inputs)
        allowed = dim * self.rounding * self.top * float(np.linalg.cond(self.moments.second))
        if model["kind"] == "separate":
            return oracle.levels(self.moments, min(model["heads"] * model["rank"], dim)), allowed
        return oracle.levels(self.moments, dim)[[0, dim]], allowed


class Curve(NamedTuple):
    """Losses at recorded points, and what is allowed."""

    times: np.ndarray
    losses: np.ndarray
    allowed: np.ndarray

    def passage(self, level: float) -> tuple[float, float, float]:
        """When the curve comes down to a level, what is allowed, and the distance of the points around."""
        times, losses, allowed = self
        (early, _), (right, gap), (late, _) = (oracle.passage(times, losses + s * allowed, level) for s in (-1, 0, 1))
        return right, max(late - right, right - early) + 4 * EPS * times[-1], gap


class Finding(NamedTuple):
    quantity: str
    door: str
    experiment: str
    error: float
    share: float
    """Of what is allowed."""


class Judge:
    """Sends experiments through doors, one in `every` through each slow one, and keeps what the oracle finds."""

    def __init__(self, page: "Page | None" = None, *, samples: int = 20_000, every: int = 3):
        self.findings: list[Finding] = []
        self.covered: dict[str, list[bool]] = {}
        """Whether predicted drops lie within their uncertainty, by kind of model."""
        self.commands: dict[str, str] = {}
        self._page, self._samples, self._every = page, samples, every
        self._name = self._door = ""

    def add(self, quantity: str, ours: Any, right: Any, allowed: Any, unit: float | None = None) -> None:
        """Compare; an error is relative to the largest number that is right, unless it has a unit."""
        ours, right = np.asarray(ours, dtype=float), np.asarray(right, dtype=float)
        assert ours.shape == right.shape, (quantity, self._door, ours.shape, right.shape)
        wrong = np.abs(ours - right)
        share = np.max(np.nan_to_num(wrong / np.maximum(allowed, 1e-300), nan=np.inf))
        error = np.max(wrong) / (unit or max(np.abs(right).max(), 1e-300))
        self.findings.append(Finding(quantity, self._door, self._name, float(error), float(share)))

    def experiment(self, seed: int, number: int) -> None:
        """One experiment through its doors."""
        family, made = described(seed, number)
        experiment, rng = Experiment(**made), np.random.default_rng([seed, number, 1])
        self._name, self._door = f"{seed}:{number}", "Experiment.run"
        self.commands[self._name] = shlex.join(experiment.command())
        if family == "any covariance":
            self.commands[self._name] = f"python tests/experiments/judge.py --seeds {seed} --only {number}"
            return self._library(experiment, rng)
        run = experiment.run(progress=False)
        if experiment.objective.kind in ("exact", "reduced"):
            return self._by_sampling(experiment, run, rng)
        truth = Truth(experiment, run)
        self.judge_run(truth, run)
        if not experiment.no_comparison():
            self._drops(truth, run, run.stepwell.compare().table.to_dict("records"))
        with tempfile.TemporaryDirectory() as name, doors.undrawn():
            folder, turn = Path(name), (number + number // 12) % self._every
            self._train(truth, experiment, folder)
            self._predict(truth, experiment, folder, rng)
            if turn == 0:
                self._by_hand(truth, experiment, folder)
                self._task(truth, experiment, made["task"], rng)
            elif turn == 1:
                self._sweep(truth, experiment, folder)
            elif turn == 2 and self._page is not None:
                self._paged(truth, experiment, self._page)

    # ---- quantities ----

    def _curve(self, truth: Truth, points: Any, losses: Any) -> None:
        right, allowed = truth.losses(points)
        self.add("loss along the run", losses, right, allowed)
        self.add("final loss", losses[-1], right[-1], allowed[-1])

    def judge_run(self, truth: Truth, run: xr.Dataset) -> None:
        self._curve(truth, run[truth.axis].values, run["loss"].values[0])
        for name in truth.end:
            self.add("weights at the end", run[name].values[0, -1], *truth.at_end(lambda end, name=name: end[name]))

    def _drops(self, truth: Truth, run: xr.Dataset, rows: list[dict[str, Any]]) -> None:
        """Of a table of drops: their times, also of the flow between recorded points, and the plateaus after them."""
        if truth.moments is None:
            return
        (levels, allowed), timed = truth.levels(), "time" in run.coords
        self.add("level of a plateau", [row["level"] for row in rows], levels[1:], allowed)
        curve = Curve(run["time" if timed else "step"].values.astype(float), *truth.losses(run[truth.axis].values))
        for row, high, low, next_low in zip(rows, levels, levels[1:], [*levels[2:], np.nan], strict=False):
            right, off, gap = curve.passage((high + low) / 2)
            if np.isfinite(off):  # else the loss comes to the level, or not, within what is allowed
                self.add("time of a drop", row["measured" if timed else "measured_step"], right, off)
                if truth.axis == "time":
                    true = truth.flows[0].passage((high + low) / 2) * truth.factor
                    self.add("time of a drop of the flow", row["measured"], true, gap + off)
            begin, end = curve.passage(high - 0.9 * (high - low)), curve.passage(low - 0.1 * (low - next_low))
            if np.isfinite(off := begin[1] + end[1]):
                middle = (begin[0] * max(begin[0], end[0])) ** 0.5
                near = np.interp([middle, middle - off, middle + off], curve.times, curve.losses)
                self.add("measured plateau", row["measured_level"], near[0], curve.allowed.max() + np.ptp(near))

    def _estimate(self, quantity: str, ours: float, right: oracle.Estimate, own: float = 0.0) -> None:
        """By Monte Carlo; `own` is the standard error of what is judged."""
        error = float(np.hypot(right.error, own))
        self.add(f"{quantity} [standard errors]", ours, right.mean, ERRORS * error, unit=error)

    # ---- doors ----

    def _train(self, truth: Truth, experiment: Experiment, folder: Path) -> None:
        self._door, words = "train", ["--json", "--theory", "--out", str(folder), "--store", str(folder / "store")]
        document = json.loads(doors.command("train", doors._written(experiment, folder), *words)[1])
        run = sw.load(document["files"]["trajectory"])
        self.judge_run(truth, run)
        self.add("final loss", document["final_loss"]["train"], *np.ravel(truth.losses(run[truth.axis].values[-1:])))
        if document["drops"]:
            self._drops(truth, run, document["drops"])

    def _predict(self, truth: Truth, experiment: Experiment, folder: Path, rng: np.random.Generator) -> None:
        self._door = "predict"
        document = json.loads(doors.command("predict", doors._written(experiment, folder), "--json")[1])
        if "mmse" in document:
            self._predict_several(document, truth, rng)
        if truth.moments is None or "levels" not in document:
            return
        levels, allowed = truth.levels()
        self.add("level of a plateau", document["levels"], levels, allowed)
        self.add("loss of the optimum", document["final_loss"], levels[-1], allowed)
        for drop, half in zip(document["drops"], (levels[:-1] + levels[1:]) / 2, strict=False):
            if truth.axis != "time" or drop["uncertainty"] is None:
                continue
            covered = self.covered.setdefault(truth.settings["model"]["kind"], [])
            true = truth.flows[0].passage(half) * truth.factor
            if np.isfinite(true):
                self.add("predicted drop", drop["time"], true, np.inf)
                covered.append(abs(drop["time"] - true) <= drop["uncertainty"])
            elif drop["time"] + drop["uncertainty"] < truth.last:  # predicted within the run, and it does not come
                covered.append(False)

    def _predict_several(self, document: dict[str, Any], truth: Truth, rng: np.random.Generator) -> None:
        task = truth.settings["task"]
        if document["gf_loss"] is not None:
            late = 20 * max(filter(None, document["emergence_times_with_equal_heads"]), default=5.0)
            flow = oracle.Flow(oracle.spectral(task), truth.begin, late, balanced=True)
            omega, mu = oracle.eigenvalues(flow.weights(late), np.array(task["dims"]))
            heads = np.argmax(omega * mu, axis=0)
            self.add("head of a task", document["gf_heads"], heads + 1, np.zeros(heads.size))
            omega, mu, right = oracle.division(task, heads)
            self.add("loss of the optimum", document["gf_loss"]["per_task"], right, 1e-7 * right)
            risk = oracle.softmax_risk(rng, self._samples, task, omega, mu)
            self._estimate("softmax loss of the limit", document["gf_exact_loss"]["total"], risk)
        for place, ours in enumerate(document["mmse"]["per_task"]):
            self._estimate("Bayes risk", ours, oracle.bayes_risk(rng, self._samples, task, place))

    def _sweep(self, truth: Truth, experiment: Experiment, folder: Path) -> None:
        """A study of two seeds, exported with its arrays and as a table."""
        rule = experiment.training.get("optimizer", "sgd"), experiment.training.get("schedule", "constant")
        theory = rule == ("sgd", "constant") and truth.moments is not None and not experiment.no_comparison()
        record = {name: experiment.record[name] for name in ("points", "spacing", "snapshots")}
        study = experiment.replace(record=record | ({"measure": ["drops", "predicted", "map"]} if theory else {}))
        path = doors._written(study, folder, "", "[sweep]", f"seed = [{experiment.seed}, {experiment.seed + 1}]")
        store = ["--store", str(folder / "swept"), "--json"]
        words = [
            ["runs", "export", str(folder / kind), f"seed={experiment.seed}", "--format", kind]
            for kind in ("csv", "netcdf")
        ]
        assert [doors.command(*each, *store)[0] for each in (["sweep", path], *words)] == [0, 0, 0]
        self._door = "sweep, runs export"
        with xr.open_dataset(folder / "netcdf", engine="h5netcdf") as runs:
            self._curve(truth, np.ravel(runs[truth.axis].values)[: runs["loss"].shape[1]], runs["loss"].values[0])
            end = float(np.ravel(runs["time"].values)[-1]) if "time" in runs.variables else np.nan
            gap = end / (runs["loss"].shape[1] - 1)
        with (folder / "csv").open(encoding="utf-8") as opened:
            (row,) = csv.DictReader(opened)
        self._door = "sweep, runs export: columns"
        last = [truth.settings["training"]["steps"]] if truth.axis == "step" else [end]
        self.add("final loss", float(row["final_loss"]), *np.ravel(truth.losses(last)))
        if not theory:
            return
        total = sum(float(value) for name, value in row.items() if name.startswith("map_"))
        # Of E[xxᵀ] and the identity for E[βwᵀ], with no second moment, the loss is −2 tr(ΛA).
        trace = oracle.Moments(truth.inputs, np.eye(len(truth.inputs)), 0 * truth.inputs, 0.0)
        own = oracle.of_weights(truth.settings["model"]["kind"], oracle.population(trace))
        unit = -0.5 * max(truth.lengths) * oracle.divisor(truth.divided, max(truth.lengths))
        self.add("sum of the map", total, *truth.at_end(lambda end: unit * own(end)[0]))
        (levels, _), drops = truth.levels(), experiment.predict().drops
        steps = np.arange(last[0] + 1) if truth.axis == "step" else None
        for number, half in enumerate((levels[:-1] + levels[1:]) / 2, start=1):
            if steps is not None:  # measured at every step
                right, off, _ = Curve(steps * (end / last[0]), *truth.losses(steps)).passage(half)
            else:
                right, off = truth.flows[0].passage(half) * truth.factor, gap
            if np.isfinite(right + off):
                self.add("time of a drop", float(row[f"drop_{number}"] or "nan"), right, off)
            if number <= len(drops):
                time = drops[number - 1].time
                self.add("predicted drop of the run alone", float(row[f"predicted_{number}"]), time, 1e-9 * time)

    def _by_hand(self, truth: Truth, experiment: Experiment, folder: Path) -> None:
        self._door = "sw.flow" if truth.axis == "time" else "sw.descend"
        answer = doors.by_hand(experiment, folder)
        self._curve(truth, getattr(answer, truth.axis), answer.loss)

    def _paged(self, truth: Truth, experiment: Experiment, page: "Page") -> None:
        """What the page is sent, and the table that it offers."""
        try:
            words = State.of(experiment).query()
        except ValueError:  # beyond the bounds of its controls
            return
        self._door, view = "page, socket", asyncio.run(page.view(words))
        self._curve(truth, view["time" if truth.axis == "time" else "steps"], view["loss"])
        self._door, name = "page, HTTP", "time_t_over_tau" if truth.axis == "time" else "step"
        rows = [row for row in page.table(words) if row["quantity"] == "loss"]
        self._curve(truth, [float(row[name]) for row in rows], [float(row["value"]) for row in rows])

    # ---- the library's objects ----

    def _library(self, experiment: Experiment, rng: np.random.Generator) -> None:
        """A flow of covariances that do not commute, with any probabilities of lengths."""
        self._door, model = "sw.flow of any covariance", experiment.build().model
        dim = len(oracle.spectrum(experiment.to_dict()["task"]))
        inputs, tasks = (np.cov(rng.standard_normal((dim, 3 * dim))) for _ in range(2))
        lengths = dict(zip([3, 8, int(rng.integers(9, 99))], rng.dirichlet(np.ones(3)).tolist(), strict=True))
        options = {"noise_variance": experiment.task.noise, "outputs": experiment.task.outputs}
        context = sw.tasks.ContextLengths(list(lengths), list(lengths.values()))
        task = sw.tasks.InContextRegression(inputs, context, task_covariance=tasks, **options)
        objective = sw.objectives.Population(task, experiment.normalization)
        record = sw.Record(points=61, spacing="linear")
        run = sw.flow(model, objective, until=20.0, rtol=1e-9, record=record, progress=False)
        truth = Truth(experiment, run, lengths)
        self.judge_run(truth, run)
        if experiment.task.outputs == 1:
            levels, allowed = truth.levels()
            self._door = "objective.floor"
            self.add("loss of the optimum", objective.floor(model), levels[-1], allowed)

    def _by_sampling(self, experiment: Experiment, run: xr.Dataset, rng: np.random.Generator) -> None:
        """Softmax attention at finite d and L, at its first and last weights."""
        task, drawn = experiment.to_dict()["task"], experiment.objective.get("sequences", np.inf)
        for place in (0, -1):
            weights = {name: run[name].values[0, place] for name in ("key", "query", "value", "output")}
            both = oracle.eigenvalues(weights, np.array(task["dims"]))
            risk = oracle.softmax_risk(rng, self._samples, task, *both)
            own = risk.deviation / drawn**0.5
            self._estimate(f"softmax loss, {experiment.objective.kind}", run["loss"].values[0, place], risk, own)

    def _task(self, truth: Truth, experiment: Experiment, described: dict[str, Any], rng: np.random.Generator) -> None:
        """The covariances, and the sequences drawn: by the loss of the last weights over new ones."""
        task, kind = truth.settings["task"], truth.settings["model"]["kind"]
        self._door = "Experiment.build"
        if task["kind"] == "regression":
            right, inputs, tasks = np.sort(oracle.spectrum(described)), truth.inputs, [truth.tasks] * task["outputs"]
            self.add("eigenvalues", np.linalg.eigvalsh(inputs), right, 4 * len(inputs) * EPS * right[-1])
        else:
            block = np.repeat(np.arange(len(task["dims"])), task["dims"])
            inputs, tasks = np.eye(block.size), [np.diag(s * (block == i)) for i, s in enumerate(task["strengths"])]
        if kind == "spectral" or max(truth.lengths) > 100:
            return
        built = experiment.build()
        batch = built.task.sample(self._samples, key=Keys(experiment.seed + 1).train)
        ours = float(sw.objectives.Sampled(batch)(built.model.with_weights(truth.end)))
        drawn = oracle.draw(rng, self._samples, max(truth.lengths), inputs, tasks, task["noise"])
        parts = zip(*(np.array_split(part, 100) for part in drawn), strict=True)
        right = oracle.Estimate.of(np.array([truth.over(*part)(truth.end)[0] for part in parts]))
        self._estimate(f"{truth.activation} loss over new sequences", ours, right, right.error)


class Page:
    """`stepwell explore` in a process of its own."""

    def __init__(self, address: str):
        self._address = address

    @classmethod
    @contextlib.contextmanager
    def serve(cls) -> Iterator["Page"]:
        words = ["-m", "stepwell", "explore", "--port", "0", "--no-browser"]
        with subprocess.Popen(
            [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            try:
                yield cls(re.findall(r"http://[\d.:]+/", process.stdout.readline())[0])
            finally:
                process.terminate()

    async def view(self, words: dict[str, str]) -> dict[str, Any]:
        """The last view that the socket sends for the words of an address."""
        connection = await websocket_connect(self._address.replace("http", "ws", 1) + "ws")
        await connection.write_message(json.dumps({"number": 1, "words": words}))
        view: dict[str, Any] = {}
        while True:
            content = await asyncio.wait_for(connection.read_message(), 120)
            assert isinstance(content, bytes), "the server closed the connection"
            begin = 4 + struct.unpack("<I", content[:4])[0]
            head = json.loads(content[4:begin])
            assert not head.get("failed") and not head.get("problems"), head
            if "done" in head:
                connection.close()
                return view
            view = head.get("view", view)
            for name, (kind, shape, place) in head.get("arrays", {}).items():
                view[name] = np.frombuffer(content, f"<{kind}", int(np.prod(shape)), begin + place).reshape(shape)

    def table(self, words: dict[str, str]) -> list[dict[str, str]]:
        """The rows of the CSV file."""
        address = f"{self._address}download/csv?{urllib.parse.urlencode(words)}"
        with urllib.request.urlopen(address, timeout=120) as answer:
            return list(csv.DictReader(answer.read().decode().splitlines()))


def report(judge: Judge) -> tuple[list[str], list[str]]:
    """The table, and what failed."""
    rows: dict[tuple[str, str], list[Finding]] = {}
    failed: dict[str, list[str]] = {}
    for one in judge.findings:
        rows.setdefault((one.quantity, one.door), []).append(one)
        if one.share > 1:
            said = f"  {one.quantity}, {one.door}: {one.error:.2g}, {one.share:.2g} times what is allowed"
            failed.setdefault(f"{one.experiment} failed: {judge.commands[one.experiment]}", []).append(said)
    lines = [f"{'quantity':<50} {'door':<28} {'experiments':>11} {'worst error':>11} {'of allowed':>10}  experiment"]
    for (quantity, door), found in sorted(rows.items()):
        worst, share = max(found, key=lambda one: one.error), max(one.share for one in found)
        count = len({one.experiment for one in found})
        lines.append(f"{quantity:<50} {door:<28} {count:>11} {worst.error:>11.1e} {share:>10.1e}  {worst.experiment}")
    for kind, covered in sorted(judge.covered.items()):
        inside, drops = sum(covered), len(covered)
        lines.append(f"predicted drops of {kind} attention within their uncertainty: {inside} of {drops}")
        if binom.cdf(inside, drops, 0.95) < 1e-6:
            name = f"predicted drops of {kind} attention failed"
            failed[name] = ["  fewer than 95 of 100 lie within their uncertainty"]
    return lines, ["\n".join([name, *dict.fromkeys(said)]) for name, said in failed.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--experiments", type=int, default=EXPERIMENTS, help="of each seed")
    parser.add_argument("--only", type=int, help="one experiment of each seed, by its number")
    given = parser.parse_args()
    sw.configure()
    numbers = range(given.experiments) if given.only is None else [given.only]
    print(f"seeds {' '.join(map(str, given.seeds))}, {len(numbers)} experiments each", flush=True)
    with Page.serve() as page:
        judge = Judge(page)
        for seed in given.seeds:
            for number in numbers:
                judge.experiment(seed, number)
                wrong = {
                    one.quantity for one in judge.findings if one.experiment == f"{seed}:{number}" and one.share > 1
                }
                print(f"{seed}:{number}", *sorted(wrong), sep="; ", file=sys.stderr, flush=True)
    lines, failed = report(judge)
    print(*lines, *failed, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
