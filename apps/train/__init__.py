"""The training app."""
