"""SNAP: energies that are linear or quadratic in the bispectrum of the density of neighbors."""
