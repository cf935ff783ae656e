"""Which vectors of neighbors have a pair in reach of each particle of a group, Numba: listed before they are computed,
since a branch for each vector, taken in half of the cases, costs more than distances in float32.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from hpckit.kernels.compile import intrinsics
from hpckit.kernels.compile import lanes as vectors
from hpckit.kernels.compile.jit import inlined, jit
from hpckit.kernels.particles.cells.constants import CLUSTER, FAR
from hpckit.kernels.particles.charged.clusters.reference import GROUP
from hpckit.kernels.particles.loops import REORDERED

TILE = 3 * CLUSTER
MARGIN = 1e-6  # of reach and extent, thrice what float32 may miss in a distance


@cache
def hit_finder(kind: str, n: int, in_pairs: bool) -> Any:
    """The kernel find_hits(tiles, tile, longest2, others, masks, first, stop, found) for tiles of a kind ("d" or "f")
    and vectors of n neighbors; in_pairs: an odd list has a vector without hits behind it.
    """
    lanes, spread = vectors.lanes(kind, n), vectors.lanes("f", n).broadcast
    load, broadcast = lanes.load, lanes.broadcast
    bits, single, join, low_bits = intrinsics.bits, intrinsics.single, intrinsics.join, (1 << n) - 1
    number = np.float32 if kind == "f" else np.float64

    @inlined
    def two_from(tiles, tile, x, y, z):
        """Two particles seen from a place, each in n lanes."""
        return (
            join(spread(np.float32(tiles[tile] - x)), spread(np.float32(tiles[tile + 1] - x))),
            join(spread(np.float32(tiles[tile + 8] - y)), spread(np.float32(tiles[tile + 9] - y))),
            join(spread(np.float32(tiles[tile + 16] - z)), spread(np.float32(tiles[tile + 17] - z))),
        )

    @inlined
    def twice(value):
        return join(value, value)

    @inlined(math=REORDERED)
    def hits_of_two(a, b, mask, within):
        """Bits of n neighbors near the first particle, and near the second, where the mask allows them."""
        dx, dy, dz = a[0] - b[0], a[1] - b[1], a[2] - b[2]
        hits = np.int64(bits(dx * dx + (dy * dy + dz * dz) < within))
        hits &= (mask & low_bits) | (mask >> CLUSTER & low_bits) << n
        return hits & low_bits, hits >> n

    def find_hits(tiles, tile, longest2, others, masks, first, stop, found):
        """Write a list for each particle of a group: its length, then slot and bits of each vector. There may be some
        too many, as distances are in float32, but none too few.
        """
        x, y, z, extent = number(0.0), number(0.0), number(0.0), number(0.0)
        for i in range(GROUP - 1, -1, -1):
            if abs(tiles[tile + i]) < number(0.5 * FAR):
                x, y, z = tiles[tile + i], tiles[tile + i + 8], tiles[tile + i + 16]
        for i in range(GROUP):
            if abs(tiles[tile + i]) < number(0.5 * FAR):
                extent = max(extent, abs(tiles[tile + i] - x), abs(tiles[tile + i + 8] - y))
                extent = max(extent, abs(tiles[tile + i + 16] - z))
        reach = math.sqrt(longest2)
        edge = reach + MARGIN * (reach + extent)
        within = twice(spread(np.float32(edge * edge)))
        low, high = two_from(tiles, tile, x, y, z), two_from(tiles, tile + 2, x, y, z)
        room = len(found) // GROUP
        # Unsigned: of other indices each is tested for counting from the end.
        n0, n1, n2, n3 = np.uint64(1), np.uint64(room + 1), np.uint64(2 * room + 1), np.uint64(3 * room + 1)
        vx, vy, vz = broadcast(x), broadcast(y), broadcast(z)
        for k in range(np.uint64(first), np.uint64(stop)):
            other, mask = np.int64(others[k]), np.int64(masks[k])
            for part in range(0, CLUSTER, n):
                j, s = TILE * other + part, CLUSTER * other + part
                b = (
                    twice(single(load(tiles, j) - vx)),
                    twice(single(load(tiles, j + 8) - vy)),
                    twice(single(load(tiles, j + 16) - vz)),
                )
                h0, h1 = hits_of_two(low, b, mask >> part, within)
                h2, h3 = hits_of_two(high, b, mask >> (2 * CLUSTER + part), within)
                found[n0], found[n1], found[n2], found[n3] = s << 8 | h0, s << 8 | h1, s << 8 | h2, s << 8 | h3
                n0, n1 = n0 + np.uint64(h0 != 0), n1 + np.uint64(h1 != 0)
                n2, n3 = n2 + np.uint64(h2 != 0), n3 + np.uint64(h3 != 0)
        if in_pairs:  # the last without another one goes with itself
            for last in (np.int64(n0), np.int64(n1), np.int64(n2), np.int64(n3)):
                found[last] = found[last - 1] >> 8 << 8
        found[0], found[room] = np.int64(n0), np.int64(n1) - room
        found[2 * room], found[3 * room] = np.int64(n2) - 2 * room, np.int64(n3) - 3 * room

    return jit(find_hits, key=("find_hits", kind, n, in_pairs), math=REORDERED, borrowed=True)
