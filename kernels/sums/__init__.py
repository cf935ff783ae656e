"""Sums that do not depend on the order of the summands, nor on how many ranks share them."""

from hpckit.kernels.sums.dispatch import bin_sums, combine, exponent_above
from hpckit.kernels.sums.products import combine_products, exponents, product_sums

__all__ = ["bin_sums", "combine", "combine_products", "exponent_above", "exponents", "product_sums"]
