"""LAMMPS input scripts as settings of this app, and the random velocities with which they start."""
