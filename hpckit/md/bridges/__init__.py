"""Potentials from elsewhere: Python functions of all that is near a particle, and calculators of ASE."""
