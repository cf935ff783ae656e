"""Stencils by hand and as traced models, and gradients of these, against copies, C and JAX."""
