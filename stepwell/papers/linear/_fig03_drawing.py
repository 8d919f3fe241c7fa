"""Fig 3: the drawing, and the animation of one run."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stepwell.analysis.style import BLACK, GRAY, PALETTE, VERMILION, new_figure, styled
from stepwell.figures import Data

from ._fig03_theory import (
    AFTER,
    Settings,
    aligned_keys,
    comparable,
    exponent,
    in_order_of_learning,
    median,
    next_component,
    passage,
    weights_at,
)
from ._published import DROPS, published_drops
from ._runs import DIM

_QUIET = "#555555"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    training, shown, flows, predictions = (data[key] for key in ("training", "shown", "flows", "theory"))
    with styled():
        figure = new_figure(11.5, 10.2)
        rows: Any = figure.subfigures(3, 1, height_ratios=(1.5, 0.82, 1.05))
        left, right = rows[0].subfigures(1, 2, width_ratios=(1.35, 1))
        loss, drops = left.subplots(2, 1, sharex=True, height_ratios=(2.1, 1))
        _draw_losses(loss, training, predictions, settings)
        _draw_drops(drops, training, settings.unit)
        _draw_values(right.subplots(), training, shown, predictions, settings)
        _draw_keys(rows[1], training, shown, predictions)
        misaligned, errors = rows[2].subplots(1, 2)
        _draw_misalignment(misaligned, flows, data["turned"], settings.sampled)
        _draw_errors(errors, flows, predictions)
    return figure


def _draw_losses(axes: Any, training: xr.Dataset, predictions: xr.Dataset, settings: Settings) -> None:
    step = training["time"].values / settings.unit
    shown = min(settings.shown, training.sizes["run"])
    for loss in training["loss"].values[:shown]:
        axes.plot(step, loss, color=BLACK, linewidth=1.3)
    for m, level in enumerate(predictions["level"].values):
        axes.axhline(level, color=GRAY, linestyle=":", linewidth=1.3, zorder=0)
        axes.annotate(f"$L(M_{m})$", (1.01, level), xycoords=("axes fraction", "data"), va="center", color=_QUIET,
                      fontsize=9)  # fmt: skip
    axes.set_xlim(0, step[-1])
    axes.set_ylim(0, 1.08)
    axes.set_ylabel("training loss")
    axes.set_title(f"(a) As published: {shown} seeds of ours; dotted, predicted levels")


def _draw_drops(axes: Any, training: xr.Dataset, unit: float) -> None:
    """When each drop comes: a row for each, our seeds as strokes and the paper's runs as diamonds above them."""
    steps = training["half"].values / unit
    last = float(training["time"][-1] / unit)
    for d, groups in enumerate(published_drops()):
        ours = steps[:, d]
        height = DIM - d
        came, label = ours[np.isfinite(ours)], f"{len(ours)} seeds of ours" if d == 0 else None
        style = {"color": BLACK, "markersize": 8, "markeredgewidth": 0.9}
        axes.plot(came, np.full(came.size, height - 0.16), "|", label=label, **style)
        for place, (low, high, runs) in enumerate(groups):
            if np.isfinite(low):
                label = "the paper's six runs" if d == place == 0 else None
                ends = [low, high] if runs > 1 else [low]
                axes.plot(ends, [height + 0.2] * len(ends), "D-", color=VERMILION, markersize=4.4, label=label)
        late = int(np.sum(~np.isfinite(ours)))
        if late:
            axes.annotate(f"not by the end: {late} of ours, 1 of the paper's", (last, height), xytext=(-2, 17),
                          textcoords="offset points", ha="right", fontsize=8.5, color=_QUIET)  # fmt: skip
    axes.set_ylim(0.5, DIM + 0.6)
    axes.set_yticks(range(DIM, 0, -1), DROPS)
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("drop")
    axes.set_xlabel("training step")
    axes.legend(loc="upper right", ncols=2)


def _draw_values(axes: Any, training: xr.Dataset, run: xr.Dataset, predictions: xr.Dataset, settings: Settings) -> None:
    unit, place = settings.unit, int(run.attrs["place"])
    step, value = run["time"].values / unit, abs(run["value"].values[:, :, 0, DIM])
    one = training.isel(run=place)
    heads = one["head"].values
    named: list[tuple[Any, str]] = []
    theory: list[tuple[Any, str]] = []
    for head in range(value.shape[1]):
        if head not in heads:
            spare = axes.plot(step, value[:, head], color=GRAY, linewidth=1.2)
            named.append((spare[0], f"head {head + 1} is not needed"))
    for d in np.flatnonzero(heads >= 0):
        end = float(predictions["value_end"][d])
        grown = axes.plot(step, value[:, heads[d]], color=PALETTE[d], linewidth=3.2, alpha=0.6)
        named.insert(d, (grown[0], f"head {heads[d] + 1} learns $e_{d + 1}$"))
        clock = (predictions["course"].values[d] + float(one["half"][d])) / unit
        height = np.append(predictions["height"].values * end, end)
        course = axes.plot(np.append(clock, step[-1]), height, "--", color=BLACK, linewidth=1.1)
        when = float(one["predicted"][d]) / unit
        within = when <= step[-1]
        mark = axes.plot([when], [0], "^", color=PALETTE[d], markersize=7, clip_on=not within, zorder=5)
        theory = [(course[0], "eq. 21, placed at half a drop"), (mark[0], "scheduled drop, initial weights")]
    axes.set_xlim(0, step[-1])
    axes.set_ylim(0, 1.6 * float(predictions["value_end"].max()))
    axes.legend(*zip(*named, *theory, strict=True), loc="upper left", ncols=2, fontsize=8.5, columnspacing=1.0)
    axes.set_xlabel("training step")
    axes.set_ylabel("value weight $|v_i|$, attention divided by N")
    axes.set_title("(b) Value weights of one run" + (" of (a)" if place < settings.shown else ""))


def shown_keys(run: xr.Dataset, predictions: xr.Dataset) -> dict[int, np.ndarray]:
    """Keys of the heads just after each drop of a run that came."""
    steps, keys = predictions["level"].values, {}
    for d in range(DIM):
        threshold = steps[d] - AFTER * (steps[d] - steps[d + 1])
        done = passage(run["time"].values, run["loss"].values, float(threshold))
        if done is not None:
            keys[d] = weights_at(run, done[1], done[0])["key"]
    return keys


def _draw_keys(place: Any, training: xr.Dataset, run: xr.Dataset, predictions: xr.Dataset) -> None:
    """Keys just after each drop, heads in the order in which they learn, beside the eigenvectors."""
    one = training.isel(run=int(run.attrs["place"]))
    ends = predictions["value_end"].values
    order = in_order_of_learning(one["head"].values, run.sizes["head"])
    shown = shown_keys(run, predictions)
    last_keys = [*shown.values(), run["key"].values[-1, :, 0, :DIM]][max(len(shown) - 1, 0)]
    pictures = [*(keys[order] for keys in shown.values()), aligned_keys(last_keys, one, ends)]
    top = float(ends.max())
    panels = place.subplots(1, len(pictures), squeeze=False, gridspec_kw={"wspace": 0.3})[0]
    place.suptitle("(c) Keys of that run just after each drop, and the eigenvectors", x=0.008, ha="left", fontsize=10.5)
    image = None
    titles = [*(f"after the {DROPS[d]} drop" for d in shown), "predicted: $\\pm v_\\infty e_d$"]
    for row, (axes, picture, title) in enumerate(zip(panels, pictures, titles, strict=True)):
        last = row == len(shown)
        image = axes.imshow(picture, cmap="RdBu_r", vmin=-top, vmax=top, aspect="auto")
        axes.set_title(title, loc="center", fontsize=9.5)
        axes.set_xticks(range(DIM), [f"$x_{j + 1}$" for j in range(DIM)])
        names = [f"$e_{j + 1}$" for j in range(DIM)] if last else [f"head {head + 1}" for head in order]
        axes.set_yticks(range(len(names)), names if last or row == 0 else [])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        if not last:
            axes.add_patch(_frame(row))
    place.colorbar(image, ax=panels, pad=0.02, aspect=14, label="entry of the key")


def _frame(row: int) -> Any:
    """Around the row of the newest head."""
    from matplotlib.patches import Rectangle

    return Rectangle((-0.5, row - 0.5), DIM, 1, fill=False, edgecolor=BLACK, linewidth=1.6, clip_on=False)


def _draw_misalignment(axes: Any, flows: xr.Dataset, turned: xr.Dataset, sequences: int) -> None:
    inits, clear = flows["init"].values, comparable(flows)
    key = abs(flows["key"].values)
    for d in range(DIM):
        off = np.where(clear[..., d], key[..., d, next_component(d)], np.nan)
        middle = np.array([median(each) for each in off])
        for run in range(off.shape[1]):
            axes.plot(inits, off[:, run], ".", color=PALETTE[d], markersize=3, alpha=0.5)
        line = middle[-1] * (inits / inits[-1]) ** exponent(d)
        axes.plot(inits, line, color=PALETTE[d], linewidth=1.0)
        label = f"drop {d + 1}, along $e_{next_component(d) + 1}$: power {exponent(d):.3g}"
        axes.plot(inits, middle, "o", color=PALETTE[d], markersize=5.5, label=label)
    if turned.sizes["set"]:
        turn = float(np.sqrt(np.mean(turned["predicted"].values[:, 1:] ** 2)))
        axes.axhline(turn, color=BLACK, linestyle="--", linewidth=1.1, zorder=0,
                     label=f"turn of the first key by {sequences:,} sequences (r.m.s.)".replace(",", " "))  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-7, 3e3)
    axes.set_yticks([1e-6, 1e-4, 1e-2, 1e0])
    axes.set_xlabel("scale of the initial weights (published: 0.01)")
    axes.set_ylabel("component of the newest key\noff its eigenvector (relative)")
    axes.set_title("(d) Keys turn to eigenvectors as the initial weights shrink")
    axes.legend(loc="upper left", fontsize=8.5)


def _draw_errors(axes: Any, flows: xr.Dataset, predictions: xr.Dataset) -> None:
    inits, clear, constants = flows["init"].values, flows["clear"].values, predictions["time_constant"].values
    predicted = np.where(comparable(flows), flows["predicted"].values, np.nan)
    error, wait = abs(flows["half"].values - predicted) / constants, predicted / constants
    for d in range(DIM):
        spread = 1.16 ** (d - (DIM - 1) / 2)
        for run in range(error.shape[1]):
            axes.plot(inits * spread, error[:, run, d], "o", color=PALETTE[d], markersize=3.2, alpha=0.8,
                      label=f"drop {d + 1}" if run == 0 else None)  # fmt: skip
    axes.plot(inits, [median(each) for each in wait], "s-", color=GRAY, markersize=4,
              linewidth=1.2, label="median wait before a drop")  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-6, 1e8)
    axes.set_yticks([1e-4, 1e-2, 1e0, 1e2, 1e4])
    axes.set_xlabel("scale of the initial weights (published: 0.01)")
    axes.set_ylabel("error of the scheduled time\nin time constants of the drop")
    axes.set_title(f"(e) Schedule against simulation; {int(np.sum(~clear))} of {clear.size} left out as near ties")
    axes.legend(loc="upper left", ncols=3, fontsize=8.5, columnspacing=1.0, handletextpad=0.3)


_FRAME_MILLISECONDS = 90
_LAST_FRAME_MILLISECONDS = 2500


def save_gif(data: Data, settings: Settings, path: str | os.PathLike) -> None:
    """Loss, value weights and keys of one run moving together, as an animated GIF."""
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames(data, settings)]
    # One palette for all, from the last frame, which has every color.
    palette = pictures[-1].quantize(128)
    flat = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations = [_FRAME_MILLISECONDS] * (len(flat) - 1) + [_LAST_FRAME_MILLISECONDS]
    flat[0].save(path, format="GIF", save_all=True, append_images=flat[1:], duration=durations, loop=0, optimize=True)


def save_mp4(data: Data, settings: Settings, path: str | os.PathLike) -> None:
    """The same animation by ffmpeg, which is handed the frames as raw bytes."""
    pictures = list(frames(data, settings))
    pictures += pictures[-1:] * (_LAST_FRAME_MILLISECONDS // _FRAME_MILLISECONDS)
    height, width, _ = pictures[0].shape
    shape = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        f"{width}x{height}",
        "-r",
        f"{1000 / _FRAME_MILLISECONDS:.4f}",
    ]
    output = ["-pix_fmt", "yuv420p", "-movflags", "+faststart", "-f", "mp4", os.fspath(path)]
    command = ["ffmpeg", "-y", "-loglevel", "error", *shape, "-i", "-", *output]
    subprocess.run(command, input=b"".join(picture.tobytes() for picture in pictures), check=True, capture_output=True)


def frame_places(run: xr.Dataset, count: int) -> np.ndarray:
    """Saved times for the frames: half of the animation follows time, half the motion of the loss."""
    time, fall = run["time"].values, -np.minimum.accumulate(run["loss"].values)
    clock = np.sum([(x - x[0]) / (x[-1] - x[0] or 1.0) for x in (time, fall)], axis=0)
    return np.unique(np.searchsorted(clock, np.linspace(0, clock[-1], count)).clip(0, clock.size - 1))


def frames(data: Data, settings: Settings) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """The frames of the animation, of the run that (b) shows."""
    training, run, predictions = data["training"], data["shown"], data["theory"]
    one = training.isel(run=int(run.attrs["place"]))
    step, loss = run["time"].values / settings.unit, run["loss"].values
    order = in_order_of_learning(one["head"].values, run.sizes["head"])[:DIM]
    value = abs(run["value"].values[:, order, 0, DIM])
    keys = run["key"].values[:, order, 0, :DIM]
    ends = predictions["value_end"].values
    top = float(ends.max())
    with styled():
        figure = Figure(figsize=(8.0, 3.9), dpi=80, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        columns: Any = figure.subfigures(1, 2, width_ratios=(1.25, 1))
        left, right = columns
        losses, values = left.subplots(2, 1, sharex=True)
        for level in predictions["level"].values:
            losses.axhline(level, color=GRAY, linestyle=":", linewidth=1.0)
        (curve,) = losses.plot([], [], color=BLACK)
        heads = [values.plot([], [], color=PALETTE[d], label=f"head {head + 1}")[0] for d, head in enumerate(order)]
        losses.set(xlim=(0, step[-1]), ylim=(0, 1.08), ylabel="loss")
        losses.set_title("Loss; dotted: predicted levels")
        values.set(ylim=(0, 1.4 * top), ylabel="value weight $|v_i|$", xlabel="training step")
        values.legend(loc="upper left", ncols=DIM, columnspacing=1.0, handlelength=1.2)
        now, goal = right.subplots(2, 1)
        moving = now.imshow(keys[0], cmap="RdBu_r", vmin=-top, vmax=top)
        goal.imshow(aligned_keys(run["key"].values[-1, :, 0, :DIM], one, ends), cmap="RdBu_r", vmin=-top, vmax=top)
        for axes, names in ((now, [f"head {h + 1}" for h in order]), (goal, [f"$e_{d + 1}$" for d in range(DIM)])):
            axes.set_yticks(range(len(names)), names)
            axes.set_xticks([])
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
        now.set_title("Keys now")
        goal.set_title("Eigenvectors, at their final length")
        # All but what moves is drawn once.
        moved = [(losses, curve), *((values, line) for line in heads), (now, moving)]
        for _, artist in moved:
            artist.set_animated(True)
        canvas.draw()
        still = canvas.copy_from_bbox(figure.bbox)
        for place in frame_places(run, settings.frames):
            curve.set_data(step[: place + 1], loss[: place + 1])
            for d, line in enumerate(heads):
                line.set_data(step[: place + 1], value[: place + 1, d])
            moving.set_data(keys[place])
            canvas.restore_region(still)
            for axes, artist in moved:
                axes.draw_artist(artist)
            yield np.array(canvas.buffer_rgba())[..., :3]
