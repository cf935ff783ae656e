"""A checksum of 64-bit words: quick, and no single word may change unseen."""

from hpckit.kernels.checksum.simd import checksum

__all__ = ["checksum"]
