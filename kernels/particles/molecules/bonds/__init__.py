"""Bonds: which slots they join, and their forces."""
