"""Angles, dihedrals and impropers: which slots they bind, and their forces."""
