"""The table of a node: what each of its ranks does now, in memory that its watcher shares. Standard library only.

A file of a page with the alarm and the end, then STRIDE bytes a rank: who it is, which of its calls are over, the
number of its latest operation on each communicator, and a ring of its last calls, 64 bytes apart. Beside it `sites-R`
says in words, a line for each, what the numbers of rank R stand for: communicators, and places in the source with their
operation.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

PAGE, STRIDE = 4096, 8192
# Bytes of a rank until the place of its last call that is over, until its group numbers, until its ring; calls in that.
ENDED, GROUPS, RING, SLOTS = 56, 64, 4096, 64
MOST_GROUPS = (RING - GROUPS) // 8
MOST_SITES = 4096
# A call in the ring: its place in the rank's order, `place_and_root`, its number on the group, elements, digest.
CALL = struct.Struct("<3QqQ")
ABSENT, RUNNING, LEFT = range(3)  # what a rank says of itself
TABLE, ALARM = "table", "alarm.txt"


class Head(NamedTuple):
    """Who a rank is: its process, ABSENT, RUNNING or LEFT, its rank, how often it said that it lives, and until when
    (monotonic s) it said that it would take.
    """

    pid: int
    state: int
    rank: int
    beats: int
    allowed_until: int


class Record(NamedTuple):
    """A call: its place in the rank's order, its site (which says on what group), its number on the group (0 for a
    message, which has none), the elements and the root that all ranks must give (-1 for none; of a message the peer),
    whether it has ended, and a digest of all calls on the group until it.
    """

    sequence: int
    site: int
    number: int
    elements: int
    root: int
    ended: int
    digest: int


HEAD = struct.Struct("<5Q")


def table_of(folder: Path, ranks: int, create: bool = False) -> mmap.mmap:
    """The table of so many ranks in a folder, mapped."""
    flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if create else 0)
    handle = os.open(folder / TABLE, flags, 0o600)
    try:
        if create:
            os.ftruncate(handle, PAGE + STRIDE * ranks)
        return mmap.mmap(handle, PAGE + STRIDE * ranks)
    finally:
        os.close(handle)


def place(slot: int) -> int:
    """Where the part of a rank starts, bytes."""
    return PAGE + STRIDE * slot


def read_head(table: mmap.mmap, slot: int) -> Head:
    """Who the rank of a slot is."""
    return Head(*HEAD.unpack_from(table, place(slot)))


def place_and_root(site: int, root: int) -> int:
    """Both in one number, as records have them: it is known before the call. root: -2 or more."""
    return site | (root + 2) << 32


def read_calls(table: mmap.mmap, slot: int, most: int = SLOTS) -> list[Record]:
    """The last calls of a rank, the latest last."""
    start = place(slot)
    (ended,) = struct.unpack_from("<Q", table, start + ENDED)
    calls = [_call(ended, *CALL.unpack_from(table, start + RING + 64 * k)) for k in range(SLOTS)]
    return sorted(call for call in calls if call.sequence)[-most:]


def _call(ended: int, sequence: int, site_and_root: int, number: int, elements: int, digest: int) -> Record:
    site, root = site_and_root & 0xFFFFFFFF, (site_and_root >> 32) - 2
    return Record(sequence, site, number, elements, root, int(sequence <= ended), digest)


def write_call(table: mmap.mmap, slot: int, call: Record) -> None:
    """Put a call where a rank would, as its last one; ranks do it quicker (`Watch._recorder`)."""
    numbers = (call.sequence, place_and_root(call.site, call.root), call.number, call.elements, call.digest)
    CALL.pack_into(table, place(slot) + RING + 64 * (call.sequence % SLOTS), *numbers)
    struct.pack_into("<Q", table, place(slot) + ENDED, call.sequence - (not call.ended))


def read_numbers(table: mmap.mmap, slot: int) -> tuple[int, ...]:
    """The number of the latest operation of a rank on each of its groups."""
    return struct.unpack_from(f"<{MOST_GROUPS}Q", table, place(slot) + GROUPS)


def alarmed(table: mmap.mmap) -> bool:
    """Whether the watcher has found that ranks of this node wait for what cannot come."""
    return table[0] != 0


def is_ending(table: mmap.mmap) -> bool:
    """Whether the watcher ends the job."""
    return table[1] != 0


def set_ending(table: mmap.mmap) -> None:
    """Tell the ranks of the node that the job is ended."""
    table[1] = 1


def somebody_listens(table: mmap.mmap) -> bool:
    """Whether ranks end by themselves when they are told that the job is ended."""
    return table[2] != 0


def set_listening(table: mmap.mmap) -> None:
    """Say that this rank does."""
    table[2] = 1


def set_alarm(table: mmap.mmap, on: bool) -> None:
    """Tell the ranks of the node, or that it is over."""
    table[0] = on
