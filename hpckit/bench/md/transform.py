"""A Fourier transform of 256^3 real values and back on all ranks, against SciPy's on one, in turn."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from mpi4py import MPI
from scipy import fft as scipy_fft

from hpckit.bench.ranks import against_one, answer
from hpckit.comm.mesh import Mesh
from hpckit.tensors.fourier import FFT

SAME = 1e-12


def case(n: int, rounds: int) -> dict[str, Any]:
    """Times of a transform and its inverse: on all ranks, on every rank alone in turn, on every rank alone at once."""
    whole = np.random.default_rng(1).normal(size=(n, n, n))
    with Mesh(MPI.COMM_WORLD, z=0, y=1, x=1) as mesh:
        fft = FFT(mesh, whole.shape)
        part = np.ascontiguousarray(whole[fft.layout.slices(mesh.rank)])
        off = np.abs(fft.backward(fft.forward(part)) - part).max()
        exact = scipy_fft.rfftn(whole)[fft.spectrum.slices(mesh.rank)]
        off = max(off, np.abs(fft.forward(part) - exact).max() / np.abs(exact).max())
        assert off < SAME, off
        timed = against_one(
            MPI.COMM_WORLD,
            lambda: fft.backward(fft.forward(part)),
            lambda: scipy_fft.irfftn(scipy_fft.rfftn(whole), s=whole.shape),
            1,
            rounds,
        )
    return {"key": "fft_2ranks_vs_scipy", "steps": 1, "cells": n**3, **timed}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
