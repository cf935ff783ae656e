"""Molecules and charges of a run: their settings, and what is made of them."""
