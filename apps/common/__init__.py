"""Shared parts of apps: grid runs, the time loop, topography, validation, scaling studies."""
