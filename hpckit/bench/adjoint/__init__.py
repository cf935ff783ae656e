"""Traced models and their gradients against hand-written loops and JAX."""
