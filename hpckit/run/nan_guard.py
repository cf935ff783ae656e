"""A guard against checkpoints of a lost solution: values that are not finite are found before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hpckit.comm.agree import first_of_ranks
from hpckit.errors import BlowUpError
from hpckit.io.checkpoint.state import Piece, State

if TYPE_CHECKING:
    from mpi4py import MPI

__communicates__ = True  # its frames are not call sites


def require_finite(comm: MPI.Comm, step: int, state: State) -> None:
    """Collective: raise `BlowUpError` on every rank if a value of the state is not finite.

    Without it all kept generations could hold a solution lost between two checks. The cost is one reading of the
    state; the error names the first such array and element of the lowest rank.
    """
    own = next(filter(None, map(_lost, state.pieces)), None)
    found = first_of_ranks(comm, own)
    if found is None:
        return
    rank, (name, element, value) = found
    raise BlowUpError(
        f"{name} is not finite, but {value}",
        where=f"rank {rank}, step {step}, {name}[{', '.join(map(str, element))}]",
        likely="the time step is too long, or the initial state too violent",
        do="lower the time step; earlier checkpoints are intact, and this state was not saved",
    )


def _lost(piece: Piece) -> tuple[str, list[int], str] | None:
    """The first element of a piece that is not finite: name, index in the global array, value."""
    block = piece.block
    if block.dtype.kind not in "fc":
        return None
    with np.errstate(all="ignore"):
        if np.isfinite(block.sum(dtype=np.result_type(block.dtype, np.float64))):
            return None  # a value that is not finite makes the sum so; but a sum of finite values may overflow, too
    places = np.argwhere(~np.isfinite(block))
    if not len(places):
        return None
    place = tuple(map(int, places[0]))
    return piece.name, [a + b for a, b in zip(place, piece.start, strict=True)], str(block[place])
