"""Tabulated potentials on a GPU: the functions of `tabulated` for one pair, a row of the table by one load or two."""

from __future__ import annotations

import math

import numpy as np

from hpckit.kernels.compile.jit import inlined
from hpckit.kernels.particles.cuda_records import load_record

NAN = math.nan


@inlined
def force(r2, p, table):
    """-dE/dr / r."""
    t = min(max((r2 - p[2]) * p[3], 0.0), p[4])
    x = t % 1.0
    a, b, c, d = load_record(table, np.uint64(p[5] + 2.0 * (t - x)) * np.uint64(4))
    return a + x * (b + x * (c + x * d)) if r2 >= p[2] else NAN


@inlined
def energy_and_force(r2, p, table):
    """E and -dE/dr / r."""
    t = min(max((r2 - p[2]) * p[3], 0.0), p[4])
    x = t % 1.0
    row = np.uint64(p[5] + 2.0 * (t - x)) * np.uint64(4)
    a, b, c, d = load_record(table, row + np.uint64(4))
    energy = a + x * (b + x * (c + x * d)) if r2 >= p[2] else NAN
    a, b, c, d = load_record(table, row)
    return energy, a + x * (b + x * (c + x * d)) if r2 >= p[2] else NAN
