"""Checkpoints: numbered generations that cannot be torn and load on any number of ranks."""
