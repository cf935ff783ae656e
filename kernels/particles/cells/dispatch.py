"""Chooses the form of the cell kernels by the arrays they are given: here those for NumPy arrays."""

from hpckit.kernels.particles.cells.simd import (
    assign_columns,
    corners,
    ghost_slots,
    list_builder,
    pack_tiles,
    place,
    sort_columns,
    split_clusters,
)

__all__ = [
    "assign_columns",
    "corners",
    "ghost_slots",
    "list_builder",
    "pack_tiles",
    "place",
    "sort_columns",
    "split_clusters",
]
