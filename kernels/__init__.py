"""Kernels: pure functions of arrays and numbers, one folder an operation, one file a kind of processor."""
