"""Fig 3: the drawing and the video."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stepwell.papers._style import BLACK, GREY, PALETTE, new_figure, styled
from stepwell.probes import staircase

from ._fig03_settings import SHOWN_INIT
from ._rank_one import DIM

_FRAME_MILLISECONDS = 90
_LAST_FRAME_MILLISECONDS = 2500


def draw(data: dict[str, xr.Dataset]) -> Figure:
    training, population, timing, theory_task = (data[key] for key in ("training", "population", "drops", "theory"))
    with styled():
        figure = new_figure(11.5, 6.8)
        rows: Any = figure.subfigures(2, 1, height_ratios=(1.2, 1.0))
        top, bottom = rows
        left, right = top.subplots(1, 2, width_ratios=(1.2, 1))
        _draw_losses(left, training, theory_task)
        _draw_values(right, population.isel(run=0), timing.sel(init=SHOWN_INIT).isel(run=0), theory_task)
        left, right = bottom.subfigures(1, 2, width_ratios=(2.1, 1))
        _draw_keys(left, training.isel(run=0), theory_task)
        _draw_errors(right.subplots(), timing)
    return figure


def _draw_losses(axes: Any, training: xr.Dataset, predictions: xr.Dataset) -> None:
    time = training["time"].values
    for i, loss in enumerate(training["loss"].values):
        axes.plot(time[1:], loss[1:], color=PALETTE[i % len(PALETTE)], linewidth=1.6, label=f"{i + 1}")
    for m, level in enumerate(predictions["level"].values):
        axes.axhline(level, color=GREY, linestyle="--", linewidth=1.2, zorder=0)
        axes.annotate(
            f"$L(M_{m})$", (1.01, level), xycoords=("axes fraction", "data"), va="center", color="#555555", fontsize=9
        )
    axes.set_xscale("log")
    axes.set_xlim(time[1], time[-1])
    axes.set_ylim(0, 1.08)
    axes.set_xlabel("training time $t/\\tau$ (logarithmic)")
    axes.set_ylabel("training loss")
    sequences = f"{training.attrs['sequences']:,}".replace(",", " ")
    axes.set_title(f"(a) Loss on {sequences} sequences; dashed: predicted levels")
    axes.legend(title="seed", loc="upper right", ncols=2, bbox_to_anchor=(1.0, 0.92))


def _draw_values(axes: Any, run: xr.Dataset, timing: xr.Dataset, predictions: xr.Dataset) -> None:
    time, value = run["time"].values, abs(run["value"].values[:, :, 0, DIM])
    end = 1.25 * float(timing["measured"][-1])
    for d in range(DIM):
        head = int(timing["head"][d])
        axes.plot(time, value[:, head], color=PALETTE[d], linewidth=3.0, alpha=0.55)
        clock = predictions["course"].values[d] + float(timing["predicted"][d])
        height = predictions["height"].values * float(predictions["value_end"][d])
        clock, height = np.append(clock, end), np.append(height, float(predictions["value_end"][d]))
        axes.plot(clock, height, "--", color=BLACK, linewidth=1.2)
        place = (float(timing["measured"][d]), float(predictions["value_end"][d]))
        words = f"head {head + 1} learns $e_{d + 1}$" if d in (0, DIM - 1) else f"$e_{d + 1}$, head {head + 1}"
        axes.annotate(words, place, xytext=(3, 3), textcoords="offset points", color=PALETTE[d], fontsize=9)
    axes.plot([], [], color=GREY, linewidth=3.0, alpha=0.55, label="simulated")
    axes.plot([], [], "--", color=BLACK, linewidth=1.2, label="scalar equation, at the predicted time")
    axes.set_xscale("log")
    axes.set_xlim(0.5 * float(timing["measured"][0]), end)
    axes.set_ylim(0, 1.45 * float(predictions["value_end"].max()))
    axes.legend(loc="upper left")
    axes.set_xlabel("training time $t/\\tau$ (logarithmic)")
    axes.set_ylabel("value weight $|v_i|$")
    axes.set_title(f"(b) Value weights of one run, initial size {SHOWN_INIT:g}")


def _draw_errors(axes: Any, timing: xr.Dataset) -> None:
    error = abs(timing["measured"] / timing["predicted"] - 1)
    inits = timing["init"].values
    runs, drops = error.sizes["run"], error.sizes["drop"]
    for d in range(drops):
        for i in range(runs):
            # Side by side, so that all can be seen.
            spread = 1.13 ** (d - (drops - 1) / 2)
            axes.plot(
                inits * spread,
                np.maximum(error.values[:, i, d], 1e-5),
                "o",
                color=PALETTE[d],
                markersize=3.6,
                alpha=0.75,
                label=f"drop {d + 1}" if i == 0 else None,
            )
    axes.plot(inits, error.median(("run", "drop")), color=BLACK, linewidth=1.4, label="median")
    axes.axhline(0.05, color=GREY, linestyle=":", linewidth=1.4)
    axes.annotate("5 %", (0.0, 0.05), xycoords=("axes fraction", "data"), xytext=(3, -11),
                  textcoords="offset points", color="#555555", fontsize=9)  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 20)
    axes.set_xlabel("size of the initial weights")
    axes.set_ylabel("relative error of the drop time")
    axes.set_title("(d) Schedule against simulation")
    axes.legend(loc="upper left", ncols=2, fontsize=8, columnspacing=0.8, handletextpad=0.3)


def _draw_keys(place: Any, run: xr.Dataset, predictions: xr.Dataset) -> None:
    """Keys in the middle of each plateau, heads in the order in which they grow, beside the eigenvectors."""
    time, vectors, ends = run["time"].values, predictions["eigenvectors"].values, predictions["value_end"].values
    stairs = staircase(time, run["loss"].values)
    value = abs(run["value"].values[:, :, 0, DIM])
    order = np.argsort((value > ends.min() / 2).argmax(axis=0))
    panels = place.subplots(1, len(stairs.plateaus) + 1, sharey=True)
    place.suptitle("(c) Keys of seed 1 in (a) on each plateau, and the eigenvectors", x=0.01, ha="left", fontsize=10.5)
    signs = np.sign(np.sum(run["key"].values[-1, order, 0, :DIM] * vectors.T, axis=1, keepdims=True))
    shown = [
        run["key"].values[int(abs(time - (p.start + p.end) / 2).argmin()), order, 0, :DIM] for p in stairs.plateaus
    ]
    shown.append(signs * vectors.T * ends[:, None])
    titles = [f"plateau {m}" for m in range(len(stairs.plateaus))]
    titles[-1] += " (end)"
    top = float(ends.max())
    image = None
    for axes, keys, title in zip(panels, shown, [*titles, "predicted: $\\pm v_\\infty e_d$"], strict=True):
        image = axes.imshow(keys, cmap="RdBu_r", vmin=-top, vmax=top)
        axes.set_title(title, loc="center", fontsize=9.5)
        axes.set_xticks(range(DIM), [f"$x_{j + 1}$" for j in range(DIM)])
        axes.set_yticks(range(DIM), [f"head {head + 1}" for head in order])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    last = panels[-1]
    last.set_yticks(range(DIM))
    for d in range(DIM):
        last.annotate(f"$e_{d + 1}$", (DIM - 0.4, d), va="center", annotation_clip=False)
    place.colorbar(image, ax=panels, shrink=0.9, pad=0.06, aspect=30, location="bottom", label="entry of the key $k_i$")


def save_gif(data: dict[str, xr.Dataset], path: str | os.PathLike) -> None:
    """Loss, value weights and keys of one run moving together, as an animated GIF."""
    from PIL import Image

    pictures = [Image.fromarray(frame) for frame in frames(data)]
    # One palette for all, from the last frame, which has every colour.
    palette = pictures[-1].quantize(128)
    flat = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations = [_FRAME_MILLISECONDS] * (len(flat) - 1) + [_LAST_FRAME_MILLISECONDS]
    flat[0].save(path, format="GIF", save_all=True, append_images=flat[1:], duration=durations, loop=0, optimize=True)


def save_mp4(data: dict[str, xr.Dataset], path: str | os.PathLike) -> None:
    """The same film by ffmpeg, which is handed the frames as raw bytes."""
    pictures = list(frames(data))
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
    """Saved times for the frames: half of the film follows log time, half the motion of the loss."""
    log_time = np.log(np.maximum(run["time"].values, run["time"].values[1]))
    fall = -np.minimum.accumulate(run["loss"].values)
    clock = np.sum([(x - x[0]) / (x[-1] - x[0]) for x in (log_time, fall)], axis=0)
    return np.unique(np.searchsorted(clock, np.linspace(0, clock[-1], count)).clip(0, clock.size - 1))


def frames(data: dict[str, xr.Dataset]) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """The pictures of the film, of the first run that (b) shows."""
    run, timing, predictions = (
        data["population"].isel(run=0),
        data["drops"].sel(init=SHOWN_INIT).isel(run=0),
        data["theory"],
    )
    run = run.isel(time=run["time"].values <= 1.6 * float(timing["measured"][-1]))
    time, loss = run["time"].values, run["loss"].values
    order = timing["head"].values
    value = abs(run["value"].values[:, order, 0, DIM])
    keys = run["key"].values[:, order, 0, :DIM]
    top = float(predictions["value_end"].max())
    with styled():
        figure = Figure(figsize=(8.0, 3.9), dpi=80, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        columns: Any = figure.subfigures(1, 2, width_ratios=(1.25, 1))
        left, right = columns
        losses, values = left.subplots(2, 1, sharex=True)
        for level in predictions["level"].values:
            losses.axhline(level, color=GREY, linestyle="--", linewidth=1.0)
        (curve,) = losses.plot([], [], color=BLACK)
        heads = [values.plot([], [], color=PALETTE[d], label=f"head {order[d] + 1}")[0] for d in range(DIM)]
        losses.set(xscale="log", xlim=(time[1], time[-1]), ylim=(0, 1.08), ylabel="loss")
        losses.set_title("Loss; dashed: predicted levels")
        values.set(ylim=(0, 1.1 * top), ylabel="value weight $|v_i|$", xlabel="training time $t/\\tau$ (logarithmic)")
        values.legend(loc="upper left")
        now, goal = right.subplots(2, 1)
        signs = np.sign(np.sum(keys[-1] * predictions["eigenvectors"].values.T, axis=1, keepdims=True))
        target = signs * predictions["eigenvectors"].values.T * predictions["value_end"].values[:, None]
        moving = now.imshow(keys[0], cmap="RdBu_r", vmin=-top, vmax=top)
        goal.imshow(target, cmap="RdBu_r", vmin=-top, vmax=top)
        for axes, names in ((now, [f"head {h + 1}" for h in order]), (goal, [f"$e_{d + 1}$" for d in range(DIM)])):
            axes.set_yticks(range(DIM), names)
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
        for place in frame_places(run, int(data["training"].attrs["frames"])):
            curve.set_data(time[1 : place + 1], loss[1 : place + 1])
            for d, line in enumerate(heads):
                line.set_data(time[1 : place + 1], value[1 : place + 1, d])
            moving.set_data(keys[place])
            canvas.restore_region(still)
            for axes, artist in moved:
                axes.draw_artist(artist)
            yield np.array(canvas.buffer_rgba())[..., :3]
