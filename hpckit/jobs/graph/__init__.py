"""Graphs of tasks: their state, and the drivers that run them."""
