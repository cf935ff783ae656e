"""Schedules as tables in CSV files: a line a rank, a cell an action (`0F3`), empty cells where the rank waits."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from hpckit.errors import InputError, PlanError
from hpckit.plan.inputs.text import read_text
from hpckit.plan.pipeline.price import price_schedule
from hpckit.plan.pipeline.schedule import COMPUTE, MOST_FAULTS, NONE, Action, Schedule
from hpckit.plan.proving import prove

# A number beyond says a typing error, not a pipeline.
MOST_NUMBER = 10_000


def read_schedule(path: str | Path) -> Schedule:
    """The schedule in a CSV file, proved. The lines define the stages of each rank.

    Only the order within a line counts; empty cells just align columns with moments. Lines that start with # are
    skipped. Raises `InputError` with the first cells that are no actions, `PlanError` if an action is missing, doubled
    or on two ranks, or if ranks wait for each other.
    """
    text = read_text(path, "the schedule table")
    lists, faults = _actions(text)
    if faults or not any(lists):
        do = "mend: " + "; ".join(faults[:MOST_FAULTS]) if faults else "write a line a rank, as in 0F0,0F1,0B0,0B1"
        more = "; and more" if len(faults) > MOST_FAULTS else ""
        raise InputError("the schedule table is wrong" if faults else "it is empty", where=str(path), do=do + more)
    rank_of: dict[int, int] = {}
    for rank, actions in enumerate(lists):
        for action in actions:
            rank_of.setdefault(action.stage, rank)
    missing = sorted(set(range(max(rank_of) + 1)) - set(rank_of))
    if missing:
        some = ", ".join(map(str, missing[:MOST_FAULTS]))
        raise PlanError(f"the schedule table has no action of stage {some}", where=str(path))
    microbatches = 1 + max(action.microbatch for actions in lists for action in actions)
    placed = tuple(rank_of[stage] for stage in range(len(rank_of)))
    schedule = Schedule(Path(path).name, microbatches, placed, tuple(map(tuple, lists)))
    try:
        prove(schedule)
    except PlanError as error:  # whose message begins with the schedule's name, which is the file's
        told = error.message.removeprefix(f"{schedule.name}: ")
        raise PlanError(told, where=str(path), do=error.do) from error
    return schedule


def write_schedule(schedule: Schedule, path: str | Path) -> None:
    """Write a table that `read_schedule` reads; a column is a moment where F, I and W take one each, and B two."""
    price = price_schedule(schedule)
    rows = [[""] * int(price.seconds) for _ in range(schedule.ranks)]
    for rank, action, begin, _ in price.intervals:
        rows[rank][int(begin)] = str(action)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    try:
        Path(path).write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"the table cannot be written: {error.strerror}", where=str(path)) from error


def _actions(text: str) -> tuple[list[list[Action]], list[str]]:
    """The actions of each line, and what is wrong in its cells, until there is more of that than is told."""
    lists: list[list[Action]] = []
    faults: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if len(lists) > MOST_NUMBER:
            faults.append(f"line {number}: more than {MOST_NUMBER} ranks")
            break
        if len(faults) > MOST_FAULTS:
            break
        lists.append([])
        try:
            cells = next(csv.reader([line]))
        except csv.Error as error:
            faults.append(f"line {number}: {error}")
            continue
        for column, cell in enumerate(cells, 1):
            if not cell.strip():
                continue
            if len(faults) > MOST_FAULTS:
                break
            try:
                action = Action.parse(cell)
                if action.kind not in COMPUTE or action.peer != NONE or max(action[0], action[2]) > MOST_NUMBER:
                    raise InputError(f"{cell.strip()!r} is not F, B, I or W of a stage and a microbatch")
                lists[-1].append(action)
            except InputError as error:
                faults.append(f"line {number}, cell {column}: {error.message}")
    return lists, faults
