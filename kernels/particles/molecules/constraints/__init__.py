"""Distances in molecules that stay: the forces that hold them."""
