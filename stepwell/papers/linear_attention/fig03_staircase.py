r"""Fig 3: with separate keys and queries of rank one, the loss goes down a staircase, a component and a head a step.

All runs are gradient flow in the paper's convention (attention divided by N), carried to the end whatever the initial
weights. One covariance and one data set of P sequences are shared; the seeds differ in their initial weights.

The runs on P sequences start from weights of size 0.01. Started from 0.0001 their waits are a hundred times longer, and
on them sampling error mixes the heads that have grown: then 2 of 6 seeds no longer have a head for each component, and
cos² falls to 0.46. The schedule and the scalar equation are held to infinite data at the smallest size, where they are
exact in the limit; the scalar equation missed its tolerance in 2 of 6 seeds at 0.01.
"""

import shutil
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import jax
import numpy as np
import xarray as xr
from jaxtyping import Float

from stepwell.objectives import AbstractObjective, Moments, Population
from stepwell.papers._claim import Claim
from stepwell.probes import Staircase, alignment, passage_time, staircase
from stepwell.tasks import InContextRegression, covariance
from stepwell.theory import linear as theory
from stepwell.trajectory import TIME_UNIT, provenance

from ._described import described
from ._fig03_drawing import draw as draw
from ._fig03_drawing import save_gif, save_mp4
from ._fig03_settings import FULL, NAME, QUICK, SHOWN_INIT, Settings
from ._rank_one import CONTEXT, DIM, EIGENVALUES, HEADS, run_flows, schedules, starts

TITLE = "Separate keys and queries learn one principal component at a time: a staircase"
CAPTION = (
    "Linear attention with separate keys and queries (ATTN_S, rank one, four heads) under gradient flow from small "
    "random weights. (a) Training loss against time, one data set and several initial weights; dashed, the predicted "
    "levels L(M_m), at which m principal components of the inputs are learned. (b) Value weights of the four heads of "
    "one run on infinite data. Dashed, the solution of the scalar equation τ dv/dt = λ²v² − λcv⁵, placed at the time "
    "that the schedule predicts from the initial weights; nothing is fitted. (c) Keys of one run of (a) in the middle "
    "of each plateau, one row a head, beside the eigenvectors of the covariance: at each step one more head has "
    "rotated to the next eigenvector. Keys are off by the sampling error and by the finite size of the initial "
    "weights, and once all is learned they go on rotating slowly, because the label blocks, free as in training, pick "
    "up sampling error too. (d) Relative error of the predicted drop times on infinite data, against the size of the "
    "initial weights, for every seed and drop; the outliers at 0.01 and 0.001 are one run, in which two heads of "
    "nearly equal times exchange components. The video shows the run of (b)."
)


def settings(quick: bool) -> dict[str, Any]:
    return {
        **described(dim=DIM, context=CONTEXT, heads=HEADS, rank=1, eigenvalues=EIGENVALUES),
        "initial weights": "Gaussian, label blocks zero; one covariance and data set for all seeds",
        "training": "gradient flow",
        **asdict(QUICK if quick else FULL),
    }


def simulate(quick: bool) -> dict[str, xr.Dataset]:
    chosen = QUICK if quick else FULL
    task, data_key = prepare()
    predicted = {init: schedules(task, starts(chosen.seeds, init)) for init in chosen.inits}
    flows = {init: run(task, Population(task), chosen, init, predicted[init]) for init in chosen.inits}
    sampled = InContextRegression(task.covariance, CONTEXT, centred=True, whitened=True)
    moments = Moments.of_task(sampled, chosen.sequences, progress=False, key=data_key)
    training = run(task, moments, chosen, SHOWN_INIT, predicted[SHOWN_INIT])
    return {
        "training": training.assign_attrs(sequences=chosen.sequences, frames=chosen.frames),
        "population": flows[SHOWN_INIT],
        "drops": drops(task, flows, predicted),
        "theory": levels(task),
    }


def prepare() -> tuple[InContextRegression, Any]:
    """The task and the key of the data."""
    task_key, data_key = jax.random.split(jax.random.key(0))
    return InContextRegression(covariance(EIGENVALUES, key=task_key), CONTEXT), data_key


def run(
    task: InContextRegression,
    objective: AbstractObjective,
    chosen: Settings,
    init: float,
    predicted: list[list[theory.Drop]],
) -> xr.Dataset:
    """Gradient flow from the weights of each seed, saved at common times."""
    times = save_times(task, predicted, chosen.points)
    configuration = {"figure": NAME, "init": init, **asdict(chosen)}
    # Drop times are compared to parts in a thousand, and follow from weights as small as `init`.
    tolerances = {"rtol": 1e-7, "atol": 1e-6 * init}
    models = starts(chosen.seeds, init)
    return run_flows(models, objective, times, seeds=chosen.seeds, configuration=configuration, **tolerances)


def save_times(
    task: InContextRegression, predicted: list[list[theory.Drop]], points: int
) -> Float[np.ndarray, " time"]:
    """Evenly spaced in log time, finer about the predicted drops, finest about the first of each run."""
    drops = np.array([drop.time for each in predicted for drop in each])
    firsts = np.array([each[0].time for each in predicted])
    even = np.geomspace(drops.min() / 5, 3 * drops.max(), points)
    near = np.outer(drops, np.linspace(0.994, 1.006, 25)).ravel()
    own = 1 / (float(theory.escape_rates(task)[0]) * theory.aligned_end(task, 0))
    nearest = np.add.outer(firsts, own * np.linspace(-30, 50, 161)).ravel()
    times = np.unique(np.concatenate([even, near, nearest[nearest > 0]]))
    return np.concatenate([[0.0], times[np.diff(times, prepend=0.0) > 1e-9 * times]])


def levels(task: InContextRegression, *, context: int = CONTEXT) -> xr.Dataset:
    """The levels, the eigenvectors, and the course of an aligned head about the half of its drop."""
    theory_task = InContextRegression(task.covariance, context)
    modes = theory.modes(theory_task)
    height = np.concatenate([np.geomspace(0.01, 0.5, 60), 1 - np.geomspace(0.5, 1e-4, 60)[1:]])
    # The gain of a head is 1 - (1 - x³)², x = v/v_end: half of it at this x.
    half = (1 - 0.5**0.5) ** (1 / 3)
    courses = []
    for d in range(DIM):
        end = theory.aligned_end(theory_task, d)
        clock = theory.aligned_time(theory_task, d, float(height[0]) * end, end * np.append(height, half))
        courses.append(clock[:-1] - clock[-1])
    return xr.Dataset(
        {
            "level": ("plateau", theory.levels(theory_task)),
            "eigenvectors": (("dim", "component"), modes.directions),
            "value_end": ("component", modes.ends ** (1 / 3)),
            "map_end": ("component", modes.ends),
            "course": (("component", "height"), np.array(courses), {"units": TIME_UNIT + ", from half the drop"}),
        },
        {"height": height},
        provenance({"figure": NAME, "context": context}),
    )


def drops(
    task: InContextRegression, flows: dict[float, xr.Dataset], predicted: dict[float, list[list[theory.Drop]]]
) -> xr.Dataset:
    """Drop times and the heads that learn, predicted and on infinite data, for each size of the initial weights."""
    predictions = levels(task)
    steps, vectors = predictions["level"].values, predictions["eigenvectors"].values
    midway = (steps[:-1] + steps[1:]) / 2
    rows = []
    for init, trajectory in flows.items():
        measured = [
            [passage_time(trajectory["time"].values, loss, level) for level in midway]
            for loss in trajectory["loss"].values
        ]
        runs = [trajectory.isel(run=i) for i in range(trajectory.sizes["run"])]
        carried = np.stack([shares(each, vectors)[-1] for each in runs])
        rows.append(
            xr.Dataset(
                {
                    "aligned": ("run", np.array([observe_plateaus(each, predictions)["aligned"] for each in runs])),
                    "rise": ("run", np.array([rise(each, predictions) for each in runs])),
                    "measured": (("run", "drop"), np.array(measured)),
                    "head": (("run", "drop"), carried.argmax(axis=1)),
                    "predicted": (("run", "drop"), np.array([[d.time for d in each] for each in predicted[init]])),
                    "predicted_head": (("run", "drop"), np.array([[d.head for d in each] for each in predicted[init]])),
                },
                {"run": trajectory["run"].values},
            )
        )
    together = xr.concat(rows, dim="init").assign_coords(init=list(flows))
    return together.assign_attrs(provenance({"figure": NAME}))


def shares(run: xr.Dataset, vectors: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "time head component"]:
    r"""What each head contributes to each component of the map, $v_i (k_i^\top e_d)(q_i^\top e_d)$."""
    value, key, query = (
        run["value"].values[:, :, 0, DIM],
        run["key"].values[:, :, 0, :DIM],
        run["query"].values[:, :, 0],
    )
    return value[..., None] * (key @ vectors) * (query @ vectors)


def claims(data: dict[str, xr.Dataset]) -> list[Claim]:
    training, timing, predictions = data["training"], data["drops"], data["theory"]
    observed = [observe_plateaus(training.isel(run=i), predictions) for i in range(training.sizes["run"])]
    error = abs(timing["measured"] / timing["predicted"] - 1).max("drop")
    smallest = timing.isel(init=-1)
    right_heads = (smallest["head"] == smallest["predicted_head"]).sum("drop").values
    inits = timing["init"].values
    return [
        Claim.over(
            f"{NAME}/drops",
            "The loss on P sequences drops once for each of the D components: number of drops",
            predicted=DIM,
            measured=[len(each["stairs"].drops) for each in observed],
            tolerance=0,
            basis="a count; a plateau is 4 times slower than the falls beside it",
        ),
        Claim.over(
            f"{NAME}/levels",
            "Every plateau on P sequences is at its level L(M_m): largest relative difference",
            predicted=0.0,
            measured=[each["off_level"] for each in observed],
            tolerance=0.02,
            basis="3 standard errors of a mean square over 80 000 sequences, 0.7 % each at the first plateau",
            relation="<=",
        ),
        Claim.over(
            f"{NAME}/order",
            "Components are learned in falling order of λ: plateaus m = 1 … D on which exactly the first m are learned",
            predicted=DIM,
            measured=[each["in_order"] for each in observed],
            tolerance=0,
            basis="a count; learned is more than half of its final share in the map",
        ),
        Claim.over(
            f"{NAME}/heads",
            "Each component is learned by a head of its own: number of heads with the largest share of one in the end",
            predicted=DIM,
            measured=[each["heads"] for each in observed],
            tolerance=0,
            basis="a count",
        ),
        Claim.over(
            f"{NAME}/keys",
            "On plateau m, on P sequences, the keys of the m grown heads lie along eigenvectors: smallest cos²",
            predicted=0.99,
            measured=[each["aligned"] for each in observed],
            tolerance=0.0,
            basis="as stated in advance, in the middle of each plateau",
            relation=">=",
        ),
        Claim.over(
            f"{NAME}/keys-small-init",
            f"On plateau m, on infinite data from weights of size {inits[-1]:g}, the keys of the m grown heads lie "
            "along eigenvectors: smallest cos²",
            predicted=0.99,
            measured=smallest["aligned"].values,
            tolerance=0.0,
            basis="as stated in advance, in the middle of each plateau",
            relation=">=",
        ),
        Claim.over(
            f"{NAME}/scheduled-heads",
            f"On infinite data from weights of size {inits[-1]:g}, each drop is due to the head that the schedule "
            "names: number of such drops",
            predicted=DIM,
            measured=right_heads,
            tolerance=0,
            basis="a count",
        ),
        Claim.over(
            f"{NAME}/times",
            f"On infinite data from weights of size {inits[-1]:g}, every drop comes when the schedule says: "
            "largest relative error of its time",
            predicted=0.0,
            measured=error.isel(init=-1).values,
            tolerance=0.05,
            basis="as stated in advance; exact as the initial weights vanish",
            relation="<=",
        ),
        Claim.at_most(
            f"{NAME}/vanishing-error",
            f"The schedule's error vanishes with the initial weights: its median at size {inits[-1]:g} over that at "
            f"{inits[0]:g}, over seeds and drops",
            measured=_median(timing.isel(init=-1)) / _median(timing.isel(init=0)),
            tolerance=float((inits[-1] / inits[0]) ** 0.5),
            basis="times grow as 1/init, the error as a drop's duration, so the ratio is that of the sizes; its root "
            "leaves room for scatter",
        ),
        Claim.over(
            f"{NAME}/scalar-course",
            f"On infinite data from weights of size {inits[-1]:g}, the first head to grow follows the scalar equation: "
            "time from 20 % to 90 % of its final value, over the equation's",
            predicted=1.0,
            measured=smallest["rise"].values,
            tolerance=_misalignment(predictions, float(inits[-1])),
            basis="angle (init/v)^(1 − (λ₂/λ₁)²) at which the head still lies as it begins to rise; it enters squared",
        ),
    ]


def extras(data: dict[str, xr.Dataset]) -> dict[str, Callable[[str], None]]:
    """The video; beside the GIF an MP4 where ffmpeg is."""
    written: dict[str, Callable[[str], None]] = {"gif": lambda path: save_gif(data, path)}
    if shutil.which("ffmpeg"):
        written["mp4"] = lambda path: save_mp4(data, path)
    return written


def observe_plateaus(run: xr.Dataset, predictions: xr.Dataset) -> dict[str, Any]:
    """The staircase of one run; on its plateaus: error of levels, components learned in order, alignment of keys."""
    time, vectors = run["time"].values, predictions["eigenvectors"].values
    stairs = staircase(time, run["loss"].values)
    levels, plateau_levels = predictions["level"].values, np.array([plateau.level for plateau in stairs.plateaus])
    share = shares(run, vectors)
    places = middles(time, stairs)
    cosines = alignment(run.isel(time=places).expand_dims("run"), vectors)["key"]
    nearest = cosines.max("component").values[0, :, :, 0]
    in_order, aligned = 0, 1.0
    for m, place in enumerate(places):
        learned = share[place].sum(axis=0) > predictions["map_end"].values / 2
        in_order += int(m > 0 and learned.tolist() == [d < m for d in range(DIM)])
        grown = np.argsort(-np.abs(run["value"].values[place, :, 0, DIM]))[:m]
        aligned = min(aligned, float(nearest[m, grown].min(initial=1.0)))
    return {
        "stairs": stairs,
        "off_level": float(abs(plateau_levels / levels - 1).max()) if plateau_levels.size == levels.size else np.nan,
        "in_order": in_order,
        "heads": len(set(share[-1].argmax(axis=0).tolist())),
        "aligned": aligned,
    }


def middles(time: Float[np.ndarray, " time"], stairs: Staircase) -> list[int]:
    """The saved time nearest to the middle of each plateau."""
    return [int(abs(time - (plateau.start + plateau.end) / 2).argmin()) for plateau in stairs.plateaus]


def _median(timing: xr.Dataset) -> float:
    return float(abs(timing["measured"] / timing["predicted"] - 1).median())


_LOW, _HIGH = 0.2, 0.9


def rise(run: xr.Dataset, predictions: xr.Dataset) -> float:
    """Measured over predicted time of the first head's rise."""
    value = abs(run["value"].values[:, :, 0, DIM])
    end = float(predictions["value_end"][0])
    grown = value > end / 2
    head = int(np.where(grown.any(axis=0), grown.argmax(axis=0), grown.shape[0]).argmin())
    first, last = (passage_time(run["time"].values, -value[:, head], -part * end) for part in (_LOW, _HIGH))
    clock = np.interp([_LOW, _HIGH], predictions["height"].values, predictions["course"].values[0])
    return (last - first) / float(clock[1] - clock[0])


def _misalignment(predictions: xr.Dataset, init: float) -> float:
    ratio = EIGENVALUES[1] / EIGENVALUES[0]
    return (init / (_LOW * float(predictions["value_end"][0]))) ** (1 - ratio**2)
