"""Atmospheres: the columns that the weather apps start from, and what their runs have in common."""
