"""The end of a training step: rings over the replicas, which sum gradients, and gather parameters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hpckit.plan.protocol import NOTHING, Ends, Ints, Step, Work
from hpckit.plan.training.contents import GATHERED, SUMMED, StepContents, only
from hpckit.plan.training.cost import step_cost
from hpckit.plan.training.memory import held_parameters


def gradients(at: StepContents) -> Step:
    """The gradients of a stage are there once all its microbatches are."""
    it, rank = at.strategy, at.rank_of.ravel()
    stage, line = np.repeat(np.arange(it.pp), at.lines), np.tile(np.arange(at.lines), it.pp)
    cells, schedule = at.schedule.cells(), at.schedule
    every = [
        [(s, "W", m) for s, home in enumerate(schedule.rank_of) if home == p for m in range(it.microbatches)]
        for p in range(it.pp)
    ]
    width = max(map(len, every))
    reads, needs = (np.full((it.pp, width), NOTHING) for _ in range(2))
    for p, each in enumerate(every):
        reads[p, : len(each)] = [cells.place(cell) for cell in each]
        needs[p, : len(each)] = [cells.index(cell) for cell in each]
    needs = np.where(needs[stage] == NOTHING, NOTHING, needs[stage] + (line * at.made)[:, None])
    reads = np.maximum(reads[stage], 0)
    held = np.full((len(rank), 1), at.cells - 3)
    made = at.content(SUMMED, stage, line, 0)[:, None]
    return only(Work(rank, np.zeros(len(rank)), reads, needs, held, made, ["gradients"] * len(rank)))


def ending(at: StepContents) -> Iterator[Step]:
    """Rings over the replicas: gradients summed, the optimizer, parameters gathered."""
    it, size = at.strategy, at.ring
    across, pp = np.arange(at.lines), it.pp
    d, c, t = np.unravel_index(across, (at.dp, it.cp, it.tp))
    place = d * it.cp + c
    after = np.ravel_multi_index((*np.divmod((place + 1) % size, it.cp), t), (at.dp, it.cp, it.tp))
    before = np.ravel_multi_index((*np.divmod((place - 1) % size, it.cp), t), (at.dp, it.cp, it.tp))
    rank, ahead, behind = at.rank_of.ravel(), at.rank_of[:, after].ravel(), at.rank_of[:, before].ravel()
    stage = np.repeat(np.arange(pp), at.lines)
    line = np.tile(across, pp)
    shared, own = held_parameters(at.model, it)
    # Experts have fewer twins: what their ring sends, as bytes of this one.
    count = shared + own * (1 - 1 / it.twins) / (1 - 1 / size if size > 1 else 1)
    total, held = at.cells - 1, at.cells - 3
    # The sum of chunk k of a ring begins at place k + 1, and is whole at place k.
    parts = step_cost(at.model, at.strategy, at.machine).parts
    column = lambda cell: np.full((len(rank), 1), cell)  # noqa: E731
    one = it.precision.sent * count / size
    received, scratch = line[:0], held + 1
    ring_before = np.tile(before, pp)
    for number in range(1, size):
        sent = _sent(rank, ahead, behind, held, scratch, one)
        received = at.content(SUMMED, stage, ring_before, number - 1)
        yield Step(*sent, itemsize=1.0, texts=lambda: ["dp"] * len(rank))
        added = at.content(SUMMED, stage, line, number)
        mine = at.content(SUMMED, stage, line, number - 1)
        yield only(
            Work(
                rank,
                np.full(len(rank), one / at.machine.reduction),
                np.hstack([column(held), column(scratch)]),
                np.stack([mine, received], axis=1),
                column(held),
                added[:, None],
                ["adds"] * len(rank),
            )
        )
    seconds = parts["optimizer"] + (parts["dp"] if at.dp < it.dp else 0.0)
    start = at.content(GATHERED, stage, line, 0)
    last = at.content(SUMMED, stage, line, size - 1)
    whole = np.full(len(rank), seconds)
    yield only(Work(rank, whole, column(held), last[:, None], column(total), start[:, None], ["optimizer"] * len(rank)))
    one = (it.precision.parameter if it.sharding else it.precision.sent) * count / size
    for number in range(1, size):
        sent = _sent(rank, ahead, behind, total, scratch, one)
        yield Step(*sent, itemsize=1.0, texts=lambda: ["dp"] * len(rank))
        mine = at.content(GATHERED, stage, line, number - 1)
        theirs = at.content(GATHERED, stage, ring_before, number - 1)
        yield only(
            Work(
                rank,
                np.zeros(len(rank)),
                np.hstack([column(total), column(scratch)]),
                np.stack([mine, theirs], axis=1),
                column(total),
                at.content(GATHERED, stage, line, number)[:, None],
                ["keeps"] * len(rank),
            )
        )


def _sent(rank: Ints, ahead: Ints, behind: Ints, cell: int, into: int, nbytes: float) -> tuple[Ends, Ends]:
    amount = np.full(len(rank), nbytes)
    out, place = np.full(len(rank), cell), np.full(len(rank), into)
    return (
        Ends(ahead, out, out + 1, rank=rank, amount=amount),
        Ends(behind, place, place + 1, rank=rank, amount=amount),
    )
