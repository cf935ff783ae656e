"""Mixing over terrain; see `reference`."""
