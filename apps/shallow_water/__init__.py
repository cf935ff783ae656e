"""The shallow-water app."""
