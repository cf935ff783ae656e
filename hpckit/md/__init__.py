"""Molecular dynamics on a mesh of ranks."""
