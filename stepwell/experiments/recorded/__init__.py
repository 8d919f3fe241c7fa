"""Recorded training runs, read, run again and compared; docs/recordings.md has the format."""

from ._recording import Recording as Recording
from ._recording import load as load
from ._replay import ENGINES as ENGINES
from ._replay import Engine as Engine
from ._replay import Replay as Replay
from ._replay import replay as replay
from ._rerun import rerun as rerun
