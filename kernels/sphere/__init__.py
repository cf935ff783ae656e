"""Shallow water on the panels of a cubed sphere."""
