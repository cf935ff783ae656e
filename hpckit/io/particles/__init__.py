"""Particles in files: LAMMPS data and dump, extended XYZ, H5MD."""
