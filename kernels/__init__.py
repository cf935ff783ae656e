"""Kernels: pure functions of arrays and numbers, one folder an operation, one file a kind of processor.

The folder of an operation has `reference.py` (NumPy: the oracle and the documentation), `simd.py` (Numba) and, where a
GPU does it, `cuda.py`, whose functions have the same names and parameters; `dispatch.py` takes the one that suits the
arrays (`forms`). Of grids: `stencil`, `euler` (the atmosphere), `flood`, `shallow_water`, `pack` (slabs for messages);
of `particles`; of `nn`; of any array: `sums`, `checksum`, `noise`, `peaks`. `compile` has the compiler's options and
what kernels are made of.
"""
