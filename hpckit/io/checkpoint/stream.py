"""Arrays as byte streams in page-aligned memory for direct disk writes, a few pieces at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hpckit.io.checkpoint.hashes import PIECE, Hasher
from hpckit.kernels.aligned import pages

PAGE = 4096
SLAB = 1 << 20  # bytes that are copied at once out of an array with gaps
BUFFERS = 5  # pieces under way between copying, hashing and writing
Taken = tuple[memoryview, str]


def flat(block: np.ndarray) -> np.ndarray:
    """A C-contiguous array as bytes."""
    return block.reshape(-1).view(np.uint8)


def slabs(block: np.ndarray) -> Iterator[np.ndarray]:
    """Parts of the array in the order of its elements, of at most about `SLAB` bytes each."""
    dim, inner = block.ndim, block.itemsize
    while dim > 1 and inner * block.shape[dim - 1] <= SLAB:
        dim -= 1
        inner *= block.shape[dim]
    if block.ndim == 0 or block.size == 0:
        yield block
        return
    # Dims before `dim - 1` one by one, `dim - 1` in runs, those after it whole.
    run = max(1, SLAB // inner)
    for outer in np.ndindex(*block.shape[: dim - 1]):
        rows = block[outer]
        for first in range(0, len(rows), run):
            yield rows[first : first + run]


class _Stopped(Exception):
    """The consumer of the pieces has failed."""


class Stream:
    """Yields the bytes of arrays in pieces with their hashes; a thread copies and hashes ahead of the consumer.

    Contiguous aligned arrays are not copied. Memory: `BUFFERS` pieces, whatever the size of the arrays, in `buffers`:
    passing this list from stream to stream saves fresh pages, which the system would fill with 0.
    """

    def __init__(self, begin: Callable[[], Hasher], buffers: list[np.ndarray] | None = None) -> None:
        self._begin = begin  # a hash
        self._buffers = [] if buffers is None else buffers
        self._free: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
        self._used = 0
        self._ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stop = False

    def run(self, blocks: list[np.ndarray], take: Callable[[int, int, memoryview, str], None]) -> None:
        """Call `take(number of the block, offset in its bytes, bytes, hash)` for every piece of every block."""
        producer = threading.Thread(target=self._produce, args=(blocks,), daemon=True)
        producer.start()
        try:
            while (item := self._ready.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                number, offset, data, digest, buffer = item
                take(number, offset, data, digest)
                if buffer is not None:
                    self._free.put(buffer)
        finally:
            self._stop = True
            while producer.is_alive():  # the producer may wait for a buffer
                self._free.put(pages(0))
                producer.join(0.01)

    def _produce(self, blocks: list[np.ndarray]) -> None:
        try:
            for number, block in enumerate(blocks):
                self._produce_block(number, block)
            self._put(None)
        except _Stopped:
            pass
        except BaseException as error:
            self._ready.put(error)

    def _produce_block(self, number: int, block: np.ndarray) -> None:
        if block.flags.c_contiguous and (block.ctypes.data % PAGE == 0 or block.nbytes < PAGE):
            view = flat(block).data
            for offset in range(0, len(view), PIECE):
                data = view[offset : offset + PIECE]
                hasher = self._begin()
                hasher.update(data)
                self._put((number, offset, data, hasher.hexdigest(), None))
            return
        buffer, filled, offset, hasher = self._buffer(), 0, 0, self._begin()
        for slab in slabs(block):
            room = buffer[filled : filled + slab.nbytes].view(block.dtype).reshape(slab.shape)
            np.copyto(room, slab)
            begin, filled = filled, filled + slab.nbytes
            hasher.update(buffer.data[begin : min(filled, PIECE)])  # while it is in a cache
            if filled >= PIECE:
                rest, full = buffer[PIECE:filled], buffer
                buffer, filled = self._buffer(), filled - PIECE
                buffer[:filled] = rest
                self._put((number, offset, full.data[:PIECE], hasher.hexdigest(), full))
                hasher = self._begin()
                hasher.update(buffer.data[:filled])
                offset += PIECE
        if filled:
            self._put((number, offset, buffer.data[:filled], hasher.hexdigest(), buffer))
        else:
            self._free.put(buffer)

    def _put(self, item: Any) -> None:
        if self._stop:
            raise _Stopped
        self._ready.put(item)

    def _buffer(self) -> np.ndarray:
        if self._used < BUFFERS:
            if self._used == len(self._buffers):
                self._buffers.append(pages(PIECE + 2 * SLAB))
            self._used += 1
            return self._buffers[self._used - 1]
        buffer = self._free.get()
        if self._stop:
            raise _Stopped
        return buffer
