"""Cells and neighbor lists: columns of particles sorted by z, clusters of eight, and who is within reach of whom."""
