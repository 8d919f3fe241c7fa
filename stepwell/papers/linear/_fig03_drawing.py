"""Fig 3: the drawing, and the animation of one run."""

from collections.abc import Iterator
from typing import Any

import matplotlib.figure
import numpy as np
import xarray as xr
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from stepwell.analysis.style import BLACK, GRAY, PALETTE, VERMILION, new_figure, styled
from stepwell.figures import Data

from . import _fig03_theory as fig3
from ._drawing import lines, note
from ._fig03_theory import Settings, aligned_keys, comparable, exponent, in_order_of_learning, median, next_component
from ._published import DROPS, published_drops
from ._runs import DIM, name_level

_QUIET = "#555555"


def draw(data: Data, settings: Settings) -> matplotlib.figure.Figure:
    training, shown, flows, predictions = (data[key] for key in ("training", "shown", "flows", "theory"))
    with styled():
        figure = new_figure(11.5, 10.2)
        rows: Any = figure.subfigures(3, 1, height_ratios=(1.5, 0.82, 1.05))
        left, right = rows[0].subfigures(1, 2, width_ratios=(1.35, 1))
        loss, drops = left.subplots(2, 1, sharex=True, height_ratios=(2.1, 1))
        _draw_losses(loss, training, predictions, settings)
        _draw_drops(drops, training, settings.unit, settings.heads[0])
        _draw_values(right.subplots(), training, shown, predictions, settings)
        _draw_keys(rows[1], training, shown, predictions)
        misaligned, errors = rows[2].subplots(1, 2)
        _draw_misalignment(misaligned, flows, data["turned"], settings.sampled)
        _draw_errors(errors, flows, predictions)
    return figure


def _draw_losses(axes: Any, training: xr.Dataset, predictions: xr.Dataset, settings: Settings) -> None:
    step = training["time"].values / settings.unit
    shown = min(settings.shown, len(settings.seeds))
    lines(axes, step, training["loss"].values[:shown], color=BLACK, linewidth=1.3)
    for m, level in enumerate(predictions["level"].values):
        axes.axhline(level, color=GRAY, linestyle=":", linewidth=1.3, zorder=0)
        name_level(axes, f"$L(M_{m})$", level, (4, 0), color=_QUIET)
    axes.set(xlim=(0, step[-1]), ylim=(0, 1.08), ylabel="training loss")
    axes.set_title(f"(a) As published: {shown} seeds, {settings.heads[0]} heads; dotted, levels")


def _draw_drops(axes: Any, training: xr.Dataset, unit: float, heads: int) -> None:
    steps = training["half"].values[training["heads"].values == heads] / unit
    last = float(training["time"][-1] / unit)
    style = {"color": BLACK, "markersize": 8, "markeredgewidth": 0.9}
    for d, groups in enumerate(published_drops()):
        ours, height = steps[:, d], DIM - d
        label = f"{len(ours)} seeds of ours" if d == 0 else None
        axes.plot(ours, np.full(ours.size, height - 0.16), "|", label=label, **style)
        for place, (low, high, runs) in enumerate(groups[np.isfinite(groups[:, 0])]):
            label = "the paper's six runs" if d == place == 0 else None
            ends = [low, high] if runs > 1 else [low]
            axes.plot(ends, [height + 0.2] * len(ends), "D-", color=VERMILION, markersize=4.4, label=label)
        if late := np.sum(~np.isfinite(ours)):
            words = f"not by the end: {late} of ours, 1 of the paper's"
            note(axes, words, (last, height), (-2, 17), ha="right", fontsize=8.5, color=_QUIET)
    axes.set_ylim(0.5, DIM + 0.6)
    axes.set_yticks(range(DIM, 0, -1), DROPS)
    axes.tick_params(axis="y", length=0)
    axes.set(ylabel="drop", xlabel="training step")
    axes.legend(loc="upper right", ncols=2)


def _draw_values(axes: Any, training: xr.Dataset, run: xr.Dataset, predictions: xr.Dataset, settings: Settings) -> None:
    unit, place = settings.unit, int(run.attrs["place"])
    step, value = run["time"].values / unit, abs(run["value"].values[:, :, 0, DIM])
    one = training.isel(run=place)
    heads = one["head"].values
    learned = np.flatnonzero(heads >= 0)
    for d in learned:
        style: Any = {"color": PALETTE[d], "linewidth": 3.2, "alpha": 0.6}
        axes.plot(step, value[:, heads[d]], **style)
        name_level(axes, f"head {heads[d] + 1}: $e_{d + 1}$", value[-1, heads[d]], (4, 0), color=PALETTE[d])
    for head in sorted({*range(value.shape[1])} - {*heads}):
        label = f"head {head + 1} is not needed"
        axes.plot(step, value[:, head], color=GRAY, linewidth=1.2, label=label, zorder=1.9)
    for d in learned:
        end, last = float(predictions["value_end"][d]), d == learned[-1]
        clock = (predictions["course"].values[d] + float(one["half"][d])) / unit
        height = np.append(predictions["height"].values * end, end)
        label = "eq. 21, placed at half a drop" if last else None
        axes.plot(np.append(clock, step[-1]), height, "--", color=BLACK, linewidth=1.1, label=label)
        when = float(one["predicted"][d]) / unit
        style = {"color": PALETTE[d], "markersize": 7, "clip_on": when > step[-1], "zorder": 5}
        axes.plot([when], [0], "^", label="scheduled drop, initial weights" if last else None, **style)
    axes.set(xlim=(0, step[-1]), ylim=(0, 1.2 * float(predictions["value_end"].max())))
    axes.legend(loc="upper left", fontsize=8.5)
    axes.set(xlabel="training step", ylabel="value weight $|v_i|$, attention divided by N")
    axes.set_title("(b) Value weights of one run" + (" of (a)" if place < settings.shown else ""))


def shown_keys(run: xr.Dataset, predictions: xr.Dataset) -> dict[int, np.ndarray]:
    """Keys of the heads just after each drop of a run that came."""
    steps, keys = predictions["level"].values, {}
    for d in range(DIM):
        threshold = steps[d] - fig3.AFTER * (steps[d] - steps[d + 1])
        done = fig3.passage(run["time"].values, run["loss"].values, float(threshold))
        if done is not None:
            keys[d] = fig3.weights_at(run, done[1], done[0])["key"]
    return keys


def _draw_keys(place: Any, training: xr.Dataset, run: xr.Dataset, predictions: xr.Dataset) -> None:
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
            # Around the row of the newest head.
            style: Any = {"fill": False, "edgecolor": BLACK, "linewidth": 1.6, "clip_on": False}
            axes.add_patch(Rectangle((-0.5, row - 0.5), DIM, 1, **style))
    place.colorbar(image, ax=panels, pad=0.02, aspect=14, label="entry of the key")


def _draw_misalignment(axes: Any, flows: xr.Dataset, turned: xr.Dataset, sequences: int) -> None:
    inits, clear = flows["init"].values, comparable(flows)
    key = abs(flows["key"].values)
    for d in range(DIM):
        off = np.where(clear[..., d], key[..., d, next_component(d)], np.nan)
        middle = np.array([median(each) for each in off])
        axes.plot(inits, off, ".", color=PALETTE[d], markersize=3, alpha=0.5)
        line = middle[-1] * (inits / inits[-1]) ** exponent(d)
        axes.plot(inits, line, color=PALETTE[d], linewidth=1.0)
        label = f"drop {d + 1}, $e_{next_component(d) + 1}$: power {exponent(d):.3g}"
        axes.plot(inits, middle, "o", color=PALETTE[d], markersize=5.5, label=label)
    if turned.sizes["set"]:
        turn = float(np.sqrt(np.mean(turned["predicted"].values[:, 1:] ** 2)))
        label = f"the first, by {sequences:,} sequences"
        axes.axhline(turn, color=BLACK, linestyle="--", linewidth=1.1, zorder=0, label=label)
    axes.set(xscale="log", yscale="log", ylim=(1e-6, 1e2), yticks=[1e-6, 1e-4, 1e-2, 1e0])
    axes.set(xlabel="scale of the initial weights (published: 0.01)")
    axes.set(ylabel="component of the newest key\noff its eigenvector (relative)")
    axes.set(title="(d) Keys turn to eigenvectors as the initial weights shrink")
    axes.legend(loc="upper left", fontsize=8, ncols=2, columnspacing=1.0)


def _draw_errors(axes: Any, flows: xr.Dataset, predictions: xr.Dataset) -> None:
    inits, clear, constants = flows["init"].values, flows["clear"].values, predictions["time_constant"].values
    predicted = np.where(comparable(flows), flows["predicted"].values, np.nan)
    error, wait = abs(flows["half"].values - predicted) / constants, predicted / constants
    for d in range(DIM):
        style: Any = {"color": PALETTE[d], "markersize": 3.2, "alpha": 0.8, "label": f"drop {d + 1}"}
        lines(axes, inits * 1.16 ** (d - (DIM - 1) / 2), error[:, :, d].T, "o", **style)
    style = {"color": GRAY, "markersize": 4, "linewidth": 1.2, "label": "median wait"}
    axes.plot(inits, [median(each) for each in wait], "s-", **style)
    axes.set(xscale="log", yscale="log", ylim=(1e-6, 2e7), yticks=[1e-4, 1e-2, 1e0, 1e2, 1e4])
    axes.set(xlabel="scale of the initial weights (published: 0.01)")
    axes.set(ylabel="error of the scheduled time\nin time constants of the drop")
    axes.set(title=f"(e) Schedule and simulation; {int(np.sum(~clear))} of {clear.size} near ties left out")
    axes.legend(loc="upper left", ncols=5, fontsize=8, columnspacing=0.8, handletextpad=0.2)


def save_gif(data: Data, settings: Settings, path: str) -> None:
    """Loss, value weights and keys of one run moving together, as an animated GIF."""
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames(data, settings)]
    # One palette for all, from the last frame, which has every color.
    palette = pictures[-1].quantize(128)
    flat = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations = [90] * (len(flat) - 1) + [2500]  # milliseconds
    flat[0].save(path, format="GIF", save_all=True, append_images=flat[1:], duration=durations, loop=0, optimize=True)


def frame_places(run: xr.Dataset, count: int) -> np.ndarray:
    """Saved times: half of the animation follows time, half the fall of the loss."""
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
        losses.set(xlim=(0, step[-1]), ylim=(0, 1.08), ylabel="loss", title="Loss; dotted: predicted levels")
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
