"""Sums over the particles of all ranks: quick, or without rounding, with the same bits however ranks share them."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from hpckit.kernels.sums import bin_sums, combine, exponent_above


def add_ranks(comm: MPI.Comm, columns: np.ndarray, count: int, exact: bool) -> np.ndarray:
    """Collective: the sums of the columns of [n, k] over the rows of all ranks: float64[k].

    exact: rounded once at the end (`kernels.sums`); count: at least the rows of all ranks. inf and nan stay what they
    are.
    """
    if not exact:
        sums = columns.sum(axis=0)
        comm.Allreduce(MPI.IN_PLACE, sums, op=MPI.SUM)
        return sums
    largest = np.abs(columns).max(axis=0, initial=0.0)
    largest[~np.isfinite(largest)] = np.inf  # MPI's maximum may lose NaN, which is not above any number
    comm.Allreduce(MPI.IN_PLACE, largest, op=MPI.MAX)
    if not np.isfinite(largest).all():
        return np.where(np.isfinite(largest), 0.0, np.nan)
    exponents = [exponent_above(float(value)) for value in largest]
    bins = np.array([bin_sums(columns[:, k], exponent, count) for k, exponent in enumerate(exponents)])
    comm.Allreduce(MPI.IN_PLACE, bins, op=MPI.SUM)
    return np.array([combine(bins[k], exponent, count) for k, exponent in enumerate(exponents)])
