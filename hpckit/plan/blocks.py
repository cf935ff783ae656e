"""The one block rule: how n cells are divided into parts. All code that assigns ownership calls it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def block(n: int, parts: int, index: int) -> tuple[int, int]:
    """Start and size of block `index` of `n` cells in `parts` blocks; the remainder goes to the low blocks.

    Sizes differ by at most 1; blocks tile 0..n in order.
    """
    size, rest = divmod(n, parts)
    return index * size + min(index, rest), size + (index < rest)


def block_starts(n: int, parts: int) -> npt.NDArray[np.int64]:
    """The starts of all blocks and n: int64[parts + 1]."""
    index = np.arange(parts + 1, dtype=np.int64)
    size, rest = divmod(n, parts)
    return index * size + np.minimum(index, rest)


def owner(n: int, parts: int, cell: int) -> int:
    """The block that holds `cell`, 0 <= cell < n."""
    size, rest = divmod(n, parts)
    in_large_blocks = rest * (size + 1)
    if cell < in_large_blocks:
        return cell // (size + 1)
    return rest + (cell - in_large_blocks) // size
