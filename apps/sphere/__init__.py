"""Shallow water on a rotating sphere."""
