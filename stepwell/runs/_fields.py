"""Between a run as the terminal describes it and its canonical configuration."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from stepwell._errors import InvalidInput
from stepwell.published import SEVERAL, Run, infinite, run_in, tables_of

from ._study import Record

NUMERICS = 1
"""Version of the numerics, raised when the numbers of runs change by more than rounding: their names change with it."""

_RECORD = tuple(field.name for field in dataclasses.fields(Record))


def configuration_of(run: Run, record: Record, *, single: bool = False) -> dict[str, Any]:
    """The canonical configuration of a run: what it is, in one way of saying it, and nothing that does not matter.

    A `single` run may have test sets and tracked values, which those of studies have not.
    """
    flags, beyond, engine, until = run
    extras = {name: getattr(flags, name) for name in ("testset_size", "track_value") if getattr(flags, name)}
    if extras and not single:
        raise InvalidInput(f"{next(iter(extras))} is for single runs (stepwell train); leave it out of a study")
    if beyond.seeds is not None:
        raise InvalidInput(
            "seeds are for single runs (stepwell train); in a study vary seed, as in seed = {from = 0, count = 20}"
        )
    made = {name.replace("-", "_"): value for table in tables_of(run).values() for name, value in table.items()}
    for name in ("testset_size", "track_value", "until"):
        made.pop(name, None)
    made["epoch"] = flags.epoch if until is None else _epochs(run)
    made["context"] = made["context"][0] if len(made["context"]) == 1 else made["context"]
    made["icl"] = float(flags.icl)
    if beyond.several:
        made["model"] = SEVERAL
    else:
        made["dim"] = flags.in_dim
        made["start"] = flags.start_rule
        if not flags.kind.has_rank:
            del made["rank"]
    if infinite(engine) or (beyond.several and engine != "sampled"):
        del made["trainset_size"]
    kept = dataclasses.asdict(record)
    kept["measure"] = " ".join(record.measure)
    kept["points"] = min(record.points, made["epoch"] + 1)
    kept["snapshots"] = min(record.snapshots, kept["points"])
    made = {name: value + 0.0 if isinstance(value, float) else value for name, value in made.items()}  # no -0
    return {**made, **extras, **kept, "numerics": NUMERICS}


def run_from(configuration: Mapping[str, Any]) -> tuple[Run, Record]:
    """The run of a canonical configuration, and what is kept of it: the inverse of `configuration_of`."""
    fields = dict(configuration)
    numerics = fields.pop("numerics", None)
    if numerics != NUMERICS:
        raise InvalidInput(f"the configuration is of version {numerics} of the numerics; this program has {NUMERICS}")
    kept = {name: fields.pop(name) for name in _RECORD if name in fields}
    kept["measure"] = tuple(str(kept.get("measure", "")).split())
    if fields.get("model") == SEVERAL:
        del fields["model"]
        fields.pop("icl", None)
    return run_in(fields), Record.of(kept)


def _epochs(run: Run) -> int:
    """Steps that the flow time of a run takes at its rate."""
    if isinstance(run.until, str):
        raise InvalidInput(
            "until is converged; runs of a study have one length, so give a time: stepwell predict says when the last "
            "drop comes"
        )
    if not run.beyond.plain:
        raise InvalidInput("until is a flow time, which other optimisers than sgd do not have; give epoch")
    from stepwell.published import training

    setup = training.set_up(run.flags, run.engine, run.beyond)
    assert run.until is not None
    return max(1, math.ceil(run.until / float(training.paper_time(setup, 1.0)) - 1e-9))
