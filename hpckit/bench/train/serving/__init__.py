"""Serving: our engine against the memory, against transformers, and any server under load."""
