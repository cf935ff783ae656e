"""Interactions of more than two particles: metals and silicon."""
