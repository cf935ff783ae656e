"""The weather app."""
