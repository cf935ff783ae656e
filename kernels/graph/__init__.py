"""Graphs of pointwise operations and shifts: their derivatives, and the kernels that are generated for them."""
