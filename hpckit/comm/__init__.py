"""The ranks of a mesh and the memory they share: all effects of MPI, nodes and devices."""
