"""A fast checksum of 64-bit words that detects every change of a single word."""

from hpckit.kernels.checksum.simd import checksum

__all__ = ["checksum"]
