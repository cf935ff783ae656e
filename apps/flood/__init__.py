"""The flood app."""
