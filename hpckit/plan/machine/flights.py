"""The messages of a step: all at once, or one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hpckit.plan.protocol import NOBODY, Floats, Ints, Step


@dataclass(frozen=True)
class Flight:
    """Messages that fly together, one entry a message; copies within a rank have sender and receiver the same.

    nbytes: of each message. first: the first cell of each. add: the receiver adds. lag: the data was complete so many
    steps before. memory: in the shared memory of a node. entry: of the step's sends. pieces: of memory that hold each
    message of a field; None for those of collectives.
    """

    sender: Ints
    receiver: Ints
    nbytes: Floats
    first: Ints
    add: bool
    lag: int
    memory: bool
    entry: Ints
    pieces: Floats | None = None


def messages(step: Step, nbytes: float, itemsize: float) -> Flight:
    """All messages of a step, those of a rank in its order. nbytes: of the buffer, itemsize: of an item."""
    ends = step.sends
    entry = np.flatnonzero(ends.peer != NOBODY)
    sender, receiver = ends.ranks()[entry], ends.peer[entry]
    amount = (ends.last - ends.first if ends.amount is None else ends.amount)[entry]
    one = nbytes / step.parts if step.parts else step.itemsize or itemsize
    return Flight(
        sender,
        receiver,
        amount.astype(np.float64) * one,
        ends.first[entry],
        step.add,
        step.lag,
        step.place == "memory",
        entry,
        None if step.parts or ends.pieces is None else ends.pieces[entry].astype(np.float64),
    )


def flights(step: Step, nbytes: float, itemsize: float) -> list[Flight]:
    """The messages of a step one after the other: at most one of each sender, and of each receiver, at a time."""
    whole = messages(step, nbytes, itemsize)
    if whole.memory or (step.sends.rank is None and step.receives.rank is None):
        return [whole]
    sender, receiver, entry = whole.sender, whole.receiver, whole.entry
    turn = turns_of(sender)
    turn = turn * len(entry) + turns_of(turn * (int(receiver.max(initial=0)) + 1) + receiver)
    rounds = [np.flatnonzero(turn == number) for number in np.unique(turn)]
    if len(rounds) <= 1:
        return [whole]
    return [
        replace(
            whole,
            sender=sender[at],
            receiver=receiver[at],
            nbytes=whole.nbytes[at],
            first=whole.first[at],
            pieces=None if whole.pieces is None else whole.pieces[at],
            entry=entry[at],
        )
        for at in rounds
    ]


def turns_of(key: Ints) -> Ints:
    """Which of the entries with the same key each is, counted from 0."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(key) else key
    lengths = np.diff(np.concatenate([starts, [len(key)]]))
    turns = np.empty(len(key), np.int64)
    turns[order] = np.arange(len(key)) - np.repeat(starts, lengths)
    return turns
