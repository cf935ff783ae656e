"""Kernels of normalization: layer norm and root mean square norm."""
