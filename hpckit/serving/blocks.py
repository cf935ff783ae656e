"""Blocks of keys and values: who holds them, what they hold, and which is given away first.

A block has as many owners as texts that read it. One without an owner keeps what it holds until it is needed: the one
that was let go longest ago is given away first. A full block is known by a hash of the whole text up to its end, so a
text that begins as another one did finds those blocks again (Kwon et al., "PagedAttention", 2023).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np

from hpckit.kernels.nn.paged.pages import PAGE


def chain(tokens: Sequence[int], salt: str = "") -> Iterator[bytes]:
    """The hash of each full block of a text: of the one before it, and of its tokens. salt: a tenant who shares no
    block with others.
    """
    last = hashlib.sha256(salt.encode()).digest()
    for begin in range(0, len(tokens) - PAGE + 1, PAGE):
        own = np.array(tokens[begin : begin + PAGE], "<u4").tobytes()
        last = hashlib.sha256(last + own).digest()
        yield last


class Blocks:
    """So many blocks, all free at first."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._owners = [0] * count
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(count))  # the next to be given away first
        self._hash: dict[int, bytes] = {}
        self._known: dict[bytes, int] = {}

    @property
    def free(self) -> int:
        """Blocks without an owner."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks with an owner."""
        return self.count - len(self._free)

    @property
    def known(self) -> int:
        """Blocks that can be found by their hash."""
        return len(self._known)

    def find(self, hashes: Sequence[bytes]) -> list[int]:
        """The known blocks of the longest prefix of a text; finding them adds no owner."""
        found = []
        for one in hashes:
            if one not in self._known:
                break
            found.append(self._known[one])
        return found

    def hold(self, blocks: Sequence[int]) -> None:
        """Add an owner to each of these blocks, as `find` returned them."""
        for block in blocks:
            if not self._owners[block]:
                del self._free[block]
            self._owners[block] += 1

    def take(self) -> int | None:
        """A free block, now empty and with one owner; None if no block is free."""
        if not self._free:
            return None
        block, _ = self._free.popitem(last=False)
        if block in self._hash:
            del self._known[self._hash.pop(block)]
        self._owners[block] = 1
        return block

    def keep(self, block: int, known_as: bytes) -> None:
        """The block is full and can be found by this hash, unless another block has the hash already."""
        if known_as not in self._known and block not in self._hash:
            self._known[known_as], self._hash[block] = block, known_as

    def release(self, blocks: Sequence[int]) -> None:
        """Remove an owner from each block of a text; blocks at its end are reused before those at its beginning."""
        for block in reversed(blocks):
            if self._owners[block] < 1:
                raise ValueError(f"block {block} has no owner")
            self._owners[block] -= 1
            if not self._owners[block]:
                self._free[block] = None
                if block not in self._hash:
                    self._free.move_to_end(block, last=False)

    def check(self) -> None:
        """Raise `AssertionError` unless owners, free blocks and hashes agree."""
        assert set(self._free) == {block for block, owners in enumerate(self._owners) if not owners}
        assert {block: one for one, block in self._known.items()} == self._hash
        assert min(self._owners, default=0) >= 0
