"""The table of a node: the current state of each rank, in memory shared with the watcher. Standard library only.

A file of a page with the alarm and the end, then STRIDE bytes per rank: its head, the number of its calls that are
over, the number of its latest operation on each communicator, and a ring of its last calls, 64 bytes apart. The file
`sites-R` beside it gives the meaning of rank R's numbers, one line each: communicators, and call sites with their
operation.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

PAGE, STRIDE = 4096, 8192
# Byte offsets in the part of a rank: the number of its calls that are over, its group numbers, its ring; ring size.
ENDED, GROUPS, RING, SLOTS = 56, 64, 4096, 64
MOST_GROUPS = (RING - GROUPS) // 8
MOST_SITES = 4096
# A call in the ring: its number among the rank's calls, `place_and_root`, its number on the group, elements, digest.
CALL = struct.Struct("<3QqQ")
ABSENT, RUNNING, LEFT = range(3)  # the life of a rank
TABLE, ALARM = "table", "alarm.txt"


class Head(NamedTuple):
    """The head of a rank: its process, ABSENT, RUNNING or LEFT, its rank, the number of its beats, and the time
    (monotonic s) until which it may stand still.
    """

    pid: int
    state: int
    rank: int
    beats: int
    allowed_until: int


class CallRecord(NamedTuple):
    """A call: its number among the rank's calls, its site (which gives the group), its number on the group (0 for a
    message, which has none), the elements and the root that all ranks must agree on (-1 for none; the peer of a
    message), whether it has ended, and a digest of all calls on the group up to it.
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
    """The table of `ranks` ranks in a folder, mapped."""
    flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if create else 0)
    handle = os.open(folder / TABLE, flags, 0o600)
    try:
        if create:
            os.ftruncate(handle, PAGE + STRIDE * ranks)
        return mmap.mmap(handle, PAGE + STRIDE * ranks)
    finally:
        os.close(handle)


def place(slot: int) -> int:
    """The offset of the part of a rank, bytes."""
    return PAGE + STRIDE * slot


def read_head(table: mmap.mmap, slot: int) -> Head:
    """The head of the rank of a slot."""
    return Head(*HEAD.unpack_from(table, place(slot)))


def place_and_root(site: int, root: int) -> int:
    """Site and root in one number, as in records: it is known before the call. root: -2 or more."""
    return site | (root + 2) << 32


def read_calls(table: mmap.mmap, slot: int, most: int = SLOTS) -> list[CallRecord]:
    """The last calls of a rank, the latest last."""
    start = place(slot)
    (ended,) = struct.unpack_from("<Q", table, start + ENDED)
    calls = [_call(ended, *CALL.unpack_from(table, start + RING + 64 * k)) for k in range(SLOTS)]
    return sorted(call for call in calls if call.sequence)[-most:]


def _call(ended: int, sequence: int, site_and_root: int, number: int, elements: int, digest: int) -> CallRecord:
    site, root = site_and_root & 0xFFFFFFFF, (site_and_root >> 32) - 2
    return CallRecord(sequence, site, number, elements, root, int(sequence <= ended), digest)


def write_call(table: mmap.mmap, slot: int, call: CallRecord) -> None:
    """Write the last call of a rank, as the rank itself would; ranks have a faster way (`Watch._recorder`)."""
    numbers = (call.sequence, place_and_root(call.site, call.root), call.number, call.elements, call.digest)
    CALL.pack_into(table, place(slot) + RING + 64 * (call.sequence % SLOTS), *numbers)
    struct.pack_into("<Q", table, place(slot) + ENDED, call.sequence - (not call.ended))


def read_numbers(table: mmap.mmap, slot: int) -> tuple[int, ...]:
    """The number of the latest operation of a rank on each of its groups."""
    return struct.unpack_from(f"<{MOST_GROUPS}Q", table, place(slot) + GROUPS)


def alarmed(table: mmap.mmap) -> bool:
    """Whether the watcher has found a stall of this node that cannot resolve itself."""
    return table[0] != 0


def is_ending(table: mmap.mmap) -> bool:
    """Whether the watcher ends the job."""
    return table[1] != 0


def set_ending(table: mmap.mmap) -> None:
    """Signal to the ranks of the node that the job is being ended."""
    table[1] = 1


def somebody_listens(table: mmap.mmap) -> bool:
    """Whether a rank of the node checks `is_ending`, and so ends by itself."""
    return table[2] != 0


def set_listening(table: mmap.mmap) -> None:
    """Record that this rank checks `is_ending`."""
    table[2] = 1


def set_alarm(table: mmap.mmap, on: bool) -> None:
    """Raise the alarm for the ranks of the node, or clear it."""
    table[0] = on
