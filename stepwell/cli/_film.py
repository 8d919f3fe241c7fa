"""The film of a run: its loss, and the effective map where there is one, step by step."""

import io
from pathlib import Path

import numpy as np
import xarray as xr

from stepwell._errors import InvalidInput
from stepwell._files import write_bytes

_FRAMES = 60
_MILLISECONDS, _LAST_MILLISECONDS = 80, 2000
_LARGEST = 1e100


def write_film(path: Path, run: xr.Dataset) -> Path:
    """Write an animated GIF of a run's first member. Half of its frames follow the steps, half the fall of the loss."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    steps, loss = run["step"].values, run["loss"].values[0]
    loss = np.where(np.abs(loss) < _LARGEST, loss, np.nan)
    moments, maps = run["snapshot"].values, _maps(run)
    figure = Figure(figsize=(7.0, 3.4) if maps is not None else (4.6, 3.4), dpi=100)
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(1, 1 if maps is None else 2, squeeze=False)[0]
    figure.subplots_adjust(left=0.1, right=0.95, top=0.9, bottom=0.15, wspace=0.3)
    axes[0].plot(steps, loss, color="lightgrey", lw=1)
    (line,) = axes[0].plot([], [], color="black", lw=2)
    axes[0].set(xlabel="step", ylabel="loss", xlim=(0, max(1, steps[-1])), ylim=(0, None))
    if maps is not None:
        largest = float(np.max(np.abs(maps), where=np.isfinite(maps), initial=1e-300))
        picture = axes[1].imshow(maps[0], cmap="RdBu_r", vmin=-largest, vmax=largest)
        figure.colorbar(picture, ax=axes[1], shrink=0.8)
        axes[1].set(xticks=[], yticks=[], title="effective map")
    frames = []
    for place in _places(steps, loss, moments):
        upto = steps <= moments[place]
        line.set_data(steps[upto], loss[upto])
        axes[0].set_title(f"step {moments[place]}", fontsize=10)
        if maps is not None:
            picture.set_data(maps[place])
        canvas.draw()
        frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[:, :, :3].copy()))
    palette = frames[-1].quantize(128)
    flat = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    durations = [_MILLISECONDS] * (len(flat) - 1) + [_LAST_MILLISECONDS]
    content = io.BytesIO()
    flat[0].save(content, format="GIF", save_all=True, append_images=flat[1:], duration=durations, loop=0)
    return write_bytes(path, content.getvalue())


def _maps(run: xr.Dataset) -> np.ndarray | None:
    """Effective maps of the first run by snapshot, over (snapshot, row, column); None if the model has none."""
    from stepwell.probes import effective_map

    try:
        return effective_map(run).values[0]
    except InvalidInput:
        return None


def _places(steps: np.ndarray, loss: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Snapshots to show."""
    fall = -np.fmin.accumulate(np.interp(moments, steps, np.nan_to_num(loss)))
    clocks = [(x - x[0]) / (x[-1] - x[0]) for x in (moments.astype(float), fall) if x[-1] > x[0]]
    if not clocks:
        return np.array([0])
    clock = np.sum(clocks, axis=0)
    return np.unique(np.searchsorted(clock, np.linspace(0, clock[-1], _FRAMES)).clip(0, moments.size - 1))
