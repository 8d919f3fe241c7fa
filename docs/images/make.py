"""The pictures of the README: `python docs/images/make.py` draws them anew, into the folder of this file.

Both are of one run: four heads of separate attention from small random weights, beside what theory predicts for them.
"""

import sys
from pathlib import Path

import jax

import stepwell as sw


def draw(folder: Path, frames: int = 36) -> list[Path]:
    """Write `staircase.svg`, `staircase.png` and `staircase.gif` into a folder, and return their paths."""
    task = sw.InContextRegression(sw.covariance([0.4, 0.3, 0.2, 0.1], key=jax.random.key(1)), 31)
    model = sw.SeparateAttention.random(dim=4, heads=4, scale=1e-2, key=jax.random.key(0))
    run = sw.flow(model, sw.Population(task), record=sw.Record(spacing="steps"), progress=False)
    paths = [folder / f"staircase.{ending}" for ending in ("svg", "png", "gif")]
    picture = run.stepwell.plot(task, log=True)
    picture.savefig(paths[0], metadata={"Date": None})
    picture.savefig(paths[1], dpi=150)
    run.stepwell.animate(task, frames=frames).save(paths[2], writer="pillow", dpi=64)
    return paths


if __name__ == "__main__":
    for path in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent):
        print(path, f"{path.stat().st_size / 1024:.0f} kB")
