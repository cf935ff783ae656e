"""Potentials from elsewhere: Python functions, what fits their parameters, and calculators of ASE."""
