"""Kernels: pure functions of arrays and numbers, one folder per operation, one file per kind of processor.

The folder of an operation has `reference.py` (NumPy: definition and test oracle), `simd.py` (Numba) and, if a GPU
form exists, `cuda.py`, whose functions have the same names and parameters; `dispatch.py` selects the form for the
arrays (`forms`). Of grids: `stencil`, `euler` (the atmosphere), `flood`, `shallow_water`, `pack` (slabs for messages);
of `particles`; of `nn`; of any array: `sums`, `checksum`, `noise`, `peaks`. `compile` has the compiler's options and
what kernels are made of.
"""
