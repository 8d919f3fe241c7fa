"""The published training script: its flags as an `Experiment` and back. `python train.py …` is its door."""

from ._published import Published as Published
from ._published import add_published_flags as add_published_flags
