"""The checksum of words on the host."""

from hpckit.kernels.checksum.simd import checksum

__all__ = ["checksum"]
