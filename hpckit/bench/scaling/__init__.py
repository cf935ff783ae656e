"""Scaling studies of any app."""
