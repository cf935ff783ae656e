"""Particles that a script makes or changes before its first run."""
