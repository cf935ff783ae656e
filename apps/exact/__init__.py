"""Exact solutions that runs are measured against: NumPy alone, each with its paper."""
