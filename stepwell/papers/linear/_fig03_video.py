"""Fig 3: the video of one run."""

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stepwell.analysis.style import BLACK, GRAY, PALETTE, styled
from stepwell.figures import Data

from ._fig03_readings import aligned_keys, in_order_of_learning
from ._fig03_settings import Settings
from ._rank_one import DIM

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
    """The same film by ffmpeg, which is handed the frames as raw bytes."""
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
    """Saved times for the frames: half of the film follows time, half the motion of the loss."""
    time, fall = run["time"].values, -np.minimum.accumulate(run["loss"].values)
    clock = np.sum([(x - x[0]) / (x[-1] - x[0] or 1.0) for x in (time, fall)], axis=0)
    return np.unique(np.searchsorted(clock, np.linspace(0, clock[-1], count)).clip(0, clock.size - 1))


def frames(data: Data, settings: Settings) -> Iterator[UInt8[np.ndarray, "height width 3"]]:
    """The pictures of the film, of the run that (b) shows."""
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
