"""`python tests/experiments/one_answer.py`: ten experiments through all doors, as the table of docs/experiments.md.

With `--write` the table in that page is renewed.
"""

import re
import sys
import tempfile
from pathlib import Path

import doors
import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "experiments.md"
BEGIN, END = "<!-- one answer: python tests/experiments/one_answer.py --write -->", "<!-- end of one answer -->"


def table() -> str:
    """The table as Markdown: a row for each experiment, a column for each door."""
    rows = ["| experiment | final loss | first drop, t/τ | " + " | ".join(doors.DOORS) + " |"]
    rows.append("|---|--:|---|" + "---|" * len(doors.DOORS))
    for name, experiment in doors.TEN.items():
        print(name, file=sys.stderr, flush=True)
        answer = doors.reference(experiment)
        with tempfile.TemporaryDirectory() as folder:
            cells = [_cell(answer, door(experiment, Path(folder)), experiment) for door in doors.DOORS.values()]
        loss = np.asarray(answer.loss)
        rows.append(f"| {name} | {loss[-1]:.6g} | {_first(answer)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _first(answer: doors.Answer) -> str:
    """The first drop, predicted and measured, and the head that makes it."""
    if not answer.predicted:
        return ""
    first, found = answer.predicted[0], (answer.measured or [{}])[0]
    head = "" if first["head"] is None else f", head {first['head']}"
    measured = "" if found.get("time") is None else f", measured {found['time']:.4g}"
    return f"{first['time']:.4g}{head}{measured}"


def _cell(answer: doors.Answer, other: doors.Answer | None, experiment: doors.Experiment) -> str:
    """What a door answers: the largest relative deviation of its losses, or what differs."""
    if other is None:
        return "–"
    if problems := doors.differences(answer, other, experiment):
        return "; ".join(problems)
    if other.loss is None:
        return "same" if other.predicted is not None or other.levels is not None else "–"
    mine = doors.thinned(answer, other).loss if other.thinned else answer.loss
    deviation = float(np.max(np.abs(np.asarray(other.loss) / np.asarray(mine) - 1)))
    return "same" if deviation == 0 else f"{deviation:.0e}"


if __name__ == "__main__":
    made = table()
    print(made)
    if "--write" in sys.argv:
        text = PAGE.read_text(encoding="utf-8")
        pattern = f"{re.escape(BEGIN)}.*?{re.escape(END)}"
        PAGE.write_text(re.sub(pattern, lambda _: f"{BEGIN}\n\n{made}\n\n{END}", text, flags=re.S), encoding="utf-8")
