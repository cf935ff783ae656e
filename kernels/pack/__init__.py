"""Slabs of an array: packed into a buffer, unpacked from it, added, copied to the other end.

A slab takes some layers of one dim and all of the others. Seen as array[outer, n, inner], with n the dim of the slab,
outer all dims before it and inner all after it, that is one shape for every dim of every grid.
"""

from __future__ import annotations

from hpckit.kernels.pack.dispatch import slab_kernels

__all__ = ["slab_kernels"]
