"""Particles on the ranks of a mesh: where they live, their migration and their ghosts."""
