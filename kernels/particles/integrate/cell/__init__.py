"""Particles in a tilted cell: straight coordinates, wrapping, and maps of places and velocities."""
