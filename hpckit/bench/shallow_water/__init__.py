"""Shallow water: against a plain copy, against JAX, and 2 ranks against 1."""
