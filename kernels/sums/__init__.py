"""Sums that do not depend on the order of the summands, nor on how many ranks share them."""

from hpckit.kernels.sums.dispatch import bin_sums, combine, exponent_above

__all__ = ["bin_sums", "combine", "exponent_above"]
