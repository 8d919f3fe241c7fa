"""At which steps a run records, and what it has recorded."""

from collections.abc import Sequence

import numpy as np

from stepwell._util import checks
from stepwell._util.errors import InvalidInput
from stepwell._util.memory import require_memory

Steps = int | Sequence[int] | np.ndarray


def record_steps(record: Steps, steps: int) -> np.ndarray:
    """Steps from 0 to `steps` at which losses are kept: every so many, or a list; the first and last always."""
    if isinstance(record, int | np.integer):
        every = checks.whole("record", record)
        require_memory(
            32 * (steps // every),
            what=f"recording every {every} of {steps} steps",
            instead="record fewer of them (record=), or take larger steps",
        )
        listed = np.arange(0, steps, every)
    else:
        listed = np.unique([checks.whole("recorded step", step, least=0) for step in np.asarray(record).tolist()])
        listed = listed.astype(np.int64)
        if listed.size and (listed[0] < 0 or listed[-1] > steps):
            raise InvalidInput(f"record lists steps from {listed[0]} to {listed[-1]}; give steps from 0 to {steps}")
    return np.union1d(listed, [0, steps])


def snapshot_places(snapshots: Steps, recorded: np.ndarray) -> np.ndarray:
    """Places among the recorded steps at which all weights are kept: so many, evenly, or those nearest to a list."""
    last = len(recorded) - 1
    if isinstance(snapshots, int | np.integer):
        count = checks.whole("snapshots", snapshots, least=2)
        places = np.linspace(0, last, min(count, last + 1)).round().astype(int)
    else:
        wanted = [checks.whole("snapshot", step, least=0) for step in np.asarray(snapshots).tolist()]
        places = np.searchsorted(recorded, np.array(wanted, dtype=np.int64)).clip(0, last)
    return np.union1d(places, [0, last])
