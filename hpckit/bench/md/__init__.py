"""Molecular dynamics beside LAMMPS."""
