"""Benchmarks: us and a rival in turn, in one process or one minute, printed as ratios (above 1 is better for us)."""
